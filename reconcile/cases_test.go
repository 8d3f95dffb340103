package reconcile_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// Rows of the table of what went wrong for others that no test of a mechanism shows.

// C4: a job leaves the plan while its launch is under way. It is revoked and its machine released before it leaves the status.
func TestAJobRemovedWhileItsLaunchIsInFlightIsReleasedBeforeItLeaves(t *testing.T) {
	for name, script := range map[string]string{
		"the answer comes late":          "launch 1 delay 50s",
		"the machine comes late":         "launch 1 late 50s",
		"its release is pending first":   "launch 1 delay 50s; release 1..3 not_yet",
		"the platform is away meanwhile": "launch 1 late 5s; release 1..2 drop",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 2, script: script, model: sim.Model{Step: time.Hour}})
				gone, stays := job("gone", func(j *plan.Job) { j.OnDelete = plan.Revoke }), job("stays", func(j *plan.Job) { j.Suspend = true })
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", gone, stays))
				d := r.desired("c2", stays)
				d.AllowStops = 1
				left := func(rep *reconcile.Report) bool {
					_, there := rep.States[gone.Work]
					if m := r.sim.Meter(); !there && (m.Live != 0 || m.Started != 1) {
						t.Fatalf("it has left, and %d of %d machines go on", m.Live, m.Started)
					}
					return !there
				}
				r.until(rec, d, 2*time.Hour, left)
				if l := r.lease(gone.Work); l.State != witness.Revoked || l.Floor != 2 || l.Attempt != 0 && l.Dispatch != 1 {
					t.Errorf("lease %+v", l)
				}
				if list := r.dispatches(gone.Work); len(list) != 1 || list[0].Release == nil || list[0].Release.Settlement != runners.Closed.String() {
					t.Errorf("%+v", list)
				}
			})
		})
	}
}

// C8: a launch times out and happens all the same, its worker never takes the lease, and the first releases are answered
// with an error. The machine is found by its tag and released; the job gets home.
func TestALaunchThatTimedOutIsFoundAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1 lost; worker 1 mute; release 1..2 drop"})
		j := job("a")
		rec, d := r.reconciler(nil), r.desired("c1", j)
		r.until(rec, d, 6*time.Hour, func(rep *reconcile.Report) bool { return allFinished(rep) && r.sim.Meter().Live == 0 })
		if m := r.sim.Meter(); m.Started != 2 || m.Calls[sim.OpRelease] < 3 {
			t.Errorf("%+v", m)
		}
		r.wholeResult(j.Work, 100)
	})
}

// C11: no dispatcher for twelve hours. A worker whose job has finished leaves by itself and is not paid for any more, and
// what it did is found by the next pass.
func TestAWorkerThatHasFinishedLeavesWithoutADispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		j := job("a")
		r.pass(r.reconciler(nil), r.desired("c1", j))
		<-time.After(12 * time.Hour)
		if m := r.sim.Meter(); m.Live != 0 || m.Started != 1 || m.Cost > 1 {
			t.Errorf("%+v", m)
		}
		if rep := r.pass(r.reconciler(nil), r.desired("c1", j)); !allFinished(rep) || r.sim.Meter().Started != 1 {
			t.Errorf("%v", rep.States)
		}
	})
}

// C13: whoever asked is gone as soon as the launch is out. Nothing changes for the worker.
func TestTheCommandMayEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1})
		j := job("a")
		ctx, cancel := context.WithCancel(t.Context())
		rec := r.reconciler(nil)
		if _, err := rec.Pass(ctx, r.desired("c1", j)); err != nil {
			t.Fatal(err)
		}
		cancel()
		rec.Wait()
		<-time.After(time.Hour)
		r.wholeResult(j.Work, 100)
	})
}

// intruder is a platform that looks around while it is called: whatever lock were held then, one of these would never return.
type intruder struct {
	*sim.Runner
	look func()
}

func (i *intruder) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	i.look()
	return i.Runner.Launch(ctx, jobs)
}

func (i *intruder) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	i.look()
	return i.Runner.Release(ctx, h)
}

// F5, and F4: no lock and no transaction is open during a platform's call. Within each call another dispatcher makes a whole
// pass, the same one is read, and the store takes a write.
func TestNoLockIsHeldDuringAPlatformCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1 hang 5"})
		j, other := job("a"), r.reconciler(nil)
		var rec *reconcile.Reconciler
		looked := 0
		in := &intruder{r.sim, func() {
			looked++
			if _, err := other.Pass(t.Context(), r.desired("c1", j)); err != nil {
				t.Error(err)
			}
			if _, err := rec.Observe(t.Context(), []plan.Digest{j.Work}, nil); err != nil {
				t.Error(err)
			}
			if _, err := r.store.Put(t.Context(), "else/where", strings.NewReader("x"), bucket.Always()); err != nil {
				t.Error(err)
			}
		}}
		rec = r.reconciler(func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": in} })
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
		if looked < 2 {
			t.Errorf("%d calls", looked)
		}
	})
}

// F4: while every launch hangs, whoever reads the status waits for nothing.
func TestReadsDoNotQueueBehindLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40, script: "launch * hang"})
		jobs, rec := numbered(40), r.reconciler(nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer rec.Wait()
		defer cancel()
		var works []plan.Digest
		for _, j := range jobs {
			works = append(works, j.Work)
		}
		go func() { _, _ = rec.Pass(ctx, r.desired("c1", jobs...)) }()
		<-time.After(time.Second)
		began := time.Now()
		world, err := r.reconciler(nil).Observe(t.Context(), works, nil)
		if took := time.Since(began); err != nil || took > 0 || world.Observed()[works[0]].State != plan.StateClaimed {
			t.Errorf("%v, after %v: %v", err, took, world.Observed()[works[0]])
		}
	})
}
