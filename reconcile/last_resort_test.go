package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// C10 of the cases: the worker is killed with its lease held, its machine is paid for until it is released, and no dispatcher ever comes
// back. With a limit on its time the platform ends it by the bound that the launch carried; without one nobody has said when.
func TestAnOrphanEndsByTheBoundOfItsLaunch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*plan.Job)
		paid   time.Duration // 0: it is paid for to this day
	}{
		"limits.wall of an hour": {wall(time.Hour), 2*time.Hour + 10*time.Minute},
		"no limit":               {func(*plan.Job) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{})
				script, err := sim.ParseScript("worker 1 die 30")
				if err != nil {
					t.Fatal(err)
				}
				if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: 2, Bucket: r.store, Script: script, UntilReleased: true, Price: 1, Model: sim.Model{Step: time.Second}}); err != nil {
					t.Fatal(err)
				}
				defer r.sim.Close()
				j := job("a", steps(2000, 20), c.change)
				d := r.desired("c1", j)
				rec := r.reconciler(nil)
				r.pass(rec, d)
				rec.Wait()
				<-time.After(30 * 24 * time.Hour) // nobody is there
				m := r.sim.Meter()
				if live := c.paid == 0; m.Started != 1 || (m.Live == 1) != live || !live && m.Paid != c.paid {
					t.Fatalf("a month later: %+v, want it paid for %v", m, c.paid)
				}
				// Whoever comes back has nothing left to end, and hears that from the platform.
				back := r.reconciler(func(c *reconcile.Config) { c.ID = "later" })
				r.until(back, d, 2*time.Hour, func(*reconcile.Report) bool {
					return len(r.dispatches(j.Work)) > 0 && released(r.dispatches(j.Work)[0])
				})
				back.Wait()
			})
		})
	}
}

// released: the platform's last word on a dispatch is closed.
func released(d runners.Dispatch) bool { return d.Release != nil && d.Release.Settlement == "closed" }

// A launch that a living dispatcher looks after never meets its bound: the limit stops it first, behind a milestone, and so does
// one that is raised in place.
func TestTheLimitStopsBeforeTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(6000, 100), wall(30*time.Minute))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", j))
		<-time.After(20 * time.Minute)
		more := j
		more.Limits.Wall = 55 * time.Minute
		r.halted(rec, r.desired("c2", more), j.Work, "limits.wall: ")
		if l, m := r.lease(j.Work), r.sim.Meter(); !l.Stopped() || l.Resume.Step < 3300 || l.Resume.Step > 3500 || m.Started != 1 {
			t.Errorf("lease %+v, %d launches; want it stopped by its limit", l, m.Started)
		}
	})
}
