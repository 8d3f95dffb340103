package attest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCheckRecords: a record that was edited, lost or made a link is named; other files beside the records are nobody's matter.
func TestCheckRecords(t *testing.T) {
	s := release(t)
	key := s.Predicate.Records[0].Key
	for name, c := range map[string]struct {
		do   func(file string) error
		want RecordsDiffer
	}{
		"as they were": {func(string) error { return nil }, RecordsDiffer{}},
		"edited":       {func(f string) error { return os.WriteFile(f, []byte("Record"), 0o644) }, RecordsDiffer{Changed: []string{key}}},
		"lost":         {os.Remove, RecordsDiffer{Missing: []string{key}}},
		"a link to the very bytes": {func(f string) error {
			return errors.Join(os.Rename(f, f+".old"), os.Symlink(f+".old", f))
		}, RecordsDiffer{Changed: []string{key}}},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/records")); err != nil {
			t.Fatal(err)
		}
		if err := c.do(filepath.Join(dir, key)); err != nil {
			t.Fatal(err)
		}
		err := CheckRecords(s, dir)
		var got RecordsDiffer
		if e, is := errors.AsType[*RecordsDiffer](err); is {
			got = *e
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	s.Predicate.Records[0].Key = "../records/" + key
	if err := CheckRecords(s, "testdata/records"); err == nil {
		t.Error("a key that leads out of the folder was read")
	}
}
