package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutOfMemory: a SIGKILL beside a kill for want of memory in the control group is that; one without is the
// program's own affair, and so is such a kill from before.
func TestOutOfMemory(t *testing.T) {
	for name, c := range map[string]struct{ file, before, after, class string }{
		"version 2": {"memory.events", "low 0\noom 3\noom_kill 1\n", "low 0\noom 4\noom_kill 2\n", "out_of_memory"},
		"version 1": {"memory/memory.oom_control", "oom_kill_disable 0\noom_kill 0\n", "oom_kill_disable 0\noom_kill 1\n", "out_of_memory"},
		"before":    {"memory.events", "oom_kill 1\n", "oom_kill 1\n", "user_code"},
		"nonsense":  {"memory.events", "oom_kill x\n", "oom_kill\n", "user_code"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cgroup := t.TempDir()
			file := filepath.Join(cgroup, c.file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.before), 0o644); err != nil {
				t.Fatal(err)
			}
			w := newMemWorld(t, map[string]string{"EVENTS": file, "AFTER": c.after})
			w.spec.Argv = shell(`printf %s "$AFTER" >"$EVENTS"; kill -KILL $$`)
			w.claim(1)
			exit := Run(t.Context(), Config{Bucket: w.b, Work: w.work, Dispatch: 1, Scratch: w.scratch,
				Environ: append(os.Environ(), "MY_SECRET=correct horse"), Guard: []string{"/proc/self/exe", guardWord}, cgroup: cgroup})
			if e := w.end(1); exit.Code != CodeUserCode || exit.Class != c.class || e.Class != c.class || e.ExitCode != 137 {
				t.Errorf("%+v, end %+v", exit, e)
			}
		})
	}
}
