package operate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// listing is a runner whose list was read once for all works of a round, after their claims. What it does not show of a launch
// that was answered by then will not be shown by another look either.
type listing struct {
	runners.Runner
	list []runners.Running
	err  error
}

// Running implements runners.Lister.
func (l *listing) Running(context.Context) ([]runners.Running, error) {
	return slices.Clone(l.list), l.err
}

func (l *listing) shows(work string, n int64) bool {
	return slices.ContainsFunc(l.list, func(r runners.Running) bool { return r.Work == work && r.Dispatch == n })
}

// lists asks each platform that something may still run on, once, side by side.
func (d Desk) lists(ctx context.Context, of []*Cancelled) map[string]*listing {
	out := map[string]*listing{}
	for _, c := range of {
		for _, e := range c.Dispatches {
			if r := d.Runners[e.Platform]; r != nil && !e.Over && out[e.Platform] == nil {
				if _, can := r.(runners.Lister); can {
					out[e.Platform] = &listing{Runner: r}
				}
			}
		}
	}
	var wg sync.WaitGroup
	for name, l := range out {
		wg.Go(func() { l.list, l.err = listOf(ctx, name, l.Runner.(runners.Lister)) })
	}
	wg.Wait()
	return out
}

// listOf asks one platform. A plugin that panics has not answered.
func listOf(ctx context.Context, name string, l runners.Lister) (out []runners.Running, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, &runners.Failure{Class: runners.ProtocolError, Platform: name, Op: "list", Err: fmt.Errorf("the runner panicked: %s", runners.Bound(fmt.Sprint(p), 200))}
		}
	}()
	return l.Running(ctx)
}

// ask asks the platforms about what is not over.
func (d Desk) ask(ctx context.Context, c *Cancelled, lists map[string]*listing) {
	for i := range c.Dispatches {
		e := &c.Dispatches[i]
		if e.Over {
			continue
		}
		r := d.Runners[e.Platform]
		if r == nil {
			e.Text = fmt.Sprintf("platform %s is not in headway.yaml, or this build has no runner for it: put it back to have it asked", e.Platform)
			continue
		}
		l := lists[e.Platform]
		if l != nil && !e.silent {
			r = l
		}
		within, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err := runners.Dispatcher{Bucket: d.Bucket}.Release(within, r, c.Work, e.N)
		cancel()
		e.Release = answer
		if err != nil {
			e.Settlement, e.Text = runners.Pending, "it could not be asked: "+runners.Bound(err.Error(), 300)
			continue
		}
		e.Over = answer.Settlement == runners.Closed || answer.Settlement == runners.Bounded
		if !e.Over && e.silent && l != nil && l.err == nil && !l.shows(c.Work, e.N) && d.late(ctx, c.Work, e.N) {
			e.Over, e.Text = true, "no answer names what it started, its capture window has passed, and the platform lists nothing of it"
		}
	}
}

// late reports whether the time in which a launch could have come to work has passed, by the store's own two stamps.
func (d Desk) late(ctx context.Context, work string, n int64) bool {
	b, o, err := d.get(ctx, record.ClaimKey(work, n))
	var claim record.Claim
	if err != nil || record.Decode(b, record.MaxRecord, &claim) != nil || o.Date.IsZero() || o.Modified.IsZero() {
		return false
	}
	window := 2 * time.Minute // of a claim that names none
	if claim.CaptureS > 0 {
		window = time.Duration(min(claim.CaptureS, 7*86400) * float64(time.Second))
	}
	return o.Date.Sub(o.Modified) > window
}

func (d Desk) get(ctx context.Context, key string) ([]byte, *bucket.Object, error) {
	o, err := d.Bucket.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, nil, err
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, record.MaxRecord+1))
	return b, o, err
}
