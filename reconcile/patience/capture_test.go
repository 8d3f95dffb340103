package patience_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/patience"
)

func captures(seconds ...float64) []patience.Capture {
	var out []patience.Capture
	for _, s := range seconds {
		out = append(out, patience.Capture{S: s})
	}
	return out
}

// near fails unless got is want within a share of it.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s: %v, want %v within %v", what, got, want, share)
	}
}

// TestL1KaplanMeier: censored waits count while they last.
func TestL1KaplanMeier(t *testing.T) {
	want := patience.Curve{{42, .916667}, {55, .833333}, {58, .75}, {61, .666667}, {65, .583333}, {75, .486111}, {90, .388889}, {180, .259259}, {300, .129630}}
	// L1 lists 90 among the captured ones and 120 among the censored.
	obs := []patience.Capture{{S: 42}, {S: 55}, {S: 58}, {S: 61}, {S: 65}, {S: 70, Censored: true}, {S: 75}, {S: 90}, {S: 120, Censored: true},
		{S: 180}, {S: 300}, {S: 300, Censored: true}}
	got := patience.Survival(obs)
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); d != "" {
		t.Error(d)
	}
	for p, want := range map[float64]float64{.50: 75, .75: 300} {
		if q, ok := got.Quantile(p); !ok || q != want {
			t.Errorf("quantile %v: %v %v, want %v", p, q, ok, want)
		}
	}
	if q, ok := got.Quantile(.90); ok {
		t.Errorf("the 90 %% quantile does not exist, and is %v", q)
	}
	dropped := slices.DeleteFunc(slices.Clone(obs), func(c patience.Capture) bool { return c.Censored })
	if q, _ := patience.Survival(dropped).Quantile(.75); q != 90 {
		t.Errorf("without the censored ones the 75 %% quantile is %v, want 90", q)
	}
}

// TestL2Lognormal: maximum likelihood on the same data.
func TestL2Lognormal(t *testing.T) {
	obs := []patience.Capture{{S: 42}, {S: 55}, {S: 58}, {S: 61}, {S: 65}, {S: 70, Censored: true}, {S: 75}, {S: 90}, {S: 120, Censored: true},
		{S: 180}, {S: 300}, {S: 300, Censored: true}}
	l, ok := patience.Fit(obs)
	if !ok {
		t.Fatal("no fit")
	}
	near(t, "mu", l.Mu, 4.687596, 1e-3)
	near(t, "sigma", l.Sigma, .753752, 1e-3)
	near(t, "median", l.Quantile(.5), 108.6, 1e-3)
	near(t, "p90", l.Quantile(.9), 285.3, 1e-3)
	near(t, "p95", l.Quantile(.95), 375.2, 1e-3)
}

// TestL3Prediction: five captures, alone and blended with the prior of bare containers.
func TestL3Prediction(t *testing.T) {
	obs := captures(180, 240, 210, 420, 300)
	fit, _ := patience.Fit(obs)
	near(t, "geometric mean", math.Exp(fit.Mu), 257.997, 1e-5)
	s := patience.Lognormal{Mu: fit.Mu, Sigma: fit.Sigma * math.Sqrt(5.0/4)}
	near(t, "s", s.Sigma, .330685, 1e-5)
	near(t, "95 % bound", patience.Predict(s, 5, .95), 558.47, 1e-4)
	near(t, "99 % bound", patience.Predict(s, 5, .99), 1002.5, 1e-4)
	b := patience.Blend(patience.BareContainer, fit, 5)
	near(t, "location", math.Exp(b.Mu), 275.885, 1e-5)
	near(t, "sigma", b.Sigma, .617249, 1e-5)
	got := patience.Window(patience.BareContainer, "capture", obs, patience.Costs{})
	near(t, "window", got.Value, 925.08, 1e-4)
	want := "prediction bound of 5 captures (median 258 s) blended with the prior of bare containers"
	if got.Why != want || got.Rule != patience.RulePrediction || got.N != 5 {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestL4Cost: the window where a second of waiting costs what it may save.
func TestL4Cost(t *testing.T) {
	l := patience.Lognormal{Mu: math.Log(300), Sigma: .8}
	got, ok := patience.CostWindow(l, .05, 1, 900)
	if !ok {
		t.Fatal("no window")
	}
	near(t, "T*", got, 1380.7, 1e-4)
	near(t, "its quantile", l.Quantile(.972), got, 0.01)
	if w, ok := patience.CostWindow(l, .999, 1000, 1); ok {
		t.Errorf("waiting for the dead at any price: %v", w)
	}
	near(t, "p95 of the prior", l.Quantile(.95), 1118, 1e-3)
	near(t, "p99 of the prior", l.Quantile(.99), 1929, 1e-3)
}

// TestTheRuleByN: prior, prediction, order statistics; and what happens where the curve never comes down.
func TestTheRuleByN(t *testing.T) {
	for n, want := range map[int]patience.Rule{0: patience.RulePrior, 1: patience.RulePrior, 4: patience.RulePrediction, 28: patience.RulePrediction, 29: patience.RuleQuantile, 300: patience.RuleQuantile} {
		obs := make([]patience.Capture, n)
		for i := range obs {
			obs[i].S = 100 + float64(i)
		}
		got := patience.Window(patience.BareContainer, "capture", obs, patience.Costs{})
		if got.Rule != want || got.N != int64(n) || got.Why == "" {
			t.Errorf("%d captures: %+v, want rule %s", n, got, want)
		}
		if n == 29 && got.Value != 128 {
			t.Errorf("29 captures: %v, want the greatest of them", got.Value)
		}
		// of 300, the 90 % quantile is the 270th; its upper bound lies a few above, and far from the greatest
		if n == 300 && (got.Value < 370 || got.Value > 385) {
			t.Errorf("300 captures: %v", got.Value)
		}
	}
	for _, p := range []patience.Prior{patience.OwnProcess, patience.ForeignRuntime, patience.BareContainer} {
		last := p.Window
		for n := 1; n < 4; n++ { // nothing ever came within the prior: it may be too short
			obs := make([]patience.Capture, n)
			for i := range obs {
				obs[i] = patience.Capture{S: p.Window, Censored: true}
			}
			got := patience.Window(p, "capture", obs, patience.Costs{})
			if got.Value <= last || n == 1 && got.Value < 2*p.Window || !strings.Contains(got.Why, "given up") {
				t.Errorf("%s, %d given up: %+v, before that %v", p.Name, n, got, last)
			}
			last = p.Window
		}
	}
	half := make([]patience.Capture, 60)
	for i := range half {
		half[i] = patience.Capture{S: 100 + float64(i), Censored: i%2 == 1}
	}
	half[59].S = 500
	if got := patience.Window(patience.BareContainer, "capture", half, patience.Costs{}); got.Rule != patience.RulePrediction || got.Value < 150 {
		t.Errorf("a curve that never comes down: %+v", got)
	}
	many := make([]patience.Capture, 100)
	for i := range many {
		many[i].S = 300 * math.Exp(.8*(float64(i)-49.5)/29)
	}
	plain := patience.Window(patience.BareContainer, "capture", many, patience.Costs{})
	dear := patience.Window(patience.BareContainer, "capture", many, patience.Costs{Dead: .01, Start: 5000})
	if dear.Rule != patience.RuleCost || dear.Value <= plain.Value {
		t.Errorf("a dear second start: %+v, without it %v", dear, plain.Value)
	}
}

// TestD7SlowHosts: hosts that need eleven minutes are not given up after ten, though most launches never came.
func TestD7SlowHosts(t *testing.T) {
	obs := captures(660, 700, 640)
	for range 9 {
		obs = append(obs, patience.Capture{S: 600, Censored: true})
	}
	got := patience.Window(patience.BareContainer, "capture", obs, patience.Costs{})
	if got.Value < 700 || !strings.Contains(got.Why, "9 given up") {
		t.Errorf("%+v", got)
	}
}

func drawn(t *rapid.T, least, most int) []patience.Capture {
	var out []patience.Capture
	for _, s := range rapid.SliceOfN(rapid.Float64Range(0.01, 5000), least, most).Draw(t, "seconds") {
		out = append(out, patience.Capture{S: s, Censored: rapid.IntRange(0, 3).Draw(t, "cut") == 0})
	}
	return out
}

// TestGivingUpNeverShortensTheWindow: had the waits that were given up ended at that moment, the window would be no longer.
func TestGivingUpNeverShortensTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obs := drawn(t, 1, 80)
		whole := slices.Clone(obs)
		for i := range whole {
			whole[i].Censored = false
		}
		p := rapid.SampledFrom([]patience.Prior{patience.OwnProcess, patience.ForeignRuntime, patience.BareContainer}).Draw(t, "prior")
		cut, all := patience.Window(p, "capture", obs, patience.Costs{}), patience.Window(p, "capture", whole, patience.Costs{})
		if !(cut.Value >= all.Value*(1-1e-9)) || math.IsInf(cut.Value, 0) {
			t.Fatalf("with waits that were given up %v, had they ended then %v", cut.Value, all.Value)
		}
	})
}

// TestFastOnesNeverLengthenTheWindow: waits that were all shorter than the prior's window say nothing against it, however
// far from its median they are; one that reached it does.
func TestFastOnesNeverLengthenTheWindow(t *testing.T) {
	got := patience.Window(patience.OwnProcess, "capture", captures(.036), patience.Costs{})
	if want := "the prior of own processes: 1 capture, and none took as long"; got.Value != 120 || got.Rule != patience.RulePrior || got.Why != want || got.N != 1 {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := patience.Window(patience.OwnProcess, "capture", captures(.036, 121), patience.Costs{}); got.Value <= 121 {
		t.Errorf("one of two was slower than the prior: %+v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]patience.Prior{patience.OwnProcess, patience.ForeignRuntime, patience.BareContainer}).Draw(t, "prior")
		obs := drawn(t, 1, 60)
		for i := range obs {
			obs[i].S *= .999 * p.Window / 5000
		}
		if got := patience.Window(p, "capture", obs, patience.Costs{}); got.Value > p.Window {
			t.Fatalf("%v, the prior's is %v: %+v", got.Value, p.Window, got)
		}
	})
}

// TestTheWindowOfEqualCapturesNarrows: the more of the same was seen, the closer the window comes to it.
func TestTheWindowOfEqualCapturesNarrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, last := rapid.Float64Range(1, 5000).Draw(t, "seconds"), math.Inf(1)
		for n := 8; n <= 40; n++ { // the first ones, far from the prior, widen it: two answers are less certain than one
			obs := make([]patience.Capture, n)
			for i := range obs {
				obs[i].S = s
			}
			d := math.Log(patience.Window(patience.BareContainer, "capture", obs, patience.Costs{}).Value / s)
			if d < -1e-9 || d > last+1e-9 {
				t.Fatalf("%d captures of %v s: the window is off by exp(%v), before that by exp(%v)", n, s, d, last)
			}
			last = d
		}
	})
}

// TestTheFitKnowsNoUnit: waits in minutes give a window in minutes.
func TestTheFitKnowsNoUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obs := drawn(t, 2, 40)
		obs[0].Censored = false
		scaled := slices.Clone(obs)
		for i := range scaled {
			scaled[i].S *= 60
		}
		a, _ := patience.Fit(obs)
		b, _ := patience.Fit(scaled)
		if a.Sigma < 3.9 && a.Mu < 12 { // away from the bounds that keep a hopeless fit finite
			near2(t, a.Mu+math.Log(60), b.Mu)
			near2(t, a.Sigma, b.Sigma)
		}
	})
}

func near2(t *rapid.T, a, b float64) {
	if math.Abs(a-b) > 1e-3*max(1, math.Abs(a)) {
		t.Fatalf("%v and %v", a, b)
	}
}
