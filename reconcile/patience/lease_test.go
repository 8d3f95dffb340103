package patience_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
)

const sixHours = 1.0 / 21600

// TestL5StartLease: 50 steps of 0.6 s are 30 s; and a lease that survives k renews at a quarter or a third of it.
func TestL5StartLease(t *testing.T) {
	step := 2.162688e13 / (130e12 * .277268)
	near(t, "step", step, .6, 1e-4)
	near(t, "lease", patience.StartK*step, 30, 1e-4)
	near(t, "renewed at a quarter", patience.Length(33.2005, .25)*2, 33.2005*2/.75, 1e-9)
	near(t, "and back", patience.Survives(patience.Length(10, 1.0/3), 1.0/3), 10, 1e-9)
}

// TestL6BestK: the optimum, and what other ratios cost.
func TestL6BestK(t *testing.T) {
	tail := patience.Tail{Alpha: 3, A: .05}
	for _, row := range []struct{ t, k, lease, perHour, j, j50, j10, j5 float64 }{
		{.2, 104.989, 21.0, .00078, .070736, .072903, .4445, 3.07},
		{2, 33.2005, 66.4, .00246, .073497, .074328, .1078, .370},
		{20, 10.4989, 210, .00778, .081943, .115308, .08199, .1036},
	} {
		b := patience.Balance{Step: row.t, Loss: 1500, Deaths: sixHours}
		k := b.Best(tail)
		near(t, "k*", k, row.k, 1e-5)
		near(t, "lease", k*row.t, row.lease, 1e-3)
		near(t, "per hour", tail.Above(k)*3600/row.t, row.perHour, 1e-2)
		for at, want := range map[float64]float64{k: row.j, 50: row.j50, 10: row.j10, 5: row.j5} {
			near(t, "J", lost(b, at, tail.Above(at), 1800, 0, 0, 600), want, 2e-3)
		}
	}
	for _, row := range []struct{ alpha, a, t, k float64 }{
		{2, .02, 1, 109.0}, {2, .02, 10, 23.49}, {2, .02, 60, 7.11},
		{3, .05, 1, 46.95}, {3, .05, 10, 14.85}, {3, .05, 60, 6.06},
		{4, .1, 1, 26.46}, {4, .1, 10, 10.53}, {4, .1, 60, 5.14},
	} {
		near(t, "k*", patience.Balance{Step: row.t, Loss: 1500, Deaths: sixHours}.Best(patience.Tail{Alpha: row.alpha, A: row.a}), row.k, 1e-3)
	}
	near(t, "exponential, 2 s", bestExponential(patience.Balance{Step: 2, Loss: 1500, Deaths: sixHours}, .02, .8), 15.7153, 1e-4)
	near(t, "exponential, 20 s", bestExponential(patience.Balance{Step: 20, Loss: 1500, Deaths: sixHours}, .02, .8), 9.9588, 1e-4)
}

// TestL7Tail: the censored step makes the tail heavier; leaving it out is the survivor's error.
func TestL7Tail(t *testing.T) {
	var r patience.Ratios
	for _, v := range []float64{2.1, 2.4, 3.0, 3.3, 4.8, 7.5} {
		r.Add(v, 1, false)
	}
	without := r
	r.Add(10, 1, true)
	r.Add(1, 100_000-r.N, false)
	without.Add(1, 100_000-without.N, false)
	near(t, "sum of logs", r.LogSum, 4.944015, 1e-6)
	tail, ok := r.Tail(false)
	if !ok {
		t.Fatal("no tail")
	}
	near(t, "alpha", tail.Alpha, 1.213589, 1e-6)
	near(t, "standard error", tail.Alpha/math.Sqrt(6), .4954, 1e-3)
	near(t, "A", tail.A, 1.62340e-4, 1e-5)
	near(t, "k* at 2 s", patience.Balance{Step: 2, Loss: 1500, Deaths: sixHours}.Best(tail), 27.987, 1e-4)
	near(t, "k* at 20 s", patience.Balance{Step: 20, Loss: 1500, Deaths: sixHours}.Best(tail), 3.4950, 1e-4)
	wrong, _ := without.Tail(false)
	near(t, "alpha without it", wrong.Alpha, 1.799, 1e-3)
	near(t, "k* without it", patience.Balance{Step: 2, Loss: 1500, Deaths: sixHours}.Best(wrong), 17.55, 1e-3)
}

// TestL8Provable: how many steps prove a saving.
func TestL8Provable(t *testing.T) {
	near(t, "20 s, 50 to 35", patience.Balance{Step: 20, Loss: 1500, Deaths: sixHours}.Needed(50, 35), 16_200, 1e-9)
	near(t, "2 s, 50 to 33.2", patience.Balance{Step: 2, Loss: 1500, Deaths: sixHours}.Needed(50, 33.2), 1.446e6, 1e-3)
	near(t, "exact bound of no event in 100", 1-math.Pow(.05, 1.0/100), .029513, 1e-4)
	slow := patience.Balance{Step: 20, Loss: 1500, Deaths: sixHours}
	short := func(n int64) patience.Derived {
		h := record.Histogram{Done: map[int]int64{record.BinOf(1): n}}
		return patience.Lease(h, patience.Clock{Revisions: 1}, slow, patience.StartK, 0)
	}
	if got := short(16_199); got.Value != 50 {
		t.Errorf("one step less than it takes: %+v", got)
	}
	if got := short(16_201); got.Value != 35 || got.Rule != patience.RuleFew {
		t.Errorf("as many as it takes: %+v", got)
	}
	fast := patience.Balance{Step: 2, Loss: 1500, Deaths: sixHours}
	if got := patience.Lease(record.Histogram{Done: map[int]int64{record.BinOf(1): 1e6}}, patience.Clock{Revisions: 100}, fast, patience.StartK, 0); got.Value != 50 {
		t.Errorf("fast steps: a million of them prove nothing yet: %+v", got)
	}
}

// TestL9DalyL10Overhead: Daly's own figures, and the loss at Young's interval.
func TestL9DalyL10Overhead(t *testing.T) {
	for m, want := range map[float64]float64{24 * 60: 116.69, 6 * 60: 56.71, 15: 9.14} {
		near(t, "Daly, minutes", patience.Daly(5, m), want, 1e-3)
	}
	near(t, "Young", patience.Young(30, 21600), 1138.42, 1e-5)
	near(t, "Daly", patience.Daly(30, 21600), 1118.51, 1e-5)
	tau := patience.Young(30, 21600)
	near(t, "overhead", 30/tau+tau/2/21600, .0527, 1e-3)
	near(t, "Young, 24 h", patience.Young(300, 86400), 7200, 1e-6)
	near(t, "Daly, 24 h", patience.Daly(300, 86400), 7001.39, 1e-5)
	if got := patience.Daly(50, 20); got != 20 {
		t.Errorf("a snapshot that takes longer than anything lives: %v", got)
	}
	near(t, "half or double", excess(.5), 1.25, 1e-9)
	near(t, "half or double", excess(2), 1.25, 1e-9)
	if excess(.7) > 1.065 || excess(1.4) > 1.06 || excess(.69) <= 1.065 || excess(1.42) <= 1.06 {
		t.Error("rounding within 0.7 to 1.4 costs 6 % at most")
	}
}

// excess is what an interval that is off by the factor x costs, of the least loss: (x + 1/x)/2.
func excess(x float64) float64 { return (x + 1/x) / 2 }

// bestExponential is the best ratio for a tail Q = A·e^(-r(k-1)): k* = 1 + ln(A·r·C_f/(λ·t²))/r.
func bestExponential(b patience.Balance, a, r float64) float64 {
	return 1 + math.Log(a*r*b.Loss/(b.Deaths*b.Step*b.Step))/r
}

// lost is J, the share of time that is lost: snapshots of blocked seconds every tau, what is computed twice, and waiting
// for the dead.
func lost(b patience.Balance, k, above, tau, blocked, upload, restart float64) float64 {
	return blocked/tau + (b.Deaths+above/b.Step)*(tau/2+upload+restart) + b.Deaths*(k-0.5)*b.Step
}

// TestL11Joint: interval and ratio together, and no pair beside them is better.
func TestL11Joint(t *testing.T) {
	tail := patience.Tail{Alpha: 3, A: .05}
	for _, row := range []struct{ t, tau, k, j float64 }{{2, 1129.101, 31.9381, .0899364}, {20, 1109.549, 10.0804, .0980374}} {
		both := patience.Together{Tail: tail, Step: row.t, Deaths: sixHours, Upload: 120, Restart: 600}
		every, ratio := both.Joint(patience.StartK, func(losses float64) patience.Derived { return patience.Derived{Value: patience.Young(30, 1/losses)} },
			func(b patience.Balance) patience.Derived { return patience.Derived{Value: b.Best(tail)} })
		tau, k := every.Value, ratio.Value
		near(t, "tau", tau, row.tau, 1e-5)
		near(t, "k", k, row.k, 1e-5)
		b := patience.Balance{Step: row.t, Deaths: sixHours}
		j := lost(b, k, tail.Above(k), tau, 30, 120, 600)
		near(t, "J", j, row.j, 1e-5)
		for _, f := range []float64{.9, 1.1} {
			if lost(b, k*f, tail.Above(k*f), tau, 30, 120, 600) < j || lost(b, k, tail.Above(k), tau*f, 30, 120, 600) < j {
				t.Error("there is a better pair beside it")
			}
		}
	}
}

// steps draws what a platform may have shown.
func steps(t *rapid.T) (record.Histogram, patience.Clock, patience.Balance) {
	h := record.Histogram{Done: map[int]int64{}, Censored: map[int]int64{}}
	h.Done[record.BinOf(1)] = rapid.Int64Range(0, 1e7).Draw(t, "ordinary")
	for range rapid.IntRange(0, 12).Draw(t, "bins") {
		h.Done[rapid.IntRange(10, 70).Draw(t, "bin")] += rapid.Int64Range(1, 50).Draw(t, "long")
	}
	if rapid.Bool().Draw(t, "cut") {
		h.Censored[rapid.IntRange(16, 60).Draw(t, "cut bin")]++
	}
	c := patience.Clock{Steps: rapid.Int64Range(0, 10_000).Draw(t, "since"), Revisions: rapid.Int64Range(0, 40).Draw(t, "revisions")}
	if rapid.Bool().Draw(t, "false") {
		c.Reached = rapid.Float64Range(1, 5000).Draw(t, "reached")
	}
	return h, c, patience.Balance{Step: math.Exp(rapid.Float64Range(-7, 6).Draw(t, "step")), Loss: rapid.Float64Range(1, 1e5).Draw(t, "loss"),
		Deaths: 1 / rapid.Float64Range(60, 1e7).Draw(t, "between")}
}

// TestALeaseComesDownByThirtyPercentAtMost: at one revision of a platform, and from one attempt of a job to its next
// whatever was learnt meanwhile.
func TestALeaseComesDownByThirtyPercentAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, c, b := steps(t)
		before := patience.Lease(h, c, b, patience.StartK, 0)
		c.Revisions++
		after := patience.Lease(h, c, b, patience.StartK, 0)
		if after.Value < before.Value*.7*(1-1e-12) || after.Value > before.Value || after.Value < patience.LeastK || after.Why == "" {
			t.Fatalf("one revision: from %v to %+v", before.Value, after)
		}
		h, c, b = steps(t)
		if next := patience.Lease(h, c, b, patience.StartK, after.Value); next.Value < after.Value*.7*(1-1e-12) || next.Value > patience.MostK {
			t.Fatalf("the job's next attempt: from %v to %+v", after.Value, next)
		}
	})
}

// TestAFalseWriteOffRaisesAtOnce: whoever was written off alive is survived with half as much again, and longer before it
// comes down.
func TestAFalseWriteOffRaisesAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, c, b := steps(t)
		before := patience.Lease(h, c, b, patience.StartK, 0)
		r := rapid.Float64Range(1, 5000).Draw(t, "ratio")
		h.Add(r, true)
		after := patience.Lease(h, patience.Clock{Reached: max(c.Reached, r)}, b, patience.StartK, 0)
		if after.Value < before.Value || after.Value < min(1.5*r, patience.MostK) {
			t.Fatalf("reached %v: from %v to %+v", r, before.Value, after)
		}
	})
}

// TestManyLongStepsArePriced: with twenty finished long steps and more, the target is the cost optimum of the tail, at the
// cautious slope α·(1 - 1.645/√d), and lies below the longest step that there was; with one fewer it may not.
func TestManyLongStepsArePriced(t *testing.T) {
	const n = 1_000_000
	mid := func(bin int) float64 { return record.BinFloor(bin) * math.Exp2(1.0/16) }
	short, long := record.BinOf(2.5), record.BinOf(30)
	for _, row := range []struct {
		d    int64 // long steps, of which one took 30 medians
		step float64
		k    float64 // without a tail; with one the formula below
		rule patience.Rule
	}{
		{19, 60, 48, patience.RuleFew}, // 1.5 × 32, the upper edge of its bin
		{20, 2, 0, patience.RuleTail},
		{100, 2, 0, patience.RuleTail},
		{100, 4, 0, patience.RuleTail},
		{1000, 4, 0, patience.RuleTail},
	} {
		h := record.Histogram{Done: map[int]int64{record.BinOf(1): n - row.d, short: row.d - 1, long: 1}}
		b := patience.Balance{Step: row.step, Loss: 1500, Deaths: sixHours}
		got := patience.Lease(h, patience.Clock{Revisions: 100}, b, patience.StartK, 0)
		want := row.k
		if row.rule == patience.RuleTail {
			d := float64(row.d)
			alpha := d / ((d-1)*math.Log(mid(short)/2) + math.Log(mid(long)/2)) * (1 - 1.645/math.Sqrt(d))
			want = math.Pow(alpha*d/n*math.Pow(2, alpha)*1500*21600/(row.step*row.step), 1/(alpha+1))
			if want <= 3 || want >= 30 {
				t.Fatalf("%v: not a row that tells the optimum from its bounds", want)
			}
		}
		if math.Abs(got.Value-want) > 1e-9*want || got.Rule != row.rule {
			t.Errorf("%d long steps of %v s: %v by %s, want %v by %s (%s)", row.d, row.step, got.Value, got.Rule, want, row.rule, got.Why)
		}
	}
}

// TestFewLongStepsKeepTheirDistance: without a tail the lease survives 1.5 times the longest step there was.
func TestFewLongStepsKeepTheirDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, c, b := steps(t)
		c.Reached = 0
		r := patience.Read(h)
		got := patience.Lease(h, c, b, patience.StartK, 0)
		if r.Done < 20 && got.Value < min(1.5*r.Largest, patience.StartK) {
			t.Fatalf("longest %v: %+v", r.Largest, got)
		}
	})
}

// TestALongerSnapshotIsTakenLessOften, and a machine that dies more often is saved more often.
func TestALongerSnapshotIsTakenLessOften(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := patience.Snapshots{Blocked: rapid.Float64Range(.001, 1000).Draw(t, "blocked"), N: 3}
		deaths := 1 / rapid.Float64Range(600, 1e7).Draw(t, "between")
		at := patience.Interval(s, deaths)
		slower := s
		slower.Blocked *= 1 + rapid.Float64Range(0, 10).Draw(t, "slower")
		if slower.Blocked < 1/deaths/4 { // beyond that Daly's interval is what is left of a life
			if got := patience.Interval(slower, deaths); got.Value < at.Value {
				t.Fatalf("a snapshot of %v s every %v, one of %v s every %v", s.Blocked, at.Value, slower.Blocked, got.Value)
			}
		}
		if got := patience.Interval(s, deaths+1e-3); got.Value > at.Value {
			t.Fatalf("false write-offs make it rarer: %v, %v", at.Value, got.Value)
		}
		slower = s
		slower.Upload = rapid.Float64Range(0, 5000).Draw(t, "upload")
		if got := patience.Interval(slower, deaths); got.Value < 2*slower.Upload || got.Value < at.Value {
			t.Fatalf("an upload of %v s: %+v", slower.Upload, got)
		}
	})
}

// TestL10BeforeAnyData: without a snapshot that was measured the interval is Young's, of what is assumed of one and of the mean
// time between two losses of the platform's family: L10's 30 s and six hours, and a day for machines of one's own.
func TestL10BeforeAnyData(t *testing.T) {
	for _, row := range []struct {
		prior      patience.Prior
		best, want float64
	}{{patience.BareContainer, 1138.42, 1200}, {patience.ForeignRuntime, 1138.42, 1200}, {patience.OwnProcess, 2276.84, 2700}} {
		got := patience.Interval(patience.Snapshots{}, 1/row.prior.MTBF)
		near(t, row.prior.Name, got.Inputs[len(got.Inputs)-1].Value, row.best, 1e-5)
		if got.Value != row.want || got.Rule != patience.RulePrior || got.N != 0 || got.Unit != "s" {
			t.Errorf("%s: %+v, want %v s", row.prior.Name, got, row.want)
		}
		if off := excess(got.Value / row.best); off > 1.02 {
			t.Errorf("%s: rounding costs %v", row.prior.Name, off)
		}
	}
	got := patience.Interval(patience.Snapshots{}, sixHours)
	if want := "by Young 1138 s, rounded: no snapshot of this job was measured yet, so one is assumed to block the loop for 30 s (30 GB at 1 GB/s); something is lost every 21600 s"; got.Why != want {
		t.Errorf("%q, want %q", got.Why, want)
	}
	if often := patience.Interval(patience.Snapshots{}, 1/900.0); often.Value >= got.Value {
		t.Errorf("losses every 15 minutes: %+v", often)
	}
	if never := patience.Interval(patience.Snapshots{}, 0); !(never.Value > got.Value) || math.IsInf(never.Value, 0) {
		t.Errorf("no loss at all: %+v", never)
	}
}

// TestWithin: a number that was cut says so.
func TestWithin(t *testing.T) {
	d := patience.Derived{Value: 5, Unit: "s", Rule: patience.RuleQuantile, Why: "x"}
	if got := d.Within(1, 10, "cut"); got.Value != 5 || got.Rule != patience.RuleQuantile {
		t.Errorf("%+v", got)
	}
	if got := d.Within(60, 100, "60 s at least"); got.Value != 60 || got.Rule != patience.RuleBounded || got.Why != "x; 60 s at least" {
		t.Errorf("%+v", got)
	}
	d.Value = math.NaN()
	if got := d.Within(1, 10, "cut"); got.Value != 10 {
		t.Errorf("%+v", got)
	}
}
