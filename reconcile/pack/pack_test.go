package pack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/pack"
)

var near = cmpopts.EquateApprox(1e-9, 1e-9)

func sum(t []float64) (s float64) {
	for _, v := range t {
		s += v
	}
	return s
}

// science.md P1 and P2: what full batches pay, beside pairs in the order of arrival.
func TestBlocksPayLeast(t *testing.T) {
	six := []float64{6, 5.5, 5, 3, 2.8, 1}
	type figures struct{ Paid, Idle float64 }
	of := func(t []float64, blocks [][]int, n int) figures {
		cost := paid(t, blocks, n)
		return figures{cost, cost - sum(t)}
	}
	p1 := pack.Blocks(six, 2)
	if diff := cmp.Diff([][]int{{0, 1}, {2, 3}, {4, 5}}, p1); diff != "" {
		t.Errorf("P1 (-want +got):\n%s", diff)
	}
	seven := append(slices.Clone(six), 4.2)
	p2 := pack.Blocks(seven, 4)
	if diff := cmp.Diff([][]int{{0, 1, 2, 6}, {3, 4, 5}}, p2); diff != "" {
		t.Errorf("P2 (-want +got):\n%s", diff)
	}
	got := []figures{of(six, p1, 2), of(six, [][]int{{0, 3}, {1, 5}, {2, 4}}, 2), of(seven, p2, 4)}
	if diff := cmp.Diff([]figures{{27.6, 4.3}, {33, 9.7}, {36, 8.5}}, got, near); diff != "" {
		t.Errorf("paid and idle of P1, of its order of arrival, of P2 (-want +got):\n%s", diff)
	}
}

// science.md P3 and the tight cases of LPT.
func TestQueues(t *testing.T) {
	for _, tc := range []struct {
		t    []float64
		n    int
		want float64
		best float64
	}{
		{[]float64{6, 5.5, 5, 3, 2.8, 1}, 2, 11.8, 11.8},
		{[]float64{3, 3, 2, 2, 2}, 2, 7, 6},
		{[]float64{5, 5, 4, 4, 3, 3, 3}, 3, 11, 9},
	} {
		q := pack.Queues(tc.t, tc.n)
		got, best := makespan(tc.t, q), shortest(tc.t, make([]float64, tc.n))
		if diff := cmp.Diff([]float64{tc.want, tc.best}, []float64{got, best}, near); diff != "" {
			t.Errorf("%v on %d: %v (-want +got):\n%s", tc.t, tc.n, q, diff)
		}
	}
	if paid := 2 * makespan([]float64{6, 5.5, 5, 3, 2.8, 1}, pack.Queues([]float64{6, 5.5, 5, 3, 2.8, 1}, 2)); math.Abs(paid-23.6) > 1e-9 {
		t.Errorf("P3 pays %v", paid)
	}
}

func makespan(t []float64, queues [][]int) (most float64) {
	for _, q := range queues {
		load := 0.0
		for _, i := range q {
			load += t[i]
		}
		most = max(most, load)
	}
	return most
}

// shortest tries every deal.
func shortest(t []float64, load []float64) float64 {
	if len(t) == 0 {
		return slices.Max(load)
	}
	best := math.Inf(1)
	for p := range load {
		load[p] += t[0]
		best = min(best, shortest(t[1:], load))
		load[p] -= t[0]
	}
	return best
}

// cheapest tries every cut into blocks of at most n, and returns the least sum of longest times.
func cheapest(t []float64, n int) float64 {
	if len(t) == 0 {
		return 0
	}
	best := math.Inf(1)
	rest := t[1:]
	for mask := range 1 << len(rest) {
		most, taken := t[0], 1
		var left []float64
		for i, v := range rest {
			if mask>>i&1 == 1 {
				most, taken = max(most, v), taken+1
			} else {
				left = append(left, v)
			}
		}
		if taken <= n {
			best = min(best, most+cheapest(left, n))
		}
	}
	return best
}

func TestNoCutAndNoDealIsBetter(t *testing.T) {
	times := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 7)
	rapid.Check(t, func(t *rapid.T) {
		ts, n := times.Draw(t, "times"), rapid.IntRange(1, 4).Draw(t, "places")
		if got, best := paid(ts, pack.Blocks(ts, n), 1), cheapest(ts, n); math.Abs(got-best) > 1e-6 {
			t.Errorf("blocks of %d: %v, the best cut %v", n, got, best)
		}
		bound := 4./3 - 1/(3*float64(n))
		if got, best := makespan(ts, pack.Queues(ts, n)), shortest(ts, make([]float64, n)); got > bound*best+1e-6 {
			t.Errorf("queues on %d: %v, more than %v of the best %v", n, got, bound, best)
		}
	})
}

// p4 is the graph of science.md P4: prep → A, B, C, D; A, B, C → ens; ens, D → bt.
func p4() []pack.Node {
	return []pack.Node{{T: .5}, {6, []int{0}}, {5.5, []int{0}}, {5, []int{0}}, {3, []int{0}}, {2, []int{1, 2, 3}}, {1, []int{5, 4}}}
}

func TestRanksOfTheExample(t *testing.T) {
	if diff := cmp.Diff([]float64{9.5, 9, 8.5, 8, 4, 3, 1}, pack.Ranks(p4()), near); diff != "" {
		t.Errorf("P4 (-want +got):\n%s", diff)
	}
}

// science.md P4 with two places and one launch at a time: prep, {A, B}, {C, D}, ens, bt take 14.5 h.
func TestTheExampleRunsThrough(t *testing.T) {
	g := p4()
	rank := pack.Ranks(g)
	done := make([]bool, len(g))
	var got [][]int
	hours := 0.0
	for range len(g) {
		var ready []int
		for i, n := range g {
			if !done[i] && !slices.ContainsFunc(n.Needs, func(k int) bool { return !done[k] }) {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			break
		}
		slices.SortFunc(ready, func(a, b int) int { return int(math.Copysign(1, rank[b]-rank[a])) })
		var jobs []pack.Job
		for _, i := range ready {
			jobs = append(jobs, pack.Job{T: g[i].T, Rank: rank[i]})
		}
		var crew []int
		most := 0.0
		for _, k := range pack.Launches(jobs, 2, 1)[0] {
			crew, most, done[ready[k]] = append(crew, ready[k]), max(most, g[ready[k]].T), true
		}
		got, hours = append(got, crew), hours+most
	}
	if diff := cmp.Diff([][]int{{0}, {1, 2}, {3, 4}, {5}, {6}}, got); diff != "" || math.Abs(hours-14.5) > 1e-9 {
		t.Errorf("%v h (-want +got):\n%s", hours, diff)
	}
}

func TestLaunches(t *testing.T) {
	j := func(class string, t, rank float64) pack.Job { return pack.Job{Class: class, T: t, Rank: rank} }
	k := func(size int, t float64) pack.Job { return pack.Job{T: t, Rank: t, Size: size} }
	for name, tc := range map[string]struct {
		jobs []pack.Job
		n, m int
		want [][]int
	}{
		"nothing is ready":      {nil, 2, 5, nil},
		"no launch is left":     {[]pack.Job{j("a", 1, 1)}, 2, 0, nil},
		"one place each":        {[]pack.Job{j("a", 1, 1), j("a", 1, 1)}, 1, 5, [][]int{{0}, {1}}},
		"classes stay apart":    {[]pack.Job{j("a", 1, 9), j("b", 1, 8), j("a", 1, 1)}, 2, 5, [][]int{{0, 2}, {1}}},
		"as urgent and alike":   {[]pack.Job{j("a", 2, 10), j("a", 9, 9.5), j("a", 2.1, 9), j("a", 9, 8.5)}, 2, 5, [][]int{{0, 2}, {1, 3}}},
		"the urgent one is led": {[]pack.Job{j("a", 2, 10), j("a", 9, 9)}, 2, 5, [][]int{{0, 1}}},
		"the place is free":     {[]pack.Job{j("a", 5, 8), j("a", 3, 4), j("a", 1, 1)}, 2, 1, [][]int{{0, 1}}},
		"longer, the shortest":  {[]pack.Job{j("a", 1, 9), j("a", 7, 7), j("a", 5, 5)}, 2, 5, [][]int{{0, 2}, {1}}},
		"no time is known":      {[]pack.Job{j("a", 0, 0), j("a", 0, 0), j("a", 0, 0)}, 2, 5, [][]int{{0, 1}, {2}}},
		"several places each":   {[]pack.Job{k(3, 5), k(2, 5), k(1, 5), k(2, 5)}, 4, 5, [][]int{{0, 2}, {1, 3}}},
		"what fits goes along":  {[]pack.Job{k(2, 9), k(3, 8), k(1, 1), k(1, 1)}, 4, 5, [][]int{{0, 2, 3}, {1}}},
		"it fills a launch":     {[]pack.Job{k(4, 5), k(1, 5), k(1, 5)}, 4, 5, [][]int{{0}, {1, 2}}},
		"too large for any":     {[]pack.Job{k(1, 5), k(9, 5), k(1, 5)}, 4, 5, [][]int{{0, 2}, {1}}},
		"Kueue's three sizes": {[]pack.Job{k(20, 9), k(5, 5), k(5, 5), k(5, 5), k(5, 5), k(5, 5), k(1, 1), k(1, 1)}, 20, 5,
			[][]int{{0}, {1, 2, 3, 4}, {5, 6, 7}}},
	} {
		if diff := cmp.Diff(tc.want, pack.Launches(tc.jobs, tc.n, tc.m), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Whatever is ready: the first is never held back, nobody starts twice, no launch mixes classes or is too large, one has
// room only for what its class has nothing more of, and jobs of one place without a graph are cut as Blocks cuts them.
func TestLaunchesAreSound(t *testing.T) {
	job := rapid.Custom(func(t *rapid.T) pack.Job {
		return pack.Job{Class: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "class"), T: rapid.Float64Range(0, 50).Draw(t, "t"), Rank: rapid.Float64Range(0, 90).Draw(t, "rank"), Size: rapid.SampledFrom([]int{0, 1, 1, 2, 3, 7}).Draw(t, "size")}
	})
	rapid.Check(t, func(t *rapid.T) {
		jobs, n, m := rapid.SliceOfN(job, 1, 20).Draw(t, "jobs"), rapid.IntRange(1, 5).Draw(t, "places"), rapid.IntRange(1, 8).Draw(t, "launches")
		got := pack.Launches(jobs, n, m)
		seen := map[int]bool{}
		for k, crew := range got {
			lead := slices.IndexFunc(jobs, func(j pack.Job) bool { return true })
			for lead < len(jobs) && seen[lead] {
				lead++
			}
			room := n
			for _, i := range crew {
				if seen[i] || jobs[i].Class != jobs[crew[0]].Class {
					t.Fatalf("launch %d is %v", k, crew)
				}
				seen[i] = true
				room -= max(jobs[i].Size, 1)
			}
			if crew[0] != lead || room < 0 && len(crew) > 1 {
				t.Fatalf("launch %d is %v, led by %d? It has %d places too few", k, crew, lead, -room)
			}
			for i, j := range jobs {
				if !seen[i] && j.Class == jobs[lead].Class && max(j.Size, 1) <= room {
					t.Fatalf("launch %d is %v: %d fits into it", k, crew, i)
				}
			}
		}
		if len(got) > m || len(got) < m && len(seen) < len(jobs) {
			t.Fatalf("%d launches of %d jobs, %d were allowed and %d jobs are left", len(got), len(seen), m, len(jobs)-len(seen))
		}
		ts := make([]float64, len(jobs))
		for i := range jobs {
			jobs[i].Class, jobs[i].Rank, jobs[i].Size, ts[i] = "", jobs[i].T, 1, jobs[i].T
		}
		slices.SortStableFunc(jobs, func(a, b pack.Job) int { return int(math.Copysign(1, b.T-a.T)) })
		slices.SortFunc(ts, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		if got, best := paid(ts, pack.Launches(jobs, n, len(jobs)), n), paid(ts, pack.Blocks(ts, n), n); math.Abs(got-best) > 1e-6 {
			t.Errorf("independent jobs pay %v, full batches %v", got, best)
		}
	})
}

// Ranks against the definition, on random graphs.
func TestRanksAreLongestPaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := make([]pack.Node, rapid.IntRange(1, 12).Draw(t, "jobs"))
		for i := range g {
			g[i].T = rapid.Float64Range(0, 10).Draw(t, "t")
			if i > 0 {
				g[i].Needs = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, 3, rapid.ID[int]).Draw(t, "needs")
			}
		}
		var longest func(i int) float64
		longest = func(i int) (most float64) {
			for k, n := range g {
				if slices.Contains(n.Needs, i) {
					most = max(most, longest(k))
				}
			}
			return g[i].T + most
		}
		for i, got := range pack.Ranks(g) {
			if want := longest(i); math.Abs(got-want) > 1e-9 {
				t.Fatalf("rank of %d is %v, the longest path %v", i, got, want)
			}
		}
	})
}

// A circle, or a need that is not there, is no plan; it must not hang the pass either.
func TestRanksEndOnNonsense(t *testing.T) {
	got := pack.Ranks([]pack.Node{{1, []int{1}}, {1, []int{0}}, {2, []int{7, -1, 0}}})
	if len(got) != 3 || got[2] != 2 {
		t.Errorf("%v", got)
	}
}

func TestTimes(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct{ in, want []float64 }{
		{[]float64{0, 0}, []float64{1, 1}},
		{[]float64{3, 0, 5, 7, -1, nan}, []float64{3, 5, 5, 7, 5, 5}},
	} {
		if diff := cmp.Diff(tc.want, pack.Times(tc.in)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.in, diff)
		}
	}
}

// BenchmarkRanks20000 ranks 20,000 jobs with 60,000 needs, ten deep; printed with what each job costs.
func BenchmarkRanks20000(b *testing.B) {
	g := make([]pack.Node, 20_000)
	for i := range g {
		g[i].T = float64(i%17) + 1
		if layer := i / 2000; layer > 0 {
			for k := range 3 {
				g[i].Needs = append(g[i].Needs, (layer-1)*2000+(i*(k+7))%2000)
			}
		}
	}
	start, n := time.Now(), 0
	for b.Loop() {
		pack.Ranks(g)
		n++
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(n)/float64(len(g)), "ns/job")
}

// ExampleLaunches packs P1 for machines of two cards.
func ExampleLaunches() {
	var jobs []pack.Job
	for _, hours := range []float64{6, 5.5, 5, 3, 2.8, 1} {
		jobs = append(jobs, pack.Job{T: hours, Rank: hours})
	}
	fmt.Println(pack.Launches(jobs, 2, 10))
	// Output: [[0 1] [2 3] [4 5]]
}

// science.md §6.1: what estimates that are off by cv leave idle, 1 - 1/(1 + cv·e_n): jobs that look alike to the packer end
// apart. From a seeded simulation of the launches that Blocks makes of them.
func TestIdleByErrorOfTheEstimate(t *testing.T) {
	const launches = 20_000
	gen := rand.New(rand.NewPCG(6, 1))
	excess := map[int]float64{2: .5642, 4: 1.0284, 8: 1.4242} // of the greatest of n normal values, in deviations
	for _, n := range []int{2, 4, 8} {
		e := excess[n]
		for _, cv := range []float64{.1, .2} {
			alike, real := make([]float64, launches*n), make([]float64, launches*n)
			work := 0.0
			for i := range real {
				alike[i], real[i] = 1, max(1+cv*gen.NormFloat64(), 0)
				work += real[i]
			}
			idle := 1 - work/paid(real, pack.Blocks(alike, n), n)
			if want := 1 - 1/(1+cv*e); math.Abs(idle-want) > .003 {
				t.Errorf("%d places, cv %v: idle %.4f, want %.4f", n, cv, idle, want)
			}
		}
	}
	for got, want := range map[float64]float64{1 - 1/(1+.1*.5642): .053, 1 - 1/(1+.1*1.0284): .093, 1 - 1/(1+.1*1.4242): .125,
		1 - 1/(1+.2*.5642): .101, 1 - 1/(1+.2*1.0284): .171, 1 - 1/(1+.2*1.4242): .222} {
		if math.Abs(got-want) > 5e-4 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// paid is what blocks cost on launches of n places each, in units of t: a launch is paid for on all of its places until its
// longest job is over. It is that, and never less, however few of the places are filled.
func paid(t []float64, blocks [][]int, n int) (sum float64) {
	for _, b := range blocks {
		most := 0.0
		for _, i := range b {
			most = max(most, t[i])
		}
		sum += float64(n) * most
	}
	return sum
}
