package repo

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"
)

// MergeBase is the commit at which the history of a left that of b: one that both have and none of whose children both have.
// Where there are several (branches that were merged into each other), it is the one that was committed last. Empty: they have
// nothing in common. In a shallow copy whose history ends before the answer it is an *Error of class Unsupported.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	for _, h := range []string{a, b} {
		if _, err := parseHash(h); err != nil {
			return "", err
		}
	}
	s := r.reads
	shallow, err := s.shallow()
	if err != nil {
		return "", err
	}
	list, _, err := s.ancestors(ctx, b, "", shallow, maxWalk)
	if err != nil {
		return "", err
	}
	has := make(map[string]bool, len(list))
	for _, h := range list {
		has[h] = true
	}
	var best Commit
	for queue, seen := []string{a}, map[string]bool{a: true}; len(queue) > 0; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		c, err := s.commit(plumbing.NewHash(queue[0]))
		if err != nil {
			return "", err
		}
		if has[c.Hash] {
			if best.Hash == "" || c.Committed.After(best.Committed) {
				best = c
			}
			continue
		}
		if shallow[c.Hash] {
			return "", &Error{Class: Unsupported, Text: "the copy is shallow, and where " + a + " left " + b + " lies beyond its end", Hint: "complete it: git fetch --unshallow"}
		}
		for _, p := range c.Parents {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return best.Hash, nil
}
