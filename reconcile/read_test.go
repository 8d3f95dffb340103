package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/sim"
)

// What Check says beforehand is what a pass says afterwards: trailers and the repository's refusals count in both.
func TestCheckSaysWhatAPassSays(t *testing.T) {
	shapes := map[string]struct {
		change func(d *reconcile.Desired)
		codes  []string
	}{
		"nothing to refuse":     {nil, nil},
		"too many stops":        {func(d *reconcile.Desired) { d.Plan.Jobs = d.Plan.Jobs[6:] }, []string{"TooManyStops"}},
		"exactly allowed":       {func(d *reconcile.Desired) { d.Plan.Jobs, d.AllowStops = d.Plan.Jobs[6:], 6 }, nil},
		"another number":        {func(d *reconcile.Desired) { d.Plan.Jobs, d.AllowStops = d.Plan.Jobs[6:], 5 }, []string{"TooManyStops"}},
		"empty":                 {func(d *reconcile.Desired) { d.Plan.Jobs = nil }, []string{"EmptyPlan"}},
		"empty, and allowed":    {func(d *reconcile.Desired) { d.Plan.Jobs, d.AllowStops, d.AllowEmpty = nil, 8, true }, nil},
		"not fresh":             {func(d *reconcile.Desired) { d.Plan.Jobs, d.Fresh = d.Plan.Jobs[1:], false }, []string{"NotFresh"}},
		"not complete":          {func(d *reconcile.Desired) { d.Complete = false }, []string{"NotComplete"}},
		"history was rewritten": {func(d *reconcile.Desired) { d.Refusals = []reconcile.Refusal{{Code: "HistoryRewritten", Text: "x"}} }, []string{"HistoryRewritten"}},
		"rewritten, and empty": {func(d *reconcile.Desired) {
			d.Plan.Jobs, d.Refusals = nil, []reconcile.Refusal{{Code: "WentBack", Text: "x"}}
		}, []string{"WentBack", "EmptyPlan"}},
	}
	for name, c := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 10, model: sim.Model{Steps: 5000, Step: time.Second}})
				jobs := numbered(8, steps(5000, 10))
				r.pass(r.reconciler(nil), r.desired("c1", jobs...))
				<-time.After(time.Minute)
				d := r.desired("c2", jobs...)
				if c.change != nil {
					c.change(d)
				}
				before, err := r.reconciler(func(c *reconcile.Config) { c.Bucket = readonly.New(r.store) }).Check(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				after := r.pass(r.reconciler(nil), d)
				if diff := cmp.Diff(after.Refusals, before, cmpopts.IgnoreFields(reconcile.Refusal{}, "New"), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("a pass refuses (-) and Check said (+):\n%s", diff)
				}
				var codes []string
				for _, refusal := range before {
					codes = append(codes, refusal.Code)
				}
				if diff := cmp.Diff(c.codes, codes); diff != "" {
					t.Errorf("refusals (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Looking needs no runner: a platform that this program can't launch on, or that is not configured at all, keeps nobody
// from seeing what is there; what would be launched says why it can't.
func TestLookingNeedsNoRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 die 47"})
		j := job("a")
		d := r.desired("c1", j)
		r.pass(r.reconciler(nil), d)
		<-time.After(10 * time.Minute)
		reader := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Runners, c.Dry = readonly.New(r.store), nil, true })
		w, err := reader.Observe(t.Context(), []plan.Digest{j.Work}, d.Plan.Jobs)
		if err != nil || w.Observed()[j.Work].State != plan.StateHeld {
			t.Errorf("observed %+v, error %v", w, err)
		}
		if a, err := reader.Accepted(t.Context(), ""); err != nil || a == nil || a.Commit != "c1" {
			t.Errorf("accepted %+v, error %v", a, err)
		}
		if refusals, err := reader.Check(t.Context(), d); err != nil || len(refusals) > 0 {
			t.Errorf("refusals %v, error %v", refusals, err)
		}
		if e := r.explain(reader, j); e.Now.Kind != reconcile.WriteOff || len(e.Lines) != 1 {
			t.Errorf("explained as %+v", e)
		}
		// A pass without the runner recovers what it can, and says what it can't.
		bare := r.reconciler(func(c *reconcile.Config) { c.Runners = nil })
		rep := r.until(bare, d, time.Hour, stateIs(j.Work, plan.StateRevoked))
		last := rep.Actions[len(rep.Actions)-1]
		if last.Kind != reconcile.Blocked || !strings.Contains(last.Reason, fmt.Sprintf("no runner %q", "sim")) {
			t.Errorf("stands at %+v", last)
		}
		if r.claims(j.Work) != 1 {
			t.Errorf("%d claims", r.claims(j.Work))
		}
	})
}
