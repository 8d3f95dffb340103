package patience

import (
	"fmt"
	"math"
)

// Young is the interval of milestones with the least loss, to first order: sqrt(2·C·M). blocked is C, the seconds for which a
// snapshot blocks the loop; between is M, the seconds between two losses of any kind.
func Young(blocked, between float64) float64 { return math.Sqrt(2 * blocked * between) }

// Daly is the same to higher order, in seconds of work between two snapshots.
func Daly(blocked, between float64) float64 {
	if blocked >= 2*between {
		return between
	}
	x := blocked / (2 * between)
	return Young(blocked, between)*(1+math.Sqrt(x)/3+x/9) - blocked
}

// grid is what people would write, in seconds; no two neighbours are further apart than rounding is free. A table of values.
var grid = []float64{60, 90, 120, 180, 300, 420, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600}

// Round takes the nearest interval that people would write.
func Round(s float64) float64 {
	best := grid[0]
	for _, g := range grid {
		if math.Abs(math.Log(g/s)) < math.Abs(math.Log(best/s)) {
			best = g
		}
	}
	return best
}

// Together is what an interval and a ratio have in common: each is what the other's optimum takes it to be.
type Together struct {
	Tail    Tail    // of the steps; the zero value has none
	Step    float64 // median of a steady step, s; 0: not known
	Deaths  float64 // true ones per second
	Upload  float64 // U, s
	Restart float64 // S, s
}

// Losses is 1/M, how often anything is lost per second, workers that are written off alive at the ratio k included:
// λ + Q(k)/t.
func (t Together) Losses(k float64) float64 {
	if t.Step <= 0 {
		return t.Deaths
	}
	return t.Deaths + t.Tail.Above(k)/t.Step
}

// Balance is what a lease weighs where milestones are every apart, in seconds: C_f = τ/2 + U + S.
func (t Together) Balance(every float64) Balance {
	return Balance{Step: t.Step, Loss: every/2 + t.Upload + t.Restart, Deaths: t.Deaths}
}

// Joint is the fixed point of the two (science.md §4.7), from the ratio start on: interval answers the losses per second,
// lease the balance. A higher ratio loses less often, so the interval grows, and so does the best ratio: it can't swing.
// It converges in about three rounds.
func (t Together) Joint(start float64, interval func(losses float64) Derived, lease func(Balance) Derived) (every, k Derived) {
	k.Value = start
	for range 20 {
		before := k.Value
		every = interval(t.Losses(before))
		if k = lease(t.Balance(every.Value)); math.Abs(k.Value-before) <= 1e-9*before {
			break
		}
	}
	return every, k
}

// Snapshots is what is known of a job's snapshots, in seconds.
type Snapshots struct {
	Blocked float64 // one blocks the loop for; 0: not measured
	Upload  float64 // one is on its way for
	N       int64   // how many it was measured on
}

// SnapshotPrior is what a snapshot is assumed to block the loop for until one was measured, seconds: 30 GB at the 1 GB/s at
// which a card's memory is copied (science.md §4.7, L10).
const SnapshotPrior = 30.0

// Interval is the interval of milestones to ask for, rounded to what people would write: by Daly's formula once a snapshot
// was measured, by Young's with what is assumed of one before. losses are all of them per second, as [Together.Losses] has
// them: as long as a platform has lost nothing, those of its prior.
func Interval(s Snapshots, losses float64) Derived {
	between := 1 / max(losses, 1/longestS)
	if !(s.Blocked > 0) || s.N < 1 {
		best := Young(SnapshotPrior, between)
		d := Derived{Value: Round(best), Unit: "s", Rule: RulePrior}
		d.Why = fmt.Sprintf("by Young %s, rounded: no snapshot of this job was measured yet, so one is assumed to block the loop for %s (30 GB at 1 GB/s); something is lost every %s",
			seconds(best), seconds(SnapshotPrior), seconds(between))
		return d.with("snapshot, prior", SnapshotPrior, "s").with("seconds between two losses", between, "s").with("best", best, "s")
	}
	best := Daly(s.Blocked, between)
	d := Derived{Value: Round(best), Unit: "s", Rule: RuleYoungDaly, N: s.N}
	d.Why = fmt.Sprintf("by Young and Daly %s, rounded: a snapshot blocks the loop for %s (mean of %d), and something is lost every %s",
		seconds(best), seconds(s.Blocked), s.N, seconds(between))
	d = d.with("snapshot", s.Blocked, "s").with("upload", s.Upload, "s").with("seconds between two losses", between, "s").with("best", best, "s")
	if least := 2 * s.Upload; d.Value < least { // else the next one is due before the last one has arrived
		d.Value, d.Rule = Round(least), RuleFloor
		if d.Value < least {
			d.Value = least
		}
		d.Why += fmt.Sprintf("; raised, since one is on its way for %s", seconds(s.Upload))
	}
	return d
}
