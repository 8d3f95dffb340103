package witness

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Repair writes a witness for a work whose witness was deleted, by a person's decision and never by itself: revoked,
// at the highest attempt that has left a byte and the dispatch that its reservation names, with the resume pointer that
// the person names (nil: the next attempt starts from nothing). Every dispatch that was claimed before is barred: the
// deleted witness may have barred it, and nothing else says so. A holder of the earlier life that is still at work loses
// its lease by it. It refuses where a witness exists, readable or not, and a pointer whose manifest is missing or has
// another hash. Whether the work was finished is for the caller to ask: no witness is made anew as finished.
func Repair(ctx context.Context, s Store, work string, resume *record.Pointer, reason string) (Seen, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	old, err := readOrNil(ctx, s, work)
	if err != nil {
		return Seen{}, err
	}
	if old != nil {
		return *old, refuse(BadMove, work, &old.Record, "the witness exists: nothing to repair")
	}
	attempt, err := highestAttempt(ctx, s, work)
	if err != nil {
		return Seen{}, err
	}
	if attempt == 0 {
		return Seen{}, refuse(BadMove, work, nil, "no attempt has left a byte: nothing to repair, a dispatch may capture")
	}
	if err := named(ctx, s, work, resume); err != nil {
		return Seen{}, err
	}
	claim, err := lastClaim(ctx, s, work)
	if err != nil {
		return Seen{}, err
	}
	bar := nextBar(work, attempt, claim+1, resume, reason)
	if bar.Dispatch, err = dispatchOf(ctx, s, work, attempt); err != nil {
		return Seen{}, err
	}
	w, next, err := cas(nil, bar)
	if err != nil {
		return Seen{}, err
	}
	r := w.settle(ctx, s)
	now, err := r.seenAfter(work, next)
	if r.outcome == Won {
		return now, nil
	}
	if r.outcome == Lost {
		return now, errors.Join(refuse(BadMove, work, &now.Record, "somebody else wrote a witness in between"), err)
	}
	no := refuse(Unsettled, work, nil, "the repair got no verdict: read the witness again")
	no.Err = r.err
	return Seen{}, no
}

// highestAttempt is the greatest number under attempt/, found by jumping from one prefix to the next.
func highestAttempt(ctx context.Context, s Store, work string) (int64, error) {
	var highest int64
	after := ""
	for {
		key, err := first(ctx, s, record.AttemptsPrefix(work), after)
		if err != nil || key == "" {
			return highest, err
		}
		p, ok := record.Parse(key)
		if !ok || p.Attempt <= highest {
			return 0, refuse(UnknownHistory, work, nil, "%s is no key of an attempt: remove it by hand first", key)
		}
		highest = p.Attempt
		after = record.AttemptPrefix(work, highest) + "~" // behind every name below an attempt
	}
}

// lastClaim is the greatest number of a claim, found by jumping from one dispatch to the next; 0: there is none. A key
// that is no claim's counts for nothing.
func lastClaim(ctx context.Context, s Store, work string) (int64, error) {
	var last int64
	prefix := record.DispatchPrefix(work)
	after := ""
	for {
		key, err := first(ctx, s, prefix, after)
		if err != nil || key == "" {
			return last, err
		}
		after = key
		p, ok := record.Parse(key)
		if !ok || p.Dispatch <= last || p.Dispatch == math.MaxInt64 || key != record.ClaimKey(work, p.Dispatch) {
			continue
		}
		last = p.Dispatch
		after = fmt.Sprintf("%s%08d/", prefix, last) // behind the receipt and the releases of this dispatch
	}
}

// dispatchOf is the dispatch that an attempt's reservation names, so that nobody waits for its launch any more; 0: it is
// not known.
func dispatchOf(ctx context.Context, s Store, work string, attempt int64) (int64, error) {
	got, err := fetch(ctx, s, record.OpenKey(work, attempt), record.MaxRecord)
	if _, is := errors.AsType[*Unreadable](err); is || errors.Is(err, ErrAbsent) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var o record.Open
	if record.Decode(got.body, record.MaxRecord, &o) != nil || o.Work != work || o.Attempt != attempt || o.Dispatch < 1 {
		return 0, nil
	}
	return o.Dispatch, nil
}

// named checks that a pointer names a manifest that exists and is the one that it means.
func named(ctx context.Context, s Store, work string, p *record.Pointer) error {
	if p == nil {
		return nil
	}
	got, err := fetch(ctx, s, p.Manifest, record.MaxManifest)
	if err != nil {
		return fmt.Errorf("the milestone to resume from: %w", err)
	}
	if sum := record.Hash(got.body); sum != p.SHA256 {
		return refuse(BadPointer, work, nil, "%s has sha256 %s, expected %s", p.Manifest, sum, p.SHA256)
	}
	return nil
}

var _ Store = bucket.Bucket(nil) // the port has what the lease needs
