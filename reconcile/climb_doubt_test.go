package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/reconcile"
)

// A better rung whose platform says "no slots" each time it is asked looks free whenever its park is over. A job that
// runs doesn't leave its place for it again and again: what it lost that way would grow with every hour.
func TestARungThatRefusesForEverIsNotClimbedToAgainAndAgain(t *testing.T) {
	for _, script := range []string{"launch * no_slots", "launch * drop"} {
		t.Run(script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, there := climbRig(t, script, 20_000)
				j := job("a", onT4(20_000))
				rec := r.reconciler(both(there, r))
				usual(rec, "here", "a", worth, 1)
				usual(rec, "there", "a", worth, 5)
				r.until(rec, r.desired("c1", j), 48*time.Hour, allFinished)
				if n := r.acts(reconcile.Move); n > 3 {
					t.Errorf("%d moves, and it was started %d times there", n, there.Meter().Started)
				}
			})
		})
	}
}

// It refuses a few times more and then has a place: the job that runs elsewhere gets there after all.
func TestARungThatRefusedForAWhileIsClimbedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "launch 1 quota 20m\nlaunch 2..4 no_slots", 20_000)
		j := job("a", onT4(20_000))
		rec := r.reconciler(both(there, r))
		usual(rec, "here", "a", worth, 0.1)
		usual(rec, "there", "a", worth, 0.2)
		r.until(rec, r.desired("c1", j), 48*time.Hour, allFinished)
		r.wholeResult(j.Work, 20_000)
		if h, n := r.sim.Meter().Started, r.acts(reconcile.Move); h != 1 || n < 1 || n > 4 {
			t.Errorf("%d workers here, %d moves", h, n)
		}
	})
}
