package patience_test

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/headway-run/headway/reconcile/patience"
)

// L3's third bound: with 95 % confidence 95 % of all captures lie below it (one-sided tolerance). The window takes the bound of the
// next one, which is what it waits for; this one says how much farther a standing promise would have to reach.
func TestL3Tolerance(t *testing.T) {
	fit, _ := patience.Fit(captures(180, 240, 210, 420, 300))
	s := fit.Sigma * math.Sqrt(5.0/4)
	k := distuv.NoncentralT{Nu: 4, Mu: distuv.UnitNormal.Quantile(.95) * math.Sqrt(5)}.Quantile(.95) / math.Sqrt(5)
	near(t, "factor", k, 4.203, 1e-3)
	near(t, "tolerance", math.Exp(fit.Mu+k*s), 1035.6, 1e-3)
	if next := patience.Predict(patience.Lognormal{Mu: fit.Mu, Sigma: s}, 5, .95); next >= math.Exp(fit.Mu+k*s) {
		t.Errorf("the bound of the next one, %v, lies above that of nearly all", next)
	}
}

// Science.md §4.5: under a lease that survives 5 medians the share of steps above 4 is .00078 where those that it killed count as
// censored, and half of that where they are left out.
func TestTheKilledTellOfTheTail(t *testing.T) {
	const n = 1_000_000_000
	truth := patience.Tail{Alpha: 3, A: .05}
	var with patience.Ratios
	for r := 2.0; r < 5; r += .001 {
		with.Add(r+.0005, int64(n*(truth.Above(r)-truth.Above(r+.001))), false)
	}
	without := with
	with.Add(5, int64(n*truth.Above(5)), true)
	with.Add(1, n-with.N, false)
	without.Add(1, n-without.N, false)
	got, ok := with.Tail(false)
	if !ok {
		t.Fatal("no tail")
	}
	near(t, "slope", got.Alpha, 3, 1e-3)
	near(t, "share above 4", got.Above(4), .00078, 5e-3)
	near(t, "share above 4 of those that finished", (truth.Above(4)-truth.Above(5))/(1-truth.Above(5)), .00037, .04)
	if wrong, _ := without.Tail(false); wrong.Above(4) > .6*got.Above(4) {
		t.Errorf("without the killed the tail is as heavy: %v above 4", wrong.Above(4))
	}
}

// Science.md §4.1 and §4.7: pauses that do not scale with the step are what the floor is for; and what a data centre loses.
func TestFloorsAndLosses(t *testing.T) {
	near(t, "a pause of 10 s in steps of 20 ms", 10/.02, 500, 1e-9)
	near(t, "and in one of 20 s", (20+10)/20.0, 1.5, 1e-9)
	if k := (patience.Balance{Step: .02, Loss: 1500, Deaths: sixHours}).Best(patience.Tail{Alpha: 3, A: .05}); k*.02 > 30 {
		t.Errorf("the best lease of steps of 20 ms is %v s: no floor of 30 s would be needed", k*.02)
	}
	near(t, "hours between two stops of the job", 54*24/419.0, 3.09, 1e-3)
	near(t, "days between two of a node of 8", 54*16384/8/419.0, 264, 1e-3)
}
