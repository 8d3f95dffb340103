package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/reconcile/signers"
)

// maxBrought bounds the commits of one move whose signatures are checked.
const maxBrought = 10_000

// vouched adds the refusals of guard.signers. Who may sign is read from the commit that is in force, never from one that is
// judged: whoever could add a key there could let himself in. A person who accepts any history answers for signatures too.
func vouched(ctx context.Context, d *reconcile.Desired, git *repo.Repo, over string, anyHistory bool, now time.Time) error {
	refuse := func(code, hint, format string, args ...any) {
		d.Refusals = append(d.Refusals, reconcile.Refusal{Code: code, Whole: true, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	if over == d.Commit {
		return nil
	}
	if file := d.Plan.Config.Guard.Signers; file != "" {
		if ok, err := namesSigners(d, git, over == "" && !anyHistory, file, now, refuse); err != nil || !ok {
			return err
		}
	}
	if over == "" || anyHistory {
		return nil
	}
	before, err := git.Tree(over)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.MissingObject {
		return nil // history was rewritten, and is refused for that
	}
	if err != nil {
		return err
	}
	was, _ := plan.Load(configOnly{before})
	file := was.Config.Guard.Signers
	if file == "" {
		return nil
	}
	allowed, why, err := signersAt(git, over, file)
	if err != nil {
		return err
	}
	hint := fmt.Sprintf("those in %s at %.12s, which is in force, may sign: git commit -S; headway apply --accept-history follows a commit whoever signed it", file, over)
	if why != "" {
		refuse("SignersUnreadable", hint, "guard.signers names %s, and in commit %.12s, which is in force, %s", file, over, why)
		return nil
	}
	brought, err := git.Brought(ctx, over, d.Commit, maxBrought)
	if e, ok := errors.AsType[*repo.Error](err); ok && (e.Class == repo.TooLarge || e.Class == repo.Unsupported) {
		refuse("NotSigned", e.Hint, "who signed the commits after %.12s cannot be said: %s", over, e.Text)
		return nil
	}
	if err != nil {
		return err
	}
	first, bad := "", 0
	for _, hash := range slices.Backward(brought) {
		why, err := notSigned(git, hash, allowed, now)
		if err != nil {
			return err
		}
		if why != "" {
			if bad++; first == "" {
				first = why
			}
		}
	}
	if bad > 0 {
		more := ""
		if bad > 1 {
			more = fmt.Sprintf("; and %d more like it", bad-1)
		}
		refuse("NotSigned", hint, "%s%s", first, more)
	}
	return nil
}

// namesSigners holds the file of signers that a commit itself names: what could not be read later would let nobody in any more. The
// first commit that is ever accepted has to be signed by one of its own.
func namesSigners(d *reconcile.Desired, git *repo.Repo, first bool, file string, now time.Time, refuse func(code, hint, format string, args ...any)) (ok bool, err error) {
	allowed, why, err := signersAt(git, d.Commit, file)
	if err != nil {
		return false, err
	}
	if why != "" {
		refuse("SignersUnreadable", "mend the file, in the form of ssh-keygen's allowed signers", "guard.signers names %s, and in commit %.12s %s", file, d.Commit, why)
		return false, nil
	}
	if !first {
		return true, nil
	}
	if why, err = notSigned(git, d.Commit, allowed, now); err != nil {
		return false, err
	}
	if why != "" {
		refuse("NotSigned", "sign it: git commit --amend -S; or headway apply --accept-history, which takes it whoever signed it",
			"no commit was accepted before, so %s of %.12s itself says who may sign, and its newest commit has to be signed by one of them: %s", file, d.Commit, why)
		return false, nil
	}
	d.Warnings = append(d.Warnings, plan.Problem{Pos: plan.Pos{File: plan.ConfigFile}, Severity: plan.Warning, Code: "SignersTrusted",
		Text: fmt.Sprintf("no commit was accepted before, so %.12s is taken since one whom its own %s allows has signed it, and those before it whoever did; from now on %[2]s of the commit in force says who may", d.Commit, file)})
	return true, nil
}

// notSigned says why a commit's signature does not count, or "".
func notSigned(git *repo.Repo, hash string, allowed *signers.Allowed, now time.Time) (string, error) {
	c, err := git.Commit(hash)
	if err != nil {
		return "", err
	}
	payload, signature, err := git.Signed(hash)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.Corrupt {
		return fmt.Sprintf("commit %.12s by %s: %s", hash, c.Author, e.Text), nil
	}
	if err != nil {
		return "", err
	}
	if _, err = allowed.Check(payload, signature, now); err != nil {
		return fmt.Sprintf("commit %.12s by %s: %v", hash, c.Author, err), nil
	}
	return "", nil
}

// signersAt reads the file of allowed signers of a commit; why says what is wrong with it.
func signersAt(git *repo.Repo, commit, file string) (a *signers.Allowed, why string, err error) {
	tree, err := git.Tree(commit)
	if err != nil {
		return nil, "", err
	}
	b, err := tree.Read(file, signers.MaxFile)
	e, known := errors.AsType[*repo.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "it is not there", nil
	case known && (e.Class == repo.NotAllowed || e.Class == repo.TooLarge):
		return nil, e.Text, nil
	case err != nil:
		return nil, "", err
	}
	if a, err = signers.Parse(b); err != nil {
		return nil, err.Error(), nil
	}
	return a, "", nil
}

// configOnly is a tree of which nothing but headway.yaml is read.
type configOnly struct{ tree plan.Tree }

// Entries implements plan.Tree.
func (c configOnly) Entries(dir string) ([]plan.Entry, error) {
	if dir != "" {
		return nil, fs.ErrNotExist
	}
	es, err := c.tree.Entries("")
	return slices.DeleteFunc(es, func(e plan.Entry) bool { return e.Name != plan.ConfigFile }), err
}

// Read implements plan.Tree.
func (c configOnly) Read(path string, max int64) ([]byte, error) { return c.tree.Read(path, max) }
