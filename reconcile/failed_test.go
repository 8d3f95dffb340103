package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

// Jobs that failed, or that gave their place back, have nothing to lose: a commit may drop any number of them beside a
// running one, they are gone at once, and whoever only knows the accepted plan sees that they failed.
func TestFailedJobsAreNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 9, model: sim.Model{Step: time.Second}, script: "worker 1..5 fail 5"})
		jobs := numbered(7, steps(5000, 10), func(j *plan.Job) { j.Limits.Retries = 0 })
		rec := r.reconciler(nil)
		r.until(rec, r.desired("c1", jobs...), time.Minute, func(rep *reconcile.Report) bool {
			n := 0
			for _, s := range rep.States {
				if s.State == plan.StateFailed {
					n++
				}
			}
			return n == 5
		})
		second := r.reconciler(nil)
		a, err := second.Accepted(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var works []plan.Digest
		var kept, dropped []plan.Job
		for _, j := range jobs {
			works = append(works, j.Work)
		}
		world, err := second.Observe(t.Context(), works, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			switch o := world.Observed()[j.Work]; {
			case o.State == plan.StateHeld && len(kept) == 0:
				kept = append(kept, j)
			case o.State == plan.StateHeld || o.State == plan.StateFailed && !o.Live():
				dropped = append(dropped, j)
			default:
				t.Errorf("%s of %s is %+v", j.Name, a.Commit, o)
			}
		}
		d := r.desired("c2", kept...)
		if rs, err := second.Check(t.Context(), d); err != nil || len(rs) != 0 {
			t.Errorf("check: %+v, %v", rs, err)
		}
		rep := r.pass(rec, d)
		if !rep.Accepted || len(rep.Refusals) != 0 {
			t.Fatalf("refusals %+v", rep.Refusals)
		}
		rep = r.pass(rec, d)
		for _, j := range dropped {
			if s, there := rep.States[j.Work]; there != (world.Observed()[j.Work].State == plan.StateHeld) {
				t.Errorf("%s: %v", j.Name, s)
			}
		}
	})
}
