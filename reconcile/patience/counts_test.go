package patience_test

import (
	"math"
	"testing"

	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/witness"
)

// How many captures make the greatest of them a bound of the next, with 95 % confidence: 1 - p^n ≥ .95 (science.md §4.2). The
// rule of the window changes at the first of them.
func TestHowManyCapturesBoundAQuantile(t *testing.T) {
	for p, want := range map[float64]int{.90: 29, .95: 59, .99: 299} {
		n := 1
		for 1-math.Pow(p, float64(n)) < .95 {
			n++
		}
		if n != want {
			t.Errorf("%v: %d, want %d", p, n, want)
		}
	}
	for n, want := range map[int]patience.Rule{28: patience.RulePrediction, 29: patience.RuleQuantile} {
		obs := make([]patience.Capture, n)
		for i := range obs {
			obs[i].S = 300
		}
		if got := patience.Window(patience.BareContainer, "capture", obs, patience.Costs{}); got.Rule != want {
			t.Errorf("%d captures: by %s, want %s", n, got.Rule, want)
		}
	}
}

// Writes per hour of a lease that is renewed at a third of it, and what a million of them at 5 USD make of that. science.md §4.1
// renews at a quarter: 480 at 30 s and 48 at 300 s, four thirds of these.
func TestWritesPerHour(t *testing.T) {
	for seconds, want := range map[float64]float64{30: 360, 300: 36} {
		writes := 3600 / (witness.Lease{Seconds: seconds}).RenewAfter().Seconds()
		near(t, "writes per hour", writes, want, 1e-9)
		near(t, "of science.md", writes*4/3, 4*3600/seconds, 1e-9)
		near(t, "USD per hour", writes*5/1e6, .054/seconds, 1e-9)
	}
}
