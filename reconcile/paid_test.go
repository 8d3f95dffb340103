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

// A worker ends by itself, its work goes on, and its machine is paid for until somebody releases it: the platform's list
// is all there is of it. On the only place of a platform it would stand in the way for ever.
func TestAMachineWhoseWorkerLeftIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		script, err := sim.ParseScript("worker 1 fail 8")
		if err != nil {
			t.Fatal(err)
		}
		rented, err := sim.New(sim.Config{Platform: "here", Slots: 1, Bucket: r.store, Script: script, UntilReleased: true})
		if err != nil {
			t.Fatal(err)
		}
		defer rented.Close()
		r.sim = rented
		j := job("a")
		rec := r.reconciler(func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": rented} })
		r.until(rec, r.desired("c1", j), 2*time.Hour, stateIs(j.Work, plan.StateFinished))
		r.wholeResult(j.Work, 100)
		if rented.Meter().Fired[sim.Fail] == 0 {
			t.Fatal("nothing failed")
		}
		for start := time.Now(); rented.Meter().Live > 0; <-time.After(time.Minute) {
			r.pass(rec, r.desired("c1", j))
			if time.Since(start) > time.Hour {
				t.Fatal("the machine of a finished work is still paid for after an hour")
			}
		}
	})
}

// An orphan may finish; one whose machine dies does not keep its place for ever.
func TestADeadOrphanGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 die 30", model: sim.Model{Step: time.Second}})
		a, b := job("a", onDelete(plan.Orphan)), job("b")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		<-time.After(10 * time.Second)
		r.until(rec, r.desired("c2", b), 10*time.Minute, stateIs(b.Work, plan.StateFinished))
		if got := r.lease(a.Work); got.State != "revoked" || got.Floor != 0 {
			t.Errorf("the orphan's lease is %+v, want written off and nothing barred", got)
		}
		if n := r.sim.Meter().Started; n != 2 {
			t.Errorf("%d launches, want 2", n)
		}
	})
}

// An orphan that was launched, and whose worker never took the lease, is not forgotten before its machine is released.
func TestAnOrphanThatNeverCapturedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 mute"})
		a, b := job("a", onDelete(plan.Orphan)), job("b")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		r.until(rec, r.desired("c2", b), 10*time.Minute, stateIs(b.Work, plan.StateFinished))
		if m := r.sim.Meter(); m.Live != 0 || m.Fired[sim.Mute] == 0 {
			t.Errorf("%d machines are paid for: %v", m.Live, m.Fired)
		}
	})
}

// untilReleased puts a platform into the rig whose machines are paid for until they are released.
func (r *rig) untilReleased(slots int, script string) {
	r.t.Helper()
	faults, err := sim.ParseScript(script)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: slots, Bucket: r.store, Script: faults, Price: 4, UntilReleased: true}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.sim.Close)
	c := r.conf.Platforms["here"]
	c.Slots = slots
	r.conf.Platforms["here"] = c
}

// Nobody has to wait for the patrol: what finishes is released at once, and what needs its place takes it.
func TestAMachineOfAFinishedWorkIsReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		r.untilReleased(1, "")
		s := job("s")
		u := job("u", func(j *plan.Job) { j.Inputs = []plan.Input{{Job: "s", Work: s.Work}} })
		rec := r.reconciler(nil)
		rep := r.until(rec, r.desired("c1", s, u), 3*time.Minute, func(rep *reconcile.Report) bool {
			return allFinished(rep) && r.sim.Meter().Live == 0
		})
		if rep.Owed != 0 || rep.Releasing != 0 || r.acts(reconcile.Release) != 2 {
			t.Errorf("owed %d, releasing %d, released %d, want two releases and no more", rep.Owed, rep.Releasing, r.acts(reconcile.Release))
		}
		before := r.sim.Meter().Calls[sim.OpRelease]
		for range 3 {
			<-time.After(time.Minute)
			r.pass(rec, r.desired("c1", s, u))
		}
		again := r.reconciler(nil)
		r.pass(again, r.desired("c1", s, u))
		if n := r.sim.Meter().Calls[sim.OpRelease]; n != before {
			t.Errorf("%d more questions after it was closed", n-before)
		}
		if rep := r.pass(again, r.desired("c1", s, u)); rep.Verbs.Gets > 8 {
			t.Errorf("a pass over two finished works makes %d GETs", rep.Verbs.Gets)
		}
	})
}

// It is asked again until it is closed, also by a process that comes later; until then its place is taken.
func TestAFinishedWorkTakesItsPlaceUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		r.untilReleased(1, "release 1..4 not_yet")
		s, u := job("s"), job("u")
		r.until(r.reconciler(nil), r.desired("c1", s), time.Minute, stateIs(s.Work, plan.StateFinished))
		rec := r.reconciler(nil) // the first one is gone
		rep := r.pass(rec, r.desired("c2", s, u))
		if rep.Owed != 1 || rep.Platforms[0].Live != 1 || r.claims(u.Work) != 0 {
			t.Errorf("owed %d, %d places taken, %d claims of the other: want its place taken and nothing claimed", rep.Owed, rep.Platforms[0].Live, r.claims(u.Work))
		}
		r.until(rec, r.desired("c2", s, u), 20*time.Minute, func(rep *reconcile.Report) bool {
			return allFinished(rep) && r.sim.Meter().Live == 0
		})
		if m := r.sim.Meter(); m.Started != 2 || m.Fired[sim.NotYet] != 4 || m.Fired[sim.NoSlots] != 0 {
			t.Errorf("meter %+v", m)
		}
	})
}
