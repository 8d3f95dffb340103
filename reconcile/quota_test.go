package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// What a platform says of its quota is enough: with nothing left it is parked until the reset that it names, and asked for no
// launch before; with less left than a start and a milestone take it is full for that job, and for no other.
func TestAQuotaIsHeededBeforeItIsRefused(t *testing.T) {
	const per = 24 * time.Hour
	every := func(d time.Duration) func(*plan.Job) {
		return func(j *plan.Job) { j.Milestones = plan.Milestones{Every: d} }
	}
	for name, c := range map[string]struct {
		used   int64 // minutes that the first job takes of an hour
		waits  bool
		reason string
	}{
		"nothing is left":        {60, true, "its quota of hours is used up until it resets"},
		"less than a milestone":  {45, true, "too little of its quota is left for a start and a milestone"},
		"as much as a milestone": {20, false, ""},
		"it was not used at all": {0, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{})
				s, err := sim.New(sim.Config{Platform: "here", Slots: 2, Bucket: r.store, Quota: time.Hour, Per: per, Model: sim.Model{Step: time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				r.sim = s
				t.Cleanup(s.Close)
				began := time.Now()
				rec := r.reconciler(func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": sim.Quoted{Runner: s}} })
				first := job("a", steps(c.used, 10))
				if c.used > 0 {
					r.until(rec, r.desired("c1", first), 2*time.Hour, allFinished)
				}
				<-time.After(10 * time.Minute) // until it has been asked again
				before := s.Meter().Calls[sim.OpLaunch]
				long, short := job("long", every(30*time.Minute), func(j *plan.Job) { j.FLOPs.Steps = 2 }), job("short", every(5*time.Minute), func(j *plan.Job) { j.FLOPs.Steps = 2 })
				r.conf.Platforms["here"] = plan.Platform{Name: "here", Runner: "sim", Slots: 2}
				jobs := []plan.Job{long, short}
				if c.used == 60 {
					jobs = jobs[:1] // the other would wait as well
				}
				r.pass(rec, r.desired("c2", jobs...))
				rep := r.pass(rec, r.desired("c2", jobs...))
				if got := rep.States[long.Work]; c.waits && !strings.Contains(got.Reason, c.reason) || c.waits != (got.State == plan.StateAbsent) {
					t.Errorf("%+v, want waiting %v: %q", got, c.waits, c.reason)
				}
				if got := rep.States[short.Work]; len(jobs) > 1 && got.State == plan.StateAbsent {
					t.Errorf("a milestone of five minutes fits: %+v", got)
				}
				r.until(rec, r.desired("c2", jobs...), 2*per, allFinished)
				if took := time.Since(began); c.waits != (took >= per) || took > per+time.Hour {
					t.Errorf("all done after %v, the quota resets after %v", took, per)
				}
				if n := s.Meter().Calls[sim.OpLaunch] - before; n != len(jobs) {
					t.Errorf("%d calls for %d jobs", n, len(jobs))
				}
			})
		})
	}
}
