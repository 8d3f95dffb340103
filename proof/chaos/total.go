//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/chaos/account"
	"github.com/headway-run/headway/proof/chaos/round"
	"github.com/headway-run/headway/proof/chaos/schedule"
)

// total adds rounds up.
type total struct {
	rounds, broken int
	hits           map[schedule.Kind]int
	killed         map[schedule.Victim]int
	missed         int
	writers        round.Writers
	workers        map[string]int // binary → lives
	agents         int            // rounds whose workers were headway-agent
	sum            account.Sum
	longest        time.Duration
	disk           bool // disks could be filled here
}

// enough rounds for every sort of disturbance to come up, and to meet somebody.
const enough = 8

// unsaid is the largest share of the judged writes of which the kernel could not say whose they were.
const unsaid = 0.05

func (t *total) add(r round.Report) {
	if t.hits == nil {
		t.hits, t.killed, t.workers = map[schedule.Kind]int{}, map[schedule.Victim]int{}, map[string]int{}
	}
	t.rounds++
	if len(r.Broken) > 0 {
		t.broken++
	}
	for k, n := range r.Hits {
		t.hits[k] += n
	}
	for v, n := range r.Killed {
		t.killed[v] += n
	}
	for binary, n := range r.Workers {
		t.workers[binary] += n
	}
	if r.Workers[round.AgentName] > 0 {
		t.agents++
	}
	t.writers.Add(r.Writers)
	t.missed += r.Missed
	t.sum.Add(r.Sum)
	t.longest = max(t.longest, r.Took)
}

func sum(hits map[schedule.Kind]int) (n int) {
	for _, h := range hits {
		n += h
	}
	return n
}

// text says it for people.
func (t *total) text(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rounds        %d, %d broken, in %.0f s (%.1f s a round; the longest took %.0f s)\n", t.rounds, t.broken, took.Seconds(), took.Seconds()/float64(t.rounds), t.longest.Seconds())
	fmt.Fprintf(&b, "disturbances  %d:", sum(t.hits))
	for _, k := range schedule.Kinds {
		fmt.Fprintf(&b, " %s %d", k, t.hits[k])
	}
	fmt.Fprintf(&b, " (%d more found nobody)\n", t.missed)
	fmt.Fprintf(&b, "kills         %d:", t.hits[schedule.Kill])
	for _, v := range []schedule.Victim{schedule.Agent, schedule.Guard, schedule.Program, schedule.Tree, schedule.Watch} {
		fmt.Fprintf(&b, " %s %d", v, t.killed[v])
	}
	fmt.Fprintf(&b, " (tree: the first three at once)\nworkers       %d lives of %s, in %d rounds; %d of headway agent\n", t.workers[round.AgentName], round.AgentName, t.agents, t.workers["headway"])
	fmt.Fprintf(&b, "writers       %d writes judged; %d of them (%.2f %%) named by what they wrote and %d by nobody (allowed together %.0f %%)\n",
		t.writers.Writes, t.writers.Named, 100*float64(t.writers.Named)/float64(max(t.writers.Writes, 1)), t.writers.Unknown, 100*unsaid)
	fmt.Fprintf(&b, "attempts      %d, with %d milestones acknowledged\n", t.sum.Attempts, t.sum.Milestones)
	every := round.Usual().Every
	fmt.Fprintf(&b, "lost          %d steps trained, %d of them again, all beyond the last acknowledged pointer; one end of an attempt cost %d at most (a milestone every %d)\n", t.sum.Trained, t.sum.Repeated, t.sum.Largest, every)
	fmt.Fprintf(&b, "within reach  %d ends of attempts that no fault kept from the store since their last acknowledged pointer: one cost %d steps at most, with %d milestones on their way at most (allowed %d, and %d gave way to newer ones)\n",
		t.sum.Reached, t.sum.Cost, t.sum.Waiting, account.Most, t.sum.Gave)
	return b.String()
}

// verdict is an error when a round was broken, or when a sort of disturbance never met anybody.
func (t *total) verdict() error {
	var errs []error
	if t.rounds >= enough && t.sum.Reached == 0 {
		errs = append(errs, fmt.Errorf("no attempt ended within reach of the store in %d rounds: this run proves nothing about what that costs", t.rounds))
	}
	if t.rounds >= enough && t.agents == 0 {
		errs = append(errs, fmt.Errorf("no worker was %s in %d rounds: this run proves nothing about it", round.AgentName, t.rounds))
	}
	if share := t.writers.Share(); share > unsaid {
		errs = append(errs, fmt.Errorf("of %.1f %% of %d writes the kernel could not say whose they were, %.0f %% are allowed: what the judge says of writers is not worth enough", 100*share, t.writers.Writes, 100*unsaid))
	}
	if t.broken > 0 {
		errs = append(errs, fmt.Errorf("%d of %d rounds are broken", t.broken, t.rounds))
	}
	for _, k := range schedule.Kinds {
		if t.rounds >= enough && t.hits[k] == 0 && (k != schedule.Disk || t.disk) {
			errs = append(errs, fmt.Errorf("no %s met anything in %d rounds: this run proves nothing about it", k, t.rounds))
		}
	}
	return errors.Join(errs...)
}
