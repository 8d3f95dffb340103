package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

func TestKilledWorkIsResumedAndFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 die 47"})
		rec, j := r.reconciler(nil), job("a")
		start := time.Now()
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
		if got := r.lease(j.Work).Attempt; got != 2 {
			t.Errorf("finished by attempt %d, want 2", got)
		}
		if n := r.acts(reconcile.WriteOff); n != 1 {
			t.Errorf("%d write-offs, want 1", n)
		}
		if n := r.acts(reconcile.Launch); n != 2 {
			t.Errorf("%d launches, want 2", n)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("took %v: the second attempt must start soon after the lease has run out", took)
		}
		e := r.explain(rec, j)
		if e.Spent != 0 || len(e.Lines) != 2 || e.Lines[0].Kept != 40 || e.Lines[1].From != 40 || e.State != plan.StateFinished {
			t.Errorf("explanation: %+v", e)
		}
		if f := r.sim.Meter().Fired[sim.Die]; f != 1 {
			t.Fatalf("the fault struck %d times", f)
		}
	})
}
