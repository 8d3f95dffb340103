package reconcile_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
)

// A commit is judged by what its plan says of prices; what a market asks on the day is held against guard.price at each
// launch. Asked before: the rung is refused. Known to the platform alone: it may take no such offer, and is parked.
func TestGuardPriceHoldsAtTheLaunch(t *testing.T) {
	for name, c := range map[string]struct {
		guard plan.Guard
		unit  string // of the limit
		mute  bool   // the platform says no price, and takes no offer above the limit that the launch carries
		want  string // "": it runs
		asked int    // launches that the platform was asked for
	}{
		"the market asks more":     {guard: plan.Guard{Price: usd(0.6)}, want: "here: it costs 1.00 USD per hour, above guard.price of 0.60 USD per hour"},
		"only the offers say so":   {guard: plan.Guard{Price: usd(0.6)}, mute: true, want: "no offer below 0.6 per hour", asked: 1},
		"it asks less":             {guard: plan.Guard{Price: usd(1.5)}, asked: 1},
		"the offers are below":     {guard: plan.Guard{Price: usd(1.5)}, mute: true, asked: 1},
		"the rule only warns":      {guard: plan.Guard{Price: usd(0.6), Warn: []string{"price"}}, asked: 1},
		"and so it does at offers": {guard: plan.Guard{Price: usd(0.6), Warn: []string{"price"}}, mute: true, asked: 1},
		"another unit":             {guard: plan.Guard{Price: plan.Money{Amount: 0.1, Unit: "credits"}}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{})
				r.conf.Guard = c.guard
				p := r.conf.Platforms["here"]
				p.Price = usd(0.5) // which the commit is judged by
				r.conf.Platforms["here"] = p
				rec := r.reconciler(func(rc *reconcile.Config) {
					if c.mute {
						rc.Runners = map[string]runners.Runner{"here": unpriced{r.sim}}
					}
				})
				j := job("a")
				rep := r.pass(rec, r.desired("c1", j))
				defer rec.Wait()
				if rep.Commit != "c1" || len(rep.Refusals) != 0 {
					t.Errorf("in force is %q, refused: %v", rep.Commit, rep.Refusals)
				}
				s := rep.States[j.Work]
				started := c.want == ""
				if (r.sim.Meter().Started == 1) != started || r.claims(j.Work) != c.asked || !strings.Contains(s.Reason, c.want) {
					t.Errorf("%d started of %d claimed; %s: %s", r.sim.Meter().Started, r.claims(j.Work), s.State, s.Reason)
				}
				x := r.explain(rec, j)
				if !strings.Contains(x.Now.Reason, c.want) || x.Spent != 0 {
					t.Errorf("explain: %s: %s; %d spent", x.Now.Kind, x.Now.Reason, x.Spent)
				}
			})
		})
	}
}

func usd(v float64) plan.Money { return plan.Money{Amount: v, Unit: "USD"} }

// A commit that is acted on ahead of the pass over everything is held by it as well.
func TestGuardPriceHoldsAheadOfThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		r.conf.Guard = plan.Guard{Price: usd(0.6)}
		p := r.conf.Platforms["here"]
		p.Price = usd(0.5) // which the commit is judged by; the market asks for 1
		r.conf.Platforms["here"] = p
		said := &aheads{}
		rec := r.reconciler(func(c *reconcile.Config) { c.Log = slog.New(said) })
		jobs := numbered(8, func(j *plan.Job) { j.Suspend = true })
		r.pass(rec, r.desired("c1", jobs...))
		more := job("more")
		rep := r.pass(rec, r.desired("c2", append(jobs, more)...))
		defer rec.Wait()
		if s := rep.States[more.Work]; said.n.Load() != 1 || r.claims(more.Work) != 0 || r.sim.Meter().Started != 0 || !strings.Contains(s.Reason, "above guard.price") {
			t.Errorf("ahead %d times, %d claimed, %d started; %s", said.n.Load(), r.claims(more.Work), r.sim.Meter().Started, s.Reason)
		}
	})
}
