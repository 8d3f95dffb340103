package agent

import (
	"slices"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// warmUp is how many steps must be seen before the lease follows the step time alone: first steps compile, fill
// caches and say little about the later ones.
const warmUp = 50

// settled is how many steps make a median worth multiplying.
const settled = 5

// pace is the worker's own measure of its steps, on its own monotonic clock. It decides how long a silence it
// promises, never whether anybody is alive.
type pace struct {
	last    time.Time // end of the last step; zero when the next interval says nothing about a step
	recent  [64]time.Duration
	count   int64         // intervals seen
	longest time.Duration // in the warm-up
}

// step says that n more steps had ended at now.
func (p *pace) step(now time.Time, n int64) {
	if !p.last.IsZero() && n > 0 {
		d := now.Sub(p.last) / time.Duration(n)
		p.recent[p.count%int64(len(p.recent))] = d
		p.count++
		if p.count <= warmUp {
			p.longest = max(p.longest, d)
		}
	}
	p.last = now
}

// pause says that what happened until now was no step (a milestone, a phase, a wait for the store).
func (p *pace) pause(now time.Time) { p.last = now }

// median step time; zero while nothing is known.
func (p *pace) median() time.Duration {
	n := min(p.count, int64(len(p.recent)))
	if n == 0 {
		return 0
	}
	s := p.recent // a copy, on the stack
	slices.Sort(s[:n])
	return s[n/2]
}

// phase is a declared silence.
type phase struct {
	name   string
	expect time.Duration
}

// mode is what its time is booked as.
func (p phase) mode() mode {
	switch p.name {
	case "":
		return inStep
	case "save", "saving", "checkpoint":
		return inSave
	}
	return inEval
}

// startPhase covers what comes before the first step: fetching, starting, compiling. Verified bytes renew it.
func startPhase(t record.Terms) phase {
	return phase{"start", time.Duration(3 * t.LeaseFloorS * float64(time.Second))}
}

// promise is the lease that the worker may honestly give: K × median step time and never below the floor; while the
// steps are new at least three times the longest one so far, and what the claim says that they take to become steady; in watch mode at least three checkpoint intervals; in a
// declared phase its length on top.
func promise(t record.Terms, p *pace, ph phase) witness.Lease {
	step := p.median()
	if p.count < settled {
		step = 0
	}
	l := witness.LeaseFor(t.LeaseK, step, time.Duration(t.LeaseFloorS*float64(time.Second)))
	if t.WatchPath != "" {
		l.Seconds = max(l.Seconds, 3*t.WatchIntervalS)
	}
	if p.count < warmUp {
		l.Seconds = max(l.Seconds, 3*p.longest.Seconds(), t.WarmS)
	}
	if ph.name != "" {
		l.Phase = ph.name
		l.Seconds += ph.expect.Seconds()
	}
	return l
}
