package local_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/local"
)

// TestOldFilesArePruned: by a launch, and not by a question.
func TestOldFilesArePruned(t *testing.T) {
	g := newRig(t, 1)
	g.settle = time.Minute
	r := g.open(t, map[string]string{"keep": "2"})
	for n := range int64(5) {
		if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, n+1, "done")}); err != nil {
			t.Fatal(err)
		}
	}
	files := func() (out []string) {
		_ = filepath.WalkDir(g.scratch, func(path string, _ fs.DirEntry, _ error) error { out = append(out, path); return nil })
		return out
	}
	before := files()
	if list, err := r.Running(t.Context()); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	if diff := cmp.Diff(before, files()); diff != "" { // asking is for whoever may not write, too
		t.Errorf("asking what runs (-before +after):\n%s", diff)
	}
	for _, dir := range []string{"log", "run"} {
		left, err := os.ReadDir(filepath.Join(g.scratch, "here", dir))
		if err != nil || len(left) != 3 || !strings.Contains(left[2].Name(), "-5") { // the newest, and two that had ended before it
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

// TestAskingWritesNothing: a dispatcher that only looks leaves the disk as it was.
func TestAskingWritesNothing(t *testing.T) {
	scratch := t.TempDir()
	r, err := local.New(local.Config{Platform: "here", Scratch: scratch, Agent: []string{"agent"}})
	if err != nil {
		t.Fatal(err)
	}
	running, err := r.Running(t.Context())
	if err != nil || len(running) != 0 {
		t.Errorf("running on an empty disk: %v, %v", running, err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 0 {
		t.Errorf("asking left %v, %v", left, err)
	}
}
