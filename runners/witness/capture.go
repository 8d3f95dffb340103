package witness

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/runners/record"
)

// CaptureRequest is who wants the lease: a worker of one claimed dispatch.
type CaptureRequest struct {
	Work     string // 64 hex digits
	Dispatch int64  // the claim it was started for
	Lease    Lease  // first promise: covers the download and the first steps
}

// maxContests bounds how often a capture that lost to a record which is free again may start over.
const maxContests = 16

// Capture takes the lease of a work, or says why not: a *Refusal (AlreadyFinished, SpawnedElsewhere, BelowFloor,
// UnknownHistory, StoreViolation, Unsettled), an *Unreadable, or an error of the store before anything was written.
//
// An Unsettled capture may have landed: its nonce dies with this call, so the lease then looks silent, and whoever
// judges silence ends it. Nothing may be written under its attempt's prefix.
func Capture(ctx context.Context, s Store, q CaptureRequest) (*Holder, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if q.Dispatch < 1 {
		return nil, refuse(BadMove, q.Work, nil, "dispatch %d: the first is 1", q.Dispatch)
	}
	old, err := readOrNil(ctx, s, q.Work)
	if err != nil {
		return nil, err
	}
	for range maxContests {
		if old == nil {
			if old, err = absent(ctx, s, q); err != nil {
				return nil, err
			}
		}
		holder := record.Nonce() // fresh at every capture: an attempt number is no identity
		next, err := wanted(old, q, holder)
		if err != nil {
			return nil, err
		}
		w, next, err := cas(old, next)
		if err != nil {
			return nil, err
		}
		r := w.settle(ctx, s)
		switch r.outcome {
		case Won:
			seen, err := r.seenAfter(q.Work, next)
			return &Holder{s: s, seen: seen, nonce: holder}, err
		case Lost:
			// Something newer than the base lies there, so no try of ours can land any more: decide from it afresh.
			by, err := r.seenAfter(q.Work, next)
			if err != nil {
				return nil, err
			}
			old = &by
		case Gone:
			return nil, refuse(StoreViolation, q.Work, nil, "the witness vanished during the capture")
		case Refused:
			return nil, r.err
		case Unknown:
			if e, is := errors.AsType[*Unreadable](r.err); is {
				return nil, e
			}
			no := refuse(Unsettled, q.Work, nil, "the capture got no verdict: it may have landed, so its prefix must not be used")
			no.Err = r.err
			return nil, no
		}
	}
	return nil, refuse(Unsettled, q.Work, &old.Record, "lost %d captures in a row to others that left again", maxContests)
}

// absent decides what an absent witness means: nil and no error is a fresh work.
func absent(ctx context.Context, s Store, q CaptureRequest) (*Seen, error) {
	if err := fresh(ctx, s, q.Work, q.Dispatch); err != nil {
		return lookAgain(ctx, s, q.Work, err)
	}
	return nil, nil
}

// lookAgain is for a witness that was absent beside traces of an attempt. Most likely they are those of a worker that
// captured since the witness was looked for: a second look tells that from a witness that was deleted (refused).
func lookAgain(ctx context.Context, s Store, work string, refused error) (*Seen, error) {
	if no, is := errors.AsType[*Refusal](refused); !is || no.Why != UnknownHistory {
		return nil, refused
	}
	now, err := readOrNil(ctx, s, work)
	if err == nil && now == nil {
		err = refused
	}
	return now, err
}

// wanted is the record that a capture would write.
func wanted(old *Seen, q CaptureRequest, holder string) (Record, error) {
	if old == nil {
		return nextCreate(q.Work, q.Dispatch, holder, q.Lease), nil
	}
	next, no := nextCapture(old.Record, q.Dispatch, holder, q.Lease)
	if no != nil {
		return Record{}, no
	}
	return next, nil
}

// readOrNil reads the witness; nil means surely absent.
func readOrNil(ctx context.Context, s Store, work string) (*Seen, error) {
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	seen, err := Read(ctx, s, work)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &seen, nil
}

// fresh is the absent rule as README.md reads it: the dispatch has its claim, no later claim was made, and no attempt
// has left a byte. Earlier claims whose launches never captured do not bar the work. Where the witness was deleted
// between a capture and its open.json, this rule can't see it; the reservation of the prefix by open.json does.
func fresh(ctx context.Context, s Store, work string, dispatch int64) error {
	key, err := first(ctx, s, record.AttemptsPrefix(work), "")
	if err != nil {
		return err
	}
	if key != "" {
		return refuse(UnknownHistory, work, nil, "no witness, but %s exists: the witness was deleted; run headway doctor", key)
	}
	own := record.ClaimKey(work, dispatch)
	if key, err = first(ctx, s, own, ""); err != nil {
		return err
	}
	if key != own {
		return refuse(UnknownHistory, work, nil, "no witness and no claim %s: this launch was never asked for", own)
	}
	// "/" sorts behind the "." of every key of this dispatch and before the digits of the next.
	after := fmt.Sprintf("%s%08d/", record.DispatchPrefix(work), dispatch)
	if key, err = first(ctx, s, record.DispatchPrefix(work), after); err != nil {
		return err
	}
	if key != "" {
		return refuse(UnknownHistory, work, nil, "no witness, but the later %s exists: dispatch %d was superseded", key, dispatch)
	}
	return nil
}
