package main

import (
	"errors"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// commitAll commits everything that lies in a folder of the demo's own making, and makes the repository at the first
// call. No git binary is needed. It is never used on a repository that is not ours.
func commitAll(dir, message string) (string, error) {
	r, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName("main")}})
	if errors.Is(err, git.ErrRepositoryAlreadyExists) {
		r, err = git.PlainOpen(dir)
	}
	if err != nil {
		return "", err
	}
	w, err := r.Worktree()
	if err != nil {
		return "", err
	}
	if err := w.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		return "", err
	}
	who := &object.Signature{Name: "headway demo", Email: "demo@example.com", When: time.Now()}
	hash, err := w.Commit(message, &git.CommitOptions{Author: who})
	return hash.String(), err
}
