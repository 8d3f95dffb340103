package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

// A drain without milestones ends for processes that live for one pass, too: since when a work leaves lies in the store, and a
// restart begins no grace anew.
func TestADrainEndsForProcessesThatLiveForOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second, Milestone: 1 << 40}})
		never := func(j *plan.Job) { j.FLOPs.Steps, j.Milestones = 1<<30, plan.Milestones{Every: 20 * time.Minute} }
		a, b := job("a", never), job("b", never)
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a, b))
		rec.Wait()
		<-time.After(8 * time.Second)
		start := time.Now()
		l := r.stoppedBy(a.Work, 2*time.Hour, func() *reconcile.Desired { return r.desired("c2", b) })
		if took := time.Since(start); took < time.Hour || took > time.Hour+time.Minute || !strings.Contains(l.Reason, "no milestone of attempt 1 was acknowledged within") {
			t.Errorf("stopped after %v (%s), want an hour", took, l.Reason)
		}
	})
}
