package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

const workTreeName = "work tree"

// readProject reads the plan of the project that holds the working folder: of the files as they lie there, or with at
// of one commit of its repository. Problems of the files are in the project, not in the error.
func readProject(_ context.Context, e env, at string) (*project, error) {
	root, err := findRoot(e)
	if err != nil {
		return nil, err
	}
	if at != "" {
		p, r, err := openCommit(e, root, at)
		if err != nil {
			return nil, err
		}
		return p, r.Close()
	}
	tree, err := repo.Folder(root)
	if err != nil {
		return nil, repoFailure(err)
	}
	defer tree.Close()
	p := &project{env: e, root: root, commit: workTreeName}
	p.take(plan.Load(tree))
	_, below := os.Stat(filepath.Join(root, ".git")) // in a folder of a repository: no commit holds a plan there, which whoever needs one says
	if head, err := tree.Head(); err == nil && head != "" && below == nil {
		all, err := tree.Changes()
		if err != nil {
			return p, nil // what differs can't be told, so it is the work tree
		}
		switch p.differ = p.counting(all); {
		case len(p.differ) > 0:
		case len(all) == 0: // what was read is the commit
			p.commit = head
			r, err := repo.Open(repo.Options{Remote: root})
			if err == nil {
				err = errors.Join(p.emptied(r), r.Close())
			}
			if err != nil {
				return nil, repoFailure(err)
			}
		default:
			of, r, err := openCommit(e, root, head)
			if err != nil {
				return nil, err
			}
			return of, r.Close()
		}
	}
	return p, nil
}

// mostDiffer bounds how many changed files are named.
const mostDiffer = 20

// counting are the paths that decide what a plan says: headway.yaml, what a glob of plans matches, and what lies in a code folder of
// a job. A note beside them changes nothing, committed or not.
func (p *project) counting(paths []string) (out []string) {
	code := map[string]bool{}
	for i := range p.plan.Jobs {
		code[p.plan.Jobs[i].Code] = true
	}
	inCode := func(f string) bool {
		for dir := f; ; dir = path.Dir(dir) {
			if code[dir] || dir == "." {
				return code[dir]
			}
		}
	}
	whole := len(p.plan.Errors()) > 0 // of a file with an error nobody knows which code it names
	for _, f := range paths {
		if whole || p.plan.Config.Matches(f) || inCode(f) {
			if out = append(out, f); len(out) == mostDiffer {
				break
			}
		}
	}
	return out
}

// openCommit reads the plan of one commit of the repository at root: a full hash, or HEAD for what is checked out. The
// caller closes the repository.
func openCommit(e env, root, at string) (*project, *repo.Repo, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return nil, nil, &exit{code: exitError, err: fmt.Errorf("%s is not the root of a Git repository: plans are taken from commits", root),
			hint: "git init there and commit, or move headway.yaml to the root of the repository"}
	}
	r, err := repo.Open(repo.Options{Remote: root})
	if err != nil {
		return nil, nil, repoFailure(err)
	}
	if at == "HEAD" {
		w, err := repo.Folder(root)
		if err == nil {
			at, err = w.Head()
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			return nil, nil, repoFailure(errors.Join(err, r.Close()))
		}
		if at == "" {
			return nil, nil, errors.Join(&exit{code: exitError, err: fmt.Errorf("%s has no commit yet", root), hint: "git add and git commit the plan first"}, r.Close())
		}
	}
	p := &project{env: e, root: root}
	if err := p.load(r, at); err != nil {
		return nil, nil, errors.Join(repoFailure(err), r.Close())
	}
	return p, r, nil
}

// load reads the plan at a commit of an open repository.
func (p *project) load(r *repo.Repo, commit string) error {
	tree, err := r.Tree(commit)
	if err != nil {
		return err
	}
	guarded := &honest{tree: tree}
	read := plan.Load
	if p.plans != nil {
		read = p.plans.Load
	}
	p.take(read(guarded))
	p.commit = commit
	if err := guarded.failed(); err != nil {
		return err
	}
	return p.emptied(r)
}

// emptied takes a plan without jobs for what it is where its commit says that it is meant: neither a glob that matches no
// file any more nor a file without a job is wrong then.
func (p *project) emptied(r *repo.Repo) error {
	if len(p.plan.Jobs)+len(p.plan.Frozen) > 0 {
		return nil
	}
	message, err := commitMessage(r, p.commit)
	if err != nil || !repo.ParseTrailers(message).AllowEmpty {
		return err
	}
	meant := func(q plan.Problem) bool {
		return q.Code == "GlobMatchesNothing" || q.Code == "EmptyPlan" || q.Code == "NoJobs"
	}
	if !slices.ContainsFunc(p.plan.Errors(), func(q plan.Problem) bool { return !meant(q) }) {
		p.plan.Problems = slices.DeleteFunc(slices.Clone(p.plan.Problems), meant)
		p.problems = p.plan.Problems
	}
	return nil
}

// take keeps what was read. A plan without jobs is left to the guards where that is all that is wrong with it: they know
// whether there is anything to lose, and whether the commit says that it is meant.
func (p *project) take(pl *plan.Plan, problems []plan.Problem) {
	p.plan, p.problems = pl, problems
	p.checkRunners()
	var rest []plan.Problem
	for _, q := range pl.Problems {
		if q.Code != "EmptyPlan" {
			rest = append(rest, q)
		}
	}
	if len(pl.Errors()) == 1 && len(rest) < len(pl.Problems) {
		pl.Problems = rest
	}
}

// honest passes a tree through and remembers an answer that means "could not be read", as opposed to "is not there":
// a plan read with such a hole is no plan at all.
type honest struct {
	tree plan.Tree
	mu   sync.Mutex
	err  error
}

func (h *honest) note(err error) {
	class, ok := errors.AsType[*repo.Error](err)
	if !ok || class.Class == repo.NotAllowed || class.Class == repo.TooLarge {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
}

func (h *honest) failed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Entries implements plan.Tree.
func (h *honest) Entries(dir string) ([]plan.Entry, error) {
	e, err := h.tree.Entries(dir)
	h.note(err)
	return e, err
}

// Read implements plan.Tree.
func (h *honest) Read(path string, max int64) ([]byte, error) {
	b, err := h.tree.Read(path, max)
	h.note(err)
	return b, err
}

// bundler returns what makes sure that a job's code lies in the store: packed from the tree at the commit, never from
// the files on disk.
func bundler(b bucket.Bucket, tree plan.Tree) func(context.Context, *plan.Job) error {
	return func(ctx context.Context, j *plan.Job) error {
		if j.CodeTree == "" {
			return nil
		}
		key := record.CodeKey(j.CodeTree)
		page, err := b.List(ctx, key, "", 1)
		if err != nil {
			return err
		}
		if len(page.Items) == 1 && page.Items[0].Key == key {
			return nil
		}
		packed, err := repo.Pack(ctx, tree, j.Code)
		if err != nil {
			return err
		}
		if packed.Tree != j.CodeTree {
			return fmt.Errorf("the code of %s is tree %s, the plan was read with %s: read it again", j.Name, packed.Tree, j.CodeTree)
		}
		_, err = b.Put(ctx, key, bytes.NewReader(packed.Bytes), bucket.IfAbsent())
		if bucket.Is(err, bucket.Condition) {
			return nil // somebody else put the same bytes there
		}
		return err
	}
}

// repoFailure turns an error of the repository into a sentence with its hint.
func repoFailure(err error) error {
	if r, ok := errors.AsType[*repo.Error](err); ok {
		return &exit{code: exitError, err: err, hint: r.Hint}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &exit{code: exitError, err: err, hint: "is the folder there, and readable?"}
	}
	return err
}
