package repo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"
)

func (o *origin) ref(name string, h plumbing.Hash) {
	o.t.Helper()
	if err := o.st.SetReference(plumbing.NewHashReference(plumbing.ReferenceName(name), h)); err != nil {
		o.t.Fatal(err)
	}
}

func (o *origin) tagObject(name, kind, target, message string) plumbing.Hash {
	o.t.Helper()
	return o.object(plumbing.TagObject, []byte(fmt.Sprintf("object %s\ntype %s\ntag %s\ntagger Ann <ann@example.com> 1700000000 +0000\n\n%s\n", target, kind, name, message)))
}

// TestRefs: tags are listed as they are and their objects come byte for byte, near and far, also when one was moved, tags
// no commit, or lies on no branch.
func TestRefs(t *testing.T) {
	o := newOrigin(t)
	a := o.commit("main", "a", files("x", "1"))
	off := o.commitTree(o.tree(files("x", "2")), "off", a)
	first, second := o.tagObject("release/m/v1.0.0", "commit", a, "one"), o.tagObject("release/m/v1.0.0", "commit", off, "two")
	nested := o.tagObject("release/m/v1.0.1", "tag", first.String(), "nested")
	o.ref("refs/tags/release/m/v1.0.0", first)
	o.ref("refs/tags/release/m/v1.0.1", nested)
	o.ref("refs/tags/release/m/v1.0.2", plumbing.NewHash(a))
	o.ref("refs/tags/other", first)
	w := serve(t, o)
	for name, remote := range map[string]string{"near": o.dir, "far": w.address()} {
		o.ref("refs/tags/release/m/v1.0.0", first)
		r := watch(t, Options{Remote: remote, Branch: "main"})
		if _, err := r.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := func() (out []string) {
			refs, err := r.Refs(t.Context(), "refs/tags/release/", "refs/tags/stage/")
			if err != nil {
				t.Fatal(err)
			}
			for _, ref := range refs {
				kind, raw, err := r.Object(t.Context(), ref, 1<<16)
				if err != nil {
					t.Fatal(err)
				}
				if got := plumbing.ComputeHash(plumbing.ObjectType(map[string]int8{"tag": 4, "commit": 1}[kind]), raw); got.String() != ref.Object {
					t.Errorf("%s: %s: the bytes hash to %s", name, ref.Name, got)
				}
				out = append(out, ref.Name+" "+kind+" "+ref.Object)
			}
			return out
		}
		want := []string{"refs/tags/release/m/v1.0.0 tag " + first.String(), "refs/tags/release/m/v1.0.1 tag " + nested.String(), "refs/tags/release/m/v1.0.2 commit " + a}
		if d := cmp.Diff(want, seen()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		old := Ref{"refs/tags/release/m/v1.0.0", first.String()}
		o.ref("refs/tags/release/m/v1.0.0", second)
		want[0] = "refs/tags/release/m/v1.0.0 tag " + second.String()
		if d := cmp.Diff(want, seen()); d != "" {
			t.Errorf("%s, moved (-want +got):\n%s", name, d)
		}
		if _, _, err := r.Object(t.Context(), old, 1<<16); err != nil {
			t.Errorf("%s: the object that a moved tag had is here: %v", name, err)
		}
		if _, _, err := r.Object(t.Context(), old, 10); class(err) != TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if rel, err := r.Relate(t.Context(), off, a); err != nil || rel == Ahead {
			t.Errorf("%s: a commit off the branch: %v, %v", name, rel, err)
		}
	}
	r := watch(t, Options{Remote: w.address(), Branch: "main"})
	if _, _, err := r.Object(t.Context(), Ref{"refs/tags/release/m/v1.0.0", strings.Repeat("1", 40)}, 10); class(err) != MissingObject {
		t.Errorf("moved since it was listed: %v", err)
	}
	if _, _, err := r.Object(t.Context(), Ref{"refs/tags/gone", strings.Repeat("1", 40)}, 10); class(err) != Offline {
		t.Errorf("gone since it was listed: %v", err)
	}
	w.down.Store(true)
	if _, err := r.Refs(t.Context(), "refs/tags/"); class(err) != Offline {
		t.Errorf("nobody answers: %v", err)
	}
}
