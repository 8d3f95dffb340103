package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
)

// Both are the read side of a plan.
var (
	_ plan.Tree = (*Tree)(nil)
	_ plan.Tree = (*WorkTree)(nil)
)

func headTree(t *testing.T, r *Repo) *Tree {
	t.Helper()
	head, err := r.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := r.Tree(head.Hash)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func blobID(s string) string { return plumbing.ComputeHash(plumbing.BlobObject, []byte(s)).String() }

func TestTreeEntries(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		sub := strings.Repeat("ab", 20)
		content := files("a.yaml", "one", "a/b/c.txt", "two", "a-b", "three", "\x1b[31mred", "odd", "new\nline", "odd", "\xff\xfe", "odd", ".git~", "odd")
		content["run.sh"] = file{exec: true, body: "#!/bin/sh\n"}
		content["link"] = file{kind: plan.KindLink, body: "/etc/passwd"}
		content["module"] = file{kind: plan.KindSubmodule, body: sub}
		o.commit("main", "a", content)
		tr := headTree(t, r)
		got, err := tr.Entries("")
		if err != nil {
			t.Fatal(err)
		}
		want := []plan.Entry{
			{Name: "\x1b[31mred", Hash: blobID("odd")}, {Name: ".git~", Hash: blobID("odd")}, {Name: "a-b", Hash: blobID("three")},
			{Name: "a.yaml", Hash: blobID("one")}, {Name: "a", Kind: plan.KindDir, Hash: o.tree(files("b/c.txt", "two")).String()},
			{Name: "link", Kind: plan.KindLink, Hash: blobID("/etc/passwd")}, {Name: "module", Kind: plan.KindSubmodule, Hash: sub},
			{Name: "new\nline", Hash: blobID("odd")}, {Name: "run.sh", Exec: true, Hash: blobID("#!/bin/sh\n")}, {Name: "\xff\xfe", Hash: blobID("odd")},
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(plan.Entry{}, "Size")); d != "" {
			t.Errorf("entries (-want +got):\n%s", d)
		}
		if tr.Hash() != o.tree(content).String() || treeHash(got) != tr.Hash() {
			t.Errorf("hash %s, of the entries %s", tr.Hash(), treeHash(got))
		}
		for p, want := range map[string]string{"a/b/c.txt": "two", "new\nline": "odd", "\xff\xfe": "odd", "run.sh": "#!/bin/sh\n"} {
			if b, err := tr.Read(p, 100); err != nil || string(b) != want {
				t.Errorf("read %q: %q, %v", p, b, err)
			}
		}
		got[0].Name = "changed by the caller"
		if again, err := tr.Entries(""); err != nil || again[0].Name != "\x1b[31mred" {
			t.Errorf("the caller's change shows: %+v, %v", again[0], err)
		}
	})
}

func TestTreeRefusals(t *testing.T) {
	both(t, func(t *testing.T, o *origin, r *Repo) {
		content := files("a/b/c.txt", "two", "f", "12345")
		content["link"] = file{kind: plan.KindLink, body: "a"}
		content["module"] = file{kind: plan.KindSubmodule, body: strings.Repeat("ab", 20)}
		o.commit("main", "a", content)
		refuses(t, headTree(t, r))
	})
}

// refuses holds what every plan.Tree with a/b/c.txt, f of five bytes, the link and the module must refuse.
func refuses(t *testing.T, tr plan.Tree) {
	t.Helper()
	for _, p := range []string{"no", "a/no", "a/no/c", "a/b/no"} {
		if _, err := tr.Read(p, 10); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read %q: %v", p, err)
		}
		if _, err := tr.Entries(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("list %q: %v", p, err)
		}
	}
	for _, p := range []string{"/a", "a/", "a//b", "./a", "..", "a/../f", "a/."} {
		if _, err := tr.Entries(p); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("list %q: %v", p, err)
		}
	}
	for p, text := range map[string]string{"link": "symbolic links are never followed", "link/b/c.txt": "symbolic links are never followed",
		"module": "submodules are not read", "a": "is a folder, expected a file", "f/x": "is a file, expected a folder"} {
		_, err := tr.Read(p, 10)
		if errors.Is(err, fs.ErrNotExist) || class(err) != NotAllowed || !strings.Contains(err.Error(), text) {
			t.Errorf("read %q: %v, want %q", p, err, text)
		}
	}
	if _, err := tr.Entries("link"); class(err) != NotAllowed {
		t.Errorf("list a link: %v", err)
	}
	if _, err := tr.Read("f", 4); class(err) != TooLarge {
		t.Errorf("read five bytes where four are allowed: %v", err)
	}
	if b, err := tr.Read("f", 5); err != nil || string(b) != "12345" {
		t.Errorf("read five bytes: %q, %v", b, err)
	}
}

// loose is the file of a loose object.
func loose(dir, hash string) string { return filepath.Join(dir, "objects", hash[:2], hash[2:]) }

func TestMissingObjectIsNotAbsent(t *testing.T) {
	o := newOrigin(t)
	c := o.commit("main", "a", files("a/b/c.txt", "two", "f", "12345"))
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	inner, blob := o.tree(files("c.txt", "two")).String(), blobID("12345")
	for _, h := range []string{inner, blob} {
		if err := os.Remove(loose(o.dir, h)); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := r.Tree(c)
	if err != nil {
		t.Fatal(err)
	}
	for p, read := range map[string]func(string) error{
		"a/b":       func(p string) error { _, err := tr.Entries(p); return err },
		"a/b/c.txt": func(p string) error { _, err := tr.Read(p, 10); return err },
		"f":         func(p string) error { _, err := tr.Read(p, 10); return err },
	} {
		if err := read(p); class(err) != MissingObject || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", p, err)
		}
	}
	clear(o.has)
	o.object(plumbing.BlobObject, []byte("12345"))
	if b, err := tr.Read("f", 10); err != nil || string(b) != "12345" {
		t.Errorf("after it came back: %q, %v", b, err)
	}
	if err := os.Remove(loose(o.dir, tr.Hash())); err != nil {
		t.Fatal(err)
	}
	other := watch(t, Options{Remote: o.dir, Branch: "main"})
	if _, err := other.Tree(c); class(err) != MissingObject {
		t.Errorf("root gone: %v", err)
	}
	if err := os.Remove(loose(o.dir, c)); err != nil {
		t.Fatal(err)
	}
	third := watch(t, Options{Remote: o.dir, Branch: "main"})
	expect(t, third, "unreachable  MissingObject")
}

func TestMalformedTrees(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	x := blobID("x")
	for name, list := range map[string][]plan.Entry{
		"twice": {{Name: "a", Hash: x}, {Name: "a", Hash: x}},
	} {
		c := o.commitTree(o.rawTree(list), name)
		if _, err := r.Tree(c); class(err) != Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, raw := range map[string]string{"garbage": "garbage", "cut": "100644 a\x00abc", "no name": "100644 \x00" + strings.Repeat("x", 20),
		"mode": "170000 a\x00" + strings.Repeat("x", 20)} {
		c := o.commitTree(o.object(plumbing.TreeObject, []byte(raw)), name)
		if _, err := r.Tree(c); class(err) != Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Tree(o.commitTree(o.object(plumbing.BlobObject, []byte("x")), "blob as tree")); class(err) != Corrupt {
		t.Errorf("a blob as tree: %v", err)
	}
}

// TestDisguisedContent: bytes under another object's name are noticed.
func TestDisguisedContent(t *testing.T) {
	o := newOrigin(t)
	c := o.commit("main", "a", files("f", "12345", "g", "54321"))
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	swap, err := os.ReadFile(loose(o.dir, blobID("54321")))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(loose(o.dir, blobID("12345")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loose(o.dir, blobID("12345")), swap, 0o644); err != nil {
		t.Fatal(err)
	}
	tr, err := r.Tree(c)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tr.Read("f", 10); class(err) != Corrupt {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestTwoThousandFiles reads a repository of 2,000 files in 50 folders as a work of the git binary has packed it.
func TestTwoThousandFiles(t *testing.T) {
	o := newOrigin(t)
	content := map[string]file{}
	for i := range 2000 {
		content[fmt.Sprintf("plans/team%02d/job%04d.yaml", i%50, i)] = file{body: fmt.Sprintf("jobs:\n  j%d: {seed: %d}\n", i, i)}
	}
	o.packed(content)
	o.commit("main", "many", content)
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	check := func() {
		t.Helper()
		n := 0
		tr := headTree(t, r)
		err := eachFile(tr, "", func(p string, e plan.Entry) error {
			n++
			b, err := tr.Read(p, 1000)
			if err == nil && string(b) != content[p].body {
				err = fmt.Errorf("%s: %q", p, b)
			}
			return err
		})
		if err != nil || n != len(content) {
			t.Fatalf("%d files, %v", n, err)
		}
	}
	check()
	// Packed and loose objects pruned under an open handle.
	gitCLI(t, o.dir, "gc", "-q", "--prune=now")
	content["plans/team00/job0000.yaml"] = file{body: "changed"}
	o.commit("main", "more", content)
	expect(t, r, "advanced many>more")
	gitCLI(t, o.dir, "gc", "-q", "--prune=now")
	check()
	var listed []string
	err := eachFile(headTree(t, r), "", func(p string, e plan.Entry) error {
		listed = append(listed, fmt.Sprintf("%s blob %s\t%s", modeOf(e), e.Hash, p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(gitCLI(t, o.dir, "ls-tree", "-r", "main"), "\n"), listed); d != "" {
		t.Errorf("against git ls-tree (-git +ours):\n%s", d)
	}
}

func TestAlternatesAndLinkedWorkTrees(t *testing.T) {
	o := newOrigin(t)
	c := o.commit("main", "a", files("x", "1"))
	base := t.TempDir()
	gitCLI(t, base, "clone", "-q", "--shared", o.dir, "borrower")
	borrower := filepath.Join(base, "borrower")
	r := watch(t, Options{Remote: borrower, Branch: "main"})
	expect(t, r, "advanced >a")
	readX(t, r, c, "1")
	if _, err := headTree(t, r).Read("x", 0); class(err) != TooLarge {
		t.Errorf("the bound does not hold for a borrowed object: %v", err)
	}
	gitCLI(t, o.dir, "gc", "-q")
	readX(t, r, c, "1")
	gitCLI(t, borrower, "worktree", "add", "-q", "-b", "side", filepath.Join(base, "linked"))
	linked := watch(t, Options{Remote: filepath.Join(base, "linked")})
	expect(t, linked, "advanced >a")
	if linked.Branch() != "side" {
		t.Errorf("HEAD of the linked work tree: %q", linked.Branch())
	}
	readX(t, linked, c, "1")
	if err := os.WriteFile(filepath.Join(borrower, ".git", "objects", "info", "alternates"), []byte("/no/such/place\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Remote: borrower}); class(err) != Unsupported {
		t.Errorf("alternates that are no objects folder: %v", err)
	}
}

func TestShallowCopy(t *testing.T) {
	o := newOrigin(t)
	a := o.commit("main", "a", files("x", "1"))
	b := o.commit("main", "b", files("x", "2"))
	o.commit("main", "c", files("x", "3"))
	base := t.TempDir()
	gitCLI(t, base, "clone", "-q", "--depth", "2", "file://"+o.dir, "shallow")
	r := watch(t, Options{Remote: filepath.Join(base, "shallow")})
	c := expect(t, r, "advanced >c").(Advanced).New.Hash
	if rel, err := r.Relate(t.Context(), b, c); err != nil || rel != Ahead {
		t.Errorf("within the copy: %v, %v", rel, err)
	}
	if _, err := r.Relate(t.Context(), a, c); class(err) != Unsupported || !strings.Contains(err.Error(), "--unshallow") {
		t.Errorf("a commit that was left out is not one that history lost: %v", err)
	}
	lost := gitCLI(t, filepath.Join(base, "shallow"), "commit-tree", "-m", "lost", "HEAD^{tree}")
	if _, err := r.Relate(t.Context(), lost, c); class(err) != Unsupported || !strings.Contains(err.Error(), "--unshallow") {
		t.Errorf("beyond the end: %v", err)
	}
}

// TestParseTreeRoundTrip: what parseTree reads of a well-formed tree is what made it.
func TestParseTreeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw []byte
		var want []plan.Entry
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			e := plan.Entry{Name: rapid.StringMatching(`[^\x00]{1,40}`).Draw(t, "name"), Size: -1,
				Kind: plan.EntryKind(rapid.IntRange(0, 3).Draw(t, "kind"))}
			e.Exec = e.Kind == plan.KindFile && rapid.Bool().Draw(t, "exec")
			id := rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "id")
			e.Hash = plumbing.Hash(id).String()
			raw = append(append(raw, modeOf(e)+" "+e.Name+"\x00"...), id...)
			want = append(want, e)
		}
		got, err := parseTree(raw)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		if len(raw) > 0 {
			cut := rapid.IntRange(1, len(raw)-1).Draw(t, "cut")
			if short, err := parseTree(raw[:cut]); err == nil && len(short) == len(want) {
				t.Fatalf("cut at %d of %d: read as whole", cut, len(raw))
			}
		}
	})
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a\x00aaaaaaaaaaaaaaaaaaaa40000 b\x00bbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("160000 \x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseTree(b)
		if err != nil {
			return
		}
		for _, e := range list {
			if e.Name == "" || strings.Contains(e.Name, "\x00") || len(e.Hash) != 40 {
				t.Fatalf("%+v", e)
			}
		}
	})
}
