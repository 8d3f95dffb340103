package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
)

// TestCleanPathIsAKey: what is clean stays inside its folder and is a key that every store can hold.
func TestCleanPathIsAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b.c", ".", "..", "", "/", "é", `\`, "\x00", "\n", "\xff", "CON", strings.Repeat("x", 256)})).Draw(t, "p"), rapid.SampledFrom([]string{"", "/"}).Draw(t, "sep"))
		if CleanPath(p) != nil {
			return
		}
		if !filepath.IsLocal(p) || filepath.ToSlash(filepath.Clean(p)) != p {
			t.Fatalf("%q is clean and leads elsewhere", p)
		}
		if err := bucket.CheckKey("put", "work/"+strings.Repeat("a", 64)+"/attempt/00000001/milestone/00000001/"+p); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFolders(t *testing.T) {
	got, err := Folders([]string{"a/b/c", "a/d", "e"})
	if d := cmp.Diff([]string{"a/b", "a"}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, bad := range [][]string{{"a", "a"}, {"a", "a/b"}, {"a/b", "a"}, {"../a"}, {""}} {
		if _, err := Folders(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestListAndCopyTree(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(src, "x", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"x/run": 0o755, "data": 0o600} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	want := []Found{{"data", 4, false}, {"x/run", 5, true}}
	found, total, err := List(src)
	if d := cmp.Diff(want, found); d != "" || total != 9 || err != nil {
		t.Error(d, total, err)
	}
	if err := CopyTree(src, found, dst); err != nil {
		t.Fatal(err)
	}
	again, _, err := List(dst)
	if d := cmp.Diff(want, again); d != "" || err != nil {
		t.Error(d, err)
	}
	one, _, err := List(filepath.Join(src, "data"))
	if d := cmp.Diff(want[:1], one); d != "" || err != nil {
		t.Error(d, err)
	}
}
