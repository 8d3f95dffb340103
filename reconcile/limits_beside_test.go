package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// ended checks that a work was ended once for good: one stop, nothing written off, so many workers and moves, and that nothing
// starts in the day that follows.
func (r *rig) ended(rec *reconcile.Reconciler, d *reconcile.Desired, w plan.Digest, others ...*sim.Runner) {
	r.t.Helper()
	started := func() (n, live int) {
		for _, s := range append(others, r.sim) {
			m := s.Meter()
			n, live = n+m.Started, live+m.Live
		}
		return n, live
	}
	before, _ := started()
	for range 24 {
		<-time.After(time.Hour)
		r.pass(rec, d)
	}
	after, live := started()
	if after != before || live != 0 {
		r.t.Errorf("%d workers and then %d, %d live; want none to follow", before, after, live)
	}
	if l := r.lease(w); !l.Stopped() || l.Attempt != int64(after) {
		r.t.Errorf("lease %+v after %d workers; want it stopped", l, after)
	}
	if stops, moves, offs := r.acts(reconcile.Stop), r.acts(reconcile.Move), r.acts(reconcile.WriteOff); stops != 1 || moves != after-1 || offs != 0 {
		r.t.Errorf("%d stops, %d moves and %d write-offs of %d workers; want each lease ended once", stops, moves, offs, after)
	}
}

// A limit is crossed at any second around a move back up: before it is wished, between wish and milestone, and behind
// the launch. Whoever is first wins; each lease is ended once, and nothing is launched behind the limit.
func TestALimitAroundAMoveEndsItOnce(t *testing.T) {
	seen := map[int]bool{}
	for after := 19*time.Minute + 50*time.Second; after < 21*time.Minute+30*time.Second; after += 3 * time.Second {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, there := climbRig(t, "launch 1 quota 20m", 3000)
				j := job("a", onT4(3000), wall(after))
				rec, d := r.reconciler(both(there, r)), r.desired("c1", j)
				usual(rec, "here", "a", worth, 0.1)
				usual(rec, "there", "a", worth, 0.2)
				start, late := time.Now(), 0
				r.until(rec, d, 2*time.Hour, func(rep *reconcile.Report) bool {
					for _, a := range rep.Actions {
						if (a.Kind == reconcile.Launch || a.Kind == reconcile.Move) && a.Done && time.Since(start) > after+30*time.Second {
							late++
						}
					}
					return r.lease1(j.Work).Stopped() && r.sim.Meter().Live+there.Meter().Live == 0
				})
				if l := r.lease(j.Work); late > 0 || !strings.HasPrefix(l.Reason, "limits.wall: ") {
					t.Errorf("%d launches and moves behind the limit; lease %+v", late, l)
				}
				r.ended(rec, d, j.Work, there)
				seen[r.sim.Meter().Started] = true
			})
		})
	}
	if !seen[0] || !seen[1] {
		t.Errorf("%v: want some to be stopped before the move and some behind it", seen)
	}
}

// A job leaves the plan while it wishes to move up: it is stopped behind its next milestone, and moves nowhere.
func TestADrainWinsOverAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "launch 1 quota 20m", 2000)
		j := job("a", onT4(2000))
		rec := r.reconciler(both(there, r))
		usual(rec, "here", "a", worth, 0.1)
		usual(rec, "there", "a", worth, 0.2)
		keep := job("keep", func(j *plan.Job) { j.On = []string{"there"}; j.Suspend = true })
		r.until(rec, r.desired("c1", j, keep), 2*time.Hour, func(rep *reconcile.Report) bool {
			return strings.Contains(rep.States[j.Work].Reason, "it leaves for here behind its next milestone")
		})
		d := r.desired("c2", keep)
		r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return r.lease(j.Work).Stopped() })
		r.ended(rec, d, j.Work, there)
	})
}

// A limit is crossed while a job that left the plan drains, or the job leaves while it waits for the milestone behind its limit: it is
// stopped once, behind that milestone, whichever of the two came first; so is one that comes back meanwhile.
func TestALimitBesideADrainStopsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		leaves, back time.Duration // after the start; back 0: it stays away
		limit        time.Duration
	}{
		"the drain first":                      {leaves: 220 * time.Second, limit: 250 * time.Second},
		"the limit first":                      {leaves: 250 * time.Second, limit: 220 * time.Second},
		"the drain, the limit, and it is back": {leaves: 220 * time.Second, limit: 240 * time.Second, back: 260 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, model: sim.Model{Step: time.Second}})
				j, keep := job("a", steps(1000, 100), wall(c.limit)), job("keep", func(j *plan.Job) { j.Suspend = true })
				with, without := r.desired("c1", j, keep), r.desired("c2", keep)
				rec, start, d := r.reconciler(nil), time.Now(), with
				for time.Since(start) < 10*time.Minute {
					switch at := time.Since(start); {
					case c.back > 0 && at >= c.back:
						d = r.desired("c3", j, keep)
					case at >= c.leaves:
						d = without
					}
					r.pass(rec, d)
					<-time.After(time.Second)
				}
				if l := r.lease(j.Work); !l.Stopped() || l.State != witness.Revoked || l.Resume == nil || l.Resume.Step != 300 {
					t.Errorf("lease %+v: want it stopped behind the milestone of step 300", l)
				}
				r.ended(rec, d, j.Work)
			})
		})
	}
}
