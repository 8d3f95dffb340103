package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// kinds are the drifts of a report, as "job: kind".
func kinds(list []plan.Drift) (out []string) {
	for _, d := range list {
		out = append(out, d.Job+": "+d.Kind)
	}
	return out
}

// looker is a reconciler that writes nothing, as status and plan have it.
func (r *rig) looker() *reconcile.Reconciler {
	return r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Dry = readonly.New(r.store), true })
}

// A lease that a person ends is drift, for whoever looks and for the loop, until the plan's next attempt has it. What the loop
// ends itself is none.
func TestALeaseThatIsRevokedByHandIsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, model: sim.Model{Step: 10 * time.Second}, script: "worker 1 die 40\nworker 2 die 40\nworker 3 die 40"})
		jobs := numbered(3)
		d, rec, now := r.desired("c1", jobs...), r.reconciler(nil), r.looker()
		defer rec.Wait()
		r.passFor(rec, d, 3*time.Minute, func(rep *reconcile.Report) {
			if len(rep.Drift) > 0 {
				t.Errorf("nobody did anything: %v", rep.Drift)
			}
		})
		v := runners.Dispatcher{Bucket: r.store}
		for i, stop := range []bool{false, true} {
			if _, err := v.Revoke(t.Context(), string(jobs[i].Work), "by ann\x1b[31m", runners.RevokeOptions{Stop: stop}); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{jobs[0].Name + ": ended", jobs[1].Name + ": ended"}
		for _, rep := range []*reconcile.Report{r.pass(now, d), r.pass(rec, d)} {
			if diff := cmp.Diff(want, kinds(rep.Drift)); diff != "" {
				t.Error(diff)
			}
			for i, words := range []string{"attempt 1 was revoked outside the plan (by ann", "attempt 1 was stopped outside the plan (by ann"} {
				if text := rep.Drift[i].Text; !strings.HasPrefix(text, words) || strings.Contains(text, "\x1b") {
					t.Errorf("%q", text)
				}
			}
		}
		r.until(rec, d, time.Hour, func(rep *reconcile.Report) bool { return len(rep.Drift) == 0 && r.lease(jobs[0].Work).Attempt == 2 })
		written := r.acts(reconcile.WriteOff)
		r.until(rec, d, 6*time.Hour, func(rep *reconcile.Report) bool {
			if len(rep.Drift) > 0 {
				t.Errorf("what the loop does itself: %v", rep.Drift)
			}
			return allFinished(rep)
		})
		if written+r.acts(reconcile.WriteOff) == 0 {
			t.Error("nothing was written off, so nothing was shown")
		}
	})
}

// A job that is edited while it runs goes on by the old terms: from the next pass on that is drift. In the commit that edits it
// it is intent, and a diff says it as such.
func TestWhatRunsByOlderTermsIsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, model: sim.Model{Step: time.Minute}})
		r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: 1}
		rec := r.reconciler(func(c *reconcile.Config) { c.Runners["there"] = r.sim })
		defer rec.Wait()
		a := job("a")
		edited := job("a", func(j *plan.Job) {
			j.Milestones.Steps, j.On, j.ExitCodes.Retry = 20, []string{"there"}, []int{75}
			j.Watch = plan.Watch{Path: "out/*.pt", Interval: time.Minute}
			j.Lease = plan.Lease{K: 80, Floor: time.Minute}
		})
		if a.Work != edited.Work {
			t.Fatal("placement is identity")
		}
		r.until(rec, r.desired("c1", a), time.Hour, stateIs(a.Work, plan.StateHeld))
		next := r.desired("c2", edited)
		if rep := r.pass(r.looker(), next); len(rep.Drift) > 0 {
			t.Errorf("a diff: %v", rep.Drift)
		}
		if rep := r.pass(rec, next); len(rep.Drift) > 0 {
			t.Errorf("the pass that accepts it: %v", rep.Drift)
		}
		rep := r.pass(rec, next)
		if diff := cmp.Diff([]string{"a: platform", "a: terms"}, kinds(rep.Drift)); diff != "" {
			t.Fatal(diff)
		}
		if want := "attempt 1 runs on here, and its ladder is there"; rep.Drift[0].Text != want {
			t.Error(rep.Drift[0].Text)
		}
		if want := "attempt 1 was launched with milestones 10 steps, now 20 steps, lease.k 50, now 80, lease.floor 15s, now 1m0s, watch.path left out, now out/*.pt, watch.interval left out, now 1m0s, exit_codes.retry left out, now 75"; rep.Drift[1].Text != want {
			t.Error(rep.Drift[1].Text)
		}
		if got := r.pass(r.looker(), next).Drift; !cmp.Equal(got, rep.Drift) {
			t.Errorf("whoever looks: %v", got)
		}
		if rep := r.pass(rec, r.desired("c3", a)); len(rep.Drift) > 0 {
			t.Errorf("taken back: %v", rep.Drift)
		}
	})
}

// What runs and no job names: work that may finish unmanaged, and what a platform lists without an explanation.
func TestWhatRunsForNoJobIsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		var err error
		if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: 4, Bucket: r.store, Model: sim.Model{Step: time.Minute}, Price: 1, UntilReleased: true}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.sim.Close)
		r.conf.Platforms["here"] = plan.Platform{Name: "here", Runner: "sim", Slots: 4}
		foreign := runners.Launch{Work: record.Hash([]byte("theirs")), Dispatch: 7, Job: "theirs"}
		if _, err := r.sim.Launch(t.Context(), []runners.Launch{foreign}); err != nil {
			t.Fatal(err)
		}
		a, b := job("a", func(j *plan.Job) { j.OnDelete = plan.Orphan }), job("b")
		rec := r.reconciler(nil)
		defer rec.Wait()
		r.until(rec, r.desired("c1", a, b), time.Hour, stateIs(a.Work, plan.StateHeld))
		var last []plan.Drift
		r.passFor(rec, r.desired("c2", b), 25*time.Minute, func(rep *reconcile.Report) { last = rep.Drift })
		if diff := cmp.Diff([]string{": orphan", "a: unnamed"}, kinds(last)); diff != "" {
			t.Fatalf("%s\n%v", diff, last)
		}
		if s := last[0].String(); !strings.Contains(s, "dispatch 7 runs on here and nothing explains it: no claim of this store names it") || !strings.Contains(s, "to end it: ") {
			t.Error(s)
		}
		if s := last[1].String(); s != "a: attempt 1 runs on here and no job names it; on_delete: orphan lets it finish" {
			t.Error(s)
		}
	})
}

// A board carries the errors of the newest files and the drift of its pass, less of what its leases say otherwise by now; and a report lists no more than a person
// reads.
func TestABoardShowsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 600, model: sim.Model{Step: time.Minute}})
		jobs := numbered(600)
		rec := r.reconciler(func(c *reconcile.Config) { c.Board = true })
		defer rec.Wait()
		c1 := r.desired("c1", jobs...)
		r.until(rec, c1, time.Hour, func(rep *reconcile.Report) bool {
			held := 0
			for _, s := range rep.States {
				if s.State == plan.StateHeld {
					held++
				}
			}
			return held == 600
		})
		c2 := r.desired("c2", numbered(600, func(j *plan.Job) { j.Milestones.Steps = 20 })...)
		c2.Plan.Problems = []plan.Problem{{Severity: plan.Error, Code: "UnknownField", Text: "what is this"}, {Severity: plan.Warning, Text: "a warning"}}
		var rep *reconcile.Report
		r.passFor(rec, c2, 3*time.Minute, func(got *reconcile.Report) { rep = got })
		if n := len(rep.Drift); n != 101 || !strings.HasSuffix(rep.Drift[100].String(), "and 499 more are not listed") {
			t.Fatalf("%d drifts: %v", n, rep.Drift[n-1])
		}
		name := jobs[7].Name
		b, _, err := reconcile.ReadBoard(t.Context(), r.store, "", func(row *reconcile.BoardRow) bool { return row.Job == name })
		if err != nil || !slices.Equal(kinds(b.Drift), []string{name + ": terms"}) {
			t.Errorf("%v, %v", b, err)
		}
		if b, _, err = reconcile.ReadBoard(t.Context(), r.store, "", nil); err != nil || len(b.Drift) != 100 || len(b.Wrong) != 1 || b.Wrong[0].Text != "what is this" {
			t.Errorf("%d drifts, %d errors of files, %v", len(b.Drift), len(b.Wrong), err)
		}
	})
}
