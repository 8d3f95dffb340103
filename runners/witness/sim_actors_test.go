package witness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// simMilestones is how many milestones make the work done.
const simMilestones = 3

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// dispatcher judges silence by dice, which is as wrong as a clock can be, and launches zero, one or two workers.
func dispatcher(ctx context.Context, a *actor) {
	for range 5 {
		a.rest(time.Duration(a.rng.IntN(3000)) * time.Millisecond)
		seen, err := Read(ctx, a, a.w.work)
		switch {
		case errors.Is(err, ErrAbsent):
		case err != nil:
			continue
		case seen.Record.State == Finished:
			return
		case seen.Record.State == Held:
			if a.rng.IntN(3) > 0 {
				continue
			}
			c, cancel := within(ctx, 5*time.Second)
			r, _, _ := Revoke(c, a, seen, "silent")
			cancel()
			if r != Ended {
				continue
			}
		}
		launch(ctx, a, a.rng.IntN(10))
	}
}

// lastDispatcher runs when all faults have stopped: one revoke, one launch, one worker.
func lastDispatcher(ctx context.Context, a *actor) {
	seen, err := Read(ctx, a, a.w.work)
	if err == nil && seen.Record.State == Held {
		_, _, _ = Revoke(ctx, a, seen, "silent")
	}
	launch(ctx, a, 5)
}

// launch claims the next number and starts workers for it: none, one, two, or one that comes late.
func launch(ctx context.Context, a *actor, dice int) {
	page, err := a.List(ctx, record.DispatchPrefix(a.w.work), "", 0)
	if err != nil {
		return
	}
	n := int64(len(page.Items)) + 1
	b, _ := record.Encode(record.Claim{Protocol: 1, Work: a.w.work, Dispatch: n, Nonce: record.Nonce()})
	if _, err := a.Put(ctx, record.ClaimKey(a.w.work, n), body(b), bucket.IfAbsent()); err != nil {
		return // an unsettled claim launches nothing here
	}
	workers := 1
	switch {
	case dice == 0:
		workers = 0
	case dice < 4:
		workers = 2
	}
	for range workers {
		delay := time.Duration(0)
		if dice == 9 {
			delay = time.Duration(a.rng.IntN(60)) * time.Second
		}
		a.w.start(fmt.Sprintf("worker of dispatch %d", n), func(ctx context.Context, a *actor) {
			a.rest(delay)
			worker(ctx, a, n)
		})
	}
}

// operator stops the work now and then, with the floor above every claim that he sees.
func operator(ctx context.Context, a *actor) {
	if a.rng.IntN(2) == 0 {
		return
	}
	a.rest(time.Duration(a.rng.IntN(9000)) * time.Millisecond)
	page, err := a.List(ctx, record.DispatchPrefix(a.w.work), "", 0)
	if err != nil {
		return
	}
	c, cancel := within(ctx, 20*time.Second)
	defer cancel()
	_, _, _ = Stop(c, a, a.w.work, int64(len(page.Items))+1, "enough")
}

// worker is one launch: capture, open, milestones, finish. It stops where the protocol says so and nowhere else.
func worker(ctx context.Context, a *actor, dispatch int64) {
	c, cancel := within(ctx, 20*time.Second)
	h, err := a.w.capture(c, a, dispatch)
	cancel()
	if err != nil {
		return
	}
	defer func() { a.w.judge.won(h) }()
	if !a.settle(ctx, func(c context.Context) Verdict { return a.w.open(c, h) }) {
		return
	}
	for range 12 {
		a.rest(time.Duration(a.rng.IntN(2000)) * time.Millisecond)
		at := h.Seen().Record.Resume
		if at != nil && at.Step >= simMilestones*10 {
			break
		}
		if a.rng.IntN(4) == 0 {
			c, cancel := within(ctx, 2*time.Second)
			v := h.Renew(c, Progress{Step: 1}, quick)
			cancel()
			a.w.judge.won(h)
			if v.Over() {
				return
			}
			continue
		}
		if a.rng.IntN(25) == 0 {
			_ = a.settle(ctx, func(c context.Context) Verdict { return h.Yield(c, "spot notice") })
			return
		}
		if a.w.milestone(ctx, a, h) {
			return
		}
	}
	if at := h.Seen().Record.Resume; at == nil || at.Step < simMilestones*10 {
		return // dies in silence
	}
	f, ok := a.result(ctx, h)
	if ok {
		_ = a.settle(ctx, func(c context.Context) Verdict { return h.Finish(c, f, Progress{Step: 30}) })
	}
}

// settle repeats a call until it has a verdict, a bounded number of times. true: Won.
func (a *actor) settle(ctx context.Context, call func(context.Context) Verdict) bool {
	for range 6 {
		c, cancel := within(ctx, 3*time.Second)
		v := call(c)
		cancel()
		if v.Outcome != Unknown {
			return v.Outcome == Won
		}
	}
	return false
}

// upload puts one object under the attempt's prefix, unconditionally, with a few tries.
func (a *actor) upload(ctx context.Context, key string, b []byte) bool {
	for range 4 {
		c, cancel := within(ctx, 4*time.Second)
		_, err := a.Put(c, key, body(b), bucket.Always())
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// milestone uploads the next snapshot and moves the pointer. over: the lease is lost.
func (w *world) milestone(ctx context.Context, a *actor, h *Holder) (over bool) {
	r := h.Seen().Record
	m := record.Manifest{Protocol: 1, Work: w.work, Attempt: r.Attempt, Milestone: 1, Step: 10, Parent: r.Resume}
	if r.Resume != nil {
		m.Step = r.Resume.Step + 10
		if r.Resume.Attempt == r.Attempt {
			m.Milestone = r.Resume.Milestone + 1
		}
	}
	b, _ := record.Encode(m)
	p := record.Pointer{Attempt: r.Attempt, Milestone: m.Milestone, Step: m.Step,
		Manifest: record.MilestoneManifestKey(w.work, r.Attempt, m.Milestone), SHA256: record.Hash(b)}
	return w.advance(ctx, a, h, p, b)
}

func (a *actor) result(ctx context.Context, h *Holder) (FinishedPointer, bool) {
	r := h.Seen().Record
	b, _ := record.Encode(record.Manifest{Protocol: 1, Work: a.w.work, Attempt: r.Attempt, Step: 30, Parent: r.Resume})
	key := record.ResultManifestKey(a.w.work, r.Attempt)
	return FinishedPointer{Attempt: r.Attempt, Manifest: key, SHA256: record.Hash(b)}, a.upload(ctx, key, b)
}
