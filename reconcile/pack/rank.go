package pack

import "slices"

// Node is one job of a graph.
type Node struct {
	T     float64 // how long it takes, in any unit that is the same for all
	Needs []int   // indices of the jobs that must be finished first
}

// Ranks is the upward rank of each job: its own time and the longest path from it to an end of the graph (HEFT),
//
//	rank(j) = t_j + max over the jobs that need j of rank(k)
//
// in O(jobs + needs). A job that is part of a circle, or needs one, or names a need that does not exist: the graph is not
// one that a plan can have, and its rank counts only what is known of it; it is never an endless loop.
func Ranks(g []Node) []float64 {
	rank := make([]float64, len(g))
	after := make([]int, len(g)) // jobs that need it and are not ranked yet
	for _, j := range g {
		for _, n := range j.Needs {
			if n >= 0 && n < len(g) {
				after[n]++
			}
		}
	}
	var ready []int
	for i := range g {
		if after[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		rank[i] += g[i].T
		for _, n := range g[i].Needs {
			if n < 0 || n >= len(g) {
				continue
			}
			rank[n] = max(rank[n], rank[i])
			if after[n]--; after[n] == 0 {
				ready = append(ready, n)
			}
		}
	}
	return rank
}

// Times fills in what is not known (0, or less): the median of what is, or 1 where nothing is, so that unknown jobs weigh
// alike.
func Times(t []float64) []float64 {
	out := append([]float64(nil), t...)
	m := median(t)
	for i := range out {
		if !(out[i] > 0) {
			out[i] = m
		}
	}
	return out
}

func median(t []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(t), func(x float64) bool { return !(x > 0) })
	if len(known) == 0 {
		return 1
	}
	slices.Sort(known)
	return known[len(known)/2]
}
