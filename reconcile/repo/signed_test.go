package repo

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestSplitSignature: what is left is what was signed, byte for byte; text in a message is no signature.
func TestSplitSignature(t *testing.T) {
	head := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n"
	tail := "\nsubject\n\ngpgsig in a message\n  gpgsig x\n"
	sig := "gpgsig -----BEGIN SSH SIGNATURE-----\n line\n \n -----END SSH SIGNATURE-----\n"
	want := "-----BEGIN SSH SIGNATURE-----\nline\n\n-----END SSH SIGNATURE-----\n"
	merge := "mergetag object x\n gpgsig y\n -----BEGIN PGP SIGNATURE-----\n"
	for _, c := range []struct {
		name, commit, payload, signature string
		n                                int
	}{
		{"signed", head + sig + tail, head + tail, want, 1},
		{"unsigned", head + tail, head + tail, "", 0},
		{"in the middle", head + sig + merge + "encoding x\n" + tail, head + merge + "encoding x\n" + tail, want, 1},
		{"two", head + sig + sig + tail, head + tail, want, 2},
		{"for sha256 too", head + sig + "gpgsig-sha256 a\n b\n" + tail, head + tail, want, 1},
		{"no message", head + sig, head, want, 1},
	} {
		payload, signature, n := splitSignature([]byte(c.commit))
		if d := cmp.Diff([]any{c.payload, c.signature, c.n}, []any{string(payload), string(signature), n}); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestTwoSignatures: one commit, two signatures, nobody knows which one counts.
func TestTwoSignatures(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", "a", files("x", "1"))
	two := o.object(plumbing.CommitObject, []byte("tree "+o.tree(files("x", "1")).String()+"\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\ngpgsig a\ngpgsig b\n\nm\n"))
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	if _, _, err := r.Signed(two.String()); class(err) != Corrupt {
		t.Errorf("two signatures: %v", err)
	}
}

// TestBroughtAgainstGit: what is new between any two commits of a random history is what git rev-list says.
func TestBroughtAgainstGit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := newOrigin(t)
		tree := o.tree(files("x", "1"))
		var all []string
		for range rapid.IntRange(2, 9).Draw(rt, "commits") {
			var parents []string
			for range min(len(all), rapid.IntRange(0, 2).Draw(rt, "parents")) {
				if p := rapid.SampledFrom(all).Draw(rt, "parent"); !slices.Contains(parents, p) {
					parents = append(parents, p)
				}
			}
			all = append(all, o.commitTree(tree, "c", parents...))
		}
		o.point("main", all[0])
		r := watch(t, Options{Remote: o.dir, Branch: "main"})
		base, head := rapid.SampledFrom(all).Draw(rt, "base"), rapid.SampledFrom(all).Draw(rt, "head")
		got, err := r.Brought(t.Context(), base, head, 100)
		if err != nil {
			rt.Fatal(err)
		}
		mb, err := r.MergeBase(t.Context(), head, base)
		if err != nil {
			rt.Fatal(err)
		}
		// git ends with 1 where there is none.
		if common := strings.Fields(gitCLI(t, o.dir, "rev-list", "--ignore-missing", base, "--not", head)); mb == "" {
			if len(common) != len(strings.Fields(gitCLI(t, o.dir, "rev-list", base))) {
				rt.Fatalf("no merge base of %s and %s", head, base)
			}
		} else if all := strings.Fields(gitCLI(t, o.dir, "merge-base", "--all", head, base)); !slices.Contains(all, mb) {
			rt.Fatalf("merge base of %s and %s: %s, want one of %q", head, base, mb, all)
		}
		want := strings.Fields(gitCLI(t, o.dir, "rev-list", base+".."+head))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("%s..%s: got %q, want %q", base, head, got, want)
		}
		if len(want) > 0 {
			if _, err := r.Brought(t.Context(), base, head, len(want)-1); class(err) != TooLarge {
				rt.Fatalf("one too many: %v", err)
			}
		}
	})
	o := newOrigin(t)
	a := o.commit("main", "a", files("x", "1"))
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	if got, err := r.Brought(t.Context(), strings.Repeat("1", 40), a, 10); err != nil || len(got) != 1 {
		t.Errorf("a base that is not there: %q, %v", got, err)
	}
}

// TestTroubleIsAlike: the same trouble has the same words at each poll, so that it is said once; our own port is not among
// them.
func TestTroubleIsAlike(t *testing.T) {
	at := func(port int) error {
		return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{Port: 443}, Err: errors.New("reset")}
	}
	if a, b := trouble("x", at(40001)).Error(), trouble("x", at(40002)).Error(); a != b || !strings.Contains(a, "reset") {
		t.Errorf("%s\n%s", a, b)
	}
}
