package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// deaf is a platform whose list is down while away says so.
type deaf struct {
	*sim.Runner
	away func() bool
}

func (d deaf) Running(ctx context.Context) ([]runners.Running, error) {
	if d.away() {
		return nil, &runners.Failure{Class: runners.Unreachable, Platform: "there", Op: "list"}
	}
	return d.Runner.Running(ctx)
}

// beside configures one more platform, whose list is down for good: an expired token, say.
func (r *rig) beside() func(*reconcile.Config) {
	r.t.Helper()
	other, err := sim.New(sim.Config{Platform: "there", Slots: 1, Bucket: r.store})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(other.Close)
	r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: 1}
	return func(c *reconcile.Config) {
		c.Runners["there"] = deaf{other, func() bool { return true }}
	}
}

// A platform that cannot list hides what others run: neither is a twin left there, which is paid for, nor an orphan unnamed.
func TestAListThatIsDownKeepsNoOrphanElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "launch 1 lost; worker 1 mute"})
		rec, j := r.reconciler(r.beside()), job("a")
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateFinished))
		r.passFor(rec, d, 2*time.Hour, func(*reconcile.Report) {})
		if list, err := r.sim.Running(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("still paid for after two hours: %+v, %v", list, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 3"})
		rec, j := r.reconciler(r.beside()), job("a")
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
		if err := r.store.Delete(t.Context(), record.WitnessKey(string(j.Work))); err != nil {
			t.Fatal(err)
		}
		var last *reconcile.Report
		r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) { last = rep })
		if len(last.Orphans) != 1 || last.Orphans[0].Platform != "here" {
			t.Errorf("orphans %+v", last.Orphans)
		}
	})
}

// While a platform does not say what it runs, what it ran before is not taken for gone.
func TestAnOrphanStaysNamedWhileItsPlatformIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 3"})
		away := false
		rec := r.reconciler(func(c *reconcile.Config) { c.Runners["here"] = deaf{r.sim, func() bool { return away }} })
		j := job("a")
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
		if err := r.store.Delete(t.Context(), record.WitnessKey(string(j.Work))); err != nil {
			t.Fatal(err)
		}
		r.passFor(rec, d, time.Hour, func(*reconcile.Report) {})
		away = true
		missing := 0
		r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) {
			if len(rep.Orphans) != 1 {
				missing++
			}
		})
		if missing > 0 {
			t.Errorf("%d passes did not name it", missing)
		}
	})
}
