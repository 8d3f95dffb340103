package spread

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Effect is what a comparison of two variants says, in the metric's unit.
type Effect struct {
	D          float64 `json:"d"` // mean of b minus mean of a
	SE         float64 `json:"se"`
	DF         float64 `json:"df"` // Satterthwaite's
	Lo         float64 `json:"lo"` // 95 % interval of D
	Hi         float64 `json:"hi"`
	P          float64 `json:"p"`          // two-sided
	Seen       bool    `json:"seen"`       // the interval excludes 0 and D is no smaller than what matters
	Detectable float64 `json:"detectable"` // the smallest effect that would have been found with a chance of 80 %
	Text       string  `json:"text"`
}

// Compare asks whether variant b differs from a by an effect that matters (in the metric's unit; 0: any): Welch's test, at two
// runs of each or more. The error is a *BadQuestion.
func Compare(a, b []float64, matters float64) (Effect, error) {
	for _, xs := range [][]float64{a, b} {
		if len(xs) < 2 || len(xs) > maxRuns {
			return Effect{}, &BadQuestion{fmt.Sprintf("found %d runs of a variant, expected 2 to %d", len(xs), maxRuns)}
		}
		for _, x := range xs {
			if !finite(x) || math.Abs(x) > 1e150 {
				return Effect{}, &BadQuestion{fmt.Sprintf("found the value %g, expected a finite number", x)}
			}
		}
	}
	if !finite(matters) || matters < 0 {
		return Effect{}, &BadQuestion{fmt.Sprintf("the smallest effect that matters is %g, expected 0 or more", matters)}
	}
	if alike(a) && alike(b) {
		return Effect{}, &BadQuestion{"neither variant varies at all: repeats of one computation, or a metric that is rounded too coarsely"}
	}
	e := Effect{}
	e.D, e.SE, e.DF = welch(a, b)
	t := quantile(.975, e.DF)
	e.Lo, e.Hi = e.D-t*e.SE, e.D+t*e.SE
	e.P = 2 * below(-math.Abs(e.D/e.SE), e.DF)
	e.Detectable = Detectable(len(a), len(b), pooled(a, b))
	e.Seen = (e.Lo > 0 || e.Hi < 0) && math.Abs(e.D) > matters
	e.Text = fmt.Sprintf("no effect seen; the smallest that could have been seen is %s", num(e.Detectable))
	if e.Seen {
		e.Text = fmt.Sprintf("an effect of %s, 95 %% interval [%s, %s], p %.4f", num(e.D), num(e.Lo), num(e.Hi), e.P)
	} else if e.Lo > 0 || e.Hi < 0 {
		e.Text = fmt.Sprintf("an effect of %s, which is no more than the %s that matter", num(e.D), num(matters))
	}
	return e, nil
}

// Equivalence is the p of two one-sided Welch tests of |difference of the means| < margin: the larger of the two. Two or more
// runs of each; 1 when neither varies.
func Equivalence(a, b []float64, margin float64) float64 {
	d, se, df := welch(a, b)
	if se == 0 || !finite(df) {
		return 1
	}
	return max(below(-(d+margin)/se, df), below((d-margin)/se, df))
}

// welch is the difference of means, its standard error, and Satterthwaite's degrees of freedom.
func welch(a, b []float64) (d, se, df float64) {
	ma, sa := moments(a)
	mb, sb := moments(b)
	na, nb := float64(len(a)), float64(len(b))
	va, vb := sa*sa/na, sb*sb/nb
	return mb - ma, math.Sqrt(va + vb), (va + vb) * (va + vb) / (va*va/(na-1) + vb*vb/(nb-1))
}

func pooled(a, b []float64) float64 {
	_, sa := moments(a)
	_, sb := moments(b)
	na, nb := float64(len(a)-1), float64(len(b)-1)
	return math.Sqrt((na*sa*sa + nb*sb*sb) / (na + nb))
}

// Detectable is the smallest effect that is found with a chance of 80 % by na and nb runs whose deviation is sd:
// (t(.975) + t(.80)) sd sqrt(1/na + 1/nb), na+nb-2 degrees of freedom.
func Detectable(na, nb int, sd float64) float64 {
	nu := float64(na + nb - 2)
	return (quantile(.975, nu) + quantile(.80, nu)) * sd * math.Sqrt(1/float64(na)+1/float64(nb))
}

// PerArm is about how many runs of each variant find an effect with a chance of 80 %: 2 (z(.975) + z(.80))² (sd/effect)², the
// factor being 15.7.
func PerArm(sd, effect float64) float64 {
	z := distuv.UnitNormal.Quantile(.975) + distuv.UnitNormal.Quantile(.80)
	return 2 * z * z * (sd / effect) * (sd / effect)
}
