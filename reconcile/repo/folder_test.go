package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
)

func open(t testing.TB, dir string) *WorkTree {
	t.Helper()
	w, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// listed is every file of a tree as "mode path".
func listed(t testing.TB, tr plan.Tree) []string {
	t.Helper()
	var out []string
	if err := eachFile(tr, "", func(p string, e plan.Entry) error {
		out = append(out, modeOf(e)+" "+p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPlainFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "1", "b/c.txt", "2", ".hidden/x", "3", ".env.example", "4", "b/.cache/y", "5", ".gitignore", "a.yaml")
	if err := os.MkdirAll(filepath.Join(dir, "empty", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := open(t, dir)
	want := []string{"100644 .env.example", "100644 .gitignore", "100644 a.yaml", "100644 b/c.txt", "120000 out"}
	if d := cmp.Diff(want, listed(t, w)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if w.Git() {
		t.Error("a plain folder counts as a Git work tree")
	}
	if c, err := w.Changes(); err != nil || len(c) != 5 {
		t.Errorf("changes outside Git: %v, %v", c, err)
	}
	if h, err := w.Head(); h != "" || err != nil {
		t.Errorf("head outside Git: %q, %v", h, err)
	}
}

func TestFolderRefusals(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "a/b/c.txt", "two", "f", "12345", "module/inner", "x")
	gitCLI(t, filepath.Join(dir, "module"), "init", "-q")
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	refuses(t, open(t, dir))
	if _, err := Folder(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

// oracle is the tree hash that git gives to everything that is not ignored.
func oracle(t testing.TB, dir string) string {
	t.Helper()
	gitCLI(t, dir, "add", "-A")
	return gitCLI(t, dir, "write-tree")
}

func TestWorkTreeAgainstGit(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "a.yaml", "1", "code/train.py", "print(1)\n", "code/data/big.bin", "no", "code/keep/yes.txt", "k", "logs/x.log", "no", "x.log", "no",
		"tracked.log", "tracked though ignored", "build/out.o", "no", "build/kept.txt", "tracked in an ignored folder", ".gitignore", "*.log\n/build/\n# c\n\n!keep.log\n",
		"code/.gitignore", "data/\n*.pyc\n", "code/m.pyc", "no", "keep.log", "yes", "sub/deep/code/data/fine", "yes", "ex", "excluded", "A-b", "x", "A/b", "x", "A.b", "x")
	if err := os.Chmod(filepath.Join(dir, "code/train.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("code/train.py", filepath.Join(dir, "shortcut")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, ".git/info/exclude", "ex\n")
	gitCLI(t, dir, "add", "-f", "tracked.log", "build/kept.txt", "a.yaml")
	want := listed(t, open(t, dir))
	w := open(t, dir)
	h, err := w.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if got := oracle(t, dir); got != h {
		t.Errorf("tree hash %s, git says %s\nours: %v\ngit:\n%s", h, got, want, gitCLI(t, dir, "ls-files"))
	}
	gitCLI(t, dir, "commit", "-q", "-m", "all")
	clean(t, dir, h)
	sub := open(t, filepath.Join(dir, "code"))
	if got := gitCLI(t, dir, "rev-parse", "HEAD:code"); got != must(t, sub.Hash) {
		t.Errorf("a sub-folder: %s, git says %s", must(t, sub.Hash), got)
	}
	if dirty, err := sub.Dirty(); err != nil || dirty {
		t.Errorf("a clean sub-folder is dirty: %v, %v", dirty, err)
	}
	r := watch(t, Options{Remote: dir})
	if tr := headTree(t, r); tr.Hash() != h {
		t.Errorf("the commit's tree is %s", tr.Hash())
	}
}

func must(t testing.TB, f func() (string, error)) string {
	t.Helper()
	s, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clean holds that the work tree is as committed.
func clean(t *testing.T, dir, hash string) {
	t.Helper()
	w := open(t, dir)
	if c, err := w.Changes(); err != nil || len(c) != 0 {
		t.Errorf("changes of a clean work tree: %v, %v", c, err)
	}
	if got := must(t, w.Hash); got != hash {
		t.Errorf("hash %s, want %s", got, hash)
	}
	if got, want := must(t, w.Head), gitCLI(t, dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("head %s, want %s", got, want)
	}
}

func TestChanges(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	if c, err := open(t, dir).Changes(); err != nil || len(c) != 0 {
		t.Errorf("an empty repository: %v, %v", c, err)
	}
	write(t, dir, "edit", "1", "same-size", "1", "gone", "1", "mode", "1", "tolink", "1", "staged", "1", "d/deep", "1", "still", "1")
	oracle(t, dir)
	gitCLI(t, dir, "commit", "-q", "-m", "a")
	write(t, dir, "edit", "12", "same-size", "2", "staged", "3", "new", "1", "d/new", "1")
	gitCLI(t, dir, "add", "staged")
	for _, err := range []error{os.Remove(filepath.Join(dir, "gone")), os.Chmod(filepath.Join(dir, "mode"), 0o755),
		os.Remove(filepath.Join(dir, "tolink")), os.Symlink("edit", filepath.Join(dir, "tolink"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := open(t, dir).Changes()
	want := []string{"d/new", "edit", "gone", "mode", "new", "same-size", "staged", "tolink"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("changes, %v (-want +got):\n%s", err, d)
	}
	got, err = open(t, filepath.Join(dir, "d")).Changes()
	if d := cmp.Diff([]string{"new"}, got); err != nil || d != "" {
		t.Errorf("changes of a sub-folder, %v (-want +got):\n%s", err, d)
	}
	gitCLI(t, dir, "checkout", "-q", "--detach")
	if h, err := open(t, dir).Head(); err != nil || h != gitCLI(t, dir, "rev-parse", "HEAD") {
		t.Errorf("detached head: %q, %v", h, err)
	}
}

func TestSparseWorkTree(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "in/x", "1", "out/x", "1")
	oracle(t, dir)
	gitCLI(t, dir, "commit", "-q", "-m", "a")
	gitCLI(t, dir, "sparse-checkout", "set", "in")
	if _, err := Folder(dir); class(err) != Unsupported || !strings.Contains(err.Error(), "sparse-checkout disable") {
		t.Errorf("got %v", err)
	}
}

// TestEscapes: a folder that becomes a link to elsewhere after the names were read is not followed.
func TestEscapes(t *testing.T) {
	dir, secret := t.TempDir(), t.TempDir()
	write(t, secret, "x", "secret")
	write(t, dir, "d/x", "mine")
	w := open(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if b, err := w.Read("d/x", 100); err == nil {
		t.Errorf("read %q through a link", b)
	}
	if _, err := w.Hash(); err == nil {
		t.Error("hashed through a link")
	}
}

func TestSubmoduleInWorkTree(t *testing.T) {
	dir := t.TempDir()
	gitCLI(t, dir, "init", "-q")
	write(t, dir, "module/x", "1", "f", "1")
	gitCLI(t, filepath.Join(dir, "module"), "init", "-q")
	gitCLI(t, filepath.Join(dir, "module"), "add", "-A")
	gitCLI(t, filepath.Join(dir, "module"), "commit", "-q", "-m", "m")
	h := oracle(t, dir)
	w := open(t, dir)
	if got := must(t, w.Hash); got != h {
		t.Errorf("hash %s, git says %s", got, h)
	}
	list, err := w.Entries("")
	if err != nil || !slices.ContainsFunc(list, func(e plan.Entry) bool { return e.Name == "module" && e.Kind == plan.KindSubmodule }) {
		t.Errorf("entries %+v, %v", list, err)
	}
}

// TestIgnoreRulesAgainstGit makes work trees and rules at random and holds the list of files against git's.
func TestIgnoreRulesAgainstGit(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > 25 {
			return // each case starts several processes
		}
		dir := filepath.Join(base, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			rt.Fatal(err)
		}
		gitCLI(t, dir, "init", "-q")
		word := rapid.SampledFrom([]string{"a", "b", "c.log", "d.txt", "ab"})
		for range rapid.IntRange(1, 12).Draw(rt, "files") {
			p := path.Join(rapid.SliceOfN(word, 1, 3).Draw(rt, "path")...)
			if err := os.MkdirAll(filepath.Join(dir, path.Dir(p)), 0o755); err != nil {
				continue // a file is already there
			}
			_ = os.WriteFile(filepath.Join(dir, p), []byte(p), 0o644) // a folder may be there
		}
		rule := rapid.SampledFrom([]string{"a", "a/", "/b", "*.log", "!c.log", "a/b", "**/ab", "d.*", "!d.txt", "ab/**", "b/*/a"})
		for _, where := range []string{"", "a"} {
			if st, err := os.Stat(filepath.Join(dir, where)); err != nil || !st.IsDir() {
				continue
			}
			rules := rapid.SliceOfN(rule, 0, 4).Draw(rt, "rules"+where)
			if err := os.WriteFile(filepath.Join(dir, where, ".gitignore"), []byte(strings.Join(rules, "\n")), 0o644); err != nil {
				rt.Fatal(err)
			}
		}
		w, err := Folder(dir)
		if err != nil {
			rt.Fatal(err)
		}
		defer w.Close()
		ours, err := w.Hash()
		if err != nil {
			rt.Fatal(err)
		}
		names := listed(t, w)
		if git := oracle(t, dir); git != ours {
			rt.Fatalf("ours %v\ngit %s", names, gitCLI(t, dir, "ls-files"))
		}
	})
}
