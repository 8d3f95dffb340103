// Package spread answers one question of the deploy lane: is the retrained model one of those that its configuration gives,
// or another one? Seeds of the original configuration give a prediction interval for one new run (or for the mean of a few);
// the verdict has four values, and its derivation comes as text. Pure: numbers in, a report out. The formulas are those of
// Student's t, named where they stand; DESIGN.md says why not a simpler rule.
package spread

import (
	"fmt"
	"math"
	"slices"
)

// Alpha is the chance that a good model is called worse or better: 5 % over all gating metrics together.
const Alpha = 0.05

// How many seeds a band rests on.
const (
	DefaultRuns = 5 // where Question.MinRuns is 0
	LeastRuns   = 3 // fewer are refused: two give a band of 15.6 s
)

// Bounds on what is read.
const (
	maxMetrics = 64
	maxRuns    = 10_000
	maxBestOf  = 1_000_000
)

// Direction says which side of the band is the bad one.
type Direction string

// The directions. Target: both sides are bad.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
	Target Direction = "target"
)

// Range says which values a metric can take, and so on which scale it is judged near the end of its range.
type Range string

// The ranges. A share (an accuracy) is judged by its logit, a positive value (a loss, an error rate) by its logarithm, once
// the seeds differ by more than a factor of 1.5 in their distance to the bound; else as they are.
const (
	Any      Range = ""
	Share    Range = "share"    // 0..1
	Positive Range = "positive" // 0 and up
)

// Verdict of a metric, or of all together.
type Verdict string

// The verdicts. Only Within releases by itself.
const (
	Within       Verdict = "within"
	Worse        Verdict = "worse"
	Better       Verdict = "better" // a discrepancy too: a person looks at it before anything is released
	Inconclusive Verdict = "inconclusive"
)

// Cause is why a metric is inconclusive.
type Cause string

// The causes.
const (
	FewSeeds Cause = "few_seeds" // fewer than Question.MinRuns
	NoSpread Cause = "no_spread" // all seeds gave one value
	TooWide  Cause = "too_wide"  // the band is wider than the margin: it would let through what the owner does not accept
	AtBound  Cause = "at_bound"  // a seed lies at the very end of the metric's range, where its scale has no value
	NotShown Cause = "not_shown" // several new runs: sameness within the margin is not shown
)

// Metric is one number that every run reports, and what is asked of it.
type Metric struct {
	Name      string    `json:"name"`
	Direction Direction `json:"direction"`
	Range     Range     `json:"range,omitempty"`
	Margin    float64   `json:"margin"`             // the largest loss that the owner accepts, in the metric's unit; 0 where Gating is false
	Gating    bool      `json:"gating"`             // false: it warns and decides nothing
	Examples  int64     `json:"examples,omitempty"` // of the test set that a Share was measured on; 0: not known. Only for the suspicion of a spread that is too small
}

// Run is one finished run and its metrics. The name is for people: a work, a seed.
type Run struct {
	Name    string             `json:"name"`
	Metrics map[string]float64 `json:"metrics"`
}

// Question is what is judged.
type Question struct {
	Metrics []Metric
	Parents []Run  // seeds of the original configuration, all on one kind of hardware: the caller sees to that
	New     []Run  // the retrained ones: one, or a few in the same environment
	MinRuns int    // 0: DefaultRuns; less than LeastRuns is refused
	Winner  string // name of the parent that was picked as the best of BestOf: no random one of the seeds, so it is left out; empty: none was
	BestOf  int
}

// Report is the judgement. Every number in it is finite, so it can be stored as JSON.
type Report struct {
	Verdict Verdict  `json:"verdict"`
	Text    string   `json:"text"` // one sentence
	Metrics []Judged `json:"metrics"`
	Notes   []string `json:"notes,omitempty"` // what a person should know beside it
}

// Judged is one metric's judgement. Mean, SD, Half and T are on the scale that is named; Lo, Hi, Centre, Value and Reach are in
// the metric's unit. What was not computed, because Cause came first, is 0.
type Judged struct {
	Metric
	Verdict  Verdict  `json:"verdict"`
	Cause    Cause    `json:"cause,omitempty"`
	Scale    string   `json:"scale"` // linear, logit or log
	N        int      `json:"n"`     // seeds
	NewN     int      `json:"new_n"` // new runs
	Mean     float64  `json:"mean"`
	SD       float64  `json:"sd"` // with n-1
	Alpha    float64  `json:"alpha"`
	Factor   float64  `json:"factor"` // Half is so many SD
	Half     float64  `json:"half"`
	Centre   float64  `json:"centre"`
	Lo       float64  `json:"lo"`
	Hi       float64  `json:"hi"`
	Reach    float64  `json:"reach"` // from Centre to the bad end of the band: what is held against Margin
	Value    float64  `json:"value"` // of the new run, or the mean of the new ones
	T        float64  `json:"t"`
	P        float64  `json:"p"`                // two-sided
	TOST     float64  `json:"tost,omitempty"`   // several new runs: the larger p of the two one-sided tests
	AtEnd    bool     `json:"at_end,omitempty"` // a new value at the very end of the range: beyond any band on its side, T and P are 0
	Text     []string `json:"text"`             // the derivation
	Warnings []string `json:"warnings,omitempty"`
}

// BadQuestion is a question that cannot be judged as it stands.
type BadQuestion struct{ Text string }

func (e *BadQuestion) Error() string { return "spread check: " + e.Text }

// NotReady says that no retrained model could be judged by these seeds, known before any money is spent on it.
type NotReady struct {
	Cause  Cause
	Metric string // empty: it holds for all
	Have   int    // seeds
	Need   int    // seeds that would do, 0: no number would, or it is not known
	Text   string
}

func (e *NotReady) Error() string { return "spread check: " + e.Text }

// Ready says before the retraining whether its result could be judged at all; Question.New is not looked at. The error is a
// *BadQuestion or a *NotReady.
func Ready(q Question) error {
	q.New = nil
	r, err := judge(q)
	if err != nil {
		return err
	}
	for _, m := range r.Metrics {
		if m.Gating && m.Verdict == Inconclusive {
			need := 0
			switch m.Cause {
			case FewSeeds:
				need = q.least()
				if n := Need(m.SD, m.Margin, m.Alpha); n > need && m.Scale == linear {
					need = n
				}
			case TooWide:
				if m.Scale == linear {
					need = Need(m.SD, m.Margin, m.Alpha)
				}
			case NoSpread, AtBound, NotShown:
			}
			return &NotReady{Cause: m.Cause, Metric: m.Name, Have: m.N, Need: need, Text: m.Name + ": " + m.Text[len(m.Text)-1]}
		}
	}
	return nil
}

// Judge holds the new runs against the seeds. The error is a *BadQuestion, or a *NotReady where there are fewer than LeastRuns
// seeds; all other doubt is the verdict Inconclusive.
func Judge(q Question) (Report, error) {
	if len(q.New) == 0 {
		return Report{}, &BadQuestion{"there is no new run: hand over the retrained one's metrics"}
	}
	return judge(q)
}

func (q *Question) least() int {
	if q.MinRuns == 0 {
		return DefaultRuns
	}
	return q.MinRuns
}

func judge(q Question) (Report, error) {
	if err := q.check(); err != nil {
		return Report{}, err
	}
	seeds := q.seeds()
	if n := len(seeds); n < LeastRuns {
		return Report{}, &NotReady{Cause: FewSeeds, Have: n, Need: q.least(),
			Text: fmt.Sprintf("found %d of the parent's seeds, at least %d are needed and %d are asked for: run %d more on the same hardware", n, LeastRuns, q.least(), q.least()-n)}
	}
	gating := 0
	for _, m := range q.Metrics {
		if m.Gating {
			gating++
		}
	}
	r := Report{Metrics: make([]Judged, 0, len(q.Metrics))}
	for _, m := range q.Metrics {
		j := Judged{Metric: m, N: len(seeds), NewN: len(q.New), Alpha: Alpha / float64(gating)}
		if err := j.judge(q.least(), column(seeds, m.Name), column(q.New, m.Name)); err != nil {
			return Report{}, err
		}
		r.Metrics = append(r.Metrics, j)
	}
	if q.Winner != "" {
		first := slices.IndexFunc(r.Metrics, func(m Judged) bool { return m.Gating })
		r.Notes = append(r.Notes, q.regression(r.Metrics[first]))
	}
	r.conclude()
	return r, nil
}

// seeds are the parents without the winner.
func (q *Question) seeds() []Run {
	var out []Run
	for _, r := range q.Parents {
		if r.Name != q.Winner {
			out = append(out, r)
		}
	}
	return out
}

func column(runs []Run, name string) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = r.Metrics[name]
	}
	return out
}

// conclude takes the worst of the gating metrics: worse, then inconclusive, then better.
func (r *Report) conclude() {
	r.Verdict = Within
	by := ""
	rank := map[Verdict]int{Within: 0, Better: 1, Inconclusive: 2, Worse: 3}
	for _, m := range r.Metrics {
		if m.Gating && rank[m.Verdict] > rank[r.Verdict] {
			r.Verdict, by = m.Verdict, m.Name
		}
		if !m.Gating && (m.Verdict == Worse || m.Verdict == Better) {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is %s, which decides nothing: it is not gating", m.Name, m.Verdict))
		}
	}
	switch r.Verdict {
	case Within:
		r.Text = "every gating metric lies within what the parent's seeds predict"
	case Worse:
		r.Text = fmt.Sprintf("worse: %s lies outside what the parent's seeds predict, on the bad side", by)
	case Better:
		r.Text = fmt.Sprintf("better: %s lies outside what the parent's seeds predict, on the good side; that is a discrepancy too, and a person must look at it", by)
	case Inconclusive:
		r.Text = fmt.Sprintf("inconclusive: %s cannot be judged by these seeds", by)
	}
}

// regression is the note about a parent that was picked as the best of many.
func (q *Question) regression(m Judged) string {
	e := BestOf(q.BestOf)
	return fmt.Sprintf("%.80q was picked as the best of %d and is left out of the seeds: a retrained model is expected to fall behind it by about %.2f standard deviations (%s: %.3g on the %s scale), and is held against the seeds, never against the winner's own value",
		q.Winner, q.BestOf, e, m.Name, e*m.SD, m.Scale)
}

func (q *Question) check() error {
	bad := func(format string, args ...any) error { return &BadQuestion{fmt.Sprintf(format, args...)} }
	switch {
	case q.MinRuns != 0 && q.MinRuns < LeastRuns:
		return bad("the least number of seeds is %d, expected %d or more", q.MinRuns, LeastRuns)
	case len(q.Metrics) == 0 || len(q.Metrics) > maxMetrics:
		return bad("found %d metrics, expected 1 to %d", len(q.Metrics), maxMetrics)
	case len(q.Parents) > maxRuns || len(q.New) > maxRuns:
		return bad("found %d seeds and %d new runs, at most %d are read", len(q.Parents), len(q.New), maxRuns)
	case q.Winner != "" && (q.BestOf < 2 || q.BestOf > maxBestOf):
		return bad("%.80q was picked as the best of %d, expected 2 to %d", q.Winner, q.BestOf, maxBestOf)
	case q.Winner == "" && q.BestOf != 0:
		return bad("best of %d, but which of the seeds was picked is not said", q.BestOf)
	}
	names, gating := map[string]bool{}, false
	for _, m := range q.Metrics {
		if err := m.check(); err != nil {
			return err
		}
		if names[m.Name] {
			return bad("the metric %.80q is named twice", m.Name)
		}
		names[m.Name], gating = true, gating || m.Gating
	}
	if !gating {
		return bad("no metric is gating: nothing could be refused")
	}
	names = map[string]bool{}
	for _, r := range slices.Concat(q.Parents, q.New) {
		if names[r.Name] {
			return bad("the run %.80q is there twice: one run twice is no second seed", r.Name)
		}
		names[r.Name] = true
		for _, m := range q.Metrics {
			if err := m.holds(r); err != nil {
				return err
			}
		}
	}
	if q.Winner != "" && !slices.ContainsFunc(q.Parents, func(r Run) bool { return r.Name == q.Winner }) {
		return bad("the winner %.80q is not among the seeds", q.Winner)
	}
	return nil
}

func (m *Metric) check() error {
	bad := func(format string, args ...any) error {
		return &BadQuestion{fmt.Sprintf("metric %.80q: ", m.Name) + fmt.Sprintf(format, args...)}
	}
	switch m.Direction {
	case Higher, Lower, Target:
	default:
		return bad("direction %.40q, expected higher, lower or target", m.Direction)
	}
	switch m.Range {
	case Any, Share, Positive:
	default:
		return bad("range %.40q, expected share, positive or none", m.Range)
	}
	switch {
	case m.Name == "":
		return bad("it has no name")
	case !finite(m.Margin) || m.Margin < 0 || m.Gating && m.Margin == 0:
		return bad("margin %g, expected a number above 0: the largest loss that is accepted, in the metric's unit", m.Margin)
	case m.Examples < 0 || m.Examples > 0 && m.Range != Share:
		return bad("%d test examples, expected a number above 0, and range share", m.Examples)
	}
	return nil
}

// holds says whether run r has a value of m that m can take.
func (m *Metric) holds(r Run) error {
	v, ok := r.Metrics[m.Name]
	switch {
	case !ok:
		return &BadQuestion{fmt.Sprintf("the run %.80q has no metric %.80q", r.Name, m.Name)}
	case !finite(v) || math.Abs(v) > 1e150:
		return &BadQuestion{fmt.Sprintf("the run %.80q has %s %g, expected a finite number", r.Name, m.Name, v)}
	case m.Range == Share && (v < 0 || v > 1), m.Range == Positive && v < 0:
		return &BadQuestion{fmt.Sprintf("the run %.80q has %s %g, which is outside its range (%s)", r.Name, m.Name, v, m.Range)}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
