package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// yard is one store, one platform whose workers are real agents, and a dispatcher's hand.
type yard struct {
	*testing.T
	b bucket.Bucket
	r *sim.Runner
	d runners.Dispatcher
	n int64 // dispatches so far

	mu    sync.Mutex
	exits []agent.Exit
}

// open makes a yard; c.Work is filled in from f.
func open(t *testing.T, f fleet.Config, c sim.Config, script string) *yard {
	t.Helper()
	faults, err := sim.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{T: t, b: c.Bucket}
	if y.b == nil {
		y.b = mem.New()
	}
	if f.Scratch == "" {
		f.Scratch = t.TempDir()
	}
	f.Ended = func(_ sim.Post, e agent.Exit) {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.exits = append(y.exits, e)
	}
	c.Platform, c.Script, c.Bucket, c.Work, c.Slots = "sim", faults, y.b, f.Work(), 1000
	if y.r, err = sim.New(c); err != nil {
		t.Fatal(err)
	}
	y.d = runners.Dispatcher{Bucket: y.b}
	return y
}

// spec is a work; the seed makes it another one.
func spec(seed int64) record.Spec {
	s := record.Spec{Protocol: record.Protocol, Kind: "train", Argv: []string{"train"}, Seed: seed, Metrics: map[string]string{"accuracy": "higher"}}
	s.Identity = record.Identity(s)
	s.Work = record.Hash(s.Identity)
	return s
}

// launch claims the next dispatch of a work and starts it.
func (y *yard) launch(s record.Spec) {
	y.Helper()
	y.n++
	l := runners.Launch{Work: s.Work, Dispatch: y.n, Job: "digits", Store: "mem:", Spec: s, Claim: record.Claim{Protocol: record.Protocol,
		Work: s.Work, Dispatch: y.n, Nonce: record.Nonce(), Platform: "sim", Runner: "sim", Dispatcher: "test",
		Terms: record.Terms{MilestoneSteps: 3, Steps: 10, GraceS: 20, FLOPsPerStep: 1e9}}}
	if out := y.d.Launch(y.Context(), y.r, []runners.Launch{l}); out[0].Err != nil {
		y.Fatal(out[0].Err)
	}
}

func (y *yard) witness(work string) witness.Record {
	y.Helper()
	seen, err := witness.Read(y.Context(), y.b, work)
	if err != nil {
		y.Fatal(err)
	}
	return seen.Record
}

// finished fails unless the work's result is that of one unbroken run.
func (y *yard) finished(work string) {
	y.Helper()
	r := y.witness(work)
	if r.State != witness.Finished {
		y.Errorf("%.12s is %s at step %d: %v", work, r.State, r.Progress.Step, y.r.Truth())
		return
	}
	var got sim.State
	var metrics map[string]float64
	read(y, record.ResultPrefix(work, r.Finished.Attempt)+sim.StateFile, &got)
	read(y, record.ResultPrefix(work, r.Finished.Attempt)+sim.MetricsFile, &metrics)
	if want := sim.Expect(work, 10); got != want || metrics["accuracy"] != want.Metric("accuracy") {
		y.Errorf("%.12s: %+v, %v is not what one unbroken run computes", work, got, metrics)
	}
}

func read(y *yard, key string, v any) {
	y.Helper()
	o, err := y.b.Get(y.Context(), key, bucket.Range{})
	if err != nil {
		y.Fatal(err)
	}
	b, err := io.ReadAll(o.Body)
	if err != nil {
		y.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		y.Fatal(err)
	}
}

func TestFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := open(t, fleet.Config{PhaseEvery: 4, PhaseFor: time.Minute}, sim.Config{}, "")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
		if truth := y.r.Truth(); truth[0].End != "finished" || truth[0].Attempt != 1 || truth[0].Step != 10 || len(y.exits) != 1 || y.exits[0].Code != agent.CodeFinished {
			t.Errorf("%+v, %+v", truth, y.exits)
		}
		var log strings.Builder
		page, err := y.b.List(t.Context(), record.LogPrefix(s.Work, 1), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			o, err := y.b.Get(t.Context(), it.Key, bucket.Range{})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(&log, o.Body)
		}
		if !strings.HasSuffix(log.String(), "step 10 loss 0.0909\n") {
			t.Errorf("log %q", log.String())
		}
	})
}

// Wherever a worker dies, the next one goes on from the last milestone, and the result is that of one unbroken run.
func TestDeathAtEveryStep(t *testing.T) {
	for step := range int64(11) {
		synctest.Test(t, func(t *testing.T) {
			y := open(t, fleet.Config{}, sim.Config{}, fmt.Sprintf("worker 1 die %d", step))
			defer y.r.Close()
			s := spec(step)
			y.launch(s)
			time.Sleep(time.Minute)
			if step > 0 {
				r := y.witness(s.Work)
				want := max(0, step-2) / 3 * 3 // the pointer moves with the step after the milestone
				if got := r.Resume; r.State != witness.Held || want > 0 && (got == nil || got.Step != want) {
					t.Errorf("died at step %d: %s, resume %+v", step, r.State, got)
				}
				y.writeOff(s.Work)
			}
			if a, err := y.d.Release(t.Context(), y.r, s.Work, 1); err != nil || a.Settlement != runners.Closed {
				t.Fatal(a, err)
			}
			y.launch(s)
			time.Sleep(time.Hour)
			y.finished(s.Work)
			if truth := y.r.Truth(); truth[0].End != "died" || truth[1].End != "finished" || y.r.Meter().Fired[sim.Die] != 1 {
				t.Errorf("%+v", truth)
			}
		})
	}
}

// writeOff is what a dispatcher does to a silent lease.
func (y *yard) writeOff(work string) {
	y.Helper()
	seen, err := witness.Read(y.Context(), y.b, work)
	if err != nil {
		y.Fatal(err)
	}
	if said, _, err := witness.Revoke(y.Context(), y.b, seen, "silent"); said != witness.Ended {
		y.Fatal(said, err)
	}
}

// Many agents live in one bubble beside each other. The cost of one run is logged: a simulation has to count on it.
func TestManyAtOnce(t *testing.T) {
	const bubbles, many = 20, 20
	scratch, began := memory(t), cpu(t)
	for range bubbles {
		synctest.Test(t, func(t *testing.T) {
			y := open(t, fleet.Config{Scratch: scratch}, sim.Config{}, "")
			defer y.r.Close()
			var works []string
			for n := range int64(many) {
				s := spec(n)
				y.launch(s)
				works = append(works, s.Work)
			}
			time.Sleep(time.Hour)
			for _, w := range works {
				y.finished(w)
			}
		})
	}
	t.Logf("%d runs of 10 steps and 3 milestones: %s of processor time each", many*bubbles, (cpu(t)-began)/many/bubbles)
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%d folders of runs were left behind, %v", len(left), err)
	}
}

// memory is a folder in memory where there is one.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fleet-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cpu is the processor time that this process has used so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
