package main

import (
	"math"
	"time"
)

// chance is how often pairs would differ by as much in this direction or more if nothing moved b: the share of all ways to
// exchange the two of each pair that give a product of the ratios b/a as large (the exact one-sided paired permutation test).
// 1 where there is nothing to compare. There are two to the number of pairs of them, which has to stay below thirty.
func chance(a, b []time.Duration) float64 {
	n := min(len(a), len(b))
	if n == 0 {
		return 1
	}
	seen, logs := 0.0, make([]float64, n)
	for i := range logs {
		logs[i] = math.Log(float64(max(b[i], 1)) / float64(max(a[i], 1)))
		seen += logs[i]
	}
	asMuch := 0
	for swapped := range uint32(1) << n {
		sum := 0.0
		for i, l := range logs {
			if swapped>>i&1 == 1 {
				l = -l
			}
			sum += l
		}
		if sum >= seen-1e-9 {
			asMuch++
		}
	}
	return float64(asMuch) / float64(uint32(1)<<n)
}
