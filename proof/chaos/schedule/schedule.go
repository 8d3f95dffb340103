// Package schedule decides what befalls a round, from a seed alone: which processes are killed, paused or asked to
// leave and at which step, when the network fails and how, when the disk is full and the server gone. It knows no clock
// and no process: a round carries it out as far as real time allows.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headway-run/headway/proof/chaos/proxy"
)

// Kind is a sort of disturbance, as it is counted.
type Kind string

const (
	Kill    Kind = "kill"    // SIGKILL
	Pause   Kind = "pause"   // SIGSTOP, for longer than the lease unless said otherwise, then SIGCONT
	Term    Kind = "term"    // SIGTERM
	Cut     Kind = "cut"     // requests that fail in one of the proxy's ways
	Delay   Kind = "delay"   // requests that are slow, or land late
	Disk    Kind = "disk"    // the workers' disk is full, then free again
	Restart Kind = "restart" // the S3 server is killed, and started on the same data
)

// Kinds lists all of them: a table of values.
var Kinds = []Kind{Kill, Pause, Term, Cut, Delay, Disk, Restart}

// Victim is whom a signal goes to.
type Victim string

const (
	Agent   Victim = "agent"
	Guard   Victim = "guardian"
	Program Victim = "program"
	Tree    Victim = "tree" // agent, guardian and program
	Watch   Victim = "watcher"
	Nobody  Victim = ""
)

// Event is one disturbance. One with a Job waits for an attempt of that job that no earlier event of the job has met, and
// then for Steps or After; one without counts After from the end of the event before it in its chain, the first one from
// the first agent's appearance.
type Event struct {
	Kind   Kind
	Victim Victim
	Job    string
	Steps  int64         // steps that the attempt has made; 0: After counts
	After  time.Duration // see above; of one with a Job: since its agent appeared
	For    time.Duration // how long it lasts
	Which  int           // of several watchers

	Fault proxy.Fault // of Cut and Delay
	Share float64     // of the requests
	Slow  time.Duration
	Only  bool   // the requests of this job's agent alone
	Keys  string // the requests for keys that begin so; "": all
}

func (e Event) String() string {
	s := string(e.Kind)
	if e.Fault != "" {
		s += fmt.Sprintf(" (%s, %.0f %% of %s*)", e.Fault, 100*e.Share, e.Keys)
	}
	switch {
	case e.Job != "":
		s += fmt.Sprintf(" %s of %s", e.Victim, e.Job)
	case e.Victim == Watch:
		s += fmt.Sprintf(" watcher %d", e.Which+1)
	}
	if e.For > 0 {
		s += fmt.Sprintf(" for %s", e.For.Round(time.Millisecond))
	}
	if e.Steps > 0 {
		return s + fmt.Sprintf(" after %d steps", e.Steps)
	}
	return s + fmt.Sprintf(" after %s", e.After.Round(time.Millisecond))
}

// Terms are what a schedule must know of a round.
type Terms struct {
	Trainings []string      // job names
	Steps     int64         // of one training
	Lease     time.Duration // its shortest length
	Watchers  int
	Disk      bool // a disk can be filled
}

// Round is a schedule: chains run side by side, the events of a chain one after the other.
type Round struct{ Chains [][]Event }

// Make draws the schedule of one round. Every kind comes up in any four rounds in a row (kills, pauses and terms only where
// there are three trainings or more); the same seed and number give
// the same schedule.
func Make(seed uint64, number int, t Terms) Round {
	d := &drawer{rand.New(rand.NewPCG(seed, uint64(number))), t}
	var r Round
	for i, job := range t.Trainings {
		chain := []Event{d.hit(job, Kinds[(number+i)%3])} // kill, pause and term in turn
		for d.r.IntN(3) == 0 && len(chain) < 3 {
			chain = append(chain, d.hit(job, Kinds[d.r.IntN(3)]))
		}
		r.Chains = append(r.Chains, chain)
	}
	r.Chains = append(r.Chains, d.watchers(), d.network(), d.around(number))
	return r
}

type drawer struct {
	r *rand.Rand
	t Terms
}

// between draws a duration, in whole milliseconds.
func (d *drawer) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.r.Int64N(int64((high-low)/time.Millisecond)+1))*time.Millisecond
}

// long is longer than the lease, by which it is judged silent.
func (d *drawer) long() time.Duration {
	return d.between(d.t.Lease+500*time.Millisecond, d.t.Lease+5*time.Second)
}

// hit draws one disturbance of a training's attempt.
func (d *drawer) hit(job string, k Kind) Event {
	e := Event{Kind: k, Job: job, Victim: []Victim{Agent, Agent, Program, Program, Guard}[d.r.IntN(5)]}
	if k == Pause {
		e.Victim, e.For = []Victim{Agent, Program, Tree, Guard}[d.r.IntN(4)], d.long()
		if d.r.IntN(4) == 0 { // the network of this worker alone is gone: it computes on, and nobody hears it
			e = Event{Kind: Cut, Job: job, Victim: Agent, Only: true, For: e.For, Share: 1,
				Fault: []proxy.Fault{proxy.Refuse, proxy.Hole, proxy.HoleAfter, proxy.LoseAnswer}[d.r.IntN(4)]}
		}
	}
	switch d.r.IntN(10) {
	case 0:
		e.Victim, e.After = Agent, d.between(0, 1500*time.Millisecond) // at its start: before the lease, or before its first step
	case 1, 2:
		e.Steps = 1 + d.r.Int64N(d.t.Steps-1) // rather near the end; an attempt that began late does not come so far
	default:
		e.Steps = 1 + d.r.Int64N(d.t.Steps*2/5)
	}
	return e
}

func (d *drawer) watchers() (chain []Event) {
	for range 1 + d.r.IntN(3) {
		e := Event{Kind: Kinds[d.r.IntN(3)], Victim: Watch, Which: d.r.IntN(d.t.Watchers), After: d.between(0, 12*time.Second)}
		if e.Kind == Pause {
			e.For = d.between(time.Second, d.t.Lease+3*time.Second)
		}
		chain = append(chain, e)
	}
	return chain
}

// network draws some windows in which everybody's requests fail or are slow: at least one of each.
func (d *drawer) network() (chain []Event) {
	window := func(faults ...proxy.Fault) {
		f := faults[d.r.IntN(len(faults))]
		e := Event{Kind: Cut, Fault: f, Share: []float64{0.1, 0.3, 1}[d.r.IntN(3)], Keys: []string{"", "", "witness/", "work/"}[d.r.IntN(4)], After: d.between(0, 5*time.Second), For: d.between(300*time.Millisecond, 3*time.Second)}
		switch f {
		case proxy.Slow:
			e.Kind, e.Slow, e.Share = Delay, d.between(20*time.Millisecond, 700*time.Millisecond), 1
		case proxy.Late:
			e.Kind, e.Slow = Delay, d.between(time.Second, d.t.Lease+3*time.Second)
		default:
		}
		chain = append(chain, e)
	}
	window(proxy.Refuse, proxy.CutRequest, proxy.CutAnswer, proxy.LoseAnswer, proxy.Hole, proxy.HoleAfter, proxy.Error500, proxy.Error500After, proxy.Busy503)
	window(proxy.Slow, proxy.Late)
	for d.r.IntN(2) == 0 && len(chain) < 5 {
		window(proxy.Faults...)
	}
	d.r.Shuffle(len(chain), func(i, j int) { chain[i], chain[j] = chain[j], chain[i] })
	return chain
}

// around draws what happens to the machine and the server. Every other round has one of the two.
func (d *drawer) around(number int) (chain []Event) {
	if d.t.Disk && (number%4 == 0 || d.r.IntN(6) == 0) {
		chain = append(chain, Event{Kind: Disk, After: d.between(500*time.Millisecond, 5*time.Second), For: d.between(500*time.Millisecond, 3*time.Second)})
	}
	if number%4 == 2 || d.r.IntN(6) == 0 {
		chain = append(chain, Event{Kind: Restart, After: d.between(500*time.Millisecond, 8*time.Second), For: d.between(100*time.Millisecond, 3*time.Second)})
		if d.r.IntN(6) == 0 {
			chain[len(chain)-1].For = d.long() // everybody looks dead, and nobody is
		}
	}
	return chain
}
