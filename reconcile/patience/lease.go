package patience

import (
	"fmt"
	"math"

	"github.com/headway-run/headway/runners/record"
)

// A ratio here is a step's time over the median step, dimensionless; k is the ratio that a lease survives.
const (
	// StartK is the lease in steps before anything is known.
	StartK = 50
	// LeastK is the lowest ratio that a lease has to survive, whatever was measured.
	LeastK = 3
	// MostK bounds what a false write-off can raise the ratio to: it is a stranger's word.
	MostK = 4 * StartK
	// ClockSteps is how many steady steps must pass without a false write-off before k may come down.
	ClockSteps = 10_000

	revision  = 0.70 // k moves down by 30 % at a time at most
	margin    = 1.5  // above the largest ratio that an honest step was seen to reach
	threshold = 2.0  // above it a step belongs to the tail
	fewest    = 20   // finished steps in the tail that make its slope worth using
	caution   = 1.645
	farther   = 1e6 // a target beyond it is as good as none
)

// Tail is Q(k) = A·k^-Alpha, the share of steps that take longer than k medians, for k above the threshold it was measured
// from. The zero value has no tail at all.
type Tail struct{ Alpha, A float64 }

// Above is Q(k).
func (t Tail) Above(k float64) float64 {
	if t.A <= 0 {
		return 0
	}
	return min(t.A*math.Pow(k, -t.Alpha), 1)
}

// Ratios is what a histogram says of the tail.
type Ratios struct {
	N       int64   // steady steps
	Done    int64   // of these, finished ones above the threshold
	Cut     int64   // of these, censored ones above it
	LogSum  float64 // sum of ln(R/threshold) over both
	Largest float64 // largest ratio of all, censored or not; the upper edge of its bin
}

// Add counts n steps of one ratio.
func (r *Ratios) Add(ratio float64, n int64, censored bool) {
	r.N += n
	r.Largest = max(r.Largest, ratio)
	if ratio < threshold {
		return
	}
	r.LogSum += float64(n) * math.Log(ratio/threshold)
	if censored {
		r.Cut += n
	} else {
		r.Done += n
	}
}

// Read takes a histogram's bins at their middles, and the largest at its upper edge.
func Read(h record.Histogram) Ratios {
	var r Ratios
	top := -1
	for bin := 0; bin <= record.MaxBin; bin++ { // in order: sums of floats must not depend on a map's
		middle := record.BinFloor(bin) * math.Exp2(1.0/16)
		if n := h.Done[bin]; n > 0 {
			r.Add(middle, n, false)
			top = bin
		}
		if n := h.Censored[bin]; n > 0 {
			r.Add(middle, n, true)
			top = bin
		}
	}
	if top >= 0 {
		r.Largest = record.BinFloor(top + 1)
	}
	return r
}

// Tail is the tail of greatest likelihood: alpha = finished / sum of ln(R/u) over all, censored ones included. cautious
// takes the lower 95 % bound of the slope. Without a finished step in the tail there is none: ok is false.
func (r Ratios) Tail(cautious bool) (t Tail, ok bool) {
	if r.Done == 0 || r.LogSum <= 0 || r.N == 0 {
		return Tail{}, false
	}
	d := float64(r.Done)
	t.Alpha = d / r.LogSum
	if cautious {
		t.Alpha *= 1 - caution/math.Sqrt(d)
	}
	if t.Alpha <= 0 {
		return Tail{}, false
	}
	t.A = float64(r.Done+r.Cut) / float64(r.N) * math.Pow(threshold, t.Alpha)
	return t, true
}

// Balance is what a lease has to weigh for one job, in seconds.
type Balance struct {
	Step   float64 // median of a steady step
	Loss   float64 // of a false write-off: half a milestone interval, the upload, the restart
	Deaths float64 // true ones per second
}

func (b Balance) known() bool { return b.Step > 0 && b.Loss > 0 && b.Deaths > 0 }

// Best is the ratio at which one more step of waiting for the dead costs what it saves of the living, for a Pareto tail:
// k* = (α·A·C_f/(λ·t²))^(1/(α+1)).
func (b Balance) Best(t Tail) float64 {
	return math.Pow(t.Alpha*t.A*b.Loss/(b.Deaths*b.Step*b.Step), 1/(t.Alpha+1))
}

// Needed is how many steps without one above the lower ratio prove, with 95 % confidence, that going down saves more than
// it costs: 3·C_f/(λ·t²·(k_old - k_new)).
func (b Balance) Needed(old, lower float64) float64 {
	return 3 * b.Loss / (b.Deaths * b.Step * b.Step * (old - lower))
}

// Clock is what passed since the last false write-off, and how far those who were written off had come.
type Clock struct {
	Steps     int64   // steady steps since the last revision or false write-off
	Revisions int64   // times that ClockSteps passed since the last false write-off, one attempt at a time
	Reached   float64 // largest ratio that somebody who was written off alive had reached; 0: nobody was
}

// Lease is the ratio that a job's lease has to survive, from above only: start (or 1.5 times what somebody reached who was
// written off alive, at once) until enough steps have passed; then down by 30 % at a time at most, towards the optimum of
// the measured tail; with too few long steps for a tail never below 1.5 times the largest, and only as far as the saving
// is provable. before is what the job's last attempt had (0: there was none): it is not undercut by more than 30 % either,
// whatever was learnt meanwhile. A pure function of what was observed: asking twice changes nothing.
func Lease(h record.Histogram, c Clock, b Balance, start, before float64) Derived {
	d := lease(h, c, b, start)
	if least := before * revision; least > d.Value {
		d = d.with("its last attempt had", before, "steps")
		d.Value = least
		d.Why += "; not more than 30 % below what its last attempt had"
	}
	return d
}

func lease(h record.Histogram, c Clock, b Balance, start float64) Derived {
	r := Read(h)
	done, cut := h.N()
	d := Derived{Value: start, Unit: "steps", Rule: RuleStart, N: done, Censored: cut}
	d = d.with("start", start, "steps").with("revisions allowed", float64(c.Revisions), "")
	if c.Reached > 0 {
		raised := min(margin*c.Reached, MostK)
		d = d.with("reached by who was written off alive", c.Reached, "steps")
		if raised > d.Value {
			d.Value, d.Rule = raised, RuleFalse
		}
	}
	if c.Revisions < 1 {
		d.Why = fmt.Sprintf("%d of the %d steady steps that it takes to lower it", min(c.Steps, ClockSteps), ClockSteps)
		if d.Rule == RuleFalse {
			d.Why = fmt.Sprintf("1.5 times the %.3g that a step reached whose worker was written off alive; ", c.Reached) + d.Why
		}
		return d
	}
	if !b.known() {
		d.Why = "the job's step time is not known, so the cost of waiting is not either"
		return d
	}
	d = d.with("step", b.Step, "s").with("a false write-off costs", b.Loss, "s").with("seconds between two deaths", 1/b.Deaths, "s")
	target, few := goal(r, b)
	d = d.with("long steps", float64(r.Done), "").with("target", target, "steps")
	at := d.Value
	for range min(c.Revisions, 100) {
		next := max(at*revision, target)
		if next >= at || few && float64(r.N) < b.Needed(at, next) {
			break
		}
		at = next
	}
	if at == d.Value {
		d.Why = fmt.Sprintf("%d steady steps: going lower would save nothing that is proven", done)
		return d
	}
	d.Value, d.Rule = at, RuleTail
	d.Why = fmt.Sprintf("of %d steady steps %d took twice the median or more: on the way down to the %.3g at which waiting for the dead costs what it saves the living", done, r.Done+r.Cut, target)
	if few {
		d.Rule = RuleFew
		d.Why = fmt.Sprintf("of %d steady steps the longest took %.3g medians: 1.5 times that at least, and as low as the saving is proven", done, r.Largest)
	}
	return d
}

// goal is where the ratio may go for a job, and whether too few long steps were seen to price them.
func goal(r Ratios, b Balance) (target float64, few bool) {
	if t, ok := r.Tail(true); ok && r.Done >= fewest {
		return max(min(b.Best(t), farther), LeastK), false
	}
	return max(margin*r.Largest, LeastK), true
}

// Length is a lease in steps that survives the ratio k, where a renewal is due after the share renew of it: the step that
// began just before may take the rest.
func Length(k, renew float64) float64 { return k / (1 - renew) }

// Survives is the ratio that a lease of so many steps survives for certain.
func Survives(steps, renew float64) float64 { return steps * (1 - renew) }
