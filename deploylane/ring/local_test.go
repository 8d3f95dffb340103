package ring

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLocalRecordIsDurable: the bytes are synced before the record has its name, and the folder after; a sync that fails leaves no
// record behind, or is said.
func TestLocalRecordIsDurable(t *testing.T) {
	for fails := range 3 {
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
			if seen = append(seen, what); len(seen) == fails {
				return bad
			}
			return nil
		})
		want := []string{"the file", "the folder, named"}
		if fails == 1 {
			want = want[:1]
		}
		if d := cmp.Diff(want, seen); d != "" || (err != nil) != (fails > 0) || fails > 0 && !errors.Is(err, bad) {
			t.Errorf("sync %d fails: %v\n%s", fails, err, d)
		}
		if _, there := os.Stat(name); fails == 1 && there == nil {
			t.Error("a record whose bytes were never synced")
		}
	}
}
