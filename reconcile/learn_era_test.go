package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// Given a platform on which nine works have finished, and that then comes back with another driver. Then what is usual with the
// old one says nothing of the first attempt with the new one: the threshold judges it, the claim after it and explain say since
// when, and a dispatcher that starts reads the same out of the compact form.
func TestANewDriverStartsANewHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := sim.Model{Step: time.Minute, Milestone: 10, Driver: "550.54.15"}
		r := newRig(t, rigConfig{slots: 9, model: model})
		d := r.desired("c1", numbered(9)...)
		rec := r.reconciler(nil)
		r.until(rec, d, 24*time.Hour, allFinished)
		rec.Wait()

		model.Driver = "570.86.10"
		script, err := sim.ParseScript("worker 1 die 80")
		if err != nil {
			t.Fatal(err)
		}
		renewed, err := sim.New(sim.Config{Platform: "here", Slots: 2, Bucket: r.store, Model: model, Script: script, Price: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(renewed.Close)
		on := func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": renewed} }
		j := job("late", func(j *plan.Job) { j.Group, j.FLOPs.Steps = "new", 1000 })
		d = r.desired("c2", append(numbered(9), j)...)
		next := r.reconciler(on)
		r.until(next, d, 24*time.Hour, func(rep *reconcile.Report) bool { return rep.States[j.Work].Attempt == 2 })
		for range 90 { // until all that ended is written down and folded
			<-time.After(time.Minute)
			r.pass(next, d)
		}
		next.Wait()
		if _, err := r.store.Get(t.Context(), record.CompactKey("here", "unknown", "none"), bucket.Range{}); err != nil {
			t.Fatalf("nothing was folded: %v", err)
		}
		x := r.explain(r.reconciler(on), j)
		g := x.Lines[0].Goodput
		if g == nil || g.Bound == nil || *g.Bound != 0.7 || !strings.Contains(g.Why, "new history since driver 550 → 570 at 20") || !strings.HasSuffix(g.Why, ": 9 attempts before it are kept apart") {
			t.Errorf("its first attempt was judged by %v", g)
		}
		e := x.Timers.Era
		if e == nil || e.Before != 9 || e.N != 1 || e.From.Driver != "550" || e.To.Driver != "570" {
			t.Errorf("%+v", e)
		}
		lines := strings.Join(x.Timers.Lines(), "\n")
		if want := "  least goodput 0.7: of the speed-corrected paid time must be kept work until 8 attempts are known (1 so far; unknown, none); new history since driver 550 → 570 at "; !strings.Contains(lines, want) {
			t.Errorf("%s\nwant %s", lines, want)
		}
	})
}
