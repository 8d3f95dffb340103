package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
)

// Signed gives what the signature of a commit covers, and the signature as it stands there; both as bytes of the object
// itself. A commit without one has none. More than one signature is an *Error of class Corrupt: programs differ in which
// one they believe.
func (r *Repo) Signed(hash string) (payload, signature []byte, err error) {
	h, err := parseHash(hash)
	if err != nil {
		return nil, nil, err
	}
	b, err := r.reads.read(plumbing.CommitObject, h, maxCommit)
	if err != nil {
		return nil, nil, err
	}
	payload, signature, n := splitSignature(b)
	if n > 1 {
		return nil, nil, &Error{Class: Corrupt, Text: fmt.Sprintf("the commit %s has %d signatures", h, n), Hint: "make it again with one"}
	}
	return payload, signature, nil
}

// splitSignature takes the signatures out of a commit object, and counts those for SHA-1.
func splitSignature(commit []byte) (payload, signature []byte, n int) {
	drop, keep := false, false
	head := true
	for line := range bytes.Lines(commit) {
		switch {
		case !head:
		case len(line) == 1:
			head, drop = false, false
		case line[0] == ' ':
			if keep {
				signature = append(signature, line[1:]...)
			}
		case bytes.HasPrefix(line, []byte("gpgsig ")):
			n, drop, keep = n+1, true, true
			signature = append([]byte(nil), line[len("gpgsig "):]...)
		case bytes.HasPrefix(line, []byte("gpgsig-sha256 ")):
			drop, keep = true, false
		default:
			drop, keep = false, false
		}
		if !drop {
			payload = append(payload, line...)
		}
	}
	return payload, signature, n
}

// Brought lists the commits that head has and base has not, by full hash: what a move of the branch from base to head
// brings. With more than max it is an *Error of class TooLarge. A base that is not in the repository has nothing in
// common with head.
func (r *Repo) Brought(ctx context.Context, base, head string, max int) ([]string, error) {
	for _, h := range []string{base, head} {
		if _, err := parseHash(h); err != nil {
			return nil, err
		}
	}
	return r.reads.brought(ctx, base, head, max)
}

func (s *store) brought(ctx context.Context, base, head string, max int) ([]string, error) {
	shallow, err := s.shallow()
	if err != nil {
		return nil, err
	}
	// The ways from head mostly end at base. One that does not may have forked off before base: then all that base has
	// is taken away.
	found, ended, err := s.ancestors(ctx, head, base, shallow, maxWalk)
	if err != nil {
		return nil, err
	}
	if !ended {
		old, _, err := s.ancestors(ctx, base, "", shallow, maxWalk)
		if e, ok := errors.AsType[*Error](err); err != nil && !(ok && e.Class == MissingObject) {
			return nil, err
		}
		has := map[string]bool{}
		for _, h := range old {
			has[h] = true
		}
		kept := found[:0]
		for _, h := range found {
			if !has[h] {
				kept = append(kept, h)
			}
		}
		found = kept
	}
	if len(found) > max {
		return nil, &Error{Class: TooLarge, Text: fmt.Sprintf("%d commits are new, at most %d are looked at", len(found), max), Hint: "move the branch in smaller steps"}
	}
	return found, nil
}

// ancestors lists a commit and all before it, but for what lies behind stop. ended: every way ended at stop. A shallow
// copy's end is an *Error of class Unsupported.
func (s *store) ancestors(ctx context.Context, from, stop string, shallow map[string]bool, max int) (out []string, ended bool, err error) {
	queue, seen := []string{from}, map[string]bool{from: true}
	ended = true
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == stop {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		c, err := s.commit(plumbing.NewHash(at))
		if err != nil {
			return nil, false, err
		}
		if shallow[at] {
			return nil, false, &Error{Class: Unsupported, Text: "the copy is shallow, and which commits are new lies beyond its end", Hint: "complete it: git fetch --unshallow"}
		}
		if out = append(out, at); len(out) > max {
			return nil, false, &Error{Class: TooLarge, Text: fmt.Sprintf("more than %d commits lie before %s", max, from), Hint: "start the branch anew"}
		}
		ended = ended && len(c.Parents) > 0
		for _, p := range c.Parents {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return out, ended, nil
}
