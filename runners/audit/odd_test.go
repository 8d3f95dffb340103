package audit

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/record"
)

// TestOddKeys: what no request may name is named by its key, one finding each, and everything else is looked at as if it
// were not there: what is wrong behind it is found.
func TestOddKeys(t *testing.T) {
	root := t.TempDir()
	s, err := dir.Open(root, dir.Options{Create: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, s)
	b.around()
	work := b.history(1, true)
	other := b.history(2, false)
	sound, err := Check(t.Context(), b, Options{Deep: true})
	if err != nil || !sound.OK() {
		t.Fatal(err, sound.Findings)
	}
	at := work
	if other < work {
		at = other // the first of the two, so that a page is shared with the one behind it
	}
	objects := filepath.Dir(filepath.Dir(find(t, root, "witness/"+work)))
	odd := []string{
		"\x02top", "platform/a\x01", "platform/b\\c", "trim/\x1b[31m", "witness/\x07", "witness/" + strings.Repeat("0", 63) + "\\", "work/\x01bad/spec.json",
		"work/~\\/attempt/x", "work/~\\/attempt/y", "code/\x7f", "_store/\n", record.MilestonePrefix(at, 1, 3) + "a\x01", record.ResultPrefix(at, 3) + "\\", record.DispatchPrefix(at) + "\t",
		"zz\x01/" + strings.Repeat("x", 200) + "/" + strings.Repeat("y", 200),
	}
	for _, key := range odd {
		name := filepath.Join(objects, key)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		src, err := os.ReadFile(find(t, root, "witness/"+work))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, src, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Check(t.Context(), b, Options{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	var keys, want []string
	for _, f := range got.Findings {
		if f.Invariant != Format || f.Do != doStrange || f.Text == "" {
			t.Errorf("%+v", f)
		}
		keys = append(keys, f.Key)
	}
	for _, key := range odd {
		if len(key) > 400 {
			key = key[:400] + "..."
		}
		want = append(want, strconv.QuoteToASCII(key))
	}
	slices.Sort(keys)
	slices.Sort(want)
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got.Findings, got.Requests = sound.Findings, sound.Requests
	if diff := cmp.Diff(sound, got); diff != "" {
		t.Errorf("beside odd keys something else was looked at (-want +got):\n%s", diff)
	}
	b.remove(record.SpecKey(max(work, other)))
	if got, err = Check(t.Context(), b, Options{Deep: true}); err != nil || len(got.Findings) != len(odd)+1 {
		t.Errorf("behind the odd keys: %v, %d findings, want %d", err, len(got.Findings), len(odd)+1)
	}
	if got, err = Check(t.Context(), b, Options{Max: 5}); err != nil || len(got.Findings) != 5 || got.Dropped == 0 {
		t.Errorf("bounded: %v, %d findings, %d dropped", err, len(got.Findings), got.Dropped)
	}
}

// find is the file of an object in the embedded store.
func find(t *testing.T, root, key string) (file string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, "/"+key) && !d.IsDir() {
			file = name
		}
		return err
	})
	if err != nil || file == "" {
		t.Fatal("no file of ", key, err)
	}
	return file
}
