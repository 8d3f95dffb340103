package main

import (
	"time"

	"github.com/headway-run/headway/runners/witness"
)

// score is what one policy did with one trace.
type score struct {
	// False write-offs: of a worker that computed. unreachable are those whose last renewal in the store was younger than
	// the promise it carried: only somebody could not reach something. silent are those of a worker that was itself cut off
	// from the store for longer than it had promised.
	unreachable, silent int
	duplicated          time.Duration // two workers computed one work for this long
	lost                int           // steps of healthy workers that were thrown away
	detected            bool
	detect              time.Duration // from the true death on
	blind               time.Duration // of the time to detect it: how long the dispatcher could not read the store
	doubt               bool          // it had not read the store for a while shortly before, so that the brake was on
}

// worker is one attempt: it steps, renews by thirds of its lease, and makes milestones.
type worker struct {
	t     trace
	lease witness.Lease
	born  time.Duration // launched
	first time.Duration // first step begins
	next  time.Duration // end of the step that it is in
	step  int
	kept  int // of the last milestone that the store has
	saved time.Duration

	version  int // of the lease; it goes on over attempts
	modified time.Duration
}

func (w *worker) cut(at time.Duration) bool { return w.t.during(noWorker, w.born, at) }

// advance lets it compute until at, or its death.
func (w *worker) advance(at time.Duration) {
	for w.next <= min(at, w.t.death) {
		w.step++
		if !w.cut(w.next) {
			if w.next-w.saved >= w.t.milestone {
				w.kept, w.saved = w.step, w.next
				w.renew()
			} else if w.next-w.modified >= w.lease.RenewAfter() {
				w.renew()
			}
		}
		w.next += w.t.step
	}
}

func (w *worker) renew() { w.version, w.modified = w.version+1, w.next }

// succeed is the next attempt, launched at that time from the last milestone. Its machine is another one: what began
// before it does not befall it.
func (w *worker) succeed(at time.Duration) {
	w.born, w.first = at, at+w.t.start
	w.next, w.step = w.first+w.t.step, w.kept
	w.saved = w.first
	w.version, w.modified = w.version+1, w.first
}

// replay runs one policy over one trace.
func replay(t trace, p named) score {
	w := &worker{t: t, lease: witness.LeaseFor(0, t.step, witness.RemoteFloor)}
	w.succeed(-t.start)
	var sc score
	attempt := p.make()
	judge := attempt()
	last := time.Duration(0)
	for at := time.Duration(0); at < min(w.t.death+patient, t.death+2*patient); {
		w.advance(at)
		t := w.t
		look := seen{now: at, version: w.version, modified: w.modified, promise: w.lease.Length(), stored: !t.during(noStore, 0, at)}
		look.answered = (at < t.death || t.hung) && !t.during(noPlatform, 0, at) && !w.cut(at) && t.blips(last, at) == 0
		off, next := judge(look)
		last = at
		switch {
		case off && at >= t.death:
			sc.found(w, at)
			return sc
		case off:
			at = sc.wrong(w, at, p.fenced)
			judge = attempt()
			continue
		}
		if next <= 0 || next > t.poll {
			next = t.poll
		}
		at += next
	}
	return sc
}

// found notes that the true death was noticed.
func (sc *score) found(w *worker, at time.Duration) {
	sc.detected, sc.detect = true, at-w.t.death
	sc.blind, _ = w.t.blindness(w.modified, at)
	_, ended := w.t.blindness(0, at)
	sc.doubt = ended > 0 && at-ended < w.lease.Length()*5/4+2*w.t.poll
}

// wrong accounts for a write-off of a worker that computed, starts the next attempt, and returns when whoever watches
// looks at that one.
func (sc *score) wrong(w *worker, at time.Duration, fenced bool) time.Duration {
	t := w.t
	if at-w.modified < w.lease.Length() {
		sc.unreachable++
	} else {
		sc.silent++
	}
	launch := at
	for t.during(noPlatform, 0, launch) { // a launch needs the platform
		launch += t.poll
	}
	told := at
	if fenced {
		told = max(at, w.modified+w.lease.RenewAfter())
	}
	for w.cut(told) || !fenced && t.during(noPlatform, 0, told) {
		told += t.step
	}
	sc.lost += max(w.step-w.kept, 0)
	sc.duplicated += max(told-launch, 0)
	w.succeed(launch)
	// A death befalls a worker that computes.
	w.t.death = max(t.death, w.first+w.lease.Length())
	return w.first
}
