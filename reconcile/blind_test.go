package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// TestATwinOnABlindPlatformIsEnded: a launch starts twice on a platform that can't list what runs. The instance that its
// receipt names says nothing for ever, the other one takes the lease and comes to its end: the first is ended all the same, or it
// would be paid for and hold the platform's only machine for good.
func TestATwinOnABlindPlatformIsEnded(t *testing.T) {
	for name, script := range map[string]string{
		"the other finishes": "launch 1 twice; worker 1 mute",
		"the other fails":    "launch 1 twice; worker 1 mute; worker 2 fail 3",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 1, script: script})
				blind := func(c *reconcile.Config) {
					c.Runners = map[string]runners.Runner{"here": struct{ runners.Runner }{r.sim}}
				}
				rec, d := r.reconciler(blind), r.desired("c1", job("a"), job("b"))
				r.until(rec, d, time.Hour, allFinished)
				r.passFor(rec, d, 10*time.Minute, func(*reconcile.Report) {})
				rec.Wait()
				m := r.sim.Meter()
				if m.Fired[sim.Twice] != 1 || m.Workers[sim.Mute] != 1 {
					t.Fatalf("struck: %v", m.Fired)
				}
				if m.Live != 0 {
					t.Errorf("%d instances are still paid for: %+v", m.Live, r.sim.Truth())
				}
				// A process that comes later knows that all of it is over, and asks nobody again.
				again := r.reconciler(blind)
				r.passFor(again, d, 10*time.Minute, func(*reconcile.Report) {})
				again.Wait()
				if n := r.sim.Meter().Calls[sim.OpRelease]; n != m.Calls[sim.OpRelease] {
					t.Errorf("%d releases, then %d", m.Calls[sim.OpRelease], n)
				}
			})
		})
	}
}

// TestATwinOfWhatNoPlanNamesIsEnded: the same where the platform lists, of a job that has left the plan before anybody asked
// what runs. No plan names its work any more, and it is paid for all the same.
func TestATwinOfWhatNoPlanNamesIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1 twice; worker 1 mute"})
		rec, a, b := r.reconciler(nil), job("a"), job("b")
		r.until(rec, r.desired("c1", a), time.Hour, allFinished)
		d := r.desired("c2", b)
		r.until(rec, d, time.Hour, allFinished)
		if n := r.sim.Meter().Calls[sim.OpRelease]; n > 0 {
			t.Fatalf("%d releases before any census", n)
		}
		var last *reconcile.Report
		r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) { last = rep })
		rec.Wait()
		if m := r.sim.Meter(); m.Live != 0 || m.Fired[sim.Twice] != 1 || m.Calls[sim.OpRelease] != 1 {
			t.Errorf("%d instances are still paid for after %d releases: %+v", m.Live, m.Calls[sim.OpRelease], r.sim.Truth())
		}
		if len(last.Orphans) > 0 || r.lease(a.Work).Attempt != 1 {
			t.Errorf("orphans %+v, lease %+v", last.Orphans, r.lease(a.Work))
		}
	})
}
