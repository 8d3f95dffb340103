package spread

import (
	"fmt"
	"math"
	"slices"
)

func (j *Judged) say(format string, args ...any) {
	j.Text = append(j.Text, fmt.Sprintf(format, args...))
}

func (j *Judged) warn(format string, args ...any) {
	j.Warnings = append(j.Warnings, fmt.Sprintf(format, args...))
}

func (j *Judged) doubt(c Cause, format string, args ...any) {
	j.Verdict, j.Cause = Inconclusive, c
	j.say(format, args...)
}

// judge fills j from the seeds xs and the new values ys; without ys it says whether they could be judged, and leaves the
// verdict empty if so.
func (j *Judged) judge(least int, xs, ys []float64) error {
	sc := scaleFor(j.Range, xs)
	j.Scale = sc.name
	on := sc.all(xs)
	for i, x := range on {
		if !finite(x) {
			j.doubt(AtBound, "a seed has %g, the very end of its range, where the %s scale has no value: measure on more examples, or declare no range", xs[i], sc.name)
			return nil
		}
	}
	if alike(on) {
		j.Mean = on[0]
		j.Centre = sc.back(on[0])
		j.doubt(NoSpread, "all %d seeds gave %s: repeats of one computation, or a metric that is rounded too coarsely; a band of no width would refuse every model. Use different seeds, or a finer metric", j.N, num(xs[0]))
		return nil
	}
	j.band(sc, on, max(1, len(ys)))
	if !finite(j.Mean) || !finite(j.Half) || !finite(j.Lo) || !finite(j.Hi) {
		return &BadQuestion{fmt.Sprintf("metric %.80q: the seeds' values are too large to be computed with", j.Name)}
	}
	j.suspect(xs)
	if len(ys) > 0 {
		j.test(sc, sc.all(ys), xs, ys)
	}
	if j.N < least {
		j.doubt(FewSeeds, "%d seeds, %d are asked for: run %d more on the same hardware%s", j.N, least, least-j.N, j.needs(least))
		return nil
	}
	if len(ys) < 2 && j.Margin > 0 && j.Reach > j.Margin {
		j.doubt(TooWide, "the band reaches %s to the bad side, the margin is %s: a model worse than accepted would pass%s", num(j.Reach), num(j.Margin), j.needs(least))
		return nil
	}
	if len(ys) > 0 {
		j.decide()
	}
	return nil
}

// needs says how many seeds would do.
func (j *Judged) needs(least int) string {
	if j.Scale != linear || j.Margin == 0 {
		return ""
	}
	switch n := Need(j.SD, j.Margin, j.Alpha); {
	case n == 0:
		return fmt.Sprintf("; no number of seeds brings it within: two runs of the same configuration alone differ by more than the margin, %s", num(j.Margin))
	case n > j.N && n > least:
		return fmt.Sprintf("; with this deviation %d seeds would do, %d more", n, n-j.N)
	}
	return ""
}

// band computes the prediction interval for the mean of m new runs.
func (j *Judged) band(sc scale, on []float64, m int) {
	j.Mean, j.SD = moments(on)
	j.Factor = Factor(j.N, m, j.Alpha)
	j.Half = j.Factor * j.SD
	j.Centre, j.Lo, j.Hi = sc.back(j.Mean), sc.back(j.Mean-j.Half), sc.back(j.Mean+j.Half)
	switch j.Direction {
	case Higher:
		j.Reach = j.Centre - j.Lo
	case Lower:
		j.Reach = j.Hi - j.Centre
	case Target:
		j.Reach = max(j.Centre-j.Lo, j.Hi-j.Centre)
	}
	if sc.name != linear {
		j.say("the seeds' distances to the end of the range differ by more than a factor of %g: judged on the %s scale", towards, sc.name)
	}
	of := "one new run"
	if m > 1 {
		of = fmt.Sprintf("the mean of %d new runs", m)
	}
	j.say("n %d, mean %s, s %s (%s); half-width for %s = t(%d, %.4g) s sqrt(1/%d + 1/%d) = %.4f s = %s", j.N, num(j.Mean), num(j.SD), sc.name,
		of, j.N-1, 1-j.Alpha/2, m, j.N, j.Factor, num(j.Half))
	lo, hi := Vague(j.N)
	j.say("band [%s, %s]; s itself is known from %d seeds only: the true one is %.2f to %.2f times it", num(j.Lo), num(j.Hi), j.N, lo, hi)
}

// test computes t, p and, of several new runs, the equivalence test. on and ys are the new values on the scale and off it.
func (j *Judged) test(sc scale, on, xs, ys []float64) {
	mean, _ := moments(on)
	j.Value = sc.back(mean)
	if !finite(mean) {
		j.AtEnd = true
		j.Value = slices.Max(ys)
		if math.IsInf(mean, -1) {
			j.Value = slices.Min(ys)
		}
		j.say("the new value is %s, the very end of its range: beyond any band", num(j.Value))
	} else {
		m := float64(len(on))
		j.T = (mean - j.Mean) / (j.SD * math.Sqrt(1/m+1/float64(j.N)))
		j.P = 2 * below(-math.Abs(j.T), float64(j.N-1))
		j.say("new value %s: t %.4f, two-sided p %.4f against %.4g", num(j.Value), j.T, j.P, j.Alpha)
	}
	if len(ys) > 1 && j.Margin > 0 {
		j.TOST = Equivalence(xs, ys, j.Margin)
		j.say("sameness within %s by two one-sided tests (Welch): p %.4f against %.4g", num(j.Margin), j.TOST, Alpha)
	}
}

// decide is the verdict where nothing stands against one.
func (j *Judged) decide() {
	over := j.Value > j.Hi || j.AtEnd && j.Value > j.Centre
	under := j.Value < j.Lo || j.AtEnd && j.Value < j.Centre
	bad := under && j.Direction != Lower || over && j.Direction != Higher
	switch {
	case bad:
		j.Verdict = Worse
		j.say("outside the band on the bad side (%s is better): worse", j.Direction)
	case over || under:
		j.Verdict = Better
		j.say("outside the band on the good side: better")
	case j.NewN > 1 && j.Margin > 0 && j.TOST > Alpha:
		j.doubt(NotShown, "inside the band, but sameness within the margin is not shown: take more new runs or more seeds")
	default:
		j.Verdict = Within
		j.say("inside the band: within")
	}
}

// suspect warns of seeds that look like fewer than they are.
func (j *Judged) suspect(xs []float64) {
	sorted := slices.Sorted(slices.Values(xs))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			j.warn("two seeds have the same %s, %s: was one seed used twice, or is the metric rounded?", j.Name, num(sorted[i]))
			break
		}
	}
	if j.Examples == 0 {
		return
	}
	mean, sd := moments(xs)
	e := mean
	if j.Direction == Higher {
		e = 1 - mean
	}
	floor := LeastSD(e, j.Examples)
	if _, hi := Vague(j.N); sd*hi < floor {
		j.warn("the seeds deviate by %s, at most %s by their number; about %s is expected of %d test examples: was one seed used twice?", num(sd), num(sd*hi), num(floor), j.Examples)
	}
}

// num writes a number for people.
func num(v float64) string { return fmt.Sprintf("%.6g", v) }
