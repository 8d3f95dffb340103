// Package mutant removes the protections of the lease protocol, one at a time, without touching the code that carries
// them out: as wrappers of the store. A simulation that runs with one of them must find a broken invariant; one that
// does not is blind.
//
// Where a protection is gone, what used to be one object can be two, or two names one object. What is judged is then the
// protocol's own view of it: World.View shows a history as readers of the store see it.
package mutant

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Kind is one protection that is left out.
type Kind string

const (
	None Kind = ""
	// Unconditional: the store takes conditional writes of witnesses whatever is there.
	Unconditional Kind = "conditional write ignored"
	// SharedPrefix: the milestones and results of all attempts of a work lie under one prefix, that of the first.
	SharedPrefix Kind = "one prefix for all attempts"
	// PointerApart: the resume pointer is an object of its own with a condition of its own, written after a look at the lease.
	PointerApart Kind = "pointer apart"
	// AckFirst: uploads are acknowledged at once, land later, and never when their sender dies.
	AckFirst Kind = "acknowledged before it is there"
	// Reread: after a refusal or a lost answer of a conditional write the newest version is read, and the same bytes are sent
	// again on top of it, as a helpful client library does.
	Reread Kind = "read again and sent again"
	// SideThread: a thread beside the training loop reports its steps. No wrapper does it: fleet.Config.SideThread.
	SideThread Kind = "renewed beside the step path"
)

// All lists the protections.
func All() []Kind {
	return []Kind{Unconditional, SharedPrefix, PointerApart, AckFirst, Reread, SideThread}
}

// World is what the actors of one run share. Make one with New.
type World struct {
	kind  Kind
	lag   time.Duration
	fired atomic.Int64
}

// New returns the wrappers of one run. lag is how long after its answer an upload lands (AckFirst).
func New(k Kind, lag time.Duration) *World { return &World{kind: k, lag: lag} }

// Fired is how often the missing protection made a difference to a request. A run in which it never did says nothing.
// For SideThread it is 0.
func (w *World) Fired() int64 { return w.fired.Load() }

// Store wraps the store itself, below everything that delays, loses or records requests.
func (w *World) Store(b bucket.Bucket) bucket.Bucket {
	if w.kind == Unconditional {
		return &unconditional{b, w}
	}
	return b
}

// As wraps one actor's way to the store, right at the actor. Every actor needs a wrapper of its own, also the one that
// only reads: an auditor at the end.
func (w *World) As(b bucket.Bucket) bucket.Bucket {
	switch w.kind {
	case SharedPrefix:
		return &shared{b, w}
	case PointerApart:
		return &apart{Bucket: b, w: w, last: map[string]pointer{}}
	case AckFirst:
		return &hasty{Bucket: b, w: w, early: map[string][]byte{}}
	case Reread:
		return &rereading{b, w}
	case None, Unconditional, SideThread:
	}
	return b
}

// View is the sink to give a history to that s shall judge.
func (w *World) View(s history.Sink) history.Sink {
	if w.kind == PointerApart {
		return &merged{s: s, last: map[string]*version{}}
	}
	return s
}

// upload reports whether a key belongs to a milestone or a result, and of which attempt.
func upload(key string) (p record.ParsedKey, ok bool) {
	p, ok = record.Parse(key)
	return p, ok && p.Attempt > 0 && (strings.HasPrefix(p.Rest, "milestone/") || strings.HasPrefix(p.Rest, "result/"))
}
