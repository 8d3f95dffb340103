package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
)

// reason is what the last action about a job says, by its name at the time.
func reason(rep *reconcile.Report, name string) string {
	for _, a := range slices.Backward(rep.Actions) {
		if a.Job == name {
			return a.Reason
		}
	}
	return ""
}

// Whoever only looks sees why each job is where it is: also what waits, what leaves, and what a guard holds back.
func TestADryPassSaysTheReasonOfEachJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Second}})
		jobs := numbered(5, steps(5000, 1000))
		full, later := job("later"), job("off", func(j *plan.Job) { j.Suspend = true })
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", jobs...))
		<-time.After(8 * time.Second)
		d := r.desired("c2", append(slices.Clone(jobs[1:]), full, later)...)
		r.pass(rec, d)
		accepted := func(context.Context, string) (*plan.Plan, error) { return d.Plan, nil }
		dry := func(d *reconcile.Desired, load func(context.Context, string) (*plan.Plan, error)) *reconcile.Report {
			return r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry, c.Load = true, load }), d)
		}
		rep := dry(d, nil)
		for name, want := range map[string]string{"job-00000": "left the plan; attempt 1 stops after its next milestone", "job-00001": "holds the lease",
			"later": "all 5 slots are taken", "off": "suspended"} {
			if got := reason(rep, name); !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q in it", name, got, want)
			}
		}
		if s := rep.States[jobs[0].Work]; s.State != plan.StateHeld || !strings.Contains(s.Reason, "left the plan") {
			t.Errorf("what leaves is %v", s)
		}
		refused := r.desired("c3", full, job("another"))
		rep = dry(refused, accepted)
		for name, want := range map[string]string{"another": "its commit is not followed: 4 of 4 live works would leave", "later": "all 5 slots are taken",
			"job-00001": "holds the lease", "job-00000": "left the plan"} {
			if got := reason(rep, name); rep.Accepted || !strings.Contains(got, want) {
				t.Errorf("refused %v: %s: %q, want %q in it", rep.Refusals, name, got, want)
			}
		}
		bad := r.desired("c4", full)
		bad.Plan.Problems = []plan.Problem{{Severity: plan.Error, Code: "Tab", Text: "a tab"}}
		bad.Plan.Frozen = []plan.Frozen{{Name: "off"}}
		rep = dry(bad, nil)
		for name, want := range map[string]string{"off": "its file has an error", "job-00001": "cannot be read here"} {
			if got := reason(rep, name); !strings.Contains(got, want) {
				t.Errorf("with errors: %s: %q, want %q in it", name, got, want)
			}
		}
	})
}

// Among jobs of one priority that wait for a slot, one that was launched before goes first.
func TestWhatWasBegunGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "launch 1 reject"})
		z, a := job("z"), job("a")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", z))
		<-time.After(30 * time.Second) // its pause is over
		r.pass(rec, r.desired("c2", a, z))
		if x, y := r.claims(a.Work), r.claims(z.Work); x != 0 || y != 2 {
			t.Errorf("a was launched %d times and z %d times, want z to go first", x, y)
		}
		r.until(rec, r.desired("c2", a, z), time.Hour, allFinished)
	})
}
