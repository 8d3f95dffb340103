package witness

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Verdict is the answer to one call of a [Holder].
//
// Won: go on. Unknown: no verdict before the deadline; harmless for a renewal, and anything else is not settled: keep
// what it was about, and call again (the same bytes are sent first). Lost, Gone: the lease is over, stop within one
// step; every later call answers the same. Refused: Err is the *Refusal; with StoreViolation, UnknownHistory or
// NotHolder the lease is over as well, with NotOpened, BadPointer or BadMove nothing was written and it is not.
type Verdict struct {
	Outcome Outcome
	By      *Record // Lost: who wrote later (deposed by a person: By.Stopped())
	Err     error   // Unknown, Refused: why
}

// Over reports whether the lease is lost for good with this verdict.
func (v Verdict) Over() bool {
	switch v.Outcome {
	case Lost, Gone:
		return true
	case Refused:
		no, is := errors.AsType[*Refusal](v.Err)
		return is && (no.Why == StoreViolation || no.Why == UnknownHistory || no.Why == NotHolder)
	case Unknown, Won:
	}
	return false
}

// Holder is a captured lease. One goroutine uses it: the step path. It has no timer and no goroutine of its own.
type Holder struct {
	s       Store
	seen    Seen   // the last version that is surely this holder's
	nonce   string // of this capture
	opened  bool
	pending *pending // a write without a verdict: settled before anything else
	over    *Verdict // sticky
}

// pending is a logical write whose outcome is not known yet, with the record that it writes.
type pending struct {
	w    *write
	next Record
}

// Seen is the last version that surely is this holder's, as far as it knows. Modified and Date are zero where the
// version comes from the answer to a write.
func (h *Holder) Seen() Seen { return h.seen }

// Open reserves the attempt's prefix: open.json is created if absent, before the first other byte under it. The
// fields that identify the attempt are filled in here. Existing with another nonce: Refused, UnknownHistory (an
// earlier life of this work used the number, and its witness was lost): stop, and write nothing more.
func (h *Holder) Open(ctx context.Context, o record.Open) Verdict {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if v, ok := h.ready(ctx); !ok {
		return v
	}
	r := &h.seen.Record
	o.Protocol, o.Work, o.Attempt, o.Dispatch = record.Protocol, r.Work, r.Attempt, r.Dispatch
	o.Holder, o.Resume = h.nonce, r.Resume
	b, err := record.Encode(o)
	if err == nil && len(b) > record.MaxRecord {
		err = fmt.Errorf("open.json would have %d bytes, at most %d are accepted: give fewer fingerprint fields", len(b), record.MaxRecord)
	}
	if err != nil {
		return Verdict{Outcome: Refused, Err: &Refusal{Why: BadMove, Work: r.Work, Text: "can't reserve the prefix", Err: err}}
	}
	w := &write{key: record.OpenKey(r.Work, r.Attempt), body: b, cond: bucket.IfAbsent(), look: h.ownOpen}
	res := w.settle(ctx, h.s)
	switch res.outcome {
	case Won:
		h.opened = true
		return Verdict{Outcome: Won}
	case Lost, Gone, Refused:
		no := refuse(UnknownHistory, r.Work, r, "%s is reserved by somebody else: an earlier witness of this work was lost", w.key)
		no.Err = res.err
		return h.end(Verdict{Outcome: Refused, Err: no})
	case Unknown:
	}
	return Verdict{Outcome: Unknown, Err: res.err}
}

// ownOpen tells a reservation of this holder from any other; an undecodable one is another's.
func (h *Holder) ownOpen(b []byte) (relation, error) {
	var got record.Open
	if err := record.Decode(b, record.MaxRecord, &got); err == nil && got.Holder == h.nonce {
		return mine, nil
	}
	return other, nil
}

// Renew says that steps were finished: a new promise and the progress.
func (h *Holder) Renew(ctx context.Context, p Progress, l Lease) Verdict {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if v, ok := h.ready(ctx); !ok {
		return v
	}
	next, no := nextRenew(h.seen.Record, h.nonce, p, l)
	return h.write(ctx, next, no)
}

// Advance moves the resume pointer to a milestone of this attempt whose manifest the store has acknowledged, and
// renews. It reads the manifest back first: hash, work, attempt, milestone, step, and the parent, which must be the
// pointer that is replaced. A pointer that is there already is Won without a write.
func (h *Holder) Advance(ctx context.Context, to record.Pointer, p Progress, l Lease) Verdict {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if v, ok := h.ready(ctx); !ok {
		return v
	}
	if samePointer(h.seen.Record.Resume, &to) {
		return Verdict{Outcome: Won}
	}
	next, no := nextAdvance(h.seen.Record, h.nonce, to, p, l)
	if no == nil {
		if v, ok := h.complete(ctx, to.Manifest, to.SHA256, func(m *record.Manifest) error {
			return grownFrom(m, h.seen.Record.Resume, to)
		}); !ok {
			return v
		}
	}
	return h.write(ctx, next, no)
}

// grownFrom says what is wrong with a manifest as the target of a pointer that replaces from.
func grownFrom(m *record.Manifest, from *record.Pointer, to record.Pointer) error {
	switch {
	case m.Milestone != to.Milestone || m.Step != to.Step:
		return fmt.Errorf("is milestone %d at step %d, not milestone %d at step %d", m.Milestone, m.Step, to.Milestone, to.Step)
	case !samePointer(m.Parent, from):
		return fmt.Errorf("did not grow from the pointer that it would replace")
	}
	return nil
}

// complete reads a manifest back and checks what can be checked of it. A read that fails is Unknown: nothing was
// written, ask again.
func (h *Holder) complete(ctx context.Context, key, sum string, check func(*record.Manifest) error) (Verdict, bool) {
	r := &h.seen.Record
	if !h.opened {
		return Verdict{Outcome: Refused, Err: refuse(NotOpened, r.Work, nil, "attempt %d has not reserved its prefix", r.Attempt)}, false
	}
	bad := func(err error) (Verdict, bool) {
		return Verdict{Outcome: Refused, Err: &Refusal{Why: BadPointer, Work: r.Work, Text: key, Err: err}}, false
	}
	got, err := fetch(ctx, h.s, key, record.MaxManifest)
	if _, is := errors.AsType[*Unreadable](err); is || errors.Is(err, ErrAbsent) {
		return bad(fmt.Errorf("there is no complete manifest: %w", err))
	}
	if err != nil {
		return Verdict{Outcome: Unknown, Err: err}, false
	}
	if found := record.Hash(got.body); found != sum {
		return bad(fmt.Errorf("has sha256 %s, expected %s", found, sum))
	}
	var m record.Manifest
	if err := record.Decode(got.body, record.MaxManifest, &m); err != nil {
		return bad(err)
	}
	if m.Protocol != record.Protocol || m.Work != r.Work || m.Attempt != r.Attempt {
		return bad(fmt.Errorf("is of protocol %d, work %s, attempt %d: not of this attempt", m.Protocol, clip(m.Work, 12), m.Attempt))
	}
	if err := check(&m); err != nil {
		return bad(err)
	}
	return Verdict{}, true
}

// Yield gives the lease back: the place is free at once. Won ends the holder.
func (h *Holder) Yield(ctx context.Context, reason string) Verdict {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if v, ok := h.ready(ctx); !ok {
		if h.seen.Record.State == Yielded {
			return Verdict{Outcome: Won} // an earlier call whose answer was lost has landed
		}
		return v
	}
	next, no := nextYield(h.seen.Record, h.nonce, reason)
	return h.write(ctx, next, no)
}

// Finish ends the work for ever, with the result whose manifest the store has acknowledged; it is read back first.
// Won ends the holder. The resume pointer stays where it is.
func (h *Holder) Finish(ctx context.Context, f FinishedPointer, p Progress) Verdict {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if v, ok := h.ready(ctx); !ok {
		if d := h.seen.Record.Finished; d != nil && *d == f {
			return Verdict{Outcome: Won}
		}
		return v
	}
	next, no := nextFinish(h.seen.Record, h.nonce, f, p)
	if no == nil {
		if v, ok := h.complete(ctx, f.Manifest, f.SHA256, func(m *record.Manifest) error {
			if m.Milestone != 0 {
				return fmt.Errorf("is milestone %d, not a result", m.Milestone)
			}
			if m.Parent != nil && !samePointer(m.Parent, h.seen.Record.Resume) {
				return fmt.Errorf("did not grow from the resume pointer")
			}
			return nil
		}); !ok {
			return v
		}
	}
	return h.write(ctx, next, no)
}

// ready settles what is pending. ok: the holder holds, and a new write may be built on Seen.
func (h *Holder) ready(ctx context.Context) (v Verdict, ok bool) {
	if h.over != nil {
		return *h.over, false
	}
	if h.pending == nil {
		return Verdict{}, true
	}
	v = h.settle(ctx)
	if h.over != nil {
		return *h.over, false
	}
	return v, v.Outcome == Won
}

// write makes next the pending write and settles it.
func (h *Holder) write(ctx context.Context, next Record, no *Refusal) Verdict {
	if no != nil {
		return Verdict{Outcome: Refused, Err: no}
	}
	w, next, err := cas(&h.seen, next)
	if err != nil {
		return Verdict{Outcome: Refused, Err: err}
	}
	h.pending = &pending{w: w, next: next}
	return h.settle(ctx)
}

// settle sends the pending write until it has a verdict or the time is over.
func (h *Holder) settle(ctx context.Context) Verdict {
	p := h.pending
	r := p.w.settle(ctx, h.s)
	switch r.outcome {
	case Won:
		h.pending = nil
		h.seen, _ = r.seenAfter(p.next.Work, p.next) // a won write has no error
		if st := h.seen.Record.State; st != Held {
			h.end(Verdict{Outcome: Refused, Err: refuse(NotHolder, p.next.Work, nil, "this holder has %s", st)})
		}
		return Verdict{Outcome: Won}
	case Lost:
		by, err := r.seenAfter(p.next.Work, p.next)
		return h.end(Verdict{Outcome: Lost, By: &by.Record, Err: err})
	case Gone:
		return h.end(Verdict{Outcome: Gone, Err: refuse(StoreViolation, p.next.Work, nil, "the witness vanished")})
	case Refused:
		return h.end(Verdict{Outcome: Refused, Err: r.err})
	case Unknown:
	}
	return Verdict{Outcome: Unknown, Err: r.err}
}

// end makes a verdict the answer to every later call.
func (h *Holder) end(v Verdict) Verdict {
	h.pending, h.over = nil, &v
	return v
}
