package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/reconcile/signers"
	"github.com/headway-run/headway/runners/bucket"
)

// tags is the repository as package tag sees it.
type tags struct{ git *repo.Repo }

var _ tag.Git = tags{}

// Tags implements tag.Git.
func (t tags) Tags(ctx context.Context) (out []tag.Ref, err error) {
	refs, err := t.git.Refs(ctx, tag.Prefixes()...)
	for _, r := range refs {
		out = append(out, tag.Ref(r))
	}
	return out, err
}

// Tip implements tag.Git: the branch is asked for anew.
func (t tags) Tip(ctx context.Context) (string, error) {
	switch o := t.git.Poll(ctx).(type) {
	case repo.Unchanged:
		return o.Head.Hash, nil
	case repo.Advanced:
		return o.New.Hash, nil
	case repo.Rewritten:
		return o.New.Hash, nil
	case repo.WentBack:
		return o.New.Hash, nil
	case repo.BranchGone:
		return "", errors.New("the protected branch is gone: nothing is judged until it is back")
	case repo.Unreachable:
		return "", o.Err
	}
	return "", errors.New("the branch could not be read")
}

// Object implements tag.Git.
func (t tags) Object(ctx context.Context, r tag.Ref) (string, []byte, error) {
	kind, raw, err := t.git.Object(ctx, repo.Ref(r), tag.MaxObject)
	if errors.Is(err, plan.ErrTooLarge) { // the object, not the pack that was to bring it
		return "", nil, &tag.TooLarge{Size: tag.MaxObject + 1}
	}
	if kind != "tag" {
		raw = nil
	}
	return kind, raw, err
}

// Descends implements tag.Git.
func (t tags) Descends(ctx context.Context, base, commit string) (bool, error) {
	rel, err := t.git.Relate(ctx, base, commit)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.MissingObject {
		return false, nil
	}
	return err == nil && (rel == repo.Same || rel == repo.Ahead), err
}

// File implements tag.Git.
func (t tags) File(_ context.Context, commit, path string, max int64) ([]byte, error) {
	tree, err := t.git.Tree(commit)
	if err != nil {
		return nil, err
	}
	b, err := tree.Read(path, max)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.NotAllowed || errors.Is(err, plan.ErrTooLarge) {
		return nil, fs.ErrNotExist
	}
	return b, err
}

// LastChange implements tag.Git.
func (t tags) LastChange(ctx context.Context, tip, path string) (tag.Change, error) {
	commit, beside, err := t.git.LastChange(ctx, tip, path)
	if err != nil {
		return tag.Change{}, err
	}
	c := tag.Change{Commit: commit, Beside: beside}
	c.Payload, c.Signature, err = t.git.Signed(commit)
	return c, err
}

// keysOf fills package tag's port with the signatures of reconcile/signers.
func keysOf() tag.Keys {
	return tag.Keys{Root: signers.Bare, Signers: func(file []byte) (tag.Verify, error) {
		a, err := signers.Parse(file)
		if err != nil {
			return nil, err
		}
		return func(payload, signature []byte, now time.Time) (string, string, error) {
			who, err := a.Check(payload, signature, now)
			if e, ok := errors.AsType[*signers.Error](err); ok {
				code := tag.Code(e.Code)
				if e.Code == "NotValidNow" {
					code = tag.NotValid
				}
				return who.Name, who.Fingerprint, &tag.KeyError{Code: code, Text: e.Text}
			}
			return who.Name, who.Fingerprint, err
		}, nil
	}}
}

// plans is the repository as the lane sees it. roots are the keys that may change lane.yaml: it says which stores are written
// and which programs run, so the right to push is not enough.
type plans struct {
	git   *repo.Repo
	roots []string
}

var _ deploylane.Repository = plans{}

// Lane implements deploylane.Repository.
func (p plans) Lane(ctx context.Context, commit string) (deploylane.Config, error) {
	b, err := tag.Rooted(ctx, tags{p.git}, keysOf(), p.roots, commit, deploylane.File)
	if u, ok := errors.AsType[*tag.Untrusted](err); ok {
		return deploylane.Config{}, &deploylane.Stop{Code: "NoLane", Text: "commit " + short(commit) + ": " + u.Error() + "; then release under a new version"}
	}
	if err != nil {
		return deploylane.Config{}, err
	}
	c, err := deploylane.Read(deploylane.File, b, []string{"local"})
	if err != nil {
		return c, &deploylane.Stop{Code: "NoLane", Text: "commit " + short(commit) + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return c, nil
}

// Jobs implements deploylane.Repository.
func (p plans) Jobs(_ context.Context, commit string) ([]plan.Job, error) {
	tree, err := p.git.Tree(commit)
	if err != nil {
		return nil, err
	}
	pl, _ := plan.Load(tree)
	if errs := pl.Errors(); len(errs) > 0 {
		if i := slices.IndexFunc(errs, func(q plan.Problem) bool { return q.Code == "Unreadable" }); i >= 0 {
			return nil, errors.New(errs[i].String()) // no answer, which is asked for again
		}
		return nil, &deploylane.Stop{Code: "PlanMismatch", Text: "the plan of commit " + short(commit) + " has an error: " + errs[0].String()}
	}
	return pl.Jobs, nil
}

// File implements deploylane.Repository.
func (p plans) File(ctx context.Context, commit, path string) ([]byte, error) {
	b, err := tag.Rooted(ctx, tags{p.git}, keysOf(), p.roots, commit, path)
	if u, ok := errors.AsType[*tag.Untrusted](err); ok {
		return nil, &deploylane.Stop{Code: "NoLane", Text: "commit " + short(commit) + ": " + u.Error() + "; then release under a new version"}
	}
	return b, err
}

// Bundle implements deploylane.Repository.
func (p plans) Bundle(ctx context.Context, commit, folder string) (string, bucket.Body, error) {
	tree, err := p.git.Tree(commit)
	if err != nil {
		return "", nil, err
	}
	b, err := repo.Pack(ctx, tree, folder)
	return b.Tree, bytes.NewReader(b.Bytes), err
}

func short(s string) string { return s[:min(len(s), 12)] }
