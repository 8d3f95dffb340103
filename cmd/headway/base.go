package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/headway-run/headway/reconcile/repo"
)

// basis is the plan at the ref that a diff is held against.
type basis struct {
	*project
	behind bool // the plan's own commit does not descend from it
}

// basis reads the plan at a ref of this repository.
func (p *project) basis(ctx context.Context, ref string) (*basis, error) {
	commit, err := resolve(p.root, "--base", ref)
	if err != nil {
		return nil, err
	}
	other, r, err := openCommit(p.env, p.root, commit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := &basis{project: other}
	head := p.commit
	if head == workTreeName { // made on top of what is checked out
		w, err := repo.Folder(p.root)
		if err == nil {
			head, err = w.Head()
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			return nil, repoFailure(err)
		}
	}
	relation, err := r.Relate(ctx, commit, head)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.Unsupported {
		return nil, &exit{code: exitError, err: fmt.Errorf("whether %.12s descends from %s cannot be told in a shallow clone", head, ref), hint: "fetch the whole history: git fetch --unshallow, or fetch-depth: 0 in the workflow"}
	}
	if err != nil {
		return nil, repoFailure(err)
	}
	b.behind = relation != repo.Same && relation != repo.Ahead
	return b, nil
}

// resolve finds the commit that a ref means in a repository on disk: a full hash, or a name in the order in which Git looks
// for it, and last a branch of origin, which is all that a fresh clone has of most. An error says which flag named it.
func resolve(root, flag, ref string) (string, error) {
	none := func(err error) error {
		return &exit{code: exitError, err: fmt.Errorf("%s %q: %w", flag, ref, err), hint: "name a branch, a remote branch (origin/main), a tag or a full hash of this repository; git fetch brings what is not here yet"}
	}
	if ref == "" || strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || strings.ContainsRune("~^:?*[\\\x7f", r) }) || strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return "", none(errors.New("it is no name of a ref"))
	}
	g, err := git.PlainOpenWithOptions(root, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return "", none(err)
	}
	if plumbing.IsHash(ref) {
		return ref, nil // whoever reads it says whether it is here
	}
	for _, form := range slices.Concat(plumbing.RefRevParseRules, []string{"refs/remotes/origin/%s"}) {
		if form == "%s" && ref != "HEAD" && !strings.HasPrefix(ref, "refs/") {
			continue // it would name any file beside the refs
		}
		found, err := g.Reference(plumbing.ReferenceName(fmt.Sprintf(form, ref)), true)
		if errors.Is(err, plumbing.ErrReferenceNotFound) {
			continue
		}
		if err != nil {
			return "", none(err)
		}
		h := found.Hash()
		for range 8 { // an annotated tag names a commit, or another tag
			tag, err := g.TagObject(h)
			if err != nil {
				break
			}
			h = tag.Target
		}
		return h.String(), nil
	}
	return "", none(errors.New("there is no such ref here"))
}
