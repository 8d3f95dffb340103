package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// patience bounds how long the store is asked again before the lease is taken, counted from the agent's start by its own
// monotonic clock. Whoever gives up wastes the whole capture window and parks the platform; whoever captures after the
// window spoils the launch that follows: so it lasts for two thirds of the window. Definite answers end it at once.
type patience struct {
	log    *slog.Logger
	dead   <-chan struct{} // the machine is lost; nil: never
	began  time.Time
	limit  time.Duration
	window time.Duration // of the claim; 0: not read yet
	vain   bool          // something had to be asked again
}

const (
	blindPatience   = 90 * time.Second // while the claim, which has the window, can't be read
	longestPatience = 15 * time.Minute // whatever the window: the machine is paid for and does nothing
	defaultWindow   = 2 * time.Minute  // where the claim names none
	longestOnce     = 10 * time.Second // one request: one that hangs must leave time for another
	firstWait       = 200 * time.Millisecond
	longestWait     = 5 * time.Second
)

func newPatience(log *slog.Logger, dead <-chan struct{}) *patience {
	return &patience{log: log, dead: dead, began: time.Now(), limit: blindPatience}
}

// claimed sets the limit of the claim's window. An error when the claim was read too late to be of use.
func (p *patience) claimed(cl *record.Claim) error {
	p.window = defaultWindow
	if cl.CaptureS > 0 {
		p.window = time.Duration(min(cl.CaptureS, 7*86400) * float64(time.Second))
	}
	p.limit = min(p.window*2/3, longestPatience)
	if waited := time.Since(p.began); p.vain && waited >= p.window {
		return &ending{"", Exit{CodeStore, "store", fmt.Sprintf("the claim could be read only after %s, and the lease had to be taken within %s: nothing was touched",
			waited.Round(time.Second), p.window.Round(time.Millisecond))}}
	}
	return nil
}

// left is what remains of it; negative: it is over.
func (p *patience) left() time.Duration { return p.limit - time.Since(p.began) }

// ask calls f until it has a definite answer, patience is over, or ctx ends. The context of a call that reads is bounded
// by f itself, see once.
func (p *patience) ask(ctx context.Context, f func() error) error {
	var last error
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := f()
		if err == nil || ctx.Err() != nil || definite(err) {
			return err
		}
		if _, says := errors.AsType[*bucket.Error](err); says || last == nil {
			last = err // a deadline says less than the store did
		}
		left := p.left()
		if left <= 0 {
			return &ending{"", Exit{CodeStore, "store", fmt.Sprintf("no usable answer from the store within %s of the start, nothing was touched: %s",
				p.limit.Round(time.Millisecond), oneLine(last.Error()))}}
		}
		if !p.vain {
			p.log.Warn("no usable answer from the store: asking again", "for", left.Round(time.Second), "err", err)
		}
		p.vain = true
		select {
		case <-ctx.Done():
			return err
		case <-p.dead:
			return err
		case <-time.After(min(left, wait/2+jitter(wait/2))): // a thousand workers do not come back together
		}
	}
}

// jitter is a time below most. It comes from the source that nonces come from, so that a simulated run repeats itself.
func jitter(most time.Duration) time.Duration {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(most+1))
}

// once bounds one read.
func (p *patience) once(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(longestOnce, max(p.left()/2, time.Second)))
}

// capturing is the context of one capture: what is left, and enough for one try where measuring the machine took long.
// store outlives the notice to leave, since a capture that was sent should have a verdict; after the notice it has
// hurry for that.
func (p *patience) capturing(ctx, store context.Context, hurry time.Duration) (context.Context, context.CancelFunc) {
	c, cancel := context.WithTimeout(store, max(p.left(), min(max(p.window/3, longestOnce/2), longestOnce)))
	late := context.AfterFunc(ctx, func() {
		select {
		case <-c.Done():
		case <-time.After(hurry):
			cancel()
		}
	})
	return c, func() { late(); cancel() }
}

// definite reports whether asking again can't change the answer. A capture that got no verdict is definite here: it may
// have landed, and a second one would only meet the first.
func definite(err error) bool {
	if _, ok := errors.AsType[*refusedOrder](err); ok {
		return true
	}
	if _, ok := errors.AsType[*ending](err); ok {
		return true
	}
	if _, ok := errors.AsType[*witness.Refusal](err); ok {
		return true
	}
	if _, ok := errors.AsType[*witness.Unreadable](err); ok {
		return true
	}
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		switch e.Code {
		case bucket.Unknown, bucket.Throttled, bucket.Raced:
			return false
		case bucket.NotFound, bucket.Condition, bucket.Gone, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
		}
		return true
	}
	return !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, context.DeadlineExceeded)
}
