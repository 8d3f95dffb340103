package main

import (
	"cmp"
	"strconv"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// seen is what whoever watches learns at one look.
type seen struct {
	now      time.Duration
	answered bool // the question about the worker's status got an answer: it runs
	stored   bool // the store was read; what follows is only known then
	version  int
	modified time.Duration // the store's stamp of it
	promise  time.Duration
}

// policy judges one worker, look by look: whether it is given up, and when to look again at the latest (0: as usual). A
// new attempt gets a new one.
type policy func(seen) (off bool, next time.Duration)

// named is a policy with what it models. make is called once for each trace, and what it returns once for each attempt.
type named struct {
	name   string
	models string
	make   func() func() policy
	// fenced: a worker that was given up finds out by its next write to the store. Else its platform has to reach it.
	fenced bool
}

// policies in the order of the table.
func policies() []named {
	return []named{
		{"60 s, clock never set back", "rebuild once a minute has passed since the first failure, where a recovery does not set that clock back (reported as skypilot#10155)", func() func() policy {
			clock := &since{}
			return func() policy { return clock.unset(60 * time.Second) }
		}, false},
		{"60 s unreachable", "rebuild after 60 s without an answer (reported as skypilot#10157)", unreachable(60 * time.Second), false},
		{"2 min unreachable", "write off after 2 min (dstack: JOB_DISCONNECTED_RETRY_TIMEOUT)", unreachable(2 * time.Minute), false},
		{"15 min unreachable", "write off after 15 min (Kueue: MultiKueue's workerLostTimeout)", unreachable(15 * time.Minute), false},
		{"ours", "silence of the lease alone: witness.Observer, witness.Brake and reconcile.Decide as headway watch runs them", ours, true},
	}
}

// since remembers when answers began to be missing.
type since struct {
	at  time.Duration
	set bool
}

// unreachable gives up whoever has not answered for limit.
func unreachable(limit time.Duration) func() func() policy {
	return func() func() policy {
		return func() policy {
			var s since
			return func(l seen) (bool, time.Duration) {
				if l.answered {
					s.set = false
					return false, 0
				}
				if !s.set {
					s = since{l.now, true}
				}
				return l.now-s.at >= limit, 0
			}
		}
	}
}

// unset is unreachable with a clock that nothing sets back once it runs.
func (s *since) unset(limit time.Duration) policy {
	return func(l seen) (bool, time.Duration) {
		if l.answered {
			return false, 0
		}
		if !s.set {
			*s = since{l.now, true}
		}
		return l.now-s.at >= limit, 0
	}
}

// ours is the product's own code, in the order in which a pass runs it (reconcile/pass.go): the sight of the lease, the
// brake, the decision. It asks no platform.
func ours() func() policy {
	const key = "the lease"
	// Any moment will do: only differences of it are used.
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var brake witness.Brake
	var observer witness.Observer
	failed := false
	observer.Idle(key, epoch)
	return func() policy {
		return func(l seen) (bool, time.Duration) {
			now := epoch.Add(l.now)
			if !l.stored {
				failed = true
				return false, 0
			}
			version := bucket.Version(strconv.Itoa(l.version))
			silence := observer.See(key, witness.Sight{Version: version, Modified: epoch.Add(l.modified).Truncate(time.Second),
				Date: now.Truncate(time.Second), Now: now, Promise: l.promise})
			round := witness.Pass{Now: now, Held: 1, Errors: failed}
			failed = false
			if silence.Suspect {
				round.Suspects, round.Limit = []string{key}, silence.Limit
			}
			allowed, wait := brake.Allow(round)
			a := reconcile.Decide(reconcile.Facts{Job: &plan.Job{}, Brake: len(allowed) == 0, Lease: reconcile.Lease{State: witness.Held,
				Version: version, Attempt: 1, Dispatch: 1, Suspect: silence.Suspect, Left: max(silence.Limit-silence.Age, 0)}})
			if a.Kind == reconcile.WriteOff {
				observer.Idle(key, now) // nobody holds it, as the pass finds that wrote it off
			}
			return a.Kind == reconcile.WriteOff, cmp.Or(a.Until, wait)
		}
	}
}
