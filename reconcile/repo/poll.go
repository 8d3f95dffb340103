package repo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Outcome is what a poll found: exactly one of [Unchanged], [Advanced], [Rewritten], [WentBack], [BranchGone] and
// [Unreachable].
type Outcome interface{ outcome() }

// Unchanged: the branch is where it was.
type Unchanged struct{ Head Commit }

// Advanced: New descends from Old. Old is the zero Commit at the first sight of the branch.
type Advanced struct{ Old, New Commit }

// Rewritten: New does not descend from Old, nor Old from New: history was replaced.
type Rewritten struct{ Old, New Commit }

// WentBack: New is an ancestor of Old.
type WentBack struct{ Old, New Commit }

// BranchGone: the repository answered and has no such branch. Last is the last good commit, still readable; zero when
// none was ever seen. Err is of class BranchNotFound and names the nearest branch.
type BranchGone struct {
	Last Commit
	Err  *Error
}

// Unreachable: there is no answer, or none that can be used. Since is when this began. Last as in BranchGone.
type Unreachable struct {
	Since time.Time
	Last  Commit
	Err   *Error
}

func (Unchanged) outcome()   {}
func (Advanced) outcome()    {}
func (Rewritten) outcome()   {}
func (WentBack) outcome()    {}
func (BranchGone) outcome()  {}
func (Unreachable) outcome() {}

// Poll looks at the branch once, and fetches only when it moved. It remembers what it saw: after Rewritten or WentBack
// the next poll compares with the new place. Whoever accepts commits must therefore compare with the commit that it
// accepted (see Relate), and not rely on seeing every outcome.
func (r *Repo) Poll(ctx context.Context) Outcome {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	r.polls.Add(1)
	select {
	case <-r.own:
		defer func() { r.own <- struct{}{} }()
	case <-ctx.Done():
		return r.failed(ctx.Err())
	}
	tip, err := r.tip(ctx)
	if err != nil {
		return r.failed(late(ctx, err))
	}
	old := r.last()
	if old != nil && old.Hash == tip.String() {
		r.answered(*old)
		r.reads.rest()
		return Unchanged{Head: *old}
	}
	if tip, err = r.bring(ctx, tip, old); err != nil {
		return r.failed(late(ctx, err))
	}
	c, err := r.reads.commit(tip)
	if err != nil {
		return r.failed(err)
	}
	if old == nil {
		r.answered(c)
		return Advanced{New: c}
	}
	rel, err := r.reads.relate(ctx, old.Hash, c.Hash)
	if err != nil {
		return r.failed(err)
	}
	r.answered(c)
	switch rel {
	case Same:
		return Unchanged{Head: c}
	case Ahead:
		if !r.remote.local() {
			_ = r.tidy(ctx) // housekeeping: the poll has its answer, and the next fetch tries again
		}
		return Advanced{Old: *old, New: c}
	case Behind:
		return WentBack{Old: *old, New: c}
	}
	return Rewritten{Old: *old, New: c}
}

// late puts the deadline into an error that it caused: the library drops it on some ways out.
func late(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), err)
}

func (r *Repo) answered(head Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head, r.since = &head, time.Time{}
}

func (r *Repo) failed(err error) Outcome {
	e := trouble(r.remote.shown, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	var last Commit
	if r.head != nil {
		last = *r.head
	}
	if e.Class == BranchNotFound {
		r.since = time.Time{}
		return BranchGone{Last: last, Err: e}
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return Unreachable{Since: r.since, Last: last, Err: e}
}

// tip asks where the branch is.
func (r *Repo) tip(ctx context.Context) (plumbing.Hash, error) {
	r.mu.Lock()
	branch := r.branch
	r.mu.Unlock()
	if !r.remote.local() {
		r.lists.Add(1)
	}
	h, resolved, err := r.remote.tip(ctx, branch, r.o.Auth)
	if err != nil {
		return h, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.branch = resolved
	return h, nil
}

// bring makes sure that the tip's objects are here, and returns what the branch is at now: it may have moved since.
func (r *Repo) bring(ctx context.Context, tip plumbing.Hash, old *Commit) (plumbing.Hash, error) {
	if r.remote.local() {
		return tip, nil
	}
	r.fetches.Add(1)
	n, err := r.remote.fetch(ctx, r.reads, r.Branch(), r.o.Auth, r.o.MaxPack)
	r.bytes.Add(n)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if err := r.reads.refresh(); err != nil {
		return plumbing.ZeroHash, err
	}
	got, err := r.remote.fetched(r.Branch())
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if got.IsZero() || old != nil && got.String() == old.Hash {
		return plumbing.ZeroHash, &Error{Class: FetchDidNotMove, Remote: r.remote.shown,
			Text: fmt.Sprintf("the branch is at %s there, and the fetch brought nothing", tip), Hint: "if it stays so, remove the cache folder"}
	}
	return got, nil
}

// Relation is how a commit stands to another.
type Relation int

const (
	Diverged Relation = iota // neither descends from the other, or the other is not in this repository at all
	Same
	Ahead  // the commit descends from the other
	Behind // the commit is an ancestor of the other
)

// maxWalk bounds the commits that one comparison reads.
const maxWalk = 1_000_000

// Relate says how commit stands to base, both full hashes: Ahead when commit descends from base. A base that is not in
// the repository is Diverged, since the watched branch is here with all its history; a commit that is not is an error.
// In a shallow copy whose history ends before the answer, or that lacks base, it is an *Error of class Unsupported.
func (r *Repo) Relate(ctx context.Context, base, commit string) (Relation, error) {
	for _, h := range []string{base, commit} {
		if _, err := parseHash(h); err != nil {
			return Diverged, err
		}
	}
	return r.reads.relate(ctx, base, commit)
}

// walk goes through the ancestors of one commit, breadth first.
type walk struct {
	target string
	queue  []string
	seen   map[string]bool
	end    bool // of a shallow copy was met
	found  bool
}

func newWalk(from, target string) *walk {
	return &walk{target: target, queue: []string{from}, seen: map[string]bool{from: true}}
}

// step reads one commit and reports whether more may follow.
func (w *walk) step(s *store, shallow map[string]bool) (bool, error) {
	if w.found || len(w.queue) == 0 {
		return false, nil
	}
	at := w.queue[0]
	w.queue = w.queue[1:]
	if at == w.target {
		w.found = true
		return false, nil
	}
	c, err := s.commit(plumbing.NewHash(at))
	if err != nil {
		return false, err
	}
	if shallow[at] {
		w.end = true
		return len(w.queue) > 0, nil
	}
	for _, p := range c.Parents {
		if !w.seen[p] {
			w.seen[p] = true
			w.queue = append(w.queue, p)
		}
	}
	if len(w.seen) > maxWalk {
		return false, &Error{Class: TooLarge, Text: fmt.Sprintf("more than %d commits lie between %s and %s", maxWalk, at, w.target),
			Hint: "watch a branch with a shorter history"}
	}
	return len(w.queue) > 0, nil
}

// relate walks from both commits by turns, so that near relatives are found at the cost of their distance.
func (s *store) relate(ctx context.Context, base, commit string) (Relation, error) {
	if base == commit {
		return Same, nil
	}
	if _, err := s.commit(plumbing.NewHash(commit)); err != nil {
		return Diverged, err
	}
	shallow, err := s.shallow()
	if err != nil {
		return Diverged, err
	}
	beyond := &Error{Class: Unsupported, Text: "the copy is shallow, and how " + commit + " stands to " + base + " lies beyond its end",
		Hint: "complete it: git fetch --unshallow"}
	if _, err := s.commit(plumbing.NewHash(base)); err != nil {
		if e, ok := errors.AsType[*Error](err); !ok || e.Class != MissingObject {
			return Diverged, err
		}
		if len(shallow) > 0 {
			return Diverged, beyond // it may be one that was left out
		}
		return Diverged, nil
	}
	down, up := newWalk(commit, base), newWalk(base, commit)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return Diverged, err
		}
		a, err := down.step(s, shallow)
		if err != nil {
			return Diverged, err
		}
		b, err := up.step(s, shallow)
		if err != nil {
			return Diverged, err
		}
		switch {
		case down.found:
			return Ahead, nil
		case up.found:
			return Behind, nil
		}
		more = a || b
	}
	if down.end || up.end {
		return Diverged, beyond
	}
	return Diverged, nil
}
