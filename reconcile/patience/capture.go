package patience

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Capture is one wait for a first lease (or for a first steady step), in seconds.
type Capture struct {
	S        float64
	Censored bool // given up, revoked or failed at S: it would have taken longer
}

// Prior is what is assumed of a wait before anything was observed.
type Prior struct {
	Name   string  // "bare containers": for people
	Window float64 // seconds; the timer without any observation
	Median float64 // seconds; of a lognormal
	Sigma  float64 // of its logarithm
	MTBF   float64 // seconds between two losses of a machine
}

// Engineering defaults, not published facts (science.md §4.2, §4.7): a table of values. A bare container's lognormal is
// median 300 s, sigma 0.8 (p99 1929 s); the others are that distribution, scaled to their window.
var (
	OwnProcess     = Prior{"own processes", 120, 120.0 / 7, 0.8, 24 * 3600}
	ForeignRuntime = Prior{"foreign runtimes", 20 * 60, 1200.0 / 7, 0.8, 6 * 3600}
	BareContainer  = Prior{"bare containers", 35 * 60, 300, 0.8, 6 * 3600}
)

// Scaled is the prior of a wait of another length, of the same shape.
func (p Prior) Scaled(name string, window float64) Prior {
	f := window / p.Window
	p.Name, p.Window, p.Median = name, window, p.Median*f
	return p
}

const (
	priorWeight  = 4    // observations that the prior is worth
	enough       = 29   // from here on the greatest of n covers the 90 % quantile with 95 % confidence: ln .05 / ln .90
	covered      = 0.90 // share of live launches that the window covers
	sure         = 0.95 // and with which confidence; also of the prediction bound
	longestS     = 31 * 86400.0
	shortestS    = 1e-3
	leastSigma   = 1e-3
	largestSigma = 4.0
)

// Step is a step of a survival curve: from At on, the share Survive has not been captured.
type Step struct{ At, Survive float64 }

// Curve is a Kaplan–Meier estimate, in order of time.
type Curve []Step

// Survival estimates the curve: the product over event times of 1 - d/n, where whoever is censored at a time is still at
// risk at it.
func Survival(obs []Capture) Curve {
	s := sorted(obs)
	var out Curve
	left := 1.0
	for i := 0; i < len(s); {
		j, d := i, 0
		for ; j < len(s) && s[j].S == s[i].S; j++ {
			if !s[j].Censored {
				d++
			}
		}
		if d > 0 {
			left *= 1 - float64(d)/float64(len(s)-i)
			out = append(out, Step{s[i].S, left})
		}
		i = j
	}
	return out
}

func sorted(obs []Capture) []Capture {
	s := slices.Clone(obs)
	slices.SortFunc(s, func(a, b Capture) int { return cmp.Compare(a.S, b.S) })
	return s
}

// Quantile is the smallest time with at most 1-p left. It may not exist: too many were given up before.
func (c Curve) Quantile(p float64) (float64, bool) {
	for _, s := range c {
		if s.Survive <= 1-p+1e-12 {
			return s.At, true
		}
	}
	return 0, false
}

// Lognormal is a distribution of waits: the logarithm of the seconds is normal.
type Lognormal struct{ Mu, Sigma float64 }

// Quantile in seconds.
func (l Lognormal) Quantile(p float64) float64 {
	return math.Exp(l.Mu + l.Sigma*distuv.UnitNormal.Quantile(p))
}

// density at t seconds.
func (l Lognormal) density(t float64) float64 {
	z := (math.Log(t) - l.Mu) / l.Sigma
	return math.Exp(-z*z/2) / (t * l.Sigma * math.Sqrt(2*math.Pi))
}

// Fit is the lognormal of greatest likelihood: log f for captures, log S for censored ones, by expectation–maximization.
// Without a capture there is none: ok is false.
func Fit(obs []Capture) (l Lognormal, ok bool) {
	events := 0
	for _, o := range obs {
		if !o.Censored {
			events++
		}
	}
	if events == 0 {
		return Lognormal{}, false
	}
	l = complete(obs)
	if events == len(obs) {
		return l, true
	}
	n := float64(len(obs))
	for range 2000 {
		var sum, sq float64
		for _, o := range obs {
			x := logOf(o.S)
			if !o.Censored {
				sum, sq = sum+x, sq+(x-l.Mu)*(x-l.Mu)
				continue
			}
			z := (x - l.Mu) / l.Sigma
			h := hazard(z)
			sum += l.Mu + l.Sigma*h
			sq += l.Sigma * l.Sigma * (1 + z*h) // second moment of what is left, about the old mean
		}
		mu := min(sum/n, math.Log(longestS))
		v := max(sq/n-(mu-l.Mu)*(mu-l.Mu), 0)
		next := Lognormal{mu, min(max(math.Sqrt(v), leastSigma), largestSigma)}
		done := math.Abs(next.Mu-l.Mu) < 1e-9 && math.Abs(next.Sigma-l.Sigma) < 1e-9
		if l = next; done {
			break
		}
	}
	return l, true
}

// complete is the fit when every wait counts as ended where it was given up.
func complete(obs []Capture) Lognormal {
	var m, v float64
	for _, o := range obs {
		m += logOf(o.S) / float64(len(obs))
	}
	for _, o := range obs {
		v += (logOf(o.S) - m) * (logOf(o.S) - m) / float64(len(obs))
	}
	return Lognormal{m, max(math.Sqrt(v), leastSigma)}
}

func logOf(s float64) float64 { return math.Log(min(max(s, shortestS), longestS)) }

// hazard of the standard normal, density / survival.
func hazard(z float64) float64 {
	if z > 10 {
		return z + 1/z - 2/(z*z*z) // both underflow long before the ratio does
	}
	return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) / (0.5 * math.Erfc(z/math.Sqrt2))
}

// Blend is a fit of n observations mixed with a prior that is worth four.
func Blend(p Prior, l Lognormal, n float64) Lognormal {
	mu0, n0 := math.Log(p.Median), float64(priorWeight)
	mu := (n0*mu0 + n*l.Mu) / (n0 + n)
	v := (n0*p.Sigma*p.Sigma + n*l.Sigma*l.Sigma + n0*n/(n0+n)*(l.Mu-mu0)*(l.Mu-mu0)) / (n0 + n - 1)
	return Lognormal{mu, math.Sqrt(v)}
}

// Predict is the bound in seconds below which the next wait lies with probability p, given n observations that l was
// fitted to: exp(m + t·s·sqrt(1+1/n)), t of Student with n-1 degrees. s is the deviation with n-1, not the likelihood's.
func Predict(l Lognormal, n, p float64) float64 {
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: max(n-1, 1)}.Quantile(p)
	return math.Exp(l.Mu + t*l.Sigma*math.Sqrt(1+1/n))
}

// CostWindow is when to give up: at T the next second of waiting, were the launch dead (probability dead), costs as much as
// the chance of giving up on a live one. f(T) = dead·wait/((1-dead)·start), on the falling side of the density. wait is the cost of a
// second, start that of a second launch. ok is false when waiting is never worth it.
func CostWindow(l Lognormal, dead, wait, start float64) (float64, bool) {
	level := dead * wait / ((1 - dead) * start)
	low := l.Mu - l.Sigma*l.Sigma // the mode, as a logarithm
	if !(level > 0) || l.density(math.Exp(low)) <= level {
		return 0, false
	}
	high := low + 60*max(l.Sigma, 1)
	for range 200 {
		if mid := (low + high) / 2; l.density(math.Exp(mid)) > level {
			low = mid
		} else {
			high = mid
		}
	}
	return math.Exp(low), true
}

// Costs of a capture window in seconds of work. The zero value: they are not known.
type Costs struct {
	Dead  float64 // share of launches that never bring a worker
	Start float64 // a twin's start-up, against one second of waiting
}

// Window is the timer of a wait: the prior without any observation; up to 28 captures the prediction bound, blended with the
// prior; from 29 on the upper confidence bound of the 90 % quantile, or the cost optimum if that is longer. A wait that was
// given up counts at least as one that ended there, so it never shortens the window; where all were given up, the prior
// was too short, or nothing ever comes: the window grows, and its caller bounds it. While every wait was shorter than the
// prior's window, nothing speaks against that: the window is no longer than it, unless the cost optimum is.
func Window(p Prior, what string, obs []Capture, c Costs) Derived {
	d := learnt(p, what, obs, c)
	if d.Value <= p.Window || d.Rule == RuleCost || slices.ContainsFunc(obs, func(o Capture) bool { return o.S >= p.Window }) {
		return d
	}
	d.Value, d.Rule = p.Window, RulePrior
	d.Why = fmt.Sprintf("the prior of %s: %s%s, and none took as long", p.Name, counted(d.N, what), given(d.Censored))
	return d
}

// learnt is the window by its rule for that many captures, however wide few of them make it.
func learnt(p Prior, what string, obs []Capture, c Costs) Derived {
	n, cut := 0, 0
	for _, o := range obs {
		if o.Censored {
			cut++
		} else {
			n++
		}
	}
	d := Derived{Unit: "s", N: int64(n), Censored: int64(cut)}
	if len(obs) == 0 {
		d.Value, d.Rule = p.Window, RulePrior
		d.Why = fmt.Sprintf("the prior of %s: no %s was observed", p.Name, what)
		return d.with("prior window", p.Window, "s")
	}
	fit, ok := Fit(obs)
	if !ok {
		fit = complete(obs)
		d = early(d, p, what, obs, fit)
		d.Value = max(d.Value, p.Window)
		d.Why = fmt.Sprintf("no %s was observed and %d were given up: more than the prior of %s", what, cut, p.Name)
		return d.with("prior window", p.Window, "s")
	}
	d = d.with("median", math.Exp(fit.Mu), "s").with("sigma", fit.Sigma, "")
	if n >= enough {
		return late(d, p, what, obs, fit, c)
	}
	return early(d, p, what, obs, fit)
}

// early is the rule for 1 to 28 captures.
func early(d Derived, p Prior, what string, obs []Capture, fit Lognormal) Derived {
	all := float64(len(obs))
	d.Rule = RulePrediction
	for _, l := range []Lognormal{fit, complete(obs)} {
		d.Value = max(d.Value, Predict(Blend(p, l, all), all+priorWeight, sure))
	}
	if len(obs) >= enough { // had none been given up, this is what the quantile would be
		d.Value = max(d.Value, sorted(obs)[rankFor(len(obs))-1].S)
	}
	d.Why = fmt.Sprintf("prediction bound of %s (median %s%s) blended with the prior of %s",
		counted(d.N, what), seconds(math.Exp(fit.Mu)), given(d.Censored), p.Name)
	return d.with("prior median", p.Median, "s").with("prior sigma", p.Sigma, "").with("prior weight", priorWeight, what+"s")
}

// late is the rule from 29 captures on.
func late(d Derived, p Prior, what string, obs []Capture, fit Lognormal, c Costs) Derived {
	rank := rankFor(len(obs))
	v, ok := Survival(obs).Quantile(float64(rank) / float64(len(obs)))
	if !ok { // too many were given up: the curve never comes down that far
		return early(d, p, what, obs, fit)
	}
	d.Rule, d.Value = RuleQuantile, v
	d.Why = fmt.Sprintf("upper bound of the 90 %% quantile of %s (median %s%s)", counted(d.N, what), seconds(math.Exp(fit.Mu)), given(d.Censored))
	d = d.with("rank", float64(rank), "")
	if c.Dead <= 0 || c.Start <= 0 {
		return d
	}
	if best, ok := CostWindow(fit, c.Dead, 1, c.Start); ok && best > d.Value {
		d.Rule, d.Value = RuleCost, best
		d.Why = fmt.Sprintf("where waiting on costs as much as a second launch, by %s (median %s%s)", counted(d.N, what), seconds(math.Exp(fit.Mu)), given(d.Censored))
	}
	return d.with("launches that bring nobody", c.Dead, "").with("a second start", c.Start, "s")
}

// rankFor is the order statistic of n that is not below the 90 % quantile with 95 % confidence: the smallest r with
// P(Binomial(n, .9) < r) ≥ .95. n must be at least 29.
func rankFor(n int) int {
	b := distuv.Binomial{N: float64(n), P: covered}
	return 1 + quantileOf(n, func(k int) bool { return b.CDF(float64(k)) >= sure })
}

// quantileOf is the smallest k below n that holds, by halving; n-1 when none does.
func quantileOf(n int, holds func(k int) bool) int {
	low, high := 0, n-1
	for low < high {
		if mid := (low + high) / 2; holds(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func given(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d given up", n)
}

// seconds prints a time with as many digits as it is worth.
func seconds(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.2g s", s)
	case s < 1e6:
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.3g s", s)
}
