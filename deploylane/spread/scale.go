package spread

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// linear is the scale of values as they are.
const linear = "linear"

// towards is the factor by which the seeds' distances to a bound must differ before the scale is bent.
const towards = 1.5

// scale is where a metric is judged: to goes there, back returns.
type scale struct {
	name     string
	to, back func(float64) float64
}

// scaleFor chooses by the seeds alone: a scale that the new value had a say in would fit it.
func scaleFor(r Range, xs []float64) scale {
	lo, hi := slices.Min(xs), slices.Max(xs)
	same := func(x float64) float64 { return x }
	switch {
	case r == Share && (hi > towards*lo || 1-lo > towards*(1-hi)):
		return scale{"logit", func(p float64) float64 { return math.Log(p) - math.Log1p(-p) }, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }}
	case r == Positive && hi > towards*lo:
		return scale{"log", math.Log, math.Exp}
	}
	return scale{linear, same, same}
}

func (s scale) all(xs []float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = s.to(x)
	}
	return out
}

// moments are mean and standard deviation (n-1); of one value the deviation is 0.
func moments(xs []float64) (mean, sd float64) {
	if len(xs) == 1 {
		return xs[0], 0
	}
	return stat.MeanStdDev(xs, nil)
}

// alike says whether values are one value but for the last bits of a float64.
func alike(xs []float64) bool {
	lo, hi := slices.Min(xs), slices.Max(xs)
	return hi-lo <= 1e-13*max(math.Abs(lo), math.Abs(hi))
}
