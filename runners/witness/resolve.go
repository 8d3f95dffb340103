package witness

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Times of the resolver. A caller bounds the whole by its context; these bound the parts.
const (
	firstPause   = 50 * time.Millisecond // before the second try; doubled each time, with jitter
	longestPause = 5 * time.Second
	requestLimit = 10 * time.Second // one request; less when the caller's deadline is near
	settleLimit  = 30 * time.Second // the whole, for a caller without a deadline
	absentLimit  = 3                // rounds of "exists already" and "not found" before the store is said to contradict itself
)

// relation says whose bytes lie under the key, seen from one logical write.
type relation uint8

const (
	other relation = iota // somebody else's, later than the base
	mine                  // this write's own
	base                  // what this write builds on: it has not landed, yet
)

// write is one logical conditional write: the same bytes and the same condition at every try, however many there
// are. It is settled when its outcome is Won, Lost, Gone or Refused; until then nothing may build on it.
type write struct {
	key  string
	body []byte
	cond bucket.Cond
	look func([]byte) (relation, error) // an error is a *Refusal (the store broke its word) or an *Unreadable
}

// result is where a write ended.
type result struct {
	outcome Outcome
	version bucket.Version // Won: of the bytes as they lie there
	found   *found         // Won by reading, or Lost: what was read
	err     error          // why Unknown or Refused; nil otherwise
}

// settle is the one resolver: it sends the write until its outcome is certain or the time is over. No answer but
// success decides anything by itself; what decides is whose bytes are read back. It never takes a version that it
// read as the base of another try: a deposed writer would write over its successor.
func (w *write) settle(ctx context.Context, s Store) result {
	ctx, cancel := bounded(ctx)
	defer cancel()
	last, absent := error(nil), 0
	for round := 0; ; round++ {
		if err := pause(ctx, w.body, round); err != nil {
			return result{err: errors.Join(err, last)}
		}
		v, err := w.put(ctx, s)
		if err == nil {
			return result{outcome: Won, version: v}
		}
		last = err
		switch c := bucket.CodeOf(err); c {
		case bucket.Throttled:
			continue
		case bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
			return result{err: err} // trying again can't help; an earlier try may still have landed
		case bucket.Unknown, bucket.Condition, bucket.Raced, bucket.Gone, bucket.NotFound:
			r, again := w.readBack(ctx, s)
			if !again {
				return r
			}
			if r.outcome == Gone && c != bucket.Raced && c != bucket.Unknown {
				absent++
			}
			if absent >= absentLimit {
				return result{outcome: Refused, err: &Refusal{Why: StoreViolation, Work: w.key, Err: err,
					Text: "the store refuses to create an object that it says is absent (a delete marker? a store that does not create?)"}}
			}
		}
	}
}

func (w *write) put(ctx context.Context, s Store) (bucket.Version, error) {
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	return s.Put(ctx, w.key, body(w.body), w.cond)
}

// readBack looks whose bytes lie there. again: not settled, send the same bytes again; then outcome Gone says that
// the key was read as absent.
func (w *write) readBack(ctx context.Context, s Store) (r result, again bool) {
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	got, err := fetch(ctx, s, w.key, MaxRecord)
	switch {
	case errors.Is(err, ErrAbsent):
		return result{outcome: Gone}, w.cond.Absent()
	case err != nil:
		if _, is := errors.AsType[*Unreadable](err); is {
			return result{err: err}, false
		}
		return result{err: err}, true
	}
	rel, err := w.look(got.body)
	if err != nil {
		out := Unknown
		if _, is := errors.AsType[*Refusal](err); is {
			out = Refused
		}
		return result{outcome: out, found: got, err: err}, false
	}
	switch rel {
	case mine:
		return result{outcome: Won, version: got.version, found: got}, false
	case base:
		return result{}, true
	case other:
	}
	return result{outcome: Lost, found: got}, false
}

// bounded gives a caller without a deadline one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, settleLimit)
}

// oneRequest bounds one request so that a hanging one leaves time for a look and another try.
func oneRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := requestLimit
	if d, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(d)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// pause waits before a try: nothing before the first, then twice as long each time, up to a bound, of which a half
// is jitter. The jitter comes from the write's own bytes, which hold a random nonce: no two writers beat in phase,
// and a run with seeded nonces repeats itself.
func pause(ctx context.Context, seed []byte, round int) error {
	if round > 0 {
		d := min(firstPause<<min(round-1, 10), longestPause)
		h := fnv.New64a()
		_, _ = h.Write(seed)
		_, _ = h.Write([]byte{byte(round), byte(round >> 8)})
		d = d/2 + time.Duration(h.Sum64()%uint64(d/2))
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("no verdict of the store in time: %w", err)
	}
	return nil
}

// cas makes the logical write that replaces old (nil: absent) by next: checks the move, gives it its own nonce and
// encodes it once.
func cas(old *Seen, next Record) (*write, Record, error) {
	next.Write = record.Nonce()
	var was *Record
	c := bucket.IfAbsent()
	if old != nil {
		was, c = &old.Record, bucket.IfIs(old.Version)
	}
	b, err := encode(next)
	if err != nil {
		return nil, next, err
	}
	if _, err := CheckMove(was, next); err != nil {
		return nil, next, &Refusal{Why: BadMove, Work: next.Work, Text: err.Error(), By: was}
	}
	look := func(b []byte) (relation, error) { return relate(was, next, b) }
	return &write{key: record.WitnessKey(next.Work), body: b, cond: c, look: look}, next, nil
}

// relate compares nonces, attempts and revs: who wrote what was read, seen from the writer of next. It is also the
// tripwire: a record that went back means that the store let two writers through or was rolled back.
func relate(was *Record, next Record, b []byte) (relation, error) {
	got, err := Decode(next.Work, b)
	switch {
	case err != nil:
		return other, err
	case got.Write == next.Write:
		return mine, nil
	case was == nil:
		return other, nil
	case got.Write == was.Write:
		return base, nil
	case got.Attempt < was.Attempt:
		return other, refuse(StoreViolation, next.Work, &got, "attempt %d was written, attempt %d is read back", was.Attempt, got.Attempt)
	case got.Rev <= was.Rev:
		return other, refuse(StoreViolation, next.Work, &got, "rev %d was replaced by another rev %d", was.Rev, got.Rev)
	}
	return other, nil
}

// seenAfter is what is known after a write: the record that was written, or the one that was read.
func (r result) seenAfter(work string, wrote Record) (Seen, error) {
	if r.outcome == Won && r.found == nil {
		return Seen{Record: wrote, Version: r.version}, nil
	}
	if r.outcome == Won {
		return r.found.seen(wrote), nil
	}
	if r.found == nil {
		return Seen{}, r.err
	}
	got, err := Decode(work, r.found.body)
	if err != nil {
		return Seen{}, err
	}
	return r.found.seen(got), nil
}
