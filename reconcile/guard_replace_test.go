package reconcile_test

import (
	"context"
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

func seed(n int64) func(*plan.Job) { return func(j *plan.Job) { j.Seed = n } }

func group(name string) func(*plan.Job) { return func(j *plan.Job) { j.Group = name } }

func needs(job string, w plan.Digest) func(*plan.Job) {
	return func(j *plan.Job) { j.Inputs = []plan.Input{{Job: job, Work: w}} }
}

// A commit that replaces work which has run for longer than guard.replace_after is followed only where its message says so,
// by the names of jobs or groups, or by their exact number. Whoever looks says the same, after a restart too.
func TestOldWorkIsReplacedOnlyWhereTheCommitNamesIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		ran   time.Duration
		allow []string
		ok    bool
	}{
		{"young", 5 * time.Hour, nil, true},
		{"old", 7 * time.Hour, nil, false},
		{"named", 7 * time.Hour, []string{"a", "b"}, true},
		{"named one of two", 7 * time.Hour, []string{"b"}, false},
		{"by group", 7 * time.Hour, []string{"sweep"}, true},
		{"by number", 7 * time.Hour, []string{"2"}, true},
		{"by another number", 7 * time.Hour, []string{"3"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Minute}})
				r.conf.Guard.ReplaceAfter = 6 * time.Hour
				old := []plan.Job{job("a", group("sweep"), steps(1e5, 10)), job("b", group("sweep"), steps(1e5, 10)), job("c", steps(1e5, 10))}
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", slices.Clone(old)...))
				<-time.After(c.ran)
				r.pass(rec, r.desired("c1", slices.Clone(old)...))
				d := r.desired("c2", job("a", group("sweep"), seed(1), steps(1e5, 10)), job("b", group("sweep"), seed(1), steps(1e5, 10)), old[2])
				d.AllowReplace = c.allow
				for _, who := range []*reconcile.Reconciler{rec, r.reconciler(nil)} {
					checked, err := who.Check(t.Context(), d)
					if err != nil {
						t.Fatal(err)
					}
					if rep := r.pass(who, d); rep.Accepted != c.ok || len(checked) != len(rep.Refusals) && !c.ok {
						t.Fatalf("accepted %v: %+v; check says %+v", rep.Accepted, rep.Refusals, checked)
					}
				}
				<-time.After(30 * time.Minute)
				rep := r.pass(rec, d)
				if stopped := r.lease(old[0].Work).Stopped(); stopped != c.ok || rep.Accepted != c.ok || r.lease(old[2].Work).Stopped() {
					t.Errorf("stopped %v, accepted %v", stopped, rep.Accepted)
				}
			})
		})
	}
}

// What is said of it: the code, for how long it has run, and the line that would allow it; once.
func TestWhatIsSaidOfAnOldReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Minute}})
		r.conf.Guard.ReplaceAfter = 6 * time.Hour
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", job("a", steps(1e5, 10))))
		<-time.After(7 * time.Hour)
		d := r.desired("c2", job("a", seed(1), steps(1e5, 10)))
		rep := r.pass(rec, d)
		if len(rep.Refusals) != 1 {
			t.Fatalf("%+v", rep.Refusals)
		}
		x := rep.Refusals[0]
		if x.Code != reconcile.CodeGuardReplaceAfter || !x.Whole || !x.New || !strings.Contains(x.Text, "was first launched 7h0m0s ago") || !strings.Contains(x.Hint, "say so in the commit message: Allow-Replace: a (a label would") {
			t.Errorf("%+v", x)
		}
		if again := r.pass(r.reconciler(nil), d).Refusals; len(again) != 1 || again[0].New {
			t.Errorf("said again: %+v", again)
		}
		// Where it only warns, the commit is followed, and the warning comes with that pass alone.
		r.conf.Guard.Warn = []string{"replace_after"}
		d = r.desired("c3", job("a", seed(1), steps(1e5, 10)))
		if rep := r.pass(rec, d); !rep.Accepted || len(rep.Warnings) != 1 || rep.Warnings[0].Code != reconcile.CodeGuardReplaceAfter || rep.Warnings[0].Severity != plan.Warning {
			t.Errorf("accepted %v: %v", rep.Accepted, rep.Warnings)
		}
		if rep := r.pass(rec, d); len(rep.Warnings) != 0 {
			t.Errorf("warned again: %v", rep.Warnings)
		}
	})
}

// What follows from a replacement upstream is one too; what only leaves, moves or is no longer running is none.
func TestWhatCountsAsReplaced(t *testing.T) {
	a, z := job("a", steps(1e5, 10)), job("z", steps(1e5, 10))
	b := job("b", needs("a", a.Work), steps(1e5, 10))
	a2 := job("a", seed(1), steps(1e5, 10))
	moved := a
	moved.Name, moved.Group = "renamed", "renamed"
	for _, c := range []struct {
		name   string
		before []plan.Job
		after  []plan.Job
		codes  int
	}{
		{"other work", []plan.Job{a, z}, []plan.Job{a2, z}, 1},
		{"through needs", []plan.Job{a, b}, []plan.Job{a2, job("b", needs("a", a2.Work), steps(1e5, 10))}, 1},
		{"removed", []plan.Job{a, z}, []plan.Job{z}, 0},
		{"renamed", []plan.Job{a, z}, []plan.Job{moved, z}, 0},
		{"an orphan", []plan.Job{job("a", onDelete(plan.Orphan), steps(1e5, 10)), z}, []plan.Job{a2, z}, 0},
		{"finished by now", []plan.Job{job("a", steps(10, 10)), z}, []plan.Job{a2, z}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Minute}})
				r.conf.Guard.ReplaceAfter = time.Hour
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", c.before...))
				<-time.After(2 * time.Hour)
				if rep := r.pass(rec, r.desired("c2", c.after...)); len(rep.Refusals) != c.codes || rep.Accepted != (c.codes == 0) {
					t.Errorf("accepted %v: %+v", rep.Accepted, rep.Refusals)
				}
			})
		})
	}
}

// A rule that is broken keeps the whole of the accepted plan, which goes on; a rule that warns keeps nothing.
func TestABrokenRuleKeepsTheAcceptedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
		rec := r.reconciler(nil)
		a := job("a", steps(100, 10), onDelete(plan.Revoke))
		r.pass(rec, r.desired("c1", a))
		<-time.After(5 * time.Second)
		r.conf.Guard.Price = plan.Money{Amount: 0.5, Unit: "USD"}
		r.conf.Platforms["here"] = plan.Platform{Name: "here", Runner: "sim", Slots: 5, Price: plan.Money{Amount: 1, Unit: "USD"}}
		b := job("b")
		rep := r.pass(rec, r.desired("c2", b))
		if rep.Accepted || len(rep.Refusals) != 1 || rep.Refusals[0].Code != reconcile.CodeGuardPrice || r.acts(reconcile.Stop) != 0 || r.claims(b.Work) != 0 {
			t.Fatalf("accepted %v: %+v", rep.Accepted, rep.Refusals)
		}
		if again := r.pass(r.reconciler(nil), r.desired("c2", b)).Refusals; again[0].New {
			t.Error("said again")
		}
		r.until(rec, r.desired("c2", b), time.Hour, func(*reconcile.Report) bool { return r.lease(a.Work).State == witness.Finished })
		r.wholeResult(a.Work, 100)
		r.conf.Guard.Warn = []string{"price"}
		if rep := r.pass(rec, r.desired("c3", b)); !rep.Accepted || len(rep.Warnings) != 1 || r.claims(b.Work) != 1 {
			t.Errorf("accepted %v: %+v %v", rep.Accepted, rep.Refusals, rep.Warnings)
		}
	})
}

// Whoever can be asked otherwise allows a replacement too, job by job, and is asked of what the message does not name alone. The
// sentence of the refusal names both ways, or that there is no second one; a number in it is the one that the message needs.
func TestAReplacementIsApprovedOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 9, model: sim.Model{Step: time.Minute}})
		r.conf.Guard.ReplaceAfter, r.conf.Guard.ReplaceLabel = 6*time.Hour, "go: ahead"
		names := []string{"a", "b", "c", "d", "e"}
		var before, after []plan.Job
		for _, n := range names {
			before, after = append(before, job(n, steps(1e5, 10))), append(after, job(n, seed(1), steps(1e5, 10)))
		}
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", before...))
		<-time.After(7 * time.Hour)
		var asked []string
		d := r.desired("c2", after...)
		d.AllowReplace, d.AllowStops = []string{"c"}, 5
		approve := func(allowed ...string) {
			d.Approved = func(_ context.Context, jobs []string) []string { asked = jobs; return allowed }
		}
		for _, c := range []struct {
			what string
			set  func()
			hint string
		}{
			{"nobody to ask", func() {}, "if they shall be replaced, say so in the commit message, by the names of jobs or groups or by their exact number: Allow-Replace: 5 (a label would count only where headway watch --forge asks for it)"},
			{"nothing is approved", func() { approve() }, "put the label go: ahead on its pull request, or say so in the commit message, by the names of jobs or groups or by their exact number: Allow-Replace: 5"},
			{"all but one", func() { approve("a", "b", "d") }, "if it shall be replaced, put the label go: ahead on its pull request, or say so in the commit message: Allow-Replace: e"},
			{"another job", func() { approve("a", "b", "d", "c", "z") }, "Allow-Replace: e"},
		} {
			c.set()
			rep := r.pass(rec, d)
			if rep.Accepted || len(rep.Refusals) != 1 || !strings.HasSuffix(rep.Refusals[0].Hint, c.hint) {
				t.Errorf("%s: accepted %v: %+v", c.what, rep.Accepted, rep.Refusals)
			}
		}
		if d := cmp.Diff([]string{"a", "b", "d", "e"}, asked); d != "" {
			t.Errorf("asked of: %s", d)
		}
		approve("a", "b", "d", "e")
		if rep := r.pass(rec, d); !rep.Accepted {
			t.Errorf("approved, and refused: %+v", rep.Refusals)
		}
	})
}
