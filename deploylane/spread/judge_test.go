package spread

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTooFewSeedsAreRefusedBeforeAnythingIsSpent(t *testing.T) {
	for n := range 3 {
		q := Question{Metrics: []Metric{accuracy(.005)}, Parents: seeds("accuracy", s1()[:n]...)}
		e, ok := errors.AsType[*NotReady](Ready(q))
		if !ok || e.Cause != FewSeeds || e.Have != n || e.Need != 5 || !strings.Contains(e.Text, fmt.Sprintf("run %d more", 5-n)) {
			t.Errorf("%d seeds: %+v", n, e)
		}
		q.New = fresh("accuracy", .84)
		if _, err := Judge(q); !ok || err == nil {
			t.Errorf("%d seeds: judged all the same", n)
		}
	}
	q := Question{Metrics: []Metric{accuracy(.005)}, Parents: seeds("accuracy", s1()[:4]...)}
	e, ok := errors.AsType[*NotReady](Ready(q))
	if !ok || e.Cause != FewSeeds || e.Have != 4 || e.Need < 5 {
		t.Errorf("4 of 5 seeds: %+v", e)
	}
	q.MinRuns, q.Metrics[0].Margin = 3, .02
	if err := Ready(q); err != nil {
		t.Errorf("4 seeds where 3 are asked for: %v", err)
	}
	q = Question{Metrics: []Metric{accuracy(.004)}, Parents: seeds("accuracy", s1()...)}
	e, ok = errors.AsType[*NotReady](Ready(q))
	if !ok || e.Cause != TooWide || e.Need != Need(.00157639, .004, .05) || e.Need <= 5 {
		t.Errorf("a band wider than the margin: %+v", e)
	}
	q.Metrics[0].Margin = .003 // 1.90 s, and even without end of seeds 1.96 s
	e, ok = errors.AsType[*NotReady](Ready(q))
	if !ok || e.Need != 0 || !strings.Contains(e.Text, "no number of seeds") {
		t.Errorf("a margin below the noise: %+v", e)
	}
}

func TestNoSpreadIsNoBand(t *testing.T) {
	q := Question{Metrics: []Metric{accuracy(.005)}, Parents: seeds("accuracy", .84, .84, .84, .84, .84), New: fresh("accuracy", .84)}
	if j := one(t, q); j.Verdict != Inconclusive || j.Cause != NoSpread {
		t.Errorf("five equal seeds: %s %s", j.Verdict, j.Cause)
	}
	if e, ok := errors.AsType[*NotReady](Ready(q)); !ok || e.Cause != NoSpread {
		t.Errorf("ready: %+v", e)
	}
}

func TestTheScaleBendsNearTheEndOfTheRange(t *testing.T) {
	near1 := []float64{.990, .985, .9925, .988, .991} // errors from .0075 to .015
	share := Metric{Name: "a", Direction: Higher, Range: Share, Margin: .02, Gating: true}
	j := one(t, Question{Metrics: []Metric{share}, Parents: seeds("a", near1...), New: fresh("a", .990)})
	if j.Scale != "logit" || j.Hi >= 1 || j.Centre-j.Lo <= j.Hi-j.Centre {
		t.Errorf("%s scale, band [%g, %g] around %g: expected a longer side away from 1, and an end below it", j.Scale, j.Lo, j.Hi, j.Centre)
	}
	if j = one(t, Question{Metrics: []Metric{share}, Parents: seeds("a", near1...), New: fresh("a", 1)}); j.Verdict != Better || !j.AtEnd {
		t.Errorf("every answer right: %s", j.Verdict)
	}
	if j = one(t, Question{Metrics: []Metric{share}, Parents: seeds("a", near1...), New: fresh("a", 0)}); j.Verdict != Worse || !j.AtEnd {
		t.Errorf("every answer wrong: %s", j.Verdict)
	}
	if j = one(t, Question{Metrics: []Metric{share}, Parents: seeds("a", .99, .98, 1, .97, .99), New: fresh("a", .99)}); j.Cause != AtBound {
		t.Errorf("a seed at 1: %s %s", j.Verdict, j.Cause)
	}
	loss := Metric{Name: "a", Direction: Lower, Range: Positive, Margin: .5, Gating: true}
	j = one(t, Question{Metrics: []Metric{loss}, Parents: seeds("a", .10, .16, .12, .14, .11), New: fresh("a", .12)})
	if j.Scale != "log" || j.Lo <= 0 || math.Abs(j.Reach-(j.Hi-j.Centre)) > 1e-12 {
		t.Errorf("%s scale, band [%g, %g], reach %g", j.Scale, j.Lo, j.Hi, j.Reach)
	}
	share.Range = Any
	if j = one(t, Question{Metrics: []Metric{share}, Parents: seeds("a", near1...), New: fresh("a", .99)}); j.Scale != linear {
		t.Errorf("no range was declared, judged on the %s scale", j.Scale)
	}
}

func TestSeveralNewRunsMustShowSameness(t *testing.T) {
	q := Question{Metrics: []Metric{accuracy(.006)}, Parents: seeds("accuracy", s1()...), New: fresh("accuracy", .8418, .8401, .8425)}
	j := one(t, q)
	if j.Verdict != Within || j.TOST <= 0 || j.TOST > Alpha || math.Abs(j.Factor-2.7764451*math.Sqrt(1./3+1./5)) > 1e-6 {
		t.Errorf("%s, p %g, factor %g", j.Verdict, j.TOST, j.Factor)
	}
	q.Metrics[0].Margin = .001
	if j = one(t, q); j.Verdict != Inconclusive || j.Cause != NotShown {
		t.Errorf("%s %s", j.Verdict, j.Cause)
	}
	q.New = fresh("accuracy", .8345, .8340)
	if j = one(t, q); j.Verdict != Worse {
		t.Errorf("two bad runs: %s", j.Verdict)
	}
}

func TestOnlyGatingMetricsDecide(t *testing.T) {
	q := Question{Parents: seeds("a", s1()...), New: fresh("a", .8412)}
	for _, r := range append(q.Parents, q.New...) {
		r.Metrics["b"] = r.Metrics["a"]
	}
	q.New[0].Metrics["b"] = .5
	q.Metrics = []Metric{{Name: "a", Direction: Higher, Margin: .01, Gating: true}, {Name: "b", Direction: Higher}}
	r, err := Judge(q)
	if err != nil || r.Verdict != Within || r.Metrics[1].Verdict != Worse || len(r.Notes) != 1 || r.Metrics[0].Alpha != .05 {
		t.Errorf("%v %+v", err, r)
	}
	q.Metrics[1].Gating, q.Metrics[1].Margin = true, .01
	if r, err = Judge(q); err != nil || r.Verdict != Worse || r.Metrics[0].Alpha != .025 {
		t.Errorf("%v %+v", err, r)
	}
	q.New[0].Metrics["b"], q.Metrics[1].Direction = .9, Target
	if r, err = Judge(q); err != nil || r.Verdict != Worse {
		t.Errorf("above a target: %v %s", err, r.Verdict)
	}
}

func TestAWinnerIsNoRandomSeed(t *testing.T) {
	q := Question{Metrics: []Metric{accuracy(.006)}, Parents: append(seeds("accuracy", s1()...), Run{"best", map[string]float64{"accuracy": .8490}}),
		New: fresh("accuracy", .8410), Winner: "best", BestOf: 10}
	r, err := Judge(q)
	if err != nil || r.Metrics[0].N != 5 || r.Verdict != Within || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "1.54 standard deviations") {
		t.Errorf("%v %+v", err, r)
	}
}

func TestSeedsThatLookLikeOneAreSuspected(t *testing.T) {
	m := Metric{Name: "accuracy", Direction: Higher, Range: Share, Margin: .01, Gating: true, Examples: 10_000}
	q := Question{Metrics: []Metric{m}, Parents: seeds("accuracy", .94001, .94002, .94001, .94003, .94002), New: fresh("accuracy", .94002)}
	if j := one(t, q); len(j.Warnings) != 2 {
		t.Errorf("warnings %q", j.Warnings)
	}
	q.Parents = seeds("accuracy", .9401, .9420, .9385, .9412, .9399)
	if j := one(t, q); len(j.Warnings) != 0 {
		t.Errorf("nothing is odd here: %q", j.Warnings)
	}
}

func TestBadQuestions(t *testing.T) {
	good := func() Question {
		return Question{Metrics: []Metric{accuracy(.005)}, Parents: seeds("accuracy", s1()...), New: fresh("accuracy", .84)}
	}
	for want, spoil := range map[string]func(*Question){
		"no new run":            func(q *Question) { q.New = nil },
		"expected 3 or more":    func(q *Question) { q.MinRuns = 2 },
		"found 0 metrics":       func(q *Question) { q.Metrics = nil },
		"named twice":           func(q *Question) { q.Metrics = append(q.Metrics, q.Metrics[0]) },
		"no metric is gating":   func(q *Question) { q.Metrics[0].Gating = false },
		"direction \"up\"":      func(q *Question) { q.Metrics[0].Direction = "up" },
		"range \"wide\"":        func(q *Question) { q.Metrics[0].Range = "wide" },
		"margin 0":              func(q *Question) { q.Metrics[0].Margin = 0 },
		"margin NaN":            func(q *Question) { q.Metrics[0].Margin = math.NaN() },
		"test examples":         func(q *Question) { q.Metrics[0].Examples = 5 },
		"is there twice":        func(q *Question) { q.New[0].Name = "seed 1" },
		"has no metric":         func(q *Question) { delete(q.New[0].Metrics, "accuracy") },
		"finite":                func(q *Question) { q.Parents[0].Metrics["accuracy"] = math.Inf(1) },
		"outside its range":     func(q *Question) { q.Metrics[0].Range = Share; q.Parents[0].Metrics["accuracy"] = 1.2 },
		"not among the seeds":   func(q *Question) { q.Winner, q.BestOf = "new 1", 3 },
		"expected 2 to":         func(q *Question) { q.Winner = "seed 1" },
		"which of the seeds":    func(q *Question) { q.BestOf = 3 },
		"it has no name":        func(q *Question) { q.Metrics[0].Name = "" },
		"at most 10000 are":     func(q *Question) { q.New = make([]Run, maxRuns+1) },
		"expected 1 to 64":      func(q *Question) { q.Metrics = make([]Metric, 65) },
		"has accuracy -1e+200,": func(q *Question) { q.Parents[0].Metrics["accuracy"] = -1e200 },
	} {
		q := good()
		spoil(&q)
		_, err := Judge(q)
		if e, ok := errors.AsType[*BadQuestion](err); !ok || !strings.Contains(e.Text, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A good model is refused as often as Alpha says, whatever the number of seeds, also with three metrics; min..max would refuse
// a third of them at five seeds.
func TestAGoodModelIsRefusedFiveTimesInAHundred(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = 10 + r.NormFloat64()
		}
		return out
	}
	for _, n := range []int{3, 5, 10} {
		const rounds = 1200
		refused := 0
		for range rounds {
			j := one(t, Question{Metrics: []Metric{{Name: "x", Direction: Higher, Margin: 100, Gating: true}}, MinRuns: 3,
				Parents: seeds("x", draw(n)...), New: fresh("x", draw(1)...)})
			if j.Verdict != Within {
				refused++
			}
		}
		if share := float64(refused) / rounds; math.Abs(share-Alpha) > .022 { // 3.5 deviations of a share of 5 % in 1200
			t.Errorf("%d seeds: %.3f refused, want %.2f", n, share, Alpha)
		}
	}
}

func TestVerdictsKnowNoUnitAndNoSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 12).Draw(t, "n")
		m := rapid.IntRange(1, 3).Draw(t, "m")
		value := rapid.Float64Range(-10, 10)
		xs := rapid.SliceOfN(value, n, n).Draw(t, "seeds")
		ys := rapid.SliceOfN(value, m, m).Draw(t, "new")
		margin := rapid.Float64Range(.01, 50).Draw(t, "margin")
		unit := rapid.SampledFrom([]float64{-4, -1, .25, 2, 1024}).Draw(t, "unit")
		shift := rapid.SampledFrom([]float64{0, 64}).Draw(t, "shift")
		ask := func(d Direction, unit, shift float64) Report {
			move := func(vs []float64) []float64 {
				out := make([]float64, len(vs))
				for i, v := range vs {
					out[i] = v*unit + shift
				}
				return out
			}
			r, err := Judge(Question{Metrics: []Metric{{Name: "x", Direction: d, Margin: margin * math.Abs(unit), Gating: true}}, MinRuns: 3,
				Parents: seeds("x", move(xs)...), New: fresh("x", move(ys)...)})
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatalf("a report that cannot be stored: %v", err)
			}
			var back Report
			if err := json.Unmarshal(b, &back); err != nil || !cmp.Equal(r, back) {
				t.Fatalf("stored and read again: %v\n%s", err, cmp.Diff(r, back))
			}
			return r
		}
		a := ask(Higher, 1, 0)
		d := Higher
		if unit < 0 {
			d = Lower
		}
		if b := ask(d, unit, shift); a.Verdict != b.Verdict && !onTheEdge(a.Metrics[0]) {
			t.Fatalf("%s, in another unit %s: %+v %+v", a.Verdict, b.Verdict, a, b)
		}
		if c := ask(Target, 1, 0); (a.Verdict == Better || a.Verdict == Worse) && c.Verdict != Worse {
			t.Fatalf("%s by a direction, %s by a target", a.Verdict, c.Verdict)
		}
	})
}

// onTheEdge says that rounding alone may decide.
func onTheEdge(j Judged) bool {
	close := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(a)) }
	return close(j.Value, j.Lo) || close(j.Value, j.Hi) || close(j.Reach, j.Margin) || close(j.TOST, Alpha) || j.SD < 1e-9
}
