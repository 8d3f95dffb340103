package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// mortal is a store beside which this process kills itself: at the nth put of a key that holds the text, before the
// put goes out or after it has landed. "finished" is the put that makes a lease finished.
type mortal struct {
	bucket.Bucket
	text  string
	nth   int64
	after bool
	seen  atomic.Int64
}

func newMortal(b bucket.Bucket) bucket.Bucket {
	plan := strings.Split(os.Getenv("DIE_AT"), ",")
	if len(plan) != 3 {
		return b
	}
	n, _ := strconv.ParseInt(plan[1], 10, 64) // 0 never matches, and the test says so
	return &mortal{Bucket: b, text: plan[0], nth: n, after: plan[2] == "after"}
}

func (m *mortal) meant(key string, body bucket.Body) bool {
	if m.text != "finished" {
		return strings.Contains(key, m.text)
	}
	work, ours := strings.CutPrefix(key, "witness/")
	if !ours {
		return false
	}
	text := make([]byte, body.Size())
	if _, err := body.ReadAt(text, 0); err != nil && err != io.EOF {
		return false // the test says that it was never killed
	}
	r, err := witness.Decode(strings.TrimSuffix(work, ".json"), text)
	return err == nil && r.State == witness.Finished
}

func (m *mortal) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if !m.meant(key, body) || m.seen.Add(1) != m.nth {
		return m.Bucket.Put(ctx, key, body, c)
	}
	if m.after {
		_, _ = m.Bucket.Put(ctx, key, body, c) // nobody will hear of it
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestCrashPoints: C6 to C12. The agent is killed at each kind of write, just before and just after it landed. The
// next attempt finishes, the sum proves that no step was lost or made twice, and an independent check of all the
// store holds finds nothing.
func TestCrashPoints(t *testing.T) {
	for _, point := range []string{"witness/,1", "/open.json,1", "/milestone/00000001/state,1", "/milestone/00000002/manifest.json,1",
		"witness/,3", "witness/,5", "/result/metrics.json,1", "/result/manifest.json,1", "/end.json,1", "/log/,1"} {
		for _, when := range []string{"before", "after"} {
			t.Run(strings.ReplaceAll(strings.Trim(point, "/"), "/", "_")+"_"+when, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, map[string]string{"TOTAL": "60"})
				w.die = point + "," + when
				p := w.start(1, "agent")
				if got := w.code(p); got != -1 {
					t.Fatalf("it was to be killed, and exited with %d\n%s", got, p.out.String())
				}
				w.die = ""
				if seen := w.witness(); seen.Record.State == witness.Held {
					if got, _, err := witness.Revoke(t.Context(), w.b, seen, "silent"); got != witness.Ended {
						t.Fatal(got, err)
					}
				}
				want := CodeFinished
				if strings.HasPrefix(point, "/end.json") {
					want = CodeNothingToDo // it says "finished" only when that is so
				}
				w.run(2, want)
				w.sound()
			})
		}
	}
	t.Run("finish_landed", func(t *testing.T) { // nothing is left to do, and nothing is done
		t.Parallel()
		w := newWorld(t, map[string]string{"TOTAL": "0"})
		w.die = "finished,1,after" // whichever write of the lease it is: a slow start renews it
		if got := w.code(w.start(1, "agent")); got != -1 {
			t.Fatalf("exit %d", got)
		}
		w.die = ""
		w.run(2, CodeNothingToDo)
		w.sound()
	})
}

// sound holds the whole store against the invariants, and the result against arithmetic.
func (w *world) sound() {
	w.Helper()
	report, err := audit.Check(w.Context(), w.b, audit.Options{Deep: true})
	if err != nil || !report.OK() {
		w.Errorf("%v: %+v", err, report.Findings)
	}
	seen := w.witness().Record
	if seen.State != witness.Finished {
		w.Fatalf("witness %+v", seen)
	}
	n, _ := strconv.ParseInt(w.spec.Env["TOTAL"], 10, 64) // written by the test
	want := fmt.Sprintf(`"sum": %d`, n*(n+1)/2)
	if got := w.text(record.ResultPrefix(w.work, seen.Finished.Attempt) + "metrics.json"); !strings.Contains(got, want) {
		w.Errorf("result %s, want %s", got, want)
	}
}
