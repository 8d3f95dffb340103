package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// crews lists the jobs of each machine that the rig's platform ever had, in the order in which they were made.
func (r *rig) crews(jobs []plan.Job) (out []string) {
	names := map[string]string{}
	for _, j := range jobs {
		names[string(j.Work)] = j.Name
	}
	on := map[int][]string{}
	for _, in := range r.sim.Truth() {
		on[in.Machine] = append(on[in.Machine], names[in.Work])
	}
	for _, m := range slices.Sorted(maps.Keys(on)) {
		out = append(out, strings.Join(on[m], " "))
	}
	return out
}

// dispatches reads what is recorded of a work's launches.
func (r *rig) dispatches(w plan.Digest) []runners.Dispatch {
	r.t.Helper()
	list, err := runners.Dispatcher{Bucket: r.store}.ReadClaims(r.t.Context(), string(w), 0, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// A launch of two places takes two jobs at a time, each with its own claim, worker and lease; one slot each launch.
func TestJobsShareALaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, capacity: 2})
		jobs := numbered(5)
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		if m := r.sim.Meter(); m.Calls[sim.OpLaunch] != 2 || m.Started != 4 || m.Busy != 2 || rep.Platforms[0].Live != 2 {
			t.Errorf("after the first pass: %+v, %+v", m, rep.Platforms)
		}
		r.until(rec, d, time.Hour, allFinished)
		if diff := cmp.Diff([]string{"job-00000 job-00001", "job-00002 job-00003", "job-00004"}, slices.Sorted(slices.Values(r.crews(jobs)))); diff != "" {
			t.Errorf("who shared a machine (-want +got):\n%s", diff)
		}
		shared := map[string]int{}
		for i, j := range jobs {
			r.wholeResult(j.Work, 100)
			l := r.dispatches(j.Work)
			if len(l) != 1 || l[0].Receipt.Jobs != []int{2, 2, 2, 2, 0}[i] || r.lease(j.Work).Attempt != 1 {
				t.Errorf("%s: %+v", j.Name, l)
			}
			shared[l[0].Claim.Launch]++
		}
		if counts := slices.Sorted(maps.Values(shared)); len(shared) != 3 || !slices.Equal(counts, []int{1, 2, 2}) || shared[""] != 1 {
			t.Errorf("what the claims of one launch have in common: %v", shared)
		}
	})
}

// D8 of the cases: of a launch for two one is refused. Neither starts, nothing is spent, the platform is parked once, and
// both get home when it has room.
func TestALaunchIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, capacity: 2, script: "launch 1 no_slots"})
		jobs := numbered(2, func(j *plan.Job) { j.Limits.Retries = 0 })
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		if m := r.sim.Meter(); m.Calls[sim.OpLaunch] != 1 || m.Started != 0 || rep.Platforms[0].Series != 1 || rep.Platforms[0].Live != 0 {
			t.Errorf("after the refusal: %+v, %+v", m, rep.Platforms)
		}
		for _, j := range jobs {
			if l := r.dispatches(j.Work); len(l) != 1 || l[0].Receipt.Class != string(runners.NoSlots) || l[0].Receipt.Jobs != 2 {
				t.Errorf("%s: %+v", j.Name, l)
			}
		}
		r.until(rec, d, time.Hour, allFinished)
		if got := r.crews(jobs); len(got) != 1 || r.acts(reconcile.Release) != 0 {
			t.Errorf("machines: %v; %d releases", got, r.acts(reconcile.Release))
		}
	})
}

// The same where the platform starts the first of the two before it refuses the second: what was started is ended and not paid for
// any more, both records say the same refusal, and the platform is parked once.
func TestOneOfALaunchIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, capacity: 2, script: "launch 1 part"})
		jobs := numbered(2, func(j *plan.Job) { j.Limits.Retries = 0 })
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		m := r.sim.Meter()
		if m.Calls[sim.OpLaunch] != 1 || m.Fired[sim.Part] != 1 || m.Started != 1 || m.Live != 0 || m.Busy != 0 || m.Paid != 0 {
			t.Errorf("after the refusal: %+v; want one that was started, and nothing that is paid for", m)
		}
		if p := rep.Platforms[0]; p.Series != 1 || p.Live != 0 {
			t.Errorf("the platform: %+v; want it parked once", p)
		}
		for _, j := range jobs {
			if l := r.dispatches(j.Work); len(l) != 1 || l[0].Receipt == nil || l[0].Receipt.OK || l[0].Receipt.Class != string(runners.NoSlots) || l[0].Receipt.Jobs != 2 || l[0].Claim.Launch == "" {
				t.Errorf("%s: %+v", j.Name, l)
			}
		}
		r.until(rec, d, time.Hour, allFinished)
		if got := r.crews(jobs); r.acts(reconcile.Release) != 0 || r.acts(reconcile.Fail) != 0 || got[len(got)-1] != "job-00000 job-00001" || len(got) != 2 {
			t.Errorf("machines: %v; %d releases, %d given up", got, r.acts(reconcile.Release), r.acts(reconcile.Fail))
		}
		for _, j := range jobs {
			r.wholeResult(j.Work, 100)
			if l := r.dispatches(j.Work); l[len(l)-1].Claim.Spent != 0 {
				t.Errorf("%s spent %d retries", j.Name, l[len(l)-1].Claim.Spent)
			}
		}
	})
}

// A launch that a platform refuses for good costs each of its jobs one retry, since nobody knows whose fault it was; the
// next time each goes alone, so that one bad job does not spend the others' budget.
func TestARefusedLaunchIsTakenApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, capacity: 3, script: "launch 1 reject"})
		jobs := numbered(3)
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		r.until(rec, d, time.Hour, allFinished)
		if diff := cmp.Diff([]string{"job-00000", "job-00001", "job-00002"}, slices.Sorted(slices.Values(r.crews(jobs)))); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
		for _, j := range jobs {
			l := r.dispatches(j.Work)
			if len(l) != 2 || l[0].Claim.Launch == "" || l[1].Claim.Launch != "" || l[1].Claim.Spent != 1 {
				t.Errorf("%s: %+v", j.Name, l)
			}
		}
	})
}

// One job of a launch never takes its lease, dies before its first step, or dies in the middle: that is its own affair. The
// others never notice, and its release leaves them alone.
func TestOneOfALaunchFails(t *testing.T) {
	for _, fault := range []string{"mute", "die 0", "die 47", "hang 30", "fail 20"} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 2, capacity: 3, script: "worker 2 " + fault, model: sim.Model{Step: 5 * time.Second}})
				jobs := numbered(3)
				rec, d := r.reconciler(nil), r.desired("c1", jobs...)
				r.until(rec, d, 3*time.Hour, allFinished)
				for i, j := range jobs {
					r.wholeResult(j.Work, 100)
					if n := r.claims(j.Work); n != []int{1, 2, 1}[i] {
						t.Errorf("%s was launched %d times", j.Name, n)
					}
				}
				if m := r.sim.Meter(); m.Live != 0 || m.Busy != 0 {
					t.Errorf("in the end: %+v", m)
				}
			})
		})
	}
}

// A job leaves the plan while another shares its launch: it is stopped and released, the other finishes undisturbed.
func TestAStopLeavesTheOthersOfALaunchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, capacity: 2, model: sim.Model{Step: time.Second}})
		jobs := numbered(2, onDelete(plan.Revoke))
		rec := r.reconciler(nil)
		r.until(rec, r.desired("c1", jobs...), time.Hour, stateIs(jobs[1].Work, plan.StateHeld))
		<-time.After(20 * time.Second)
		d := r.desired("c2", jobs[1])
		r.until(rec, d, time.Hour, stateIs(jobs[1].Work, plan.StateFinished))
		if l := r.lease(jobs[0].Work); l.State != witness.Revoked || r.lease(jobs[1].Work).Attempt != 1 {
			t.Errorf("%+v", l)
		}
		truth := r.sim.Truth()
		if len(truth) != 2 || truth[0].Machine != truth[1].Machine || truth[0].Worked >= truth[1].Worked {
			t.Errorf("%+v", truth)
		}
	})
}

// D11 of the cases: how many slots are taken is read from the store, so one who has just started counts as the one who
// launched them does, and both as the platform does: at every moment of a run with half-empty machines.
func TestMachinesAreCountedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, capacity: 2, script: "worker 2 die 20", model: sim.Model{Start: 2500 * time.Millisecond, Step: time.Second}}) // so that nothing happens at the instant of a look
		var jobs []plan.Job
		for i := range 9 {
			jobs = append(jobs, job(fmt.Sprintf("job-%d", i), steps(int64(20+30*i), 10)))
		}
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		var counts []int
		for {
			rep := r.pass(rec, d)
			if allFinished(rep) {
				break
			}
			fresh := r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry = true }), d)
			if a, b := rep.Platforms[0].Live, fresh.Platforms[0].Live; a != b {
				t.Fatalf("after %d passes: %d slots are taken, for one that has just started %d", len(counts), a, b)
			}
			if m := r.sim.Meter(); m.Busy > 3 || rep.Platforms[0].Live < m.Busy && len(counts) == 0 {
				t.Fatalf("%d machines run, %d are counted", m.Busy, rep.Platforms[0].Live)
			}
			counts = append(counts, rep.Platforms[0].Live)
			<-time.After(time.Second)
		}
		if !slices.Contains(counts, 3) || !slices.Contains(counts, 1) {
			t.Errorf("counted: %v", counts)
		}
	})
}

// What shares a machine has to be alike in what the machine gives away; how many cards each computes on may differ.
func TestClassesDoNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, capacity: 8})
		vary := []func(*plan.Job){func(j *plan.Job) {}, func(j *plan.Job) { j.Trust = "own" }, func(j *plan.Job) { j.Env = map[string]string{"A": "1"} },
			func(j *plan.Job) { j.Requires = map[string]string{"cuda": "12"} }, func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"T4"}, Count: 1} },
			func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"T4"}, Count: 1, DType: "fp16"} }, func(j *plan.Job) { j.Secrets, j.Trust = []string{"TOKEN"}, "own" },
			func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"P100"}, Count: 4} }, func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"T4x4"}, Count: 1} },
			func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"P100"}, Count: 5, DType: "fp32"} }}
		var jobs []plan.Job
		var want []string
		for i, change := range vary {
			a, b := job(fmt.Sprintf("%d-a", i), change), job(fmt.Sprintf("%d-b", i), change, func(j *plan.Job) { j.CodeTree, j.Code = "", "elsewhere" })
			jobs = append(jobs, a, b)
			if i < 9 {
				want = append(want, a.Name+" "+b.Name)
			} else {
				want = append(want, a.Name, b.Name)
			}
		}
		rec := r.reconciler(func(c *reconcile.Config) { c.Secrets = func(string) (string, bool) { return "x", true } })
		r.pass(rec, r.desired("c1", jobs...))
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(r.crews(jobs)))); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
	})
}

// Jobs of 20, 5 and 1 cards fill machines of 20: each gets its own cards, none is on two, and a machine counts as one slot. Only
// what finds no room starts later.
func TestJobsOfSeveralCardsShareALaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, capacity: 20})
		var jobs []plan.Job
		for i, n := range []int{20, 5, 5, 5, 5, 5, 1, 1, 1, 20} {
			jobs = append(jobs, job(fmt.Sprintf("job-%d", i), func(j *plan.Job) {
				j.GPU.Count, j.Priority = n, 10-i
				j.FLOPs.Steps = int64(10 * (1 + i/9))
			}))
		}
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		if diff := cmp.Diff([]string{"job-0", "job-1 job-2 job-3 job-4", "job-5 job-6 job-7 job-8"}, slices.Sorted(slices.Values(r.crews(jobs)))); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
		if why := rep.States[jobs[9].Work].Reason; rep.Platforms[0].Live != 3 || !strings.Contains(why, "3 slots are taken") {
			t.Errorf("%d machines, the last job waits since %q", rep.Platforms[0].Live, why)
		}
		owner := map[string]string{}
		for _, in := range r.sim.Truth() {
			for _, c := range in.Cards {
				at := fmt.Sprint(in.Machine, "/", c)
				if owner[at] != "" {
					t.Errorf("card %s is %s's and %s's", at, owner[at], in.Work)
				}
				owner[at] = in.Work
			}
		}
		if len(owner) != 20+20+8 {
			t.Errorf("%d cards are dealt, want 48", len(owner))
		}
		var shares []float64
		for _, j := range jobs[:9] {
			shares = append(shares, r.dispatches(j.Work)[0].Receipt.Share)
		}
		if diff := cmp.Diff([]float64{0, 0, 0, 0, 0, .625, .125, .125, .125}, shares); diff != "" {
			t.Errorf("parts of the price, where they are not equal (-want +got):\n%s", diff)
		}
		r.until(rec, d, time.Hour, allFinished)
		if got := r.crews(jobs); len(got) != 4 || got[3] != "job-9" {
			t.Errorf("machines: %v", got)
		}
	})
}

// Classes compete for the machines that there are: the first job goes first, and what finds no place is told so and comes
// later; no more machines than slots.
func TestClassesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, capacity: 2})
		var jobs []plan.Job
		for i := range 6 {
			jobs = append(jobs, job(fmt.Sprintf("job-%d", i), func(j *plan.Job) { j.Env = map[string]string{"CLASS": fmt.Sprint(i % 3)} }))
		}
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		if m := r.sim.Meter(); m.Busy != 1 || m.Started != 2 {
			t.Errorf("%+v", m)
		}
		if why := rep.States[jobs[1].Work].Reason; !strings.Contains(why, "slot") {
			t.Errorf("job-1 waits since %q", why)
		}
		dry := r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry = true; c.Bucket = newRig(t, rigConfig{}).store }), d)
		launches := 0
		for _, a := range dry.Actions {
			if a.Kind == reconcile.Launch {
				launches++
			}
		}
		if launches != 2 {
			t.Errorf("a dry pass announces %d launches on one machine of two places", launches)
		}
		r.until(rec, d, time.Hour, allFinished)
		if diff := cmp.Diff([]string{"job-0 job-3", "job-1 job-4", "job-2 job-5"}, r.crews(jobs)); diff != "" {
			t.Errorf("machines (-want +got):\n%s", diff)
		}
	})
}

// The code of one job of a launch takes its time, or can't be bundled: the others start without it.
func TestSlowCodeHoldsUpNobodyOfItsLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, capacity: 3})
		jobs := numbered(3, func(j *plan.Job) { j.CodeTree = j.Name })
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bundle = func(ctx context.Context, j *plan.Job, _ string) error {
				switch j.Name {
				case "job-00000":
					<-time.After(40 * time.Second)
				case "job-00001":
					return fmt.Errorf("a link in its folder")
				}
				return nil
			}
		})
		start := time.Now()
		var first time.Duration
		r.until(rec, r.desired("c1", jobs...), time.Hour, func(rep *reconcile.Report) bool {
			if first == 0 && r.sim.Meter().Started > 0 {
				first = time.Since(start)
			}
			return rep.States[jobs[0].Work].State == plan.StateFinished && rep.States[jobs[2].Work].State == plan.StateFinished
		})
		if diff := cmp.Diff([]string{"job-00002", "job-00000"}, r.crews(jobs)); diff != "" || first > 10*time.Second {
			t.Errorf("the first after %v; machines (-want +got):\n%s", first, diff)
		}
		if r.claims(jobs[1].Work) != 0 || r.dispatches(jobs[2].Work)[0].Claim.Launch != "" {
			t.Error("a job without code was claimed, or one that went alone says that it did not")
		}
	})
}

// packRunner is a dying platform that takes two jobs in one launch.
type packRunner struct{ dyingRunner }

func (packRunner) Capacity() int { return 2 }

// The process is killed at its n-th call while it launches two jobs together, for each n, before and after the call took
// effect: between the two claims, between claims and call, between call and receipts. The windows of what was claimed run
// out, the next numbers are claimed, no number is launched twice, and both works get home.
func TestAPackIsKilledBetweenAnyTwoCalls(t *testing.T) {
	for _, before := range []bool{false, true} {
		for n := 1; ; n++ {
			reached := false
			t.Run(fmt.Sprintf("call %d before %v", n, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { reached = killPackAt(t, n, before) })
			})
			if !reached {
				if n < 30 {
					t.Fatalf("the road has only %d calls", n)
				}
				break
			}
		}
	}
}

func killPackAt(t *testing.T, n int, before bool) (reached bool) {
	r := newRig(t, rigConfig{slots: 4, capacity: 2, script: "worker 1 die 47"})
	jobs := numbered(2)
	d := r.desired("c1", jobs...)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dy := &dying{Bucket: r.store, r: r.sim, kill: kill, left: n, before: before}
	first := r.reconciler(func(c *reconcile.Config) {
		c.Bucket, c.ID, c.Runners = dy, "first", map[string]runners.Runner{"here": packRunner{dyingRunner{dy}}}
	})
	for ctx.Err() == nil {
		rep, err := first.Pass(ctx, d)
		if err == nil && allFinished(rep) {
			break
		}
		next := time.Second
		if rep != nil {
			next = rep.Next
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
	reached = ctx.Err() != nil
	r.until(r.reconciler(func(c *reconcile.Config) { c.ID = "second" }), d, time.Hour, allFinished)
	seen := map[string]int{}
	for _, in := range r.sim.Truth() {
		seen[fmt.Sprintf("%.12s/%d", in.Work, in.Dispatch)]++
		if in.Live {
			t.Errorf("instance %d still runs", in.ID)
		}
	}
	for at, times := range seen {
		if times > 1 {
			t.Errorf("dispatch %s was launched %d times", at, times)
		}
	}
	for _, j := range jobs {
		r.wholeResult(j.Work, 100)
		for _, e := range r.dispatches(j.Work) {
			if rc := e.Receipt; rc != nil && rc.OK && (rc.Jobs > 0) != (e.Claim.Launch != "") {
				t.Errorf("dispatch %d of %s: claim %+v, receipt %+v", e.N, j.Name, e.Claim, rc)
			}
		}
	}
	if len(seen) > 5 {
		t.Errorf("%d launches: one death and one kill of two explain five", len(seen))
	}
	return reached
}
