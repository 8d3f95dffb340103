package reconcile_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

func limits(change func(*plan.Limits)) func(*plan.Job) {
	return func(j *plan.Job) { change(&j.Limits) }
}

func paid(amount float64, unit string) func(*plan.Job) {
	return limits(func(l *plan.Limits) { l.Paid = plan.Money{Amount: amount, Unit: unit} })
}

func wall(d time.Duration) func(*plan.Job) { return limits(func(l *plan.Limits) { l.Wall = d }) }

// halted passes until a work stands still for a limit.
func (r *rig) halted(rec *reconcile.Reconciler, d *reconcile.Desired, w plan.Digest, limit string) (last reconcile.Action) {
	r.t.Helper()
	r.until(rec, d, 2*time.Hour, func(rep *reconcile.Report) bool {
		for _, a := range rep.Actions {
			if a.Work == w {
				last = a
			}
		}
		return last.Kind == reconcile.Blocked && strings.HasPrefix(last.Reason, limit)
	})
	return last
}

// F8: what was paid reaches the limit at 36 s (1 USD per hour). It runs on to its next milestone, stops there with the reason,
// and nothing starts; a higher limit lets it go on from there.
func TestLimitsPaidStopsAtTheNextMilestone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(100, 10), paid(0.01, "USD"))
		rec := r.reconciler(nil)
		last := r.halted(rec, r.desired("c1", j), j.Work, "limits.paid: ")
		l := r.lease(j.Work)
		if !l.Stopped() || l.Resume == nil || l.Resume.Step < 40 || l.Resume.Step > 60 || !strings.Contains(l.Reason, "the limit is 0.010 USD") {
			t.Errorf("lease %+v: want stopped behind a milestone, with the reason", l)
		}
		if !strings.HasSuffix(last.Reason, fmt.Sprintf("raise the limit to go on from step %d", l.Resume.Step)) {
			t.Error(last.Reason)
		}
		<-time.After(24 * time.Hour)
		r.pass(rec, r.desired("c1", j))
		if m := r.sim.Meter(); m.Started != 1 || m.Live != 0 {
			t.Errorf("meter %+v: want one launch, and nothing that is paid for", m)
		}
		more := j
		more.Limits.Paid.Amount = 20
		if more.Work != j.Work {
			t.Fatal("a limit is identity")
		}
		r.until(rec, r.desired("c2", more), time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
		told := r.explain(rec, more).Lines
		if len(told) < 2 || !strings.Contains(told[0].Why, "was stopped: limits.paid: ") || !strings.Contains(told[1].Reason, "was stopped: limits.paid: ") {
			t.Errorf("%+v: want both to say that a limit stopped it", told)
		}
		if m := r.sim.Meter(); m.Started != 2 {
			t.Errorf("%d launches, want 2", m.Started)
		}
	})
}

// F8, and a restart between any two looks: when the limit was crossed is in the store, not in a process.
func TestLimitsWallHoldsForProcessesThatLiveForOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j, d := job("a", steps(1000, 100), wall(150*time.Second)), (*reconcile.Desired)(nil)
		d = r.desired("c1", j)
		start := time.Now()
		for r.lease1(j.Work).State != witness.Revoked {
			rec := r.reconciler(nil)
			r.pass(rec, d)
			rec.Wait()
			if <-time.After(4 * time.Second); time.Since(start) > 10*time.Minute {
				t.Fatal("it was never stopped")
			}
		}
		if l := r.lease(j.Work); l.Resume == nil || l.Resume.Step != 200 || !strings.HasPrefix(l.Reason, "limits.wall: its first launch was more than 2m30s ago; its next milestone") {
			t.Errorf("lease %+v, want stopped behind the milestone at step 200, which follows the 150th second", l)
		}
	})
}

// lease1 is a lease that may not be there yet.
func (r *rig) lease1(w plan.Digest) (rec witness.Record) {
	if seen, err := witness.Read(r.t.Context(), r.store, string(w)); err == nil {
		rec = seen.Record
	}
	return rec
}

// Two dispatchers see the limit crossed: one stop, no launch, whoever comes first.
func TestTwoDispatchersHaltOneWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(300, 10), paid(0.01, "USD"))
		one, two, d := r.reconciler(nil), r.reconciler(nil), r.desired("c1", j)
		for range 100 {
			done := make(chan struct{})
			go func() { defer close(done); _, _ = two.Pass(t.Context(), d) }()
			r.pass(one, d)
			<-done
			<-time.After(2 * time.Second)
		}
		if l, m := r.lease(j.Work), r.sim.Meter(); !l.Stopped() || m.Started != 1 || m.Live != 0 || l.Resume.Step > 50 {
			t.Errorf("lease %+v, meter %+v", l, m)
		}
		one.Wait()
		two.Wait()
	})
}

// A job without milestones stops at the limit plus the grace of a drain, ten minutes.
func TestALimitWithoutMilestonesStopsAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second, Steps: 100000, Milestone: 1000000}})
		j := job("a", wall(5*time.Minute), func(j *plan.Job) { j.Milestones, j.FLOPs.Steps = plan.Milestones{}, 0 })
		rec, start := r.reconciler(nil), time.Now()
		r.halted(rec, r.desired("c1", j), j.Work, "limits.wall: ")
		if took := time.Since(start); took < 15*time.Minute || took > 18*time.Minute {
			t.Errorf("stopped after %v, want the limit of 5 m and a grace of 10 m", took)
		}
		if l := r.lease(j.Work); !strings.Contains(l.Reason, "within 10m0s: stopped without one") {
			t.Error(l.Reason)
		}
	})
}

// A limit that is lowered under what was spent long ago holds from then on: nothing is lost behind the last milestone.
func TestALimitThatIsLoweredWaitsForTheNextMilestone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(1000, 100), wall(time.Hour))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", j))
		for range 25 {
			<-time.After(10 * time.Second) // to step 248 or so
			r.pass(rec, r.desired("c1", j))
		}
		j.Limits.Wall = time.Minute
		r.halted(rec, r.desired("c2", j), j.Work, "limits.wall: ")
		if l := r.lease(j.Work); l.Resume.Step != 300 {
			t.Errorf("stopped at step %d, and its milestone is that of step %d: want 300", l.Progress.Step, l.Resume.Step)
		}
	})
}

// What is paid in another unit does not count.
func TestLimitsPaidCountsItsOwnUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		j := job("a", steps(100, 10), paid(0.001, "credits"))
		r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
	})
}

// F8: a rung above the price is refused, and the reason says both numbers; so is one whose price nobody knows.
func TestLimitsPriceRefusesARung(t *testing.T) {
	for name, c := range map[string]struct {
		limit, max plan.Money
		mute       bool
		want       string // "": it runs
	}{
		"above limits.price":      {limit: plan.Money{Amount: 0.45, Unit: "USD"}, want: "here: it costs 1.00 USD per hour, above limits.price of 0.45 USD per hour"},
		"above max_price":         {max: plan.Money{Amount: 0.8}, want: "here: it costs 1.00 USD per hour, above its max_price of 0.80 USD per hour"},
		"below both":              {limit: plan.Money{Amount: 1.5, Unit: "USD"}, max: plan.Money{Amount: 1.2}},
		"another unit":            {limit: plan.Money{Amount: 0.1, Unit: "credits"}},
		"unknown":                 {limit: plan.Money{Amount: 5, Unit: "USD"}, mute: true, want: "here: its price is not known, and limits.price is 5.00 USD per hour"},
		"unknown, bounded":        {limit: plan.Money{Amount: 5, Unit: "USD"}, max: plan.Money{Amount: 2}, mute: true},
		"unknown, bounded higher": {limit: plan.Money{Amount: 1, Unit: "USD"}, max: plan.Money{Amount: 2}, mute: true, want: "here: it costs at most 2.00 per hour, above limits.price of 1.00 USD per hour"},
		"unknown, no limit":       {mute: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{})
				p := r.conf.Platforms["here"]
				p.MaxPrice = c.max
				r.conf.Platforms["here"] = p
				rec := r.reconciler(func(rc *reconcile.Config) {
					if c.mute {
						rc.Runners = map[string]runners.Runner{"here": unpriced{r.sim}}
					}
				})
				j := job("a", limits(func(l *plan.Limits) { l.Price = c.limit }))
				rep := r.pass(rec, r.desired("c1", j))
				defer rec.Wait()
				last := rep.Actions[len(rep.Actions)-1]
				if c.want == "" && r.sim.Meter().Started != 1 || c.want != "" && (r.sim.Meter().Started != 0 || last.Kind != reconcile.Blocked || !strings.Contains(last.Reason, c.want)) {
					t.Errorf("%d launches, %s: %s", r.sim.Meter().Started, last.Kind, last.Reason)
				}
			})
		})
	}
}

// At most so many works of a label at once: it holds, and stops nothing.
func TestParallelByLabelHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 10, model: sim.Model{Step: time.Second}})
		r.conf.Parallel = map[string]int{"team=a": 2}
		jobs := numbered(6, func(j *plan.Job) { j.Labels = map[string]string{"team": "a"} })
		for i := range jobs {
			jobs[i].Seed = int64(i)
			jobs[i].Work = jobs[i].Digest()
		}
		other := job("other")
		rec := r.reconciler(nil)
		most := 0
		r.until(rec, r.desired("c1", append(jobs, other)...), time.Hour, func(rep *reconcile.Report) bool {
			live := 0
			for _, in := range r.sim.Truth() {
				if in.Live && in.Work != string(other.Work) {
					live++
				}
			}
			most = max(most, live)
			return allFinished(rep)
		})
		if m := r.sim.Meter(); most != 2 || m.Started != 7 || r.acts(reconcile.Stop) != 0 {
			t.Errorf("%d at once, %d launches, %d stops: want 2, 7, none", most, m.Started, r.acts(reconcile.Stop))
		}
	})
}

// What needs a work that stands still for a limit says so, and does not wait for ever.
func TestWhatNeedsAHaltedWorkIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, model: sim.Model{Step: time.Second}})
		a := job("a", steps(200, 10), wall(30*time.Second))
		b := job("b", func(j *plan.Job) { j.Inputs = []plan.Input{{Job: "a", Work: a.Work}} })
		rec, d := r.reconciler(nil), r.desired("c1", a, b)
		r.halted(rec, d, a.Work, "limits.wall: ")
		if rep := r.pass(rec, d); !strings.HasPrefix(rep.States[b.Work].Reason, "needs a, which stands still: limits.wall: ") {
			t.Error(rep.States[b.Work])
		}
	})
}

// C1: a release that is not confirmed keeps the meter running, and is shown with its price and since when; what the store
// tells is what the platform counted.
func TestAPendingReleaseKeepsTheMeterRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1 hang 5; release 1..60 not_yet"})
		j := job("a", steps(100, 10))
		rec, d := r.reconciler(nil), r.desired("c1", j)
		r.until(rec, d, time.Hour, allFinished)
		cost := func() *reconcile.Cost {
			got, err := r.reconciler(nil).Costs(t.Context(), []plan.Digest{j.Work})
			if err != nil {
				t.Fatal(err)
			}
			return got[j.Work]
		}
		before := cost()
		<-time.After(10 * time.Hour)
		c := cost()
		if len(c.Launches) != 2 || !c.Launches[0].Leaks() || c.Launches[0].Release != "pending" || c.Launches[0].Price != "1.00 USD per hour" || c.Launches[1].Open {
			t.Fatalf("%+v", c.Launches)
		}
		if grown := c.Total.Of("USD").Sum - before.Total.Of("USD").Sum; math.Abs(grown-10) > 0.001 {
			t.Errorf("in ten hours it grew by %v USD, want 10", grown)
		}
		for r.sim.Meter().Live > 0 {
			r.pass(rec, d)
			<-time.After(5 * time.Minute)
		}
		r.pass(rec, d)
		end := cost()
		if end.Total.Open != 0 || math.Abs(end.Total.Of("USD").Sum-r.sim.Meter().Cost) > 0.01 {
			t.Errorf("%v, and the platform's meter says %v USD", end.Total, r.sim.Meter().Cost)
		}
	})
}

// Costs over all attempts are what the platform's own meter counts, whatever befalls them; never less.
func TestCostsAreWhatThePlatformCounts(t *testing.T) {
	for _, until := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{})
			script, err := sim.ParseScript("worker 1 fail 8; worker 2 die 15; worker 3 hang 25; launch 4 no_slots; worker 4 mute")
			if err != nil {
				t.Fatal(err)
			}
			if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: 3, Bucket: r.store, Script: script, UntilReleased: until, Price: 0.4, Unit: "credits", Model: sim.Model{Step: 10 * time.Second}}); err != nil {
				t.Fatal(err)
			}
			defer r.sim.Close()
			j := job("a", steps(60, 5))
			rec, d := r.reconciler(nil), r.desired("c1", j)
			r.until(rec, d, 10*time.Hour, allFinished)
			for start := time.Now(); r.sim.Meter().Live > 0 && time.Since(start) < 2*time.Hour; <-time.After(time.Minute) {
				r.pass(rec, d)
			}
			got, err := r.reconciler(nil).Costs(t.Context(), []plan.Digest{j.Work})
			if err != nil {
				t.Fatal(err)
			}
			c, m := got[j.Work], r.sim.Meter()
			// The store's stamps are good for a second. Where a machine that dies is not paid for any more, nobody knows before its release is closed.
			late := c.Total.Of("credits").Sum - m.Cost
			if c.Total.Unknown != 0 || c.Total.Open != 0 || late < -0.4/3600 || until && late > 0.01 || late > 0.5*m.Cost || len(c.Launches) != m.Started {
				t.Errorf("until released %v: %v (%v beyond) in %d launches; the platform counts %v in %d", until, c.Total, late, len(c.Launches), m.Cost, m.Started)
			}
		})
	}
}
