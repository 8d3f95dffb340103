package goodput

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const day = 86400

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if math.Abs(got-want) > off {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func fresh(values ...float64) (out []Sample) {
	for _, v := range values {
		out = append(out, Sample{V: v})
	}
	return out
}

// G1 of science.md: two T4 in fp16, 6,000 steps kept and 400 lost.
func TestG1OneAttempt(t *testing.T) {
	const step = 2.162688e13
	s := Stint{Work: 6000 * step, StepS: 6000 * 0.60, PaidS: 600 + 6400*0.65 + 6*20 + 45, StartS: 600, Peak: 2 * 65e12}
	near(t, "paid", s.PaidS, 4925, 1e-9)
	mfu, ok := s.MFU()
	near(t, "MFU", mfu, 0.277268, 1e-6)
	share, ok2 := s.Share()
	near(t, "share", share, 0.730964, 1e-6)
	g, ok3 := s.Goodput()
	near(t, "goodput", g, 0.202673, 1e-6)
	near(t, "MFU × share", mfu*share, g, 1e-12)
	if !ok || !ok2 || !ok3 {
		t.Error("something of it is called unknown")
	}
}

// What is less than a second is not said to be none.
func TestAShortOneIsNotNothing(t *testing.T) {
	v, ok := (&Book{}).Judge([]Stint{{Work: 1e9, StepS: .001, PaidS: .04, StartS: .03, Peak: 1e12}})
	if want := "too short to be judged: 0.04 s were paid, "; !ok || !strings.HasPrefix(v.Why, want) || strings.Contains(v.Why, " 0 s") {
		t.Errorf("%v %q, want %q", ok, v.Why, want)
	}
}

// G2: a ratio of sums, never a mean of ratios; and an early death among hours costs no retry.
func TestG2OneEarlyDeath(t *testing.T) {
	const peak, mfu = 130e12, 0.28
	death := Stint{PaidS: 300, StartS: 250, Peak: peak, Nothing: true}
	long := Stint{Work: mfu * peak * 20520, StepS: 20520, PaidS: 21600, StartS: 600, Peak: peak}
	g, _ := Total([]Stint{death, long}).Goodput()
	near(t, "goodput by sums", g, 0.262356, 1e-6)
	alone, _ := long.Goodput()
	near(t, "what the early death costs", 1-g/alone, 0.014, 5e-4)
	one, _ := death.Goodput()
	other, _ := long.Goodput()
	near(t, "mean of ratios", (one+other)/2, 0.133, 5e-4)
	var b Book
	for _, list := range [][]Stint{{death}, {death, long}, {long, death}} {
		if v, ok := b.Judge(list); !ok || v.Below {
			t.Errorf("%d attempts: %+v", len(list), v)
		}
	}
}

// G3: ten scores with one bad run in them.
func TestG3Bound(t *testing.T) {
	list := fresh(.262, .255, .271, .249, .266, .258, .243, .268, .131, .260)
	b := BoundOf(list)
	near(t, "median", b.Median, 0.2590, 1e-9)
	near(t, "b(10)", small(10), 1.086957, 1e-6)
	near(t, "raw MAD", b.Spread/1.4826/small(10), 0.0080, 1e-9)
	near(t, "MADn", b.Spread, 0.0128922, 1e-7)
	near(t, "bound", b.V, 0.22015, 1e-9)
	mean, square := 0.0, 0.0
	for _, x := range list {
		mean, square = mean+x.V/10, square+x.V*x.V
	}
	near(t, "mean - 2 deviations, which would be far too low", mean-2*math.Sqrt((square-10*mean*mean)/9), 0.1635, 5e-5)
	if b.Threshold || 0.131 >= b.V || 0.243 < b.V {
		t.Errorf("%+v flags 0.243, or does not flag 0.131", b)
	}
}

// G4: old against new: after a change the threshold rules by itself.
func TestG4OldAgainstNew(t *testing.T) {
	values, ages := []float64{.30, .31, .29, .30, .22, .21, .23, .22}, []float64{60, 55, 50, 45, 6, 4, 2, 0}
	weights := []float64{.2500, .2806, .3150, .3536, .8706, .9117, .9548, 1}
	var list []Sample
	for i := range values {
		s := Sample{values[i], ages[i] * day}
		near(t, "weight", s.weight(), weights[i], 5e-5)
		list = append(list, s)
	}
	b := BoundOf(list)
	near(t, "effective samples", b.Effective, 6.3024, 1e-4)
	near(t, "weighted median", b.Median, 0.22, 1e-12)
	near(t, "median without weights", Median(fresh(values...)), 0.26, 1e-12)
	near(t, "weighted MAD", b.Spread/1.4826/small(b.Effective), 0.01, 1e-9)
	if !b.Threshold || b.V != Theta {
		t.Errorf("%+v: want the threshold", b)
	}
}

func TestSmallSampleFactors(t *testing.T) {
	for i, want := range []float64{1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107, 10 / 9.2, 11 / 10.2} {
		near(t, "b(n)", small(float64(i+2)), want, 1e-12)
	}
}

// Science.md §3.2: nothing is judged before 2,000 paid seconds where a start takes 600.
func TestLeastPaid(t *testing.T) {
	near(t, "T_min", LeastPaid(600, Theta), 2000, 1e-9)
	if a, b := leastMilestones(600, 1800, Theta), leastMilestones(600, 600, Theta); a != 1 || b != 3 {
		t.Errorf("milestones needed: %d and %d, want 1 and 3", a, b)
	}
}

// Science.md §3.3: two cards ranked by the price of a useful operation.
func TestCost(t *testing.T) {
	a := perFLOP(0.40, 165.2e12, 0.30)
	b := perFLOP(1.20, 312e12, 0.42)
	near(t, "4090, USD per 1e18 FLOPs", a*1e18, 2.242, 5e-4)
	near(t, "A100, USD per 1e18 FLOPs", b*1e18, 2.544, 5e-4)
}

func TestUnknownIsNotZero(t *testing.T) {
	for name, s := range map[string]Stint{"no peak": {Work: 1, StepS: 1, PaidS: 2}, "no work": {StepS: 1, PaidS: 2, Peak: 1}} {
		if _, ok := s.MFU(); ok {
			t.Errorf("%s: an MFU", name)
		}
		if _, ok := s.Goodput(); ok {
			t.Errorf("%s: a goodput", name)
		}
		if share, ok := s.Share(); !ok || share != 0.5 {
			t.Errorf("%s: share %v", name, share)
		}
	}
	if _, ok := (Stint{StepS: 1, Nothing: false}).Share(); ok {
		t.Error("a share of nobody knows what")
	}
	if g, ok := (Stint{PaidS: 10, Peak: 1, Nothing: true}).Goodput(); !ok || g != 0 {
		t.Error("nothing was kept: the goodput is 0, and known")
	}
	if _, ok := (&Book{}).Judge([]Stint{{PaidS: 100}}); ok {
		t.Error("something was kept, nobody knows how much: no verdict")
	}
}

// However the samples lie, the bound is between 0.3 and 0.85 of their median once the statistics rule, and the order in
// which they came changes nothing.
func TestBoundStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
			return Sample{rapid.Float64Range(0, 3).Draw(t, "score"), rapid.Float64Range(0, 300*day).Draw(t, "age")}
		}), 0, 60).Draw(t, "samples")
		b := BoundOf(list)
		if b.Threshold != (b.Effective < 8) && math.Abs(b.Effective-8) > 1e-6 {
			t.Fatalf("%+v", b)
		}
		if !b.Threshold && (b.V < 0.3*b.Median-1e-12 || b.V > 0.85*b.Median+1e-12) {
			t.Fatalf("%+v", b)
		}
		turned := make([]Sample, 0, len(list))
		for i := range list {
			turned = append(turned, list[len(list)-1-i])
		}
		if o := BoundOf(turned); math.Abs(o.V-b.V) > 1e-9 {
			t.Fatalf("%v turned round is %v", b.V, o.V)
		}
		if b.Effective > float64(len(list))+1e-9 {
			t.Fatalf("%d samples are worth %v", len(list), b.Effective)
		}
	})
}

// leastMilestones is how many milestones of tau seconds an attempt with start seconds of start-up needs to reach theta.
func leastMilestones(start, tau, theta float64) int {
	return int(math.Ceil(theta / (1 - theta) * start / tau))
}

// perFLOP is the price of one useful FLOP: price per second of the whole launch over what it commits per second.
func perFLOP(perHour, peak, goodput float64) float64 { return perHour / 3600 / (peak * goodput) }
