// Command flap replays what healthy workers go through (status questions without an answer, partitions, and at last a
// true death) under several ways to tell that a worker is dead, side by side, in virtual time: each of the others a small
// function labelled with what it models, ours the code that headway watch runs. It is deterministic: a seed is a trace.
//
//	go run ./proof/flap -seeds 1000
//
// It exits with 1 when ours wrote off a worker whose promise had not run out, or noticed a death later than it must.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/headway-run/headway/runners/witness"
)

func main() {
	s := usual()
	seeds := flag.Int("seeds", 1000, "how many traces")
	from := flag.Uint64("from", 0, "the first seed")
	flag.DurationVar(&s.step, "step", s.step, "of the worker; its lease is 50 of them")
	flag.Parse()
	if flag.NArg() > 0 || *seeds < 1 || s.step < time.Second {
		fmt.Fprintln(os.Stderr, "flap: -seeds is 1 or more, -step is 1s or more, and nothing stands behind the flags; -h lists them")
		os.Exit(2)
	}
	bad := printTable(os.Stdout, s, *from, *seeds)
	if bad != "" {
		fmt.Fprintln(os.Stderr, "flap:", bad)
		os.Exit(1)
	}
}

// total is what one policy did with all traces.
type total struct {
	traces, unreachable, silent, lost, never int
	duplicated                               time.Duration
	detect, blind                            []time.Duration // to notice a death: with the store in sight all the time, and else
}

func (t *total) add(s score) {
	t.traces++
	t.unreachable += s.unreachable
	t.silent += s.silent
	t.lost += s.lost
	t.duplicated += s.duplicated
	switch {
	case !s.detected:
		t.never++
	case s.blind > 0 || s.doubt:
		t.blind = append(t.blind, s.detect)
	default:
		t.detect = append(t.detect, s.detect)
	}
}

// late says why a score of ours breaks the promise, or "". Without blindness a death is noticed within the lease and one
// poll. Every second in which the dispatcher itself could not read the store may add to it, and the grace and the brake
// that follow it: half a lease and a quarter.
func late(s setting, sc score) string {
	lease := witness.LeaseFor(0, s.step, witness.RemoteFloor).Length()
	limit := lease + s.poll
	if sc.blind > 0 || sc.doubt {
		limit += sc.blind + lease/2 + lease/4 + s.poll
	}
	switch {
	case sc.unreachable > 0:
		return fmt.Sprintf("%d workers were written off whose promise had not run out", sc.unreachable)
	case !sc.detected:
		return "the death was never noticed"
	case sc.detect > limit:
		return fmt.Sprintf("the death was noticed after %v, later than %v", sc.detect, limit)
	}
	return ""
}

func printTable(out io.Writer, s setting, from uint64, seeds int) (bad string) {
	lease := witness.LeaseFor(0, s.step, witness.RemoteFloor).Length()
	fmt.Fprintf(out, "%d traces: %v of a healthy worker, %d status questions without an answer, %d partitions of 1 to 30 min (a third each:\ndispatcher and platform, dispatcher and store, the worker's machine from everything), then a true death: half of them a\nmachine that is gone, half a loop that hangs on a machine that answers. Step %v, lease %v renewed by thirds, milestone\nevery %v, %v from a launch to its first step, looks every %v.\n\n", seeds, s.healthy, s.timeouts, s.cuts, s.step, lease, s.milestone, s.start, s.poll)
	fmt.Fprintf(out, "%-27s %15s %15s %12s %10s %9s   %s\n", "policy", "false write-offs", "of cut-off", "duplicated", "lost", "deaths", "seconds to notice a death")
	fmt.Fprintf(out, "%-27s %15s %15s %12s %10s %9s   %s\n", "", "by unreachability", "workers", "GPU-seconds", "steps", "unnoticed", "min / median / max")
	var notes []string
	for _, p := range policies() {
		var sum total
		for i := range seeds {
			sc := replay(draw(s, from+uint64(i)), p)
			sum.add(sc)
			if why := late(s, sc); p.fenced && why != "" && bad == "" {
				bad = fmt.Sprintf("seed %d: %s", from+uint64(i), why)
			}
		}
		fmt.Fprintf(out, "%-27s %17d %13d %12.0f %10d %9d   %s\n", p.name, sum.unreachable, sum.silent, sum.duplicated.Seconds(), sum.lost, sum.never, spread(slices.Concat(sum.detect, sum.blind)))
		if p.fenced {
			notes = append(notes, fmt.Sprintf("ours, the store in sight since the last renewal (%d deaths): %s; the dispatcher had been cut off from it (%d): %s", len(sum.detect), spread(sum.detect), len(sum.blind), spread(sum.blind)))
		}
		notes = append(notes, p.name+": "+p.models)
	}
	fmt.Fprintln(out, "\nA write-off is by unreachability when the lease in the store was younger than its promise: nobody but the one who asked was\ncut off. A worker that is itself cut off from the store for longer than it promised is gone by definition, under ours too.\nGPU-seconds are duplicated from the next launch until the old worker is told: by its next write to the store under ours, by\nits platform under the others.")
	for _, n := range notes {
		fmt.Fprintln(out, "-", n)
	}
	return bad
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	return fmt.Sprintf("%.0f / %.0f / %.0f", d[0].Seconds(), d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
}
