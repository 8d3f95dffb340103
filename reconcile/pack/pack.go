// Package pack chooses which ready jobs start together: the order in which they are worth starting (upward rank), and
// which of them share a launch that is paid for until its longest job is over (full batches of like length). It is
// pure arithmetic over numbers that the caller brings; DESIGN.md has the sources and what was left out.
package pack

import (
	"cmp"
	"slices"
)

const (
	// Alike is the least share of mean to longest time for which the jobs of a block count as alike; for two jobs that
	// is a shortest of 0.6 of the longest (science.md §6.1).
	Alike = 0.8
	// Slack is how far below the highest rank of the ready jobs one may be, as a share of it, to be as urgent.
	Slack = 1 - Alike
)

// Blocks cuts times (any unit, zero or more) into blocks of at most n whose sum of longest times is the least that any cut
// has: longest first, consecutive blocks of n, the short one last (full-batch longest-processing-time). It returns indices
// into t; equal times keep their order. n below 1 counts as 1.
func Blocks(t []float64, n int) [][]int {
	order := make([]int, len(t))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t[b], t[a]) })
	return slices.Collect(slices.Chunk(order, max(n, 1)))
}

// Fit is mean/longest of a block's times: 1 when all are alike, and of an empty or a timeless one.
func Fit(t []float64, block []int) float64 {
	most, sum := longest(t, block), 0.0
	for _, i := range block {
		sum += t[i]
	}
	if most <= 0 {
		return 1
	}
	return sum / float64(len(block)) / most
}

func longest(t []float64, block []int) (most float64) {
	for _, i := range block {
		most = max(most, t[i])
	}
	return most
}

// Queues deals times out to n places that each take several jobs in a row: the longest job to the place that is least
// loaded (LPT). Its longest place takes at most 4/3 − 1/(3n) times what the best deal takes.
func Queues(t []float64, n int) [][]int {
	n = max(n, 1)
	out, load := make([][]int, n), make([]float64, n)
	for _, block := range Blocks(t, 1) {
		least := 0
		for p := range load {
			if load[p] < load[least] {
				least = p
			}
		}
		out[least] = append(out[least], block[0])
		load[least] += t[block[0]]
	}
	return out
}

// Job is one that is ready to start.
type Job struct {
	Class string  // only jobs of one class share a launch
	T     float64 // how long it takes, in any unit that is the same for all; 0: nobody knows
	Rank  float64 // of Ranks, in the same unit
	Size  int     // places of a launch that it takes; below 1 counts as 1. One that takes more than there are is alone
}

func (j Job) size() int { return max(j.Size, 1) }

// Launches puts ready jobs into at most m launches of n places. The jobs come in the order in which they are to
// start: the first one is never held back, and each launch is led by the first that is left. It returns indices into jobs,
// each launch's leader first. Equal input gives equal output.
//
// A leader takes along those of its class that are about as urgent (Slack) where the block that it falls into is Alike.
// Otherwise, and for the places that are left then, it takes any of its class: first the longest of those that are not longer
// than the launch lasts anyway, since their places cost nothing more, then the shortest of the others. An empty place is
// never better: whoever could have had it must be paid for elsewhere. So a launch has room only where nothing of its class
// that fits into it is ready.
func Launches(jobs []Job, n, m int) [][]int {
	n = max(n, 1)
	var out [][]int
	left := make(map[string][]int)
	taken := make([]bool, len(jobs))
	for i, j := range jobs {
		left[j.Class] = append(left[j.Class], i)
	}
	for first := 0; first < len(jobs) && len(out) < m; first++ {
		if taken[first] {
			continue
		}
		class := jobs[first].Class
		crew := launch(jobs, left[class], n)
		for _, i := range crew {
			taken[i] = true
		}
		left[class] = slices.DeleteFunc(left[class], func(i int) bool { return taken[i] })
		out = append(out, crew)
	}
	return out
}

// launch fills one launch from jobs of one class, led by the first of them.
func launch(jobs []Job, ready []int, n int) []int {
	lead := ready[0]
	room := n - jobs[lead].size()
	if room <= 0 || len(ready) == 1 {
		return []int{lead}
	}
	crew := []int{lead}
	if block := near(jobs, ready, n); len(block) > 0 {
		crew = block
	}
	lasts := 0.0
	in := map[int]bool{}
	room = n
	for _, i := range crew {
		lasts, in[i] = max(lasts, jobs[i].T), true
		room -= jobs[i].size()
	}
	if room <= 0 {
		return crew
	}
	rest := slices.DeleteFunc(slices.Clone(ready), func(i int) bool { return in[i] || jobs[i].size() > room })
	slices.SortStableFunc(rest, func(a, b int) int {
		longA, longB := jobs[a].T > lasts, jobs[b].T > lasts
		switch {
		case longA != longB && longB:
			return -1
		case longA != longB:
			return 1
		case longA:
			return cmp.Compare(jobs[a].T, jobs[b].T)
		}
		return cmp.Compare(jobs[b].T, jobs[a].T)
	})
	for _, i := range rest {
		if jobs[i].size() <= room {
			crew, room = append(crew, i), room-jobs[i].size()
		}
	}
	return crew
}

// near is the block of the leader among the jobs that are about as urgent, the leader first; nil where they are not alike. The
// blocks are those of Blocks, each cut where the next job does not fit any more.
func near(jobs []Job, ready []int, n int) []int {
	lead := ready[0]
	var t []float64
	var who []int
	for _, i := range ready {
		if jobs[i].Rank >= jobs[lead].Rank*(1-Slack) && jobs[i].size() <= n {
			t, who = append(t, jobs[i].T), append(who, i)
		}
	}
	var block []int
	room, led := n, false
	for _, b := range Blocks(t, 1) {
		k := b[0]
		if jobs[who[k]].size() > room {
			if led {
				break
			}
			block, room = block[:0], n
		}
		block, room, led = append(block, k), room-jobs[who[k]].size(), led || k == 0
	}
	if Fit(t, block) < Alike {
		return nil
	}
	crew := []int{lead}
	for _, k := range block {
		if who[k] != lead {
			crew = append(crew, who[k])
		}
	}
	return crew
}
