package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
)

// TestASavedPlanIsTheDocument: what --out writes is, but for its sum, the golden document of --json byte for byte; with the sum
// it reads back to the same diff, and no byte of it can be changed.
func TestASavedPlanIsTheDocument(t *testing.T) {
	golden, err := os.ReadFile("../../plan/testdata/diff/rich.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := plan.DecodeChanges(golden)
	if err != nil {
		t.Fatal(err)
	}
	e := env{dir: t.TempDir(), hidden: &hidden{}}
	if err := save(e, d, "a.plan"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(e.dir, "a.plan")
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^  "sum": "[0-9a-f]{64}",\n`)
	if n := len(line.FindAll(saved, -1)); n != 1 {
		t.Errorf("%d sums", n)
	}
	if diff := cmp.Diff(string(golden), string(line.ReplaceAll(saved, nil))); diff != "" {
		t.Errorf("it is not the golden document (-golden +saved):\n%s", diff)
	}
	back, err := readSaved(e, "a.plan")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, back); diff != "" {
		t.Error(diff)
	}
	for _, at := range []int{len(saved) / 3, len(saved) / 2, len(saved) - 20} {
		for saved[at] < 'a' || saved[at] > 'y' {
			at++
		}
		other := append([]byte(nil), saved...)
		other[at]++
		if err := os.WriteFile(file, other, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readSaved(e, "a.plan"); err == nil {
			t.Errorf("byte %d was changed, and it was read all the same", at)
		}
	}
}
