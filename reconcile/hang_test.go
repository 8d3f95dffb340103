package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// other adds a second simulated platform to a rig.
func (r *rig) other(name, text string, slots int) *sim.Runner {
	r.t.Helper()
	script, err := sim.ParseScript(text)
	if err != nil {
		r.t.Fatal(err)
	}
	run, err := sim.New(sim.Config{Platform: name, Slots: slots, Bucket: r.store, Script: script, Price: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(run.Close)
	r.conf.Platforms[name] = plan.Platform{Name: name, Runner: "sim", Slots: slots}
	return run
}

// A platform that never answers a launch delays nobody: every pass is over soon, a silent worker elsewhere is written
// off in its time and its work finishes, and the hanging platform gets no second try while the first is under way.
func TestAPlatformThatHangsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 30, script: "worker 1 die 47"})
		stuck := r.other("stuck", "launch * hang", 100)
		jobs := numbered(60, func(j *plan.Job) { j.On = []string{"stuck"} })
		good := numbered(20, func(j *plan.Job) { j.Name = "good-" + j.Name; j.Run = "good " + j.Run; j.Argv = []string{j.Name} })
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Runners = map[string]runners.Runner{"here": r.sim, "stuck": stuck}
		})
		d := r.desired("c1", append(jobs, good...)...)
		start, longest := time.Now(), time.Duration(0)
		for done := false; !done; {
			began := time.Now()
			rep := r.pass(rec, d)
			longest = max(longest, time.Since(began))
			if n := stuck.Meter().Calls[sim.OpLaunch]; time.Since(start) < 2*time.Minute && n > 32 {
				t.Fatalf("%d launches went to a platform that answers none", n)
			}
			done = true
			for _, j := range good {
				done = done && rep.States[j.Work].State == plan.StateFinished
			}
			if time.Since(start) > 5*time.Minute {
				t.Fatal("what runs elsewhere is held up")
			}
			<-time.After(rep.Next)
		}
		if longest > 25*time.Second {
			t.Errorf("a pass took %v", longest)
		}
		if r.acts(reconcile.WriteOff) != 1 {
			t.Errorf("%d write-offs, want 1", r.acts(reconcile.WriteOff))
		}
		<-time.After(3 * time.Minute)
		rec.Wait()
		r.pass(rec, d)
		if n, parked := stuck.Meter().Calls[sim.OpLaunch], r.explain(rec, jobs[0]).Now; n > 40 || parked.Kind != reconcile.Wait {
			t.Errorf("%d launches went to it, and now: %+v", n, parked)
		}
	})
}

// A release that hangs delays nobody either, and its work is not launched anew beside it.
func TestAReleaseThatHangsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 100, script: "worker 1..40 hang 20\nrelease 1..40 hang"})
		rec, jobs := r.reconciler(nil), numbered(40)
		d := r.desired("c1", jobs...)
		start := time.Now()
		for done := false; !done; {
			began := time.Now()
			rep := r.pass(rec, d)
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("a pass took %v", took)
			}
			if done = allFinished(rep); time.Since(start) > 2*time.Hour {
				t.Fatalf("not done: %v", rep.States)
			}
			<-time.After(rep.Next)
		}
		for _, j := range jobs {
			r.wholeResult(j.Work, 100)
		}
	})
}

// A launch that is under way when its job leaves the plan claims nothing, if it is not claimed yet.
func TestALaunchUnderWayIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3})
		j, keep := job("a"), job("keep")
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bundle = func(_ context.Context, j *plan.Job, _ string) error {
				if j.Name == "a" {
					<-time.After(time.Minute) // a slow upload
				}
				return nil
			}
		})
		rep := r.pass(rec, r.desired("c1", j, keep))
		last := rep.Actions[len(rep.Actions)-2]
		if last.Work != j.Work || last.Kind != reconcile.Wait || !strings.Contains(last.Reason, "on its way") {
			t.Errorf("a stands at %+v", last)
		}
		<-time.After(10 * time.Second)
		r.until(rec, r.desired("c2", keep), time.Hour, allFinished)
		rec.Wait()
		r.pass(rec, r.desired("c2", keep))
		if n := r.claims(j.Work); n != 0 {
			t.Errorf("%d claims of a job that had left", n)
		}
	})
}

// When the context of a pass ends, nothing of it goes on behind its back.
func TestNothingIsUnderWayAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "launch * hang"})
		rec, d := r.reconciler(nil), r.desired("c1", job("a"))
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := rec.Pass(ctx, d); err != nil {
			t.Fatal(err)
		}
		cancel()
		rec.Wait()
		list, err := runners.Dispatcher{Bucket: r.store}.ReadClaims(t.Context(), string(d.Plan.Jobs[0].Work), 0, 10)
		if err != nil || len(list) != 1 || list[0].Receipt == nil || list[0].Receipt.Class != string(runners.Unreachable) {
			t.Errorf("claims %+v, error %v", list, err)
		}
	})
}

// Whoever makes a single pass waits for what is slow; one that goes on hears of it later.
func TestAPassWaitsAsLongAsItIsTold(t *testing.T) {
	for _, patience := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{script: "launch 1 delay 50s", model: sim.Model{Steps: 5000}})
			rec := r.reconciler(func(c *reconcile.Config) { c.Patience = patience })
			d := r.desired("c1", job("a", steps(5000, 10)))
			start := time.Now()
			r.pass(rec, d)
			if took := time.Since(start); (took < 50*time.Second) != (patience == 0) || (r.acts(reconcile.Launch) == 1) != (patience > 0) {
				t.Errorf("patience %v: the pass took %v, %d launches are reported", patience, took, r.acts(reconcile.Launch))
			}
			r.until(rec, d, 2*time.Minute, func(*reconcile.Report) bool { return r.acts(reconcile.Launch) == 1 })
			if n := r.sim.Meter().Started; n != 1 {
				t.Errorf("%d launches, want 1", n)
			}
		})
	}
}

// Launches that are slow, each within a round's patience, use up that of a pass; the next one follows at once.
func TestSlowLaunchesGoOnWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 400, script: "launch * delay 4s", model: sim.Model{Steps: 50_000}})
		rec, d := r.reconciler(nil), r.desired("c1", numbered(320, steps(50_000, 1000))...)
		start := time.Now()
		r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return r.sim.Meter().Started == 320 })
		if took := time.Since(start); took > 50*time.Second {
			t.Errorf("320 launches, 32 at a time and each of 4 s, took %v", took)
		}
	})
}

// A work that is launched late by another process is judged as ever while our own launch of it is under way.
func TestAHeldWorkIsJudgedWhileItsLaunchIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 die 47"})
		j := job("a")
		d := r.desired("c1", j)
		slow := r.reconciler(func(c *reconcile.Config) {
			c.ID = "slow"
			c.Bundle = func(context.Context, *plan.Job, string) error {
				<-time.After(8 * time.Minute)
				return nil
			}
		})
		r.pass(slow, d)
		r.pass(r.reconciler(nil), d) // launches
		<-time.After(10 * time.Second)
		rep := r.until(slow, d, 7*time.Minute, func(*reconcile.Report) bool { return r.acts(reconcile.WriteOff) == 1 })
		if len(rep.Errors) > 0 {
			t.Error(rep.Errors)
		}
		slow.Wait()
		r.until(slow, d, time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
	})
}
