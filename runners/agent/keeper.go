package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// lease is what a keeper does with a captured lease; *witness.Holder is one.
type lease interface {
	Renew(ctx context.Context, p witness.Progress, l witness.Lease) witness.Verdict
	Advance(ctx context.Context, to record.Pointer, p witness.Progress, l witness.Lease) witness.Verdict
	Yield(ctx context.Context, reason string) witness.Verdict
	Finish(ctx context.Context, f witness.FinishedPointer, p witness.Progress) witness.Verdict
	Seen() witness.Seen
}

var _ lease = (*witness.Holder)(nil)

// keeper is the one goroutine that uses the lease. It writes when the desk wakes it, which the desk does because of
// evidence; it has no timer of its own that could. The last word (yield, finish) comes over the last channel.
type keeper struct {
	d    *desk
	h    lease
	last chan func()
	done chan struct{}
}

func newKeeper(d *desk, h lease, sent time.Time) *keeper {
	d.own = h.Seen().Record
	d.lease, d.ackAt, d.step = d.own.Lease, sent, d.own.Progress.Step
	d.book = newLedger(d.terms, sent)
	return &keeper{d: d, h: h, last: make(chan func()), done: make(chan struct{})}
}

// run serves until ctx ends; evidence goes before the last word.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	for ctx.Err() == nil {
		select {
		case <-k.d.wake:
			k.serve(ctx)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return
		case f := <-k.last:
			f()
		case <-k.d.wake:
			k.serve(ctx)
		}
	}
}

// serve does what the evidence on the desk is worth: pointers first, since they renew as well.
func (k *keeper) serve(ctx context.Context) {
	for {
		k.d.mu.Lock()
		if !k.d.due(time.Now()) {
			k.d.mu.Unlock()
			return
		}
		var to *record.Pointer
		if len(k.d.pending) > 0 {
			p := k.d.pending[0].Pointer
			to = &p
		}
		force, p, l := k.d.force, k.progress(to), promise(k.d.terms, &k.d.pace, k.d.phase)
		limit := k.limit()
		k.d.mu.Unlock()
		if !k.write(ctx, to, force, p, l, limit) {
			return
		}
	}
}

// write makes one write and files its verdict; false: stop for now.
func (k *keeper) write(ctx context.Context, to *record.Pointer, force int64, p witness.Progress, l witness.Lease, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent := time.Now()
	var v witness.Verdict
	if to != nil {
		v = k.h.Advance(ctx, *to, p, l)
	} else {
		v = k.h.Renew(ctx, p, l)
	}
	return k.file(to, force, sent, v)
}

// file makes a verdict known.
func (k *keeper) file(to *record.Pointer, force int64, sent time.Time, v witness.Verdict) bool {
	d := k.d
	if v.Over() {
		d.end(d.mended(overBy(d.record(), v)))
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.tell()
	switch v.Outcome {
	case witness.Won:
		if to != nil && !d.unknown.IsZero() {
			sent = d.unknown // an earlier try may be the one that landed
		}
		first := d.forced == 0
		d.own = k.h.Seen().Record
		d.ackAt, d.lease, d.forced, d.unknown, d.nextTry = sent, d.own.Lease, max(d.forced, force), time.Time{}, time.Time{}
		switch {
		case to != nil:
			d.pop()
			d.named = to.Milestone
			d.settle(true)
			d.say("milestone", to.Step, fmt.Sprintf("milestone %d is where the next attempt starts", to.Milestone))
		case first:
			d.say("renewed", d.step, fmt.Sprintf("first steps seen: the lease is %.3g s", d.lease.Seconds))
		}
		return true
	case witness.Refused: // and not over: the pointer was bad
		if to != nil {
			d.pop()
			d.settle(false)
			d.say("milestone failed", to.Step, v.Err.Error())
			return true
		}
	case witness.Unknown, witness.Lost, witness.Gone:
	}
	k.unreachable(sent, v.Err)
	return false
}

// unreachable notes that a write got no verdict. The lock is held.
func (k *keeper) unreachable(sent time.Time, err error) {
	d := k.d
	if d.unknown.IsZero() {
		d.unknown = sent
		d.say("store unreachable", d.step, errText(err))
	}
	d.nextTry = time.Now().Add(min(max(d.lease.Length()/30, 100*time.Millisecond), 5*time.Second))
	if since := time.Since(d.unknown); since >= 3*d.lease.Length() && d.ended == nil {
		d.close(&ending{"lease_lost", Exit{CodeStore, "store",
			fmt.Sprintf("no answer from the store for %s, three leases: stopped, the lease runs out by itself (%s)", since.Round(time.Second), errText(err))}})
	}
}

// limit bounds one write. The lock is held.
func (k *keeper) limit() time.Duration {
	return min(max(k.d.lease.Length()/6, time.Second), 10*time.Second)
}

// progress of the holder; a pointer's step at least. The lock is held.
func (k *keeper) progress(to *record.Pointer) witness.Progress {
	step := k.d.step
	if to != nil {
		step = max(step, to.Step)
	}
	return witness.Progress{Step: step, Work: float64(step) * k.d.terms.FLOPsPerStep}
}

// once runs f in the keeper's goroutine and waits for it; false when the keeper is gone.
func (k *keeper) once(f func()) bool {
	ran := make(chan struct{})
	select {
	case k.last <- func() { defer close(ran); f() }:
		<-ran
		return true
	case <-k.done:
		return false
	}
}

// give ends the lease by yield or finish, asking again while there is no verdict and ctx lasts.
func (k *keeper) give(ctx context.Context, f func(context.Context) witness.Verdict) (v witness.Verdict) {
	k.once(func() {
		k.d.mu.Lock()
		k.d.closing = true
		k.d.mu.Unlock()
		for {
			v = f(ctx)
			if v.Outcome != witness.Unknown || ctx.Err() != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return v
}

// overBy says why a lease is over, for the program and for people.
func overBy(own witness.Record, v witness.Verdict) *ending {
	if v.By == nil {
		return &ending{"lease_lost", Exit{CodeLeaseLost, "deposed", "the lease is lost: " + errText(v.Err)}}
	}
	return deposed(own, *v.By)
}

// deposed says what a later record of the same work means for the holder of own.
func deposed(own, by witness.Record) *ending {
	reason := ""
	if by.Reason != "" {
		reason = fmt.Sprintf(": %.200q", by.Reason)
	}
	switch {
	case by.Stopped() && by.Attempt == own.Attempt:
		return &ending{"revoked", Exit{CodeRevoked, "revoked", "stopped by a person or the plan" + reason}}
	case by.State == witness.Revoked && by.Attempt == own.Attempt:
		return &ending{"lease_lost", Exit{CodeLeaseLost, "deposed", "written off as silent" + reason}}
	case by.Attempt > own.Attempt:
		return &ending{"lease_lost", Exit{CodeLeaseLost, "deposed", fmt.Sprintf("attempt %d took over", by.Attempt)}}
	}
	return &ending{"lease_lost", Exit{CodeLeaseLost, "deposed", fmt.Sprintf("the witness is %s at attempt %d, not ours", by.State, by.Attempt)}}
}

func errText(err error) string {
	if err == nil {
		return "no reason given"
	}
	return err.Error()
}
