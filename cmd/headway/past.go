package main

import (
	"context"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// past finds what an observer does not need and people want to see of works that nobody holds any more: where the last
// attempt ran, and how long ago its lease changed, by the store's own two stamps. What it cannot find stays empty.
type past struct {
	b  bucket.Bucket
	mu sync.Mutex
	// known holds the finished ones, which change no more.
	known map[string]ended
}

type ended struct {
	platform string
	at       time.Time // by this machine's clock, from an age by the store's
}

func pastOf(b bucket.Bucket) *past { return &past{b: b, known: map[string]ended{}} }

// atOnce bounds the requests that are open at a time.
const atOnce = 16

func (p *past) fill(ctx context.Context, doc *statusDoc) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range doc.Jobs {
		r := &doc.Jobs[i]
		if r.Attempt == 0 || r.State == plan.StateHeld || r.State == plan.StateUnknown {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			e, requests := p.of(ctx, r)
			p.mu.Lock()
			doc.Requests += requests
			p.mu.Unlock()
			if r.Platform == "" {
				r.Platform = e.platform
			}
			if !e.at.IsZero() {
				r.AgeS = max(time.Since(e.at), 0).Seconds()
			}
		})
	}
	wg.Wait()
}

func (p *past) of(ctx context.Context, r *statusRow) (e ended, requests int64) {
	p.mu.Lock()
	e, ok := p.known[r.Work]
	p.mu.Unlock()
	if ok {
		return e, 0
	}
	seen, err := witness.Read(ctx, p.b, r.Work)
	if err != nil {
		return e, 1
	}
	if !seen.Date.IsZero() && !seen.Modified.IsZero() {
		e.at = time.Now().Add(-max(seen.Date.Sub(seen.Modified), 0))
	}
	claims, err := runners.Dispatcher{Bucket: p.b}.ReadClaims(ctx, r.Work, seen.Record.Dispatch-1, 1)
	if err == nil && len(claims) == 1 && claims[0].N == seen.Record.Dispatch {
		e.platform = claims[0].Claim.Platform
	}
	if err == nil && seen.Record.State == witness.Finished {
		p.mu.Lock()
		p.known[r.Work] = e
		p.mu.Unlock()
	}
	return e, 3
}
