package repo

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxTagPack bounds what one tag may bring, bytes: its commit lies on a branch that is here already, or it is none of ours.
const maxTagPack = 64 << 20

// Ref is a name that the repository lists, and the id of the object that it points at: of an annotated tag, the tag object.
type Ref struct {
	Name   string // full: refs/tags/v1
	Object string
}

// Refs lists the refs whose full names begin with one of the prefixes, by name. Symbolic ones are left out. Nothing is
// fetched: a moved tag shows as another object. An error is an *Error.
func (r *Repo) Refs(ctx context.Context, prefixes ...string) ([]Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	give, err := r.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	var found []*plumbing.Reference
	if r.remote.local() {
		found, err = r.remote.localRefs()
	} else {
		r.lists.Add(1)
		found, err = r.remote.list(ctx, r.o.Auth)
	}
	if err != nil {
		return nil, trouble(r.remote.shown, late(ctx, err))
	}
	var out []Ref
	for _, ref := range found {
		name := ref.Name().String()
		if ref.Type() == plumbing.HashReference && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = append(out, Ref{name, ref.Hash().String()})
		}
	}
	slices.SortFunc(out, func(a, b Ref) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// take waits for the fetching side; the caller gives it back.
func (r *Repo) take(ctx context.Context) (give func(), err error) {
	select {
	case <-r.own:
		return func() { r.own <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, trouble(r.remote.shown, ctx.Err())
	}
}

// Object gives the type (tag, commit, tree, blob) and the raw bytes of what a ref points at, as Refs listed it. What is not
// here is fetched, into a name of its own that is dropped afterwards: no ref of ours ever follows a tag that moves. When it
// moved since it was listed, the error is of class MissingObject; of more than max bytes, of class TooLarge.
func (r *Repo) Object(ctx context.Context, ref Ref, max int64) (kind string, raw []byte, err error) {
	h, err := parseHash(ref.Object)
	if err != nil {
		return "", nil, err
	}
	t, raw, err := r.reads.readTyped(plumbing.AnyObject, h, max)
	if _, missing := asClass(err, MissingObject); missing && !r.remote.local() {
		if err := r.bringRef(ctx, ref); err != nil {
			return "", nil, trouble(r.remote.shown, late(ctx, err))
		}
		t, raw, err = r.reads.readTyped(plumbing.AnyObject, h, max)
	}
	if err != nil {
		return "", nil, err
	}
	return t.String(), raw, nil
}

func (r *Repo) bringRef(ctx context.Context, ref Ref) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	give, err := r.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if name := plumbing.ReferenceName(ref.Name); name.Validate() != nil || strings.ContainsAny(ref.Name, "*\x00") || !strings.HasPrefix(ref.Name, "refs/") {
		return &Error{Class: Unsupported, Remote: r.remote.shown, Text: "the ref " + shorten(ref.Name) + " has a name that Git does not allow", Hint: "delete it"}
	}
	into := plumbing.ReferenceName("refs/brought/" + ref.Object)
	r.fetches.Add(1)
	n, err := r.remote.fetchInto(ctx, r.reads, ref.Name, into, r.o.Auth, min(r.o.MaxPack, maxTagPack))
	r.bytes.Add(n)
	if err != nil {
		return err
	}
	if err := r.remote.bare.RemoveReference(into); err != nil {
		return err
	}
	return r.reads.refresh()
}
