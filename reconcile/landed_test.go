package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

// A release hangs for longer than its pass; meanwhile another reconciler settles the work, and it is in force no more.
// The answer that comes at last is of a work that nobody looks at: it is filed, and nothing falls over it.
func TestAnAnswerForAWorkThatIsInForceNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1 hang 3\nrelease 1 hang", model: sim.Model{Step: time.Second}})
		gone, stays := job("gone", func(j *plan.Job) { j.OnDelete = plan.Revoke }), job("stays")
		one, two := r.reconciler(func(c *reconcile.Config) { c.ID = "one" }), r.reconciler(func(c *reconcile.Config) { c.ID = "two" })
		r.pass(one, r.desired("c1", gone, stays))
		<-time.After(5 * time.Second)
		d := r.desired("c2", stays)
		r.pass(one, d) // stops it, and asks the platform, which does not answer for now
		if r.sim.Meter().Fired[sim.Hang] != 2 {
			t.Fatal("no release hangs")
		}
		r.until(two, d, 20*time.Second, func(rep *reconcile.Report) bool { return len(rep.States) == 1 })
		r.until(one, d, 5*time.Minute, allFinished)
	})
}
