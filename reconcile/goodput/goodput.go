// Package goodput is the arithmetic of how well paid time becomes committed work: committed FLOPs per rated FLOPs of the
// paid time, as the product of speed (MFU) and productive share, which are kept apart; the bound below which an attempt
// costs a retry; and the compact history of each platform, card and math mode that the bound comes from. Pure: no clock,
// no store. Formulas are those of science.md §3; DESIGN.md says what was decided beside them.
package goodput

import (
	"cmp"
	"math"
	"slices"

	"github.com/headway-run/headway/runners/record"
)

// Constants of science.md §3.
const (
	Theta    = 0.70       // share of the paid time that must be kept training steps while little is known
	enough   = 8          // effective samples from which the platform's own record rules
	cut      = 3          // deviations below the median that are still usual
	flat     = 0.05       // least deviation, as a share of the median: a steady platform does not flag a 1 % dip
	lowest   = 0.3        // the bound never falls below this share of the median
	halfLife = 30 * 86400 // seconds after which a sample weighs half
	leastMFU = 3          // samples from which a median MFU is a reference
)

// Stint is one attempt as it is judged. All times are seconds of the store's stamps or of the worker's own clock.
type Stint struct {
	Work    float64 // FLOPs kept: before the last milestone whose pointer moved; 0: none, or not stated
	StepS   float64 // seconds of the steps that were kept
	PaidS   float64 // launch acknowledged to the end of the charge, as far as it is known
	StartS  float64 // launch acknowledged to the first lease
	TailS   float64 // silence that the lease allowed it before it was written off: our choice, so not its fault; 0 if it said its end
	Peak    float64 // rated FLOP/s of all its cards; 0: not known
	Nothing bool    // nothing was kept: the resume pointer did not move
	Key     Key
	Family  string // the job's group: MFUs are compared within it
	Wait    string // record.Sums.Wait: MFUs with waits inside and without are never mixed
	At      int64  // store's stamp of its end, Unix seconds; 0: not known, then all samples count

	Env record.Environment // where it ran: scores are compared within it
}

// known reports whether the time that was paid, and how much of it was kept, can be told.
func (s Stint) known() bool { return s.PaidS > 0 && (s.StepS > 0 || s.Nothing) }

// MFU is speed: kept work per rated work of the time its steps took. Not ok: no step was kept, or work or peak is
// unknown; it is then undefined, never 0.
func (s Stint) MFU() (mfu float64, ok bool) {
	if !(s.Work > 0 && s.StepS > 0 && s.Peak > 0) {
		return 0, false
	}
	return s.Work / (s.Peak * s.StepS), true
}

// Share is the productive share (eta): the part of the paid time that was kept steps; 0 when nothing was kept. Not ok:
// the paid time is unknown.
func (s Stint) Share() (share float64, ok bool) {
	if !s.known() {
		return 0, false
	}
	return min(s.StepS/s.PaidS, 1), true
}

// Goodput is MFU × Share: kept work per rated work of the paid time; 0 when nothing was kept. Not ok: work, peak or time
// is unknown.
func (s Stint) Goodput() (g float64, ok bool) {
	if !s.known() || !(s.Peak > 0) || !s.Nothing && !(s.Work > 0) {
		return 0, false
	}
	return s.Work / (s.Peak * s.PaidS), true
}

// Total adds attempts up. Ratios of the result are ratios of sums, never means of ratios: one early death among hours
// counts for the minutes it took. What a start and a silence cost at the least counts once. Its peak is the one at which the paid time could have done what all could; key, family,
// stamp and environment are those of the last.
func Total(list []Stint) Stint {
	var t Stint
	var possible float64
	t.Nothing = true
	for i, s := range list {
		if i == len(list)-1 {
			t.Key, t.Family, t.Wait, t.At, t.Env = s.Key, s.Family, s.Wait, s.At, s.Env
		}
		t.Work += s.Work
		t.StepS += s.StepS
		t.PaidS += s.PaidS
		t.StartS = max(t.StartS, s.StartS)
		t.TailS = max(t.TailS, s.TailS)
		possible += s.Peak * s.PaidS
		t.Nothing = t.Nothing && s.Nothing
	}
	if t.PaidS > 0 {
		t.Peak = possible / t.PaidS
	}
	return t
}

// LeastPaid is T_min: the paid seconds before which an attempt that costs fixed seconds (start-up, and silence that its
// lease allowed) cannot reach the share theta, so that nothing is judged earlier.
func LeastPaid(fixed, theta float64) float64 { return max(fixed, 0) / (1 - theta) }

// Sample is one value and how old it is, seconds.
type Sample struct{ V, AgeS float64 }

// weight halves every 30 days: science.md §3.4.
func (s Sample) weight() float64 { return math.Exp2(-max(s.AgeS, 0) / halfLife) }

// Effective is how many fresh samples old ones are worth: (Σw)² / Σw².
func Effective(list []Sample) float64 {
	var sum, squares float64
	for _, s := range list {
		w := s.weight()
		sum += w
		squares += w * w
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares
}

// Median is the weighted median: the smallest value whose cumulative weight exceeds half; where it is exactly half, the
// mean of that value and the next. 0 for no samples.
func Median(list []Sample) float64 {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b Sample) int { return cmp.Compare(a.V, b.V) })
	var total, sum float64
	for _, s := range sorted {
		total += s.weight()
	}
	for i, s := range sorted {
		sum += s.weight()
		switch half := sum - total/2; {
		case i+1 < len(sorted) && math.Abs(half) <= 1e-12*total:
			return (s.V + sorted[i+1].V) / 2
		case half > 0:
			return s.V
		}
	}
	return 0
}

// spread is the weighted median of the distances from m, made comparable to a standard deviation for n samples.
func spread(list []Sample, m, n float64) float64 {
	far := make([]Sample, len(list))
	for i, s := range list {
		far[i] = Sample{math.Abs(s.V - m), s.AgeS}
	}
	return 1.4826 * small(n) * Median(far)
}

// smallSample are Croux and Rousseeuw's factors b(n) for n from 2 to 9, a table of values.
var smallSample = [...]float64{1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107}

// small is b(n); between two whole numbers it is drawn straight.
func small(n float64) float64 {
	at := func(k int) float64 {
		if i := max(k, 2) - 2; i < len(smallSample) {
			return smallSample[i]
		}
		return float64(k) / (float64(k) - 0.8)
	}
	low := math.Floor(n)
	return at(int(low)) + (n-low)*(at(int(low)+1)-at(int(low)))
}

// Bound is the score below which an attempt is worse than usual, and where it comes from.
type Bound struct {
	V         float64 // the bound itself
	Threshold bool    // it is Theta, since fewer than 8 effective samples are known
	Median    float64 // of the samples
	Spread    float64 // their scaled median deviation, before its floor
	N         int     // samples
	Effective float64 // what they are worth
}

// BoundOf is the rule of science.md §3.3: threshold first, statistics from 8 effective samples on.
func BoundOf(scores []Sample) Bound {
	b := Bound{N: len(scores), Effective: Effective(scores), Median: Median(scores)}
	b.Spread = spread(scores, b.Median, b.Effective)
	if b.Effective < enough-1e-9 { // equal weights add up to 8 but for rounding
		b.V, b.Threshold = Theta, true
		return b
	}
	b.V = max(b.Median-cut*max(b.Spread, flat*b.Median), lowest*b.Median)
	return b
}
