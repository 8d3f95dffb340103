package spread

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// quantile is Student's t quantile at p for nu degrees of freedom (nu need not be whole).
func quantile(p, nu float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: nu}.Quantile(p)
}

// below is the chance that Student's t with nu degrees of freedom is below t.
func below(t, nu float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: nu}.CDF(t)
}

// Factor is the half-width of the prediction interval for the mean of m new runs after n seeds, in standard deviations of
// the seeds: t(n-1, 1-alpha/2) sqrt(1/m + 1/n). At 2·alpha it is the one-sided factor at alpha. n is 2 or more, m 1 or more,
// 0 < alpha < 1.
func Factor(n, m int, alpha float64) float64 {
	return quantile(1-alpha/2, float64(n-1)) * math.Sqrt(1/float64(m)+1/float64(n))
}

// mostNeeded ends the search of Need; nobody trains more seeds than that for one release.
const mostNeeded = 1000

// Need is the smallest number of seeds with which a band of standard deviation sd is no wider than margin on either side, if
// sd stays what it is; 0 when not even a thousand would do: the margin is then below what two runs of the same configuration differ by.
func Need(sd, margin, alpha float64) int {
	n := LeastRuns + sort.Search(mostNeeded-LeastRuns+1, func(i int) bool { return Factor(LeastRuns+i, 1, alpha)*sd <= margin }) // the factor falls with n
	if n > mostNeeded {
		return 0
	}
	return n
}

// Vague is how far the true deviation may lie from the measured one of n seeds: the 95 % interval of sigma/s, from the
// chi-square distribution of (n-1) s²/sigma².
func Vague(n int) (lo, hi float64) {
	nu := float64(n - 1)
	c := distuv.ChiSquared{K: nu}
	return math.Sqrt(nu / c.Quantile(.975)), math.Sqrt(nu / c.Quantile(.025))
}

// BestOf is how far the best of k equal runs lies above their mean, in standard deviations: the integral of
// x k φ(x) Φ(x)^(k-1), by Simpson's rule.
func BestOf(k int) float64 {
	const lo, hi, steps = -9.0, 9.0, 4000
	n := float64(k)
	f := func(x float64) float64 {
		return x * n * distuv.UnitNormal.Prob(x) * math.Pow(distuv.UnitNormal.CDF(x), n-1)
	}
	h := (hi - lo) / steps
	sum := f(lo) + f(hi)
	for i := 1; i < steps; i++ {
		sum += f(lo+float64(i)*h) * float64(2+2*(i%2))
	}
	return sum * h / 3
}

// LeastSD is about what an accuracy deviates by from run to run whatever is done, for a share of errors e on that many test
// examples: sqrt(e / (2 examples)). A much smaller measured one deserves suspicion.
func LeastSD(e float64, examples int64) float64 { return math.Sqrt(e / (2 * float64(examples))) }
