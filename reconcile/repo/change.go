package repo

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/headway-run/headway/plan"
)

// maxChanges bounds the changes of one file that lie beside each other, and the files whose last change is kept.
const maxChanges = 100

// LastChange finds the commit that gave a file the content that it has at tip: the one whose file is that of tip, which
// changed it against each of its parents, and before which every other change of the file in tip's history lies. Where a
// merge took an older content back, or two changes lie beside each other, no commit is that, and beside names one that
// contradicts. A file that is not at tip answers fs.ErrNotExist.
//
// It follows no first parents: whoever may push a merge may choose their order. The last answer for each path is kept, since
// a branch rests most of the time.
func (r *Repo) LastChange(ctx context.Context, tip, path string) (commit, beside string, err error) {
	if _, err := parseHash(tip); err != nil {
		return "", "", err
	}
	r.mu.Lock()
	last := r.changes[path]
	r.mu.Unlock()
	if last.tip == tip {
		return last.commit, last.beside, nil
	}
	commit, beside, err = r.lastChange(ctx, tip, path)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changes == nil || len(r.changes) >= maxChanges {
			r.changes = map[string]change{}
		}
		r.changes[path] = change{tip, commit, beside}
	}
	return commit, beside, err
}

// change is an answer of LastChange.
type change struct{ tip, commit, beside string }

func (r *Repo) lastChange(ctx context.Context, tip, path string) (commit, beside string, err error) {
	h := &changes{s: r.reads, path: path, at: map[string]plan.Entry{}}
	want, err := h.entry(tip)
	if err != nil {
		return "", "", err
	}
	if want.Hash == "" {
		return "", "", &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
	}
	shallow, err := r.reads.shallow()
	if err != nil {
		return "", "", err
	}
	commit = tip
	for {
		same, err := h.sameParent(ctx, commit, want, shallow)
		if err != nil {
			return "", "", err
		}
		if same == "" {
			break
		}
		commit = same
	}
	since, err := r.reads.brought(ctx, commit, tip, maxWalk)
	if err != nil {
		return "", "", err
	}
	others := []string{commit}
	for _, c := range since {
		changed, err := h.changed(ctx, c)
		if err != nil {
			return "", "", err
		}
		if changed {
			others = append(others, c)
		}
		if len(others) > maxChanges {
			return commit, c, nil
		}
	}
	return h.last(ctx, others, want)
}

// last picks the change that all others lie before.
func (h *changes) last(ctx context.Context, found []string, want plan.Entry) (commit, beside string, err error) {
	for _, c := range found {
		before := true
		for _, o := range found {
			rel, err := h.s.relate(ctx, o, c)
			if err != nil {
				return "", "", err
			}
			if before = rel == Same || rel == Ahead; !before {
				break
			}
		}
		e, err := h.entry(c)
		if err != nil {
			return "", "", err
		}
		if before && e == want {
			return c, "", nil
		}
	}
	return found[0], found[1], nil // one alone was before itself
}

// changes knows what a path is in each commit.
type changes struct {
	s    *store
	path string
	at   map[string]plan.Entry
}

// entry is what the path is in a commit; the zero Entry where it is not there.
func (h *changes) entry(commit string) (plan.Entry, error) {
	if e, ok := h.at[commit]; ok {
		return e, nil
	}
	c, err := h.s.commit(plumbing.NewHash(commit))
	if err != nil {
		return plan.Entry{}, err
	}
	t := &Tree{hash: plumbing.NewHash(c.Tree), from: h.s}
	e := plan.Entry{}
	l, err := t.folder(parent(h.path))
	_, noFolder := asClass(err, NotAllowed)
	switch {
	case errors.Is(err, fs.ErrNotExist) || noFolder:
	case err != nil:
		return plan.Entry{}, err
	default:
		if i, ok := l.byName[h.path[strings.LastIndexByte(h.path, '/')+1:]]; ok {
			e = l.entries[i]
		}
	}
	h.at[commit] = e
	return e, nil
}

// sameParent is a parent in which the path is what it is in want, or "".
func (h *changes) sameParent(ctx context.Context, commit string, want plan.Entry, shallow map[string]bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if shallow[commit] {
		return "", &Error{Class: Unsupported, Text: "the copy is shallow, and who changed " + shorten(h.path) + " last lies beyond its end",
			Hint: "complete it: git fetch --unshallow"}
	}
	c, err := h.s.commit(plumbing.NewHash(commit))
	if err != nil {
		return "", err
	}
	for _, p := range c.Parents {
		if e, err := h.entry(p); err != nil || e == want {
			return p, err
		}
	}
	return "", nil
}

// changed says whether a commit changed the path against all of its parents.
func (h *changes) changed(ctx context.Context, commit string) (bool, error) {
	e, err := h.entry(commit)
	if err != nil {
		return false, err
	}
	c, err := h.s.commit(plumbing.NewHash(commit))
	if err != nil {
		return false, err
	}
	if len(c.Parents) == 0 {
		return e != plan.Entry{}, nil
	}
	same, err := h.sameParent(ctx, commit, e, nil)
	return same == "", err
}
