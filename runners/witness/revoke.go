package witness

import (
	"context"

	"github.com/headway-run/headway/runners/record"
)

// Revocation is the answer to a revoke or a stop. A closed set.
type Revocation uint8

const (
	// Unwritten: no verdict; the write may have landed or may land still. Read again before concluding anything.
	Unwritten Revocation = iota
	// Ended: this call ended the lease; a stop: it ended the lease or raised the floor.
	Ended
	// Renewed: the holder renewed in between, so the version that was judged is not there any more.
	Renewed
	// AlreadyOver: yielded, revoked or finished before, or another attempt has the lease. Nothing was written.
	AlreadyOver
)

// String returns the answer's name as people see it.
func (r Revocation) String() string {
	switch r {
	case Ended:
		return "Revoked"
	case Renewed:
		return "Renewed"
	case AlreadyOver:
		return "AlreadyOver"
	case Unwritten:
	}
	return "Unwritten"
}

// Revoke ends the lease on exactly the version that was judged; it is what a write-off is. The floor stays: the same
// dispatch may capture again. With Unwritten the error says why; the Seen is the newest that is known.
func Revoke(ctx context.Context, s Store, judged Seen, reason string) (Revocation, Seen, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	next, no := nextRevoke(judged.Record, reason)
	if no != nil {
		return AlreadyOver, judged, nil
	}
	w, next, err := cas(&judged, next)
	if err != nil {
		return Unwritten, judged, err
	}
	r := w.settle(ctx, s)
	now, err := r.seenAfter(next.Work, next)
	switch r.outcome {
	case Won:
		return Ended, now, nil
	case Lost:
		if err == nil && now.Record.State == Held && now.Record.Holder == judged.Record.Holder {
			return Renewed, now, nil
		}
		if err == nil {
			return AlreadyOver, now, nil
		}
	case Gone:
		return Unwritten, judged, refuse(StoreViolation, next.Work, nil, "the witness vanished")
	case Refused, Unknown:
		err = r.err
	}
	return Unwritten, judged, err
}

// Stop ends a work's lease whoever holds it, and bars every dispatch below floor (the number after the last claim)
// from capturing, a launch included that starts hours late. On an absent witness it writes one that is revoked at
// attempt 0; beside attempts an absent witness is UnknownHistory, which bars captures by itself. Finished and stopped
// before are AlreadyOver: asking twice is harmless. A holder that renews in between does not escape.
func Stop(ctx context.Context, s Store, work string, floor int64, reason string) (Revocation, Seen, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	old, err := readOrNil(ctx, s, work)
	if err != nil {
		return Unwritten, Seen{}, err
	}
	for {
		next, done, err := stopped(ctx, s, work, old, floor, reason)
		if err != nil && old == nil {
			if old, err = lookAgain(ctx, s, work, err); err == nil {
				continue
			}
		}
		if err != nil {
			return Unwritten, Seen{}, err
		}
		if done {
			return AlreadyOver, *old, nil
		}
		w, next, err := cas(old, next)
		if err != nil {
			return Unwritten, Seen{}, err
		}
		r := w.settle(ctx, s)
		now, err := r.seenAfter(work, next)
		switch r.outcome {
		case Won:
			return Ended, now, nil
		case Lost:
			if err != nil {
				return Unwritten, Seen{}, err
			}
			old = &now
		case Gone:
			return Unwritten, Seen{}, refuse(StoreViolation, work, nil, "the witness vanished")
		case Refused, Unknown:
			return Unwritten, Seen{}, r.err
		}
		if err := ctx.Err(); err != nil {
			return Unwritten, *old, err
		}
	}
}

// stopped is the record that a stop would write; done: nothing needs to be.
func stopped(ctx context.Context, s Store, work string, old *Seen, floor int64, reason string) (r Record, done bool, err error) {
	if old != nil {
		r, done = nextStop(old.Record, floor, reason)
		return r, done, nil
	}
	key, err := first(ctx, s, record.AttemptsPrefix(work), "")
	if err != nil {
		return r, false, err
	}
	if key != "" {
		return r, false, refuse(UnknownHistory, work, nil, "no witness, but %s exists: no launch can capture; run headway doctor", key)
	}
	return nextBar(work, 0, max(floor, 1), nil, reason), false, nil
}
