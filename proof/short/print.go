package main

import (
	"fmt"
	"io"
	"time"

	"github.com/headway-run/headway/reconcile/pack"
)

// Kueue's published figures: test/performance/scheduler/configs/baseline of its repository (generator.yaml, and rangespec.yaml
// with the averages of five runs on its CI machines).
const (
	kueueWall  = 351116 * time.Millisecond
	kueueUnits = 600 // 30 queues with a quota of 20 each
)

// kueueWaited is its average time to admission: a table of values.
var kueueWaited = map[string]time.Duration{"large": 6666 * time.Millisecond, "medium": 76768 * time.Millisecond, "small": 215468 * time.Millisecond}

// least is the shortest time in which the mix can run: all of its seconds, times the units of each, over all places.
func (c config) least() time.Duration {
	var sum time.Duration
	for i := range c.jobs {
		k := classOf(i)
		sum += k.runtime * time.Duration(c.units(k))
	}
	return sum / time.Duration(c.places)
}

// dealt is how long the mix takes where every machine has its queue beforehand, the longest launches first: jobs can't be
// cut and machines are filled by launches of one class, so no dispatcher does much better.
func (c config) dealt() (most time.Duration) {
	count := map[string]int{}
	for i := range c.jobs {
		count[classOf(i).name]++
	}
	var t []float64
	for _, k := range mix {
		each := c.machine / c.units(k)
		for range (count[k.name] + each - 1) / each {
			t = append(t, k.runtime.Seconds())
		}
	}
	for _, queue := range pack.Queues(t, c.places/c.machine) {
		sum := 0.0
		for _, i := range queue {
			sum += t[i]
		}
		most = max(most, time.Duration(sum*float64(time.Second)))
	}
	return most
}

// sizes says what a job takes, and of what.
func (c config) sizes() string {
	if c.alike {
		return fmt.Sprintf("each on one of %d places", c.places)
	}
	return fmt.Sprintf("on 1, 5 and 20 of %d units, which are %d machines of %d: a launch is one machine", c.places, c.places/c.machine, c.machine)
}

func (r *result) print(w io.Writer, c config, store string) {
	least := c.least()
	theirs := config{jobs: 15_000, places: kueueUnits}.least()
	s := func(d time.Duration) float64 { return d.Seconds() }
	fmt.Fprintf(w, "%d jobs (70 %% of 0.2 s, 20 %% of 0.5 s, 10 %% of 1 s) %s; store: %s\n", r.want, c.sizes(), store)
	fmt.Fprintf(w, "  wall                 %8.1f s   %.2f × the least that any dispatcher can take (%.1f s)\n", s(r.wall), s(r.wall)/s(least), s(least))
	fmt.Fprintf(w, "  dealt beforehand     %8.1f s   each machine works through a queue of its own, longest launches first (pack.Queues), without a pause\n", c.dealt().Seconds())
	fmt.Fprintf(w, "  places in use        %8.1f %%\n", 100*s(r.worked)/(s(r.wall)*float64(c.places)))
	fmt.Fprintf(w, "  inside passes        %8.1f s   %.0f %% of the wall, %d passes, the longest %.2f s\n", s(r.passing), 100*s(r.passing)/s(r.wall), r.passes, s(r.longest))
	fmt.Fprintf(w, "  processor time       %8.1f s   dispatcher, simulated workers and a store in this process together: %.2f ms a job\n", s(r.cpu), 1000*s(r.cpu)/float64(r.want))
	fmt.Fprintf(w, "  store requests       %8d     of the dispatcher: %.1f a job\n", r.requests, float64(r.requests)/float64(r.want))
	fmt.Fprintf(w, "  from commit to call  %8.2f s for the first job, %.1f s for the last; mean", s(r.firstCall), s(r.allCalled))
	for _, k := range mix {
		fmt.Fprintf(w, " %s %.1f s (Kueue %.1f)", k.name, s(r.waited[k.name]), s(kueueWaited[k.name]))
	}
	fmt.Fprintf(w, "\n  Kueue's published    %8.1f s   %.2f × the least of its own trace (%.0f s; 15,000 jobs on 1, 5 and 20 of %d units)\n", s(kueueWall), s(kueueWall)/s(theirs), s(theirs), kueueUnits)
	fmt.Fprint(w, apart(c))
}

// apart says what the two tests have in common and what they have not.
func apart(c config) string {
	what := "15,000 jobs, their runtimes, sizes, mix and priorities, 600 units in thirties of 20, jobs that do nothing"
	units := "Kueue's queues of 20 units borrow from each other, so that a job may take units of several; here a job is on one machine, and a machine is free\nagain when the last of its launch is over."
	if c.alike {
		what = "15,000 jobs, their runtimes, mix and priorities, jobs that do nothing"
		units = "Kueue's jobs take 1, 5 and 20 units of 600; here each takes one place."
	}
	return "What the two have in common: " + what + ".\nWhat they have not: " + units + ` Kueue's jobs are created over the first minute; here all are committed at once. Its time is that of
an API server with etcd on CI machines, and it only admits jobs and marks them as done; here each is claimed, captured by a worker that
does the whole lease protocol, and finished with a result, and the machine is this one. So compare the ratios to the least, and no seconds.
`
}
