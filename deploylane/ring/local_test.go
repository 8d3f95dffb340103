package ring

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLocalRecordIsDurable: the bytes are synced before the record has its name, and the folder after; a sync that fails leaves no
// record behind, or is said.
func TestLocalRecordIsDurable(t *testing.T) {
	for fails := range 4 {
		dir := t.TempDir()
		name := filepath.Join(dir, "step37", localName(7))
		bad := errors.New("the disk is gone")
		var seen []string
		err := localKeep(dir, &Intent{Ring: "step37", Generation: 7}, func(f *os.File) error {
			s, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			_, there := os.Stat(name)
			what := map[bool]string{true: "the folder", false: "the file"}[s.IsDir()]
			if there == nil {
				what += ", named"
			}
			if !s.IsDir() && s.Size() == 0 {
				what += ", empty"
			}
			if s.IsDir() && f.Name() == dir {
				what = "the folder above"
			}
			if seen = append(seen, what); len(seen) == fails {
				return bad
			}
			return nil
		})
		want := []string{"the folder above", "the file", "the folder, named"}
		if fails > 0 {
			want = want[:fails]
		}
		if d := cmp.Diff(want, seen); d != "" || (err != nil) != (fails > 0) || fails > 0 && !errors.Is(err, bad) {
			t.Errorf("sync %d fails: %v\n%s", fails, err, d)
		}
		if _, there := os.Stat(name); (fails == 1 || fails == 2) && there == nil {
			t.Error("a record whose bytes were never synced")
		}
	}
}

// TestLocalFoldersAreDurable: the first record of a ring lies in folders that are new themselves: each one above a new one is synced, and
// nothing more is once they are there.
func TestLocalFoldersAreDurable(t *testing.T) {
	top := t.TempDir()
	for _, want := range [][]string{{"state/rings", "state", "", "state/rings/step37"}, {"state/rings/step37"}} {
		var seen []string
		if err := localKeep(filepath.Join(top, "state", "rings"), &Intent{Ring: "step37", Generation: uint64(len(want))}, func(f *os.File) error {
			if s, err := f.Stat(); err != nil {
				t.Fatal(err)
			} else if s.IsDir() {
				seen = append(seen, strings.TrimPrefix(strings.TrimPrefix(f.Name(), top), "/"))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, seen); d != "" {
			t.Error(d)
		}
	}
}
