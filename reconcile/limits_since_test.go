package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// stoppedBy makes one pass of a process that lives no longer, again and again, until a work was stopped.
func (r *rig) stoppedBy(w plan.Digest, limit time.Duration, commit func() *reconcile.Desired) witness.Record {
	r.t.Helper()
	for start := time.Now(); r.lease1(w).State != witness.Revoked; {
		rec := r.reconciler(nil)
		r.pass(rec, commit())
		rec.Wait()
		if <-time.After(4 * time.Second); time.Since(start) > limit {
			r.t.Fatalf("not stopped within %v", limit)
		}
	}
	return r.lease(w)
}

// When a limit was lowered lies in the store, so neither a restart nor a process that lives for one pass stops a work between
// two milestones; and a verb that only looks says the same.
func TestALimitThatWasLoweredIsKnownAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(1000, 100), wall(time.Hour))
		rec := r.reconciler(nil)
		for range 26 {
			r.pass(rec, r.desired("c1", j))
			<-time.After(10 * time.Second) // to step 248 or so
		}
		j.Limits.Wall = time.Minute
		r.pass(rec, r.desired("c2", j))
		rec.Wait()
		rep := r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry = true }), r.desired("c2", j))
		for _, a := range rep.Actions {
			if a.Work == j.Work && !a.Drains() {
				t.Errorf("who only looks says %s: %s", a.Kind, a.Reason)
			}
		}
		l := r.stoppedBy(j.Work, 10*time.Minute, func() *reconcile.Desired { return r.desired("c2", j) })
		if l.Resume == nil || l.Resume.Step != 300 || !strings.Contains(l.Reason, "its next milestone is acknowledged") {
			t.Errorf("stopped at step %d with %+v (%s): want behind the milestone of step 300", l.Progress.Step, l.Resume, l.Reason)
		}
	})
}

// Commits that change something else begin no grace anew, however many of them come and whoever follows them.
func TestOtherCommitsHoldNoLimitOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second, Steps: 100000, Milestone: 1000000}})
		j := job("a", wall(5*time.Minute), func(j *plan.Job) { j.Milestones, j.FLOPs.Steps = plan.Milestones{}, 0 })
		start, n := time.Now(), 0
		l := r.stoppedBy(j.Work, time.Hour, func() *reconcile.Desired {
			n++
			j.Priority = n % 2
			return r.desired(fmt.Sprintf("c%d", n), j)
		})
		if took := time.Since(start); took < 15*time.Minute || took > 18*time.Minute || !strings.Contains(l.Reason, "within 10m0s: stopped without one") {
			t.Errorf("stopped after %v (%s), want the limit of 5 m and a grace of 10 m", took, l.Reason)
		}
	})
}
