package world

import (
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Fault is one way in which something goes wrong. A closed set.
type Fault string

// What befalls requests to the store.
const (
	LostBefore      Fault = "request lost"
	LostAfter       Fault = "answer lost"
	LandsLater      Fault = "lands later"
	LandsAfterDeath Fault = "lands after its sender died"
	Twice           Fault = "arrives twice"
	HeldLong        Fault = "held longer than a lease"
	Raced           Fault = "409"
	Broke           Fault = "500"
	SlowDown        Fault = "503"
	Forbidden       Fault = "403 for a while"
	StaleList       Fault = "stale list"
	StaleRead       Fault = "stale read of a lease"
	HalfBody        Fault = "half a body"
	HalfUpload      Fault = "half an upload"
	MetItself       Fault = "412 after an answer that was lost"
	MetItsTwin      Fault = "412 to a request that arrived again"
	Outage          Fault = "outage of the store"
	ClockJump       Fault = "the store's clock jumps"
)

// What befalls processes.
const (
	CrashDispatcher Fault = "dispatcher dies"
	CrashWorker     Fault = "worker dies"
	CrashOperator   Fault = "operator's verb dies"
	PauseDispatcher Fault = "dispatcher pauses"
	PauseWorker     Fault = "worker pauses"
	CrashCollector  Fault = "gc dies"
	PauseOperator   Fault = "operator's verb pauses"
	PauseCollector  Fault = "gc pauses"
	Restart         Fault = "dispatcher restarts"
	CrashDraining   Fault = "dispatcher dies while a limit drains"
	CrashHalting    Fault = "dispatcher dies while it halts a work"
	CrashLeaving    Fault = "dispatcher dies before a move"
	CrashMoving     Fault = "dispatcher dies while it moves a work"
)

// What befalls calls of platforms and of Git, beyond the platforms' own scripts.
const (
	CallLost  Fault = "platform's answer lost"
	GitAway   Fault = "Git away"
	GitOld    Fault = "Git serves an old commit"
	GitHangs  Fault = "Git hangs"
	PersonDel Fault = "witness deleted by hand"
)

// clientTimeout is how long a client of the store waits for an answer.
const clientTimeout = time.Minute

// putFaults, getFaults and listFaults say what can befall a request, and how often beside the others: tables of values.
var (
	putFaults  = []weighted{{LostBefore, 4}, {LostAfter, 6}, {LandsLater, 4}, {Twice, 4}, {HeldLong, 1}, {Raced, 3}, {Broke, 3}, {SlowDown, 2}}
	getFaults  = []weighted{{LostBefore, 4}, {HeldLong, 1}, {Broke, 3}, {SlowDown, 2}, {HalfBody, 4}}
	listFaults = []weighted{{LostBefore, 3}, {HeldLong, 1}, {Broke, 3}, {SlowDown, 2}, {StaleList, 6}}
)

type weighted struct {
	fault  Fault
	weight int
}

func (w *World) fired(f Fault) { w.stats.Faults[f]++ }

// pick draws a fault of a table; one that the seed prefers comes as often as all others together.
func (w *World) pick(table []weighted) Fault {
	sum := 0
	for _, t := range table {
		sum += t.weight
	}
	focus := 0
	for _, t := range table {
		if t.fault == w.s.focus {
			focus = sum
		}
	}
	n := w.rng.IntN(sum + focus)
	for _, t := range table {
		if n -= t.weight; n < 0 {
			return t.fault
		}
	}
	return w.s.focus
}

// fate draws what happens to a request and to its sender.
func (w *World) fate(r *request) {
	d := w.jitter(w.s.latency)
	if w.healed {
		w.serve(r, d)
		return
	}
	if w.strikes(r, d) {
		return
	}
	if r.call {
		w.gate(r, d)
		return
	}
	switch {
	case w.now() < w.s.outage:
		w.fired(Outage)
		w.later(r, d, bucket.Unknown, "the store is away")
		return
	case r.by.denied > w.now():
		w.fired(Forbidden)
		w.after(d, func() { w.fail(r, bucket.Denied, "403") })
		return
	case w.rng.Float64() >= w.s.storeFaults:
		w.serve(r, d)
		return
	}
	switch r.op {
	case "get":
		w.befall(r, d, w.pick(getFaults))
	case "list":
		w.befall(r, d, w.pick(listFaults))
	default:
		w.befall(r, d, w.pick(putFaults))
	}
}

// serve carries a request out and answers it, sometimes only a moment later.
func (w *World) serve(r *request, d time.Duration) {
	w.after(d, func() {
		w.land(r, func() {
			if w.rng.IntN(4) > 0 {
				w.answer(r)
				return
			}
			w.after(w.jitter(w.s.latency), func() { w.answer(r) })
		})
	})
}

// later fails a request: at once, or when its client gives up.
func (w *World) later(r *request, d time.Duration, code bucket.Code, text string) {
	if w.rng.IntN(3) == 0 {
		d += clientTimeout
	}
	w.after(d, func() { w.fail(r, code, text) })
}

// befall makes one fault happen to one request to the store.
func (w *World) befall(r *request, d time.Duration, f Fault) {
	w.fired(f)
	if w.cfg.Trace {
		w.note(r.by, "%s %s: %s", r.op, r.key, f)
	}
	w.mix(w.now(), string(f), nil, nil)
	switch f {
	case LostBefore:
		w.later(r, d, bucket.Unknown, "connection reset by peer")
	case LostAfter:
		r.unheard = true
		w.after(d, func() {
			w.land(r, func() { w.later(r, w.jitter(w.s.latency), bucket.Unknown, "connection reset by peer") })
		})
	case LandsLater:
		r.unheard = true
		w.later(r, d, bucket.Unknown, "connection reset by peer")
		w.after(d+w.jitter(3*w.s.lease), func() { w.land(r, nil) })
	case HeldLong:
		r.unheard = true
		w.after(w.s.lease+w.jitter(w.s.lease), func() { w.land(r, func() { w.answer(r) }) })
		w.after(clientTimeout, func() { w.fail(r, bucket.Unknown, "no answer in time") })
	case Twice:
		w.after(d, func() {
			w.land(r, func() {
				again := w.jitter(w.s.latency)
				if w.rng.IntN(2) == 0 {
					w.answer(r)
					again += w.jitter(2 * w.s.lease)
				}
				w.after(again, func() { w.land(r, func() { w.answer(r) }) })
			})
		})
	case Raced:
		w.after(d, func() { w.fail(r, bucket.Raced, "409") })
	case Broke:
		w.after(d, func() { w.fail(r, bucket.Unknown, "500") })
	case SlowDown:
		w.after(d, func() { w.fail(r, bucket.Throttled, "503") })
	case StaleList:
		r.stale = true
		w.serve(r, d)
	case HalfBody:
		r.half = true
		w.serve(r, d)
	}
}

// strikes draws whether the process behind a request dies of it or freezes. true: nothing else happens to the request.
func (w *World) strikes(r *request, d time.Duration) bool {
	odds := w.s.odds[r.by.role]
	x := w.rng.Float64()
	switch {
	case x < odds.crash/2: // before it is sent
		w.after(d, func() { w.crash(r.by) })
		w.halfUpload(r)
		return true
	case x < odds.crash: // after
		w.after(d, func() {
			w.land(r, func() { w.crash(r.by) })
		})
		return true
	case x < odds.crash+odds.pause:
		most := w.s.lease/2 + w.jitter(3*w.s.lease)
		w.pause(r.by, most)
	case x < odds.crash+odds.pause+odds.deny && !r.call:
		w.deny(r.by, w.jitter(2*w.s.lease))
	}
	return false
}

// gate lets a call of a platform or of Git through, or not.
func (w *World) gate(r *request, d time.Duration) {
	if r.op == "git" && w.rng.Float64() < w.s.gitFaults {
		switch w.rng.IntN(3) {
		case 0:
			w.fired(GitAway)
			w.after(d, func() { w.fail(r, bucket.Unknown, "no route to host") })
		case 1:
			w.fired(GitHangs)
			w.after(w.s.lease/2+d, func() { w.fail(r, bucket.Unknown, "no answer in time") })
		case 2:
			w.fired(GitOld)
			r.stale = true
			w.serve(r, d)
		}
		return
	}
	if r.op == "answer" && w.rng.Float64() < w.s.callFaults {
		w.fired(CallLost)
		w.after(d, func() { w.fail(r, bucket.Unknown, "connection reset by peer") })
		return
	}
	w.serve(r, d)
}
