package runners

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Phase is where a work stands, as the store says. A closed set.
type Phase string

const (
	// PhaseUnknown: what lies in the store contradicts itself or cannot be read; Status.Why says how. Nothing may be
	// launched, stopped or reported dead on it.
	PhaseUnknown Phase = "unknown"
	// PhaseFresh: no dispatch was ever claimed.
	PhaseFresh Phase = "fresh"
	// PhaseStarting: a dispatch was claimed after the last capture, and its platform did not refuse it; no capture yet.
	PhaseStarting Phase = "starting"
	// PhaseRunning: a worker holds the lease. Whether it is silent is for the observer to judge, never for one read.
	PhaseRunning Phase = "running"
	// PhaseFree: nobody holds the lease and nothing is on its way: yielded, taken over, or every launch was refused.
	PhaseFree Phase = "free"
	// PhaseStopped: ended by a person or a plan; only a dispatch at or above the floor may capture.
	PhaseStopped Phase = "stopped"
	// PhaseFinished: the result is in the store. Terminal.
	PhaseFinished Phase = "finished"
)

// Status is one work as the store shows it, from a bounded number of requests.
type Status struct {
	Work         string
	Phase        Phase
	Why          string        // PhaseUnknown: one sentence
	Witness      *witness.Seen // nil when there is none, or none that can be read
	LastDispatch int64         // 0: none
	Dispatches   []Dispatch    // the last ones, at most lastDispatches, lowest first
	Attempts     []Attempt     // the last ones, at most lastAttempts, lowest first
}

// Attempt is what an attempt said of itself, when it did.
type Attempt struct {
	N    int64
	Open *record.Open // nil: it died between capture and open
	End  *record.End  // nil: it lives, or could not say how it ended
	Bad  string       // why a record could not be read; empty: all are well
}

// How much history one Status reads.
const (
	lastDispatches = 3
	lastAttempts   = 3
)

// Status reads one work's state: the witness, the last dispatches with receipts and releases, the last attempts with
// their ends. It writes nothing. An error is an answer of the store, and says nothing about the work.
func (d Dispatcher) Status(ctx context.Context, work string) (Status, error) {
	s := Status{Work: work}
	seen, found, err := readWitness(ctx, d.Bucket, work)
	if unreadable, ok := errors.AsType[*witness.Unreadable](err); ok {
		s.Phase, s.Why = PhaseUnknown, Bound(unreadable.Error(), maxText)
	} else if err != nil {
		return s, err
	}
	if found {
		s.Witness = &seen
	}
	known := int64(0)
	if found {
		known = max(seen.Record.Dispatch, 0)
	}
	if s.LastDispatch, err = LastDispatch(ctx, d.Bucket, work, known); err != nil {
		return s, err
	}
	if s.LastDispatch > 0 {
		if s.Dispatches, err = d.ReadClaims(ctx, work, s.LastDispatch-lastDispatches, lastDispatches); err != nil {
			return s, err
		}
	}
	if found {
		for a := max(1, seen.Record.Attempt-lastAttempts+1); a <= seen.Record.Attempt; a++ {
			at, err := d.Attempt(ctx, work, a)
			if err != nil {
				return s, err
			}
			s.Attempts = append(s.Attempts, at)
		}
	}
	if s.Phase == "" {
		s.Phase, s.Why, err = d.phase(ctx, s)
	}
	return s, err
}

// Attempt reads what one attempt said of itself.
func (d Dispatcher) Attempt(ctx context.Context, work string, a int64) (Attempt, error) {
	at := Attempt{N: a, Open: &record.Open{}, End: &record.End{}}
	okOpen, err := readJSON(ctx, d.Bucket, record.OpenKey(work, a), at.Open)
	if err != nil && bucketError(err) {
		return at, err
	}
	if err != nil || okOpen && (at.Open.Work != work || at.Open.Attempt != a || at.Open.Protocol > record.Protocol) {
		okOpen, at.Bad = false, fmt.Sprintf("open.json of attempt %d is not readable as this attempt's", a)
	}
	okEnd, err := readJSON(ctx, d.Bucket, record.EndKey(work, a), at.End)
	if err != nil && bucketError(err) {
		return at, err
	}
	if err != nil || okEnd && (at.End.Work != work || at.End.Attempt != a || at.End.Protocol > record.Protocol) {
		okEnd, at.Bad = false, fmt.Sprintf("end.json of attempt %d is not readable as this attempt's", a)
	}
	if !okOpen {
		at.Open = nil
	}
	if !okEnd {
		at.End = nil
	}
	return at, nil
}

// phase derives the phase. It asks the store only where a witness is absent beside dispatches: attempts without a
// witness are a lost record, never a fresh work.
func (d Dispatcher) phase(ctx context.Context, s Status) (Phase, string, error) {
	if s.Witness == nil {
		page, err := d.Bucket.List(ctx, record.AttemptsPrefix(s.Work), "", 1)
		switch {
		case err != nil:
			return PhaseUnknown, "", err
		case len(page.Items) > 0:
			return PhaseUnknown, "there are attempts and no witness: the lease record was removed (headway doctor says how to mend it)", nil
		case s.LastDispatch == 0:
			return PhaseFresh, "", nil
		case s.pending(0):
			return PhaseStarting, "", nil
		}
		return PhaseFree, "", nil
	}
	r := s.Witness.Record
	switch r.State {
	case witness.Finished:
		return PhaseFinished, "", nil
	case witness.Held:
		return PhaseRunning, "", nil
	case witness.Yielded, witness.Revoked:
		if s.pending(max(r.Dispatch, r.Floor-1)) {
			return PhaseStarting, "", nil
		}
		if r.Stopped() {
			return PhaseStopped, "", nil
		}
		return PhaseFree, "", nil
	}
	return PhaseUnknown, fmt.Sprintf("the witness is in a state that this version does not know: %s", Sanitize([]byte(r.State))), nil
}

// pending: the last dispatch is above n and may still bring a capture. Whether its capture window has passed is for
// the observer to judge.
func (s Status) pending(n int64) bool {
	if s.LastDispatch <= n || len(s.Dispatches) == 0 {
		return false
	}
	last := s.Dispatches[len(s.Dispatches)-1]
	return last.MayStart()
}

// MayStart reports whether the dispatch may still bring a capture: its platform did not surely refuse it, and did not
// say that it is over.
func (e Dispatch) MayStart() bool {
	if e.Release != nil && e.Release.Settlement == Closed.String() {
		return false
	}
	return e.Receipt == nil || e.Receipt.OK || !surelyNotStarted(Class(e.Receipt.Class))
}

// surelyNotStarted: a launch that failed with this class did not happen.
func surelyNotStarted(c Class) bool {
	switch c {
	case NoSlots, QuotaExhausted, SpawnedElsewhere, Rejected:
		return true
	case Unreachable, ProtocolError, UserCode:
		return false
	}
	return false
}

// readWitness reads a witness; found is false when there surely is none.
func readWitness(ctx context.Context, b bucket.Bucket, work string) (seen witness.Seen, found bool, err error) {
	seen, err = witness.Read(ctx, b, work)
	if errors.Is(err, witness.ErrAbsent) {
		return witness.Seen{}, false, nil
	}
	return seen, err == nil, err
}
