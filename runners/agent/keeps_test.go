package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// keeping is a store that deletes nothing, as for a worker whose credentials may not. Where a process has one, each call leaves a
// file in marks.
type keeping struct {
	bucket.Bucket
	marks string
	n     atomic.Int64
}

func (k *keeping) Delete(_ context.Context, key string) error {
	if err := os.WriteFile(filepath.Join(k.marks, fmt.Sprintf("deleted-%d-%d", os.Getpid(), k.n.Add(1))), []byte(key), 0o600); err != nil {
		os.Exit(99) // a call that leaves no mark would pass the test
	}
	return &bucket.Error{Op: "delete", Key: key, Code: bucket.Denied}
}

// nothingDeleted says what an agent tried to delete.
func (w *world) nothingDeleted() {
	w.Helper()
	marks, err := filepath.Glob(filepath.Join(w.marks, "deleted-*"))
	for _, m := range marks {
		key, _ := os.ReadFile(m)
		w.Errorf("the worker deletes %s", key)
	}
	if err != nil {
		w.Error(err)
	}
}

// TestAWorkerDeletesNothing: E2. An agent that finishes, yields, is killed and resumed, or loses its lease calls no delete of its
// store, so that its credentials need no right to.
func TestAWorkerDeletesNothing(t *testing.T) {
	for name, life := range map[string]func(w *world){
		"finishes": func(w *world) { w.run(1, CodeFinished) },
		"fails":    func(w *world) { w.spec.Env["BAD"], w.spec.Env["AT"] = "fail", "50"; w.run(1, CodeUserCode) },
		"yields": func(w *world) {
			w.spec.Env["TOTAL"] = "100000"
			p := w.start(1, "agent")
			w.until("a milestone", func() bool { return w.witness().Record.Resume != nil })
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				w.Fatal(err)
			}
			if got := w.code(p); got != CodeYielded {
				w.Fatalf("exit %d", got)
			}
		},
		"is killed and resumed": func(w *world) {
			w.die = "/milestone/00000002/manifest.json,1,after"
			if got := w.code(w.start(1, "agent")); got != -1 {
				w.Fatalf("it was to be killed, and exited with %d", got)
			}
			if got, _, err := witness.Revoke(w.Context(), w.b, w.witness(), "silent"); got != witness.Ended {
				w.Fatal(got, err)
			}
			w.die = ""
			w.run(2, CodeFinished)
		},
		"is deposed": func(w *world) {
			w.spec.Env["TOTAL"] = "100000"
			p := w.start(1, "agent")
			w.until("a milestone", func() bool { return w.witness().Record.Resume != nil })
			w.until("a revoke that no renewal was faster than", func() bool {
				got, _, _ := witness.Revoke(w.Context(), w.b, w.witness(), "silent")
				return got == witness.Ended
			})
			if got := w.code(p); got != CodeLeaseLost {
				w.Fatalf("exit %d", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.environ = append(os.Environ(), "KEEPS="+w.marks)
			life(w)
			w.nothingDeleted()
			if n := len(w.text(record.OpenKey(w.work, 1))); n == 0 {
				t.Error("nothing ran")
			}
		})
	}
}

// The store of these workers does see a delete.
func TestADeleteIsSeen(t *testing.T) {
	k := &keeping{marks: t.TempDir()}
	_ = k.Delete(t.Context(), "witness/a.json")
	if marks, err := filepath.Glob(filepath.Join(k.marks, "deleted-*")); err != nil || len(marks) != 1 {
		t.Errorf("%v, %v", marks, err)
	}
}
