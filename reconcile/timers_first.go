package reconcile

import (
	"fmt"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/patience"
)

// assumedMFU is the model FLOPs utilization before any data, on the safe side: a long lease (science.md §4.3).
const assumedMFU = 0.05

// guess is how long a step takes by what it computes, W/(P·MFU). The zero value: nobody knows.
type guess struct {
	work, peak, mfu float64 // FLOPs of a step, FLOP/s rated, share
	n               int64   // attempts that the share comes from; 0: it is assumed
}

// seconds of a step; 0: not known.
func (g guess) seconds() float64 {
	if !(g.work > 0) || !(g.peak > 0) || !(g.mfu > 0) {
		return 0
	}
	return g.work / (g.peak * g.mfu)
}

// guessed is what is known of a step of a job that has not measured any: its work, its card's peak, and the MFU that jobs like it
// usually reach there, else one that hardly any stays below.
func (r *Reconciler) guessed(j *plan.Job, pl *platform) guess {
	card, peak, ok := plan.Card(pl.conf, j.GPU)
	if !ok {
		return guess{}
	}
	g := guess{work: stepWork(j), peak: peak, mfu: assumedMFU}
	if m := r.book.Expect(pl.conf.Name, card, j.GPU.DType, j.Group).MFU; m.N > 0 && m.V > 0 {
		g.mfu, g.n = min(m.V, 1), int64(m.N)
	}
	return g
}

// stepWork is the FLOPs of one step of a job; 0: it does not say.
func stepWork(j *plan.Job) float64 {
	if j.FLOPs.PerStep > 0 || j.FLOPs.Steps <= 0 {
		return j.FLOPs.PerStep
	}
	return j.FLOPs.Total / float64(j.FLOPs.Steps)
}

// first is the first lease of a job without history: k steps of the guess, where that is longer than the warm-up that the platform
// has taught, and an hour at most. It lasts until the worker's own steps are steady; from then on their median counts.
func (g guess) first(warm patience.Derived, k, least float64) patience.Derived {
	step := g.seconds()
	if !(k*step > warm.Value) {
		return warm
	}
	d := patience.Derived{Value: min(k*step, max(least, warmMost)), Unit: "s", Rule: patience.RuleWork, N: g.n}
	d.Inputs = []patience.Input{{Name: "work of a step", Value: g.work, Unit: "FLOPs"}, {Name: "peak", Value: g.peak, Unit: "FLOP/s"}, {Name: "MFU", Value: g.mfu}}
	whence := "assumed, until a step of this job was measured"
	if g.n > 0 {
		whence = "usual there"
	}
	d.Why = fmt.Sprintf("%s steps of %s at an MFU of %.2g, which is %s", number(k), secondsText(step), g.mfu, whence)
	if d.Value < k*step {
		d.Why += "; an hour at most"
	}
	return d
}
