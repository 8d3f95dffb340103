// Command quota replays one simulated month of a free weekly quota, a prepaid credit platform and a spot market, with the
// same jobs, prices and preemptions for each policy, and prints what each made of it. Nothing is measured: it is
// arithmetic from a seed, minute by minute, so equal seeds print equal bytes. The policy "headway" is the product's own
// choice (reconcile/ladder), not a copy of it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	seeds := flag.Int("seeds", 20, "how many months are added up")
	from := flag.Uint64("from", 1, "the first seed")
	each := flag.Bool("each", false, "print every month too")
	flag.Parse()
	if *seeds < 1 {
		fmt.Fprintln(os.Stderr, "quota: -seeds is less than 1: give the number of months to add up, such as -seeds 20")
		os.Exit(2)
	}
	report(os.Stdout, *from, *seeds, *each)
}

// report replays months and prints one table of their sums.
func report(w io.Writer, from uint64, seeds int, each bool) {
	sums := make([]total, len(policies()))
	for s := range seeds {
		for i, p := range policies() {
			t := replay(from+uint64(s), p)
			sums[i].add(t)
			if each {
				fmt.Fprintf(w, "seed %d  %-12s %s\n", from+uint64(s), p.name, t.row())
			}
		}
	}
	fmt.Fprintf(w, "%d months of 31 days, seeds %d to %d: a quota of 30 h a week (sessions of 12 h, 2 at a time), %g credits a month, a spot market\n",
		seeds, from, from+uint64(seeds)-1, creditsAMonth)
	fmt.Fprintf(w, "%-12s %s\n", "policy", header)
	for i, p := range policies() {
		fmt.Fprintf(w, "%-12s %s\n", p.name, sums[i].row())
	}
	for _, p := range policies() {
		fmt.Fprintf(w, "  %-12s %s\n", p.name, p.models)
	}
}

// total is what one policy made of one or more months.
type total struct {
	jobs, finished         int
	work, free             float64 // FLOPs that were kept; of them on hours of the quota
	quotaH, idleH, restH   float64 // hours of the quota that were used, that ran out unused, and that starts and lost steps took everywhere
	paidH                  float64 // hours that cost USD or credits
	usd, credits           float64
	waitH                  float64 // from a job's arrival to its end (or the month's), summed
	launches, moves, taken int
}

func (t *total) add(o total) {
	t.jobs += o.jobs
	t.finished += o.finished
	t.work += o.work
	t.free += o.free
	t.quotaH += o.quotaH
	t.idleH += o.idleH
	t.restH += o.restH
	t.paidH += o.paidH
	t.usd += o.usd
	t.credits += o.credits
	t.waitH += o.waitH
	t.launches += o.launches
	t.moves += o.moves
	t.taken += o.taken
}

const header = "finished     free work  paid h    USD  credits  USD/1e18  idle quota h  h a job  launches  moved up  taken away  start+lost h"

func (t total) row() string {
	per := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	return strings.TrimRight(fmt.Sprintf("%4d of %-4d %8.1f %% %7.0f %6.0f %8.0f %9.3f %13.0f %8.1f %9d %9d %11d %13.0f", t.finished, t.jobs, 100*per(t.free, t.work), t.paidH,
		t.usd, t.credits, per(t.usd, t.work/1e18), t.idleH, per(t.waitH, float64(t.jobs)), t.launches, t.moves, t.taken, t.restH), " ")
}
