package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

// TestALaunchOfAnotherDispatcherIsReleased: one dispatcher launches and dies; no worker of its launch ever comes, so no lease
// tells of it. The other one has only seen the job wait (a secret is missing there) and has no reason to read its records again,
// until the platform lists what runs: then it reads them, and releases the machine that is paid for.
func TestALaunchOfAnotherDispatcherIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1 mute"})
		j := job("a", func(j *plan.Job) { j.Secrets = []string{"TOKEN"} })
		d := r.desired("c1", j)
		other := r.reconciler(nil)
		r.pass(other, d)
		first := r.reconciler(func(c *reconcile.Config) {
			c.Secrets = func(string) (string, bool) { return "x", true }
		})
		r.until(first, d, time.Hour, func(*reconcile.Report) bool { return r.sim.Meter().Started == 1 })
		first.Wait()
		r.passFor(other, d, 2*time.Hour, func(*reconcile.Report) {})
		other.Wait()
		list, err := r.sim.Running(t.Context())
		if err != nil || len(list) != 0 || r.sim.Meter().Calls[sim.OpRelease] == 0 {
			t.Errorf("after two hours %+v still runs, %v", list, err)
		}
		if n := r.claims(j.Work); n != 1 {
			t.Errorf("%d claims: the other one launched without the secret", n)
		}
	})
}
