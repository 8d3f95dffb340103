package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongFoldersAndNoHome: folders far beyond what a socket's path may have, and a machine without HOME or USER.
func TestLongFoldersAndNoHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"TOTAL": "40"})
	long := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), strings.Repeat("folder-", 20))
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	w.scratch = long
	w.environ = []string{"TMPDIR=" + long, "PATH=" + os.Getenv("PATH")}
	p := w.run(1, CodeFinished)
	if left, _ := filepath.Glob(filepath.Join(long, "h*")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	if t.Failed() {
		t.Log(p.out.String())
	}
	if seen := w.witness().Record; seen.Resume == nil || seen.Resume.Step != 40 {
		t.Errorf("the program and its agent did not find each other: %+v", seen)
	}
}
