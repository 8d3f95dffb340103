package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// atOnce bounds the requests of the load that are open at a time.
const atOnce = 32

// load is workers that hold their leases and renew them by thirds, and do nothing else.
type load struct {
	b      bucket.Bucket
	lease  witness.Lease
	hold   []*witness.Holder
	steps  []int64
	writes atomic.Int64
	lost   atomic.Int64
	mu     sync.Mutex
	took   []time.Duration // by renewals since take
}

// take returns how long renewals took since the last call.
func (l *load) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.took
	l.took = nil
	return took
}

// capture makes the records of a first dispatch of each job, as a dispatcher does, and captures its lease, as a worker
// does.
func capture(ctx context.Context, b bucket.Bucket, jobs []plan.Job, length time.Duration) (*load, error) {
	step := length / witness.DefaultK
	l := &load{b: b, lease: witness.LeaseFor(0, step, witness.DefaultFloor), hold: make([]*witness.Holder, len(jobs)), steps: make([]int64, len(jobs))}
	return l, sideBySide(ctx, len(jobs), func(i int) error {
		w := string(jobs[i].Work)
		claim := record.Claim{Protocol: record.Protocol, Work: w, Dispatch: 1, Nonce: record.Nonce(), Dispatcher: "scale", Platform: "moon", Runner: "sim",
			Job: jobs[i].Name, Reason: "first launch", CaptureS: 120, Time: time.Now().UTC().Format(time.RFC3339)}
		receipt := record.Receipt{Protocol: record.Protocol, Work: w, Dispatch: 1, Nonce: claim.Nonce, OK: true, Handle: []byte(`{"instance":1}`), Time: claim.Time}
		if err := put(ctx, b, record.ClaimKey(w, 1), claim); err != nil {
			return err
		}
		if err := put(ctx, b, record.ReceiptKey(w, 1), receipt); err != nil {
			return err
		}
		h, err := witness.Capture(ctx, b, witness.CaptureRequest{Work: w, Dispatch: 1, Lease: l.lease})
		if err != nil {
			return err
		}
		if v := h.Open(ctx, record.Open{Platform: "moon"}); v.Outcome != witness.Won {
			return fmt.Errorf("open.json of %s: %v", jobs[i].Name, v)
		}
		l.hold[i] = h
		return nil
	})
}

func put(ctx context.Context, b bucket.Bucket, key string, v any) error {
	body, err := record.Encode(v)
	if err != nil {
		return err
	}
	_, err = b.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent())
	return err
}

// renew renews every lease once in a third of its length, spread evenly, until ctx ends. Each lease has one goroutine.
func (l *load) renew(ctx context.Context) {
	third, start := l.lease.RenewAfter(), time.Now()
	var wg sync.WaitGroup
	for g := range min(atOnce, len(l.hold)) {
		wg.Go(func() {
			for round := time.Duration(0); ; round++ {
				for i := g; i < len(l.hold); i += atOnce {
					due := start.Add(round*third + time.Duration(i)*third/time.Duration(len(l.hold)))
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(due)):
					}
					l.renewOne(ctx, i)
				}
			}
		})
	}
	wg.Wait()
}

func (l *load) renewOne(ctx context.Context, i int) {
	l.steps[i] += int64(witness.DefaultK / 3)
	begin := time.Now()
	v := l.hold[i].Renew(ctx, witness.Progress{Step: l.steps[i]}, l.lease)
	l.mu.Lock()
	l.took = append(l.took, time.Since(begin))
	l.mu.Unlock()
	l.writes.Add(1)
	if v.Over() {
		l.lost.Add(1)
	}
}

// sideBySide calls f for 0 … n-1 and returns the first error.
func sideBySide(ctx context.Context, n int, f func(int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	var mu sync.Mutex
	var errs error
	for range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					mu.Lock()
					errs = errors.Join(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs, ctx.Err())
}
