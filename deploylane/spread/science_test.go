package spread

import (
	"fmt"
	"math"
	"testing"
)

// near fails unless got is want to the digits that want was published with.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %.6f, published %g", what, got, want)
	}
}

// The columns of the table of intervals that this room computes. The chance that min..max of the seeds, and mean ± 2 s, reject
// a good run is why neither is used.
func TestTheTableOfIntervals(t *testing.T) {
	for _, r := range []struct {
		n                                           int
		two, one, bonferroni, minmax, meanTwoSigmas float64
	}{
		{2, 15.562, 7.733, 46.77, .667, .350},
		{3, 4.968, 3.372, 8.832, .500, .225},
		{4, 3.558, 2.631, 5.430, .400, .172},
		{5, 3.041, 2.335, 4.339, .333, .142},
		{6, 2.777, 2.177, 3.817, .286, .123},
		{7, 2.616, 2.077, 3.514, .250, .111},
		{8, 2.508, 2.010, 3.317, .222, .101},
		{10, 2.373, 1.923, 3.076, .182, .089},
		{15, 2.215, 1.819, 2.807, .125, .073},
		{20, 2.145, 1.772, 2.690, .095, .066},
		{30, 2.079, 1.727, 2.583, .065, .059},
	} {
		near(t, fmt.Sprintf("n %d, two-sided", r.n), Factor(r.n, 1, .05), r.two, .0006)
		near(t, fmt.Sprintf("n %d, one-sided", r.n), Factor(r.n, 1, .10), r.one, .0006)
		near(t, fmt.Sprintf("n %d, three metrics", r.n), Factor(r.n, 1, .05/3), r.bonferroni, .006)
		near(t, fmt.Sprintf("n %d, min..max", r.n), 2/float64(r.n+1), r.minmax, .0006)
		near(t, fmt.Sprintf("n %d, mean ± 2 s", r.n), 2*below(-2/math.Sqrt(1+1/float64(r.n)), float64(r.n-1)), r.meanTwoSigmas, .0006)
	}
}

func TestHowVagueADeviationIs(t *testing.T) {
	for n, want := range map[int][2]float64{3: {.52, 6.29}, 5: {.60, 2.87}, 10: {.69, 1.83}, 20: {.76, 1.46}} {
		lo, hi := Vague(n)
		near(t, fmt.Sprintf("n %d, low", n), lo, want[0], .006)
		near(t, fmt.Sprintf("n %d, high", n), hi, want[1], .006)
	}
}

func TestTheBestOfMany(t *testing.T) {
	near(t, "best of 3, by its closed form", BestOf(3), 3/(2*math.Sqrt(math.Pi)), 1e-9)
	for k, want := range map[int]float64{3: .84, 5: 1.16, 10: 1.54, 100: 2.51} {
		near(t, fmt.Sprintf("best of %d", k), BestOf(k), want, .0075)
	}
	near(t, "least deviation of an accuracy", LeastSD(.06, 10_000), .0017, .00005)
}

// Need is the first number of seeds that does, and 0 where none does.
func TestNeed(t *testing.T) {
	for margin, want := range map[float64]int{100: 3, 4.97: 3, 4.96: 4, 3.05: 5, 3.04: 6, 2.08: 30, 1.96: 0} {
		if got := Need(1, margin, .05); got != want {
			t.Errorf("a margin of %g s: %d seeds, want %d", margin, got, want)
		}
	}
}

func seeds(metric string, values ...float64) (out []Run) {
	for i, v := range values {
		out = append(out, Run{Name: fmt.Sprintf("seed %d", i+1), Metrics: map[string]float64{metric: v}})
	}
	return out
}

func fresh(metric string, values ...float64) (out []Run) {
	for i, v := range values {
		out = append(out, Run{Name: fmt.Sprintf("new %d", i+1), Metrics: map[string]float64{metric: v}})
	}
	return out
}

func s1() []float64 { return []float64{.8412, .8390, .8431, .8405, .8422} }

func accuracy(margin float64) Metric {
	return Metric{Name: "accuracy", Direction: Higher, Margin: margin, Gating: true}
}

func one(t *testing.T, q Question) Judged {
	t.Helper()
	r, err := Judge(q)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Metrics) != 1 || r.Verdict != r.Metrics[0].Verdict {
		t.Fatalf("one metric, but %+v", r)
	}
	return r.Metrics[0]
}

func TestS1(t *testing.T) {
	for _, c := range []struct {
		y, t, p float64
		want    Verdict
	}{
		{.8378, -1.9689, .1203, Within},
		{.8365, -2.7217, .0529, Within},
		{.8345, -3.8799, .0178, Worse},
		{.8460, 2.7796, .0498, Better},
	} {
		j := one(t, Question{Metrics: []Metric{accuracy(.005)}, Parents: seeds("accuracy", s1()...), New: fresh("accuracy", c.y)})
		near(t, "m", j.Mean, .8412, 5e-8)
		near(t, "s", j.SD, .0015764, 5e-8)
		near(t, "h", j.Half, .0047943, 2e-7) // .00479450 to more digits
		near(t, "low", j.Lo, .836406, 5e-7)
		near(t, "high", j.Hi, .845994, 5e-7)
		near(t, fmt.Sprintf("t of %g", c.y), j.T, c.t, 6e-5)
		near(t, fmt.Sprintf("p of %g", c.y), j.P, c.p, 6e-5)
		if j.Verdict != c.want {
			t.Errorf("%g is %s, want %s: %q", c.y, j.Verdict, c.want, j.Text)
		}
	}
	m, s := moments(s1())
	near(t, "one-sided lower", m-Factor(5, 1, .10)*s, .837519, 6e-7)
	three := Question{Parents: seeds("a", s1()...), New: fresh("a", .8412)}
	for _, name := range []string{"a", "b", "c"} {
		three.Metrics = append(three.Metrics, Metric{Name: name, Direction: Higher, Margin: .01, Gating: true})
		for _, r := range append(three.Parents, three.New...) {
			r.Metrics[name] = r.Metrics["a"]
		}
	}
	r, err := Judge(three)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range r.Metrics {
		near(t, "Bonferroni low", j.Lo, .834360, 6e-7)
		near(t, "Bonferroni high", j.Hi, .848040, 6e-7)
	}
}

func TestS2(t *testing.T) {
	loss := Metric{Name: "loss", Direction: Lower, Range: Positive, Margin: .02, Gating: true}
	xs := []float64{1.932, 1.941, 1.927, 1.938, 1.935}
	j := one(t, Question{Metrics: []Metric{loss}, Parents: seeds("loss", xs...), New: fresh("loss", 1.952)})
	near(t, "m", j.Mean, 1.93460, 6e-6)
	near(t, "s", j.SD, .005413, 6e-7)
	near(t, "low", j.Lo, 1.91814, 6e-6)
	near(t, "high", j.Hi, 1.95106, 6e-6)
	m, s := moments(xs)
	near(t, "one-sided worst", m+Factor(5, 1, .10)*s, 1.94724, 6e-6)
	if j.Verdict != Worse || j.Scale != linear {
		t.Errorf("1.952 is %s on the %s scale", j.Verdict, j.Scale)
	}
	if j = one(t, Question{Metrics: []Metric{loss}, Parents: seeds("loss", xs...), New: fresh("loss", 1.917)}); j.Verdict != Better {
		t.Errorf("a loss of 1.917 is %s", j.Verdict)
	}
}

func TestS3(t *testing.T) {
	q := Question{Metrics: []Metric{accuracy(.003)}, Parents: seeds("accuracy", s1()...), New: fresh("accuracy", .8412)}
	j := one(t, q)
	if j.Verdict != Inconclusive || j.Cause != TooWide {
		t.Errorf("margin .003: %s, %s", j.Verdict, j.Cause)
	}
	near(t, "h", j.Reach, .0048, .00005)
	q.Metrics[0].Margin = .005
	if j = one(t, q); j.Verdict != Within {
		t.Errorf("margin .005: %s, %q", j.Verdict, j.Text)
	}
}

func TestS4(t *testing.T) {
	b := []float64{.8440, .8425, .8461, .8418, .8452}
	e, err := Compare(s1(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "d", e.D, .00272, 5e-7)
	near(t, "se", e.SE, .001069, 6e-7)
	near(t, "df", e.DF, 7.867, .0006)
	near(t, "low", e.Lo, .00025, 6e-6)
	near(t, "high", e.Hi, .00519, 6e-6)
	near(t, "p", e.P, .0349, 6e-5)
	near(t, "sameness within .006", Equivalence(s1(), b, .006), .0078, 6e-5)
	near(t, "sameness within .003", Equivalence(s1(), b, .003), .40, .006)
	if !e.Seen {
		t.Errorf("an effect, but: %s", e.Text)
	}
	if e, _ = Compare(s1(), b, .003); e.Seen {
		t.Errorf("an effect below what matters: %s", e.Text)
	}
}

func TestEffectsThatCanBeSeen(t *testing.T) {
	for n, want := range map[int]float64{3: 3.04, 5: 2.02, 10: 1.33, 20: .91} {
		near(t, fmt.Sprintf("%d runs of each", n), Detectable(n, n, 1), want, .006)
	}
	near(t, "the factor", PerArm(1, 1), 15.7, .005)
	near(t, "0.3 % at 1 %", PerArm(1, .3), 174, .5)
	near(t, "1 % as a range of five", PerArm(1/2.326, .3), 32, .5)
}
