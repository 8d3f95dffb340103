package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

func onDelete(how plan.OnDelete) func(*plan.Job) {
	return func(j *plan.Job) { j.OnDelete = how }
}

func steps(n, milestone int64) func(*plan.Job) {
	return func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps = n, milestone }
}

// removed runs a job until it has passed step 20, takes it out of the plan and waits until its work is gone or done.
func removed(t *testing.T, how plan.OnDelete) (r *rig, a plan.Job, took time.Duration) {
	r = newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
	a = job("a", onDelete(how), steps(100, 10))
	b := job("b", steps(1000, 10))
	rec := r.reconciler(nil)
	r.pass(rec, r.desired("c1", a, b))
	<-time.After(28 * time.Second) // start of 2 s, then 26 steps: the pointer is at 20
	r.pass(rec, r.desired("c1", a, b))
	start, without := time.Now(), r.desired("c2", b)
	over := []string{plan.StateFinished, plan.StateRevoked}
	r.until(rec, without, 5*time.Minute, func(rep *reconcile.Report) bool { return slices.Contains(over, rep.States[a.Work].State) })
	took = time.Since(start)
	if _, still := r.pass(rec, without).States[a.Work]; still {
		t.Error("what has left is still looked at")
	}
	return r, a, took
}

func TestARemovedJobDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, took := removed(t, plan.Drain)
		rec := r.lease(a.Work)
		if rec.State != witness.Revoked || !rec.Stopped() || rec.Resume == nil || rec.Resume.Step < 30 {
			t.Errorf("lease %+v: want stopped after the milestone at step 30", rec)
		}
		if took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		if m := r.sim.Meter(); m.Live != 1 || m.Started != 2 {
			t.Errorf("meter %+v, want one of two to run on", m)
		}
	})
}

func TestARemovedJobIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, took := removed(t, plan.Revoke)
		if rec := r.lease(a.Work); rec.State != witness.Revoked || rec.Resume.Step != 20 || !strings.Contains(rec.Reason, "c2") {
			t.Errorf("lease %+v: want stopped at once, with the commit named", rec)
		}
		if took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestARemovedOrphanFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := removed(t, plan.Orphan)
		r.wholeResult(a.Work, 100)
	})
}

func TestDeletedAndAddedAgainWithinALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
		a, b := job("a", steps(200, 50)), job("b", steps(200, 50))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a, b))
		<-time.After(10 * time.Second)
		rep := r.pass(rec, r.desired("c2", b))
		if s := rep.States[a.Work]; !strings.Contains(s.Reason, "stops after its next milestone") {
			t.Fatalf("it does not drain: %v", s)
		}
		<-time.After(5 * time.Second)
		r.until(r.reconciler(nil), r.desired("c3", a, b), time.Hour, allFinished)
		r.wholeResult(a.Work, 200)
		if n := r.sim.Meter().Started; n != 2 {
			t.Errorf("%d launches, want 2: the drain was cancelled", n)
		}
	})
}

// A drain waits for a milestone that never comes for as long as three of them take, or the first where none is stated, and then
// frees the slot.
func TestADrainWithoutMilestonesEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		ms    plan.Milestones
		after time.Duration
	}{
		{"none stated", plan.Milestones{}, 67*time.Minute + 30*time.Second}, // half as much again as its first one takes,
		{"every 20 minutes", plan.Milestones{Every: 20 * time.Minute}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second, Milestone: 1 << 40}})
				never := func(j *plan.Job) { j.FLOPs.Steps, j.Milestones = 1<<30, c.ms }
				a, b := job("a", never), job("b", never)
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", a, b))
				<-time.After(8 * time.Second)
				start := time.Now()
				rep := r.until(rec, r.desired("c2", b), 2*time.Hour, func(*reconcile.Report) bool { return r.acts(reconcile.Stop) > 0 })
				took := time.Since(start)
				if took < c.after || took > c.after+time.Minute {
					t.Errorf("took %v, want %v", took, c.after)
				}
				if rec := r.lease(a.Work); !rec.Stopped() || !strings.Contains(rec.Reason, "no milestone of attempt 1 was acknowledged within") {
					t.Errorf("lease %+v; %v", rec, rep.States)
				}
			})
		})
	}
}

// A stopped work that is named again goes on where it was, under a number that the stop does not bar.
func TestStoppedWorkIsAdoptedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := removed(t, plan.Revoke)
		r.until(r.reconciler(nil), r.desired("c3", a, job("b", steps(1000, 10))), time.Hour, stateIs(a.Work, plan.StateFinished))
		r.wholeResult(a.Work, 100)
		if rec := r.lease(a.Work); rec.Attempt != 2 || rec.Dispatch != 2 {
			t.Errorf("attempt %d of dispatch %d, want 2 of 2", rec.Attempt, rec.Dispatch)
		}
	})
}

// A plan file is deleted while its launch is on the way: the worker that comes late can't start.
func TestALaunchThatComesAfterTheStopCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, script: "launch 1 late 1m"})
		a, b := job("a"), job("b")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		r.until(rec, r.desired("c2", b), time.Hour, func(rep *reconcile.Report) bool {
			_, still := rep.States[a.Work]
			return !still && allFinished(rep)
		})
		<-time.After(3 * time.Minute)
		truth := r.sim.Truth()
		if rec := r.lease(a.Work); rec.Attempt != 0 || rec.Floor != 2 {
			t.Errorf("lease %+v, want attempt 0 and floor 2", rec)
		}
		if truth[0].Attempt != 0 || truth[0].Live {
			t.Errorf("the late worker: %+v", truth[0])
		}
	})
}

// A job is removed from the plan while its launch is on its way: it is revoked and released, and stays in what is shown
// until its platform has closed the machine, however often it answers "not yet".
func TestARemovedJobWhoseLaunchIsUnderWayIsShownUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		script, err := sim.ParseScript("launch 1 delay 20s\nrelease 1..3 not_yet")
		if err != nil {
			t.Fatal(err)
		}
		if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: 5, Bucket: r.store, Script: script, UntilReleased: true,
			Model: sim.Model{Start: time.Minute}}); err != nil { // no worker takes the lease before somebody looks
			t.Fatal(err)
		}
		t.Cleanup(r.sim.Close)
		a, b := job("a"), job("b", steps(100_000, 100_000))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		if n := r.sim.Meter(); n.Started != 0 || n.Calls[sim.OpLaunch] != 1 {
			t.Fatalf("meter %+v: want a launch that is not answered yet", n)
		}
		without, pending := r.desired("c2", b), 0
		r.until(rec, without, time.Hour, func(rep *reconcile.Report) bool {
			closed := r.sim.Meter().Calls[sim.OpRelease] >= 4
			_, shown := rep.States[a.Work]
			if !shown && !closed {
				t.Fatalf("it is not shown any more after %d releases; on the platform: %+v", r.sim.Meter().Calls[sim.OpRelease], r.sim.Truth())
			}
			if n := r.sim.Meter().Calls[sim.OpRelease]; shown && n > 0 && !closed {
				pending++
			}
			return !shown
		})
		if l := r.lease(a.Work); l.Attempt != 0 || l.Floor != 2 || pending < 3 {
			t.Errorf("lease %+v, %d passes with a release that was not closed; want no attempt and floor 2", l, pending)
		}
		if m := r.sim.Meter(); m.Calls[sim.OpRelease] != 4 || m.Live != 1 {
			t.Errorf("meter %+v, want four releases and one machine, of b", m)
		}
	})
}

func TestAReplacedJobLeavesAndItsSuccessorStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
		old, other := job("a", steps(300, 10)), job("a", steps(100, 10), func(j *plan.Job) { j.Seed = 8 })
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", old))
		<-time.After(8 * time.Second)
		r.until(rec, r.desired("c2", other), time.Hour, allFinished)
		r.wholeResult(other.Work, 100)
		if rec := r.lease(old.Work); !rec.Stopped() || rec.Resume.Step != 10 {
			t.Errorf("the old work: %+v", rec)
		}
	})
}

// What is wrong with a commit, what it is called, and that nothing stops because of it.
func TestGuardsKeepTheAcceptedPlan(t *testing.T) {
	broken := plan.Problem{Severity: plan.Error, Code: "UnknownField", Text: "unknown field setps"}
	for _, c := range []struct {
		code   string
		whole  bool
		change func(d *reconcile.Desired)
	}{
		{reconcile.CodeEmptyPlan, true, func(d *reconcile.Desired) { d.Plan.Jobs = nil }},
		{reconcile.CodeTooManyStops, true, func(d *reconcile.Desired) { d.Plan.Jobs = d.Plan.Jobs[:5] }},
		{reconcile.CodeTooManyStops, true, func(d *reconcile.Desired) { d.Plan.Jobs, d.AllowStops = d.Plan.Jobs[:5], 6 }},
		{reconcile.CodeNotComplete, true, func(d *reconcile.Desired) { d.Plan.Jobs, d.Complete = d.Plan.Jobs[:9], false }},
		{reconcile.CodePlanErrors, false, func(d *reconcile.Desired) { d.Plan.Jobs, d.Plan.Problems = nil, []plan.Problem{broken} }},
		{reconcile.CodePlanErrors, false, func(d *reconcile.Desired) { d.Plan.Jobs, d.Plan.Problems = d.Plan.Jobs[:9], []plan.Problem{broken} }},
		{reconcile.CodeNotFresh, false, func(d *reconcile.Desired) { d.Plan.Jobs, d.Fresh = d.Plan.Jobs[:8], false }},
		{"HistoryRewritten", true, func(d *reconcile.Desired) {
			d.Plan.Jobs, d.Refusals = d.Plan.Jobs[:9], []reconcile.Refusal{{Code: "HistoryRewritten", Text: "main went from A to B, which does not contain A"}}
		}},
	} {
		t.Run(c.code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keepsAll(t, c.code, c.whole, c.change) })
		})
	}
}

func keepsAll(t *testing.T, code string, whole bool, change func(d *reconcile.Desired)) {
	r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}, script: "worker 2 die 25"})
	jobs := numbered(10, steps(100, 10))
	jobs[9] = job(jobs[9].Name, steps(700, 10)) // still runs when the others have finished
	rec := r.reconciler(nil)
	r.pass(rec, r.desired("c1", jobs...))
	<-time.After(10 * time.Second)
	bad := r.desired("c2", slices.Clone(jobs)...)
	change(bad)
	rep := r.pass(rec, bad)
	if len(rep.Refusals) != 1 || rep.Refusals[0].Code != code || rep.Refusals[0].Whole != whole || !rep.Refusals[0].New {
		t.Fatalf("refusals: %+v", rep.Refusals)
	}
	if rep.Accepted == whole {
		t.Errorf("accepted: %v", rep.Accepted)
	}
	checked, err := r.reconciler(nil).Check(t.Context(), bad)
	if err != nil || len(checked) != 1 || checked[0].Code != code {
		t.Errorf("check says %+v, %v", checked, err)
	}
	<-time.After(time.Second)
	for i, again := range []*reconcile.Reconciler{rec, r.reconciler(nil)} {
		if rep := r.pass(again, bad); len(rep.Refusals) != 1 || rep.Refusals[0].New {
			t.Errorf("reconciler %d says it again: %+v", i, rep.Refusals)
		}
	}
	// All go on, the one that died included: the accepted plan is in force.
	r.until(rec, bad, time.Hour, allFinished)
	for _, j := range jobs {
		r.wholeResult(j.Work, j.FLOPs.Steps)
	}
	if n := r.acts(reconcile.Stop); n != 0 {
		t.Errorf("%d stops", n)
	}
}

func TestExactlyAllowedStopsGoThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		jobs := numbered(10, steps(500, 10), onDelete(plan.Revoke))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", jobs...))
		<-time.After(15 * time.Second)
		d := r.desired("c2", slices.Clone(jobs[:5])...)
		if rep := r.pass(rec, d); rep.Accepted || !strings.Contains(rep.Refusals[0].Hint, "Allow-Stops: 5") {
			t.Fatalf("refusals: %+v", rep.Refusals)
		}
		d = r.desired("c3", slices.Clone(jobs[:5])...)
		d.AllowStops = 5
		r.pass(rec, d)
		if n := r.acts(reconcile.Stop); n != 5 {
			t.Errorf("%d stops, want 5", n)
		}
	})
}

func TestTheLastFileGoesWithAllowEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		a := job("a", steps(100, 10))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		<-time.After(5 * time.Second)
		empty := r.desired("c2")
		empty.AllowEmpty = true
		r.until(rec, empty, time.Minute, func(rep *reconcile.Report) bool { return len(rep.States) == 0 })
		if rec := r.lease(a.Work); !rec.Stopped() {
			t.Errorf("lease %+v", rec)
		}
	})
}

// Starts and updates of valid files go on beside a broken one; the stops come when the plan is whole again.
func TestStopsWaitForAPlanWithoutErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		a, b := job("a", steps(300, 10), onDelete(plan.Revoke)), job("b", steps(100, 10))
		a2 := job("a", steps(100, 10), func(j *plan.Job) { j.Seed = 9 })
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		<-time.After(5 * time.Second)
		bad := r.desired("c2", a2, b) // replaces a, adds b, and has an error elsewhere
		bad.Plan.Problems = []plan.Problem{{Severity: plan.Error, Code: "Tab", Text: "a tab"}}
		rep := r.pass(rec, bad)
		if !rep.Accepted || rep.States[b.Work].State != plan.StateClaimed || rep.States[a2.Work].State != plan.StateClaimed || rep.States[a.Work].State != plan.StateHeld {
			t.Fatalf("accepted %v, states %v", rep.Accepted, rep.States)
		}
		<-time.After(20 * time.Second)
		r.pass(rec, bad)
		if r.acts(reconcile.Stop) != 0 {
			t.Fatal("stopped by a plan with errors")
		}
		r.pass(rec, r.desired("c3", a2, b))
		if rec := r.lease(a.Work); !rec.Stopped() {
			t.Errorf("lease of what left: %+v", rec)
		}
	})
}

// A rename, a revert, a move: the same work, so nothing starts and nothing stops.
func TestTheNameIsNotIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{model: sim.Model{Step: time.Second}})
		a := job("a", steps(100, 10))
		b := a
		b.Name, b.Group = "renamed", "renamed"
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		<-time.After(5 * time.Second)
		r.until(rec, r.desired("c2", b), time.Hour, allFinished)
		other := job("renamed", steps(100, 10), func(j *plan.Job) { j.Seed = 3 })
		r.until(rec, r.desired("c3", other), time.Hour, allFinished)
		rep := r.until(rec, r.desired("c4", b), time.Hour, allFinished)
		if n := r.sim.Meter().Started; n != 2 || r.acts(reconcile.Stop) != 0 {
			t.Errorf("%d launches and %d stops, want 2 and 0", n, r.acts(reconcile.Stop))
		}
		if !strings.Contains(rep.States[b.Work].Reason, "finished by attempt 1") {
			t.Errorf("the revert says %v", rep.States[b.Work])
		}
	})
}

// Two repositories on one store name one work: what one drops, the other still wants.
func TestWorkOfAnotherPlanIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
		a, b := job("a", steps(200, 10), onDelete(plan.Revoke)), job("b", steps(200, 10))
		named := func(root string, d *reconcile.Desired) *reconcile.Desired {
			d.Plan.Config.Name = root
			return d
		}
		one, two := r.reconciler(nil), r.reconciler(nil)
		r.pass(one, named("one", r.desired("c1", a, b)))
		r.pass(two, named("two", r.desired("d1", a)))
		<-time.After(10 * time.Second)
		r.until(one, named("one", r.desired("c2", b)), time.Hour, allFinished)
		r.until(two, named("two", r.desired("d1", a)), time.Hour, allFinished)
		r.wholeResult(a.Work, 200)
		if n := r.sim.Meter().Started; n != 2 {
			t.Errorf("%d launches, want 2", n)
		}
	})
}

func TestAcceptedIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20})
		rec, jobs := r.reconciler(nil), numbered(3)
		if a, err := rec.Accepted(t.Context(), ""); a != nil || err != nil {
			t.Fatalf("accepted before anything was: %v, %v", a, err)
		}
		r.pass(rec, r.desired("c1", jobs...))
		a, err := r.reconciler(nil).Accepted(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range a.Jobs {
			got = append(got, fmt.Sprintf("%s %s", j.Name, j.Work.Short()))
		}
		var want []string
		for _, j := range jobs {
			want = append(want, fmt.Sprintf("%s %s", j.Name, j.Work.Short()))
		}
		if diff := cmp.Diff(want, got); diff != "" || a.Commit != "c1" {
			t.Errorf("accepted %s (-want +got):\n%s", a.Commit, diff)
		}
	})
}
