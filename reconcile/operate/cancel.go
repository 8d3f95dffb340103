// Package operate is what a person asks of works, of many at once: end them, and say no more of that end than is known. A
// cancel bars every launch made so far and asks their platforms until each has answered closed or bounded. Nothing is kept
// between two calls; whoever asks twice changes nothing.
package operate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// AtOnce is how many works have a call to the store or to a platform open at a time.
const AtOnce = 64

// newest bounds how many of a work's newest dispatches are asked about; what is older and still runs is an orphan.
const newest = 64

const (
	askTimeout = 30 * time.Second // one question to a platform
	pauseLeast = 200 * time.Millisecond
	pauseMost  = 5 * time.Second
)

// Each calls do for 0..n-1, AtOnce at a time, and returns when all have returned.
func Each(n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, AtOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

// Target is a work, under the name that a person gave.
type Target struct{ Job, Work string }

// Dispatch is what is known of the end of one launch that may have happened.
type Dispatch struct {
	N        int64
	Platform string
	runners.Release
	// Over: nothing more is waited for. The settlement is Closed or Bounded, or its worker has left by itself, or nothing of it
	// ever showed: Text says which.
	Over  bool
	Price *record.Price // of the whole launch, per hour, as its platform said; nil: it did not
	// silent: no answer names what it started, so only the platform's list can.
	silent bool
}

// Cancelled is what a cancel came to.
type Cancelled struct {
	Target
	Stop       runners.Revoked
	Dispatches []Dispatch // lowest first
	Again      int64      // a launch that was claimed since the stop: somebody wants the work still; 0: none
	Err        error      // why the stop or a look at the claims did not succeed
	barred     bool
	handed     map[int64]string // dispatches whose worker wrote down its end
}

// Done: the work is stopped, and every launch of it is over, or will be at a time that its platform named.
func (c *Cancelled) Done() bool {
	if !c.barred || c.Err != nil {
		return false
	}
	for _, d := range c.Dispatches {
		if !d.Over {
			return false
		}
	}
	return true
}

// Desk has what a cancel needs: a store that takes writes, and the platforms' runners by name.
type Desk struct {
	Bucket  bucket.Bucket
	Runners map[string]runners.Runner
}

// Cancel stops works and asks the platforms about every launch of theirs, again and again with growing pauses, until all are
// Done or timeout has passed. It costs O(n) requests for each time it asks, and one listing of each platform. The answers
// are in the order of the targets. A launch call that was under way when the stop was written is not over before its
// answer is known, or its capture window has passed and the platform lists nothing of it.
func (d Desk) Cancel(ctx context.Context, targets []Target, reason string, timeout time.Duration) []*Cancelled {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := make([]*Cancelled, len(targets))
	for i, t := range targets {
		out[i] = &Cancelled{Target: t}
	}
	left := out
	for rest := pauseLeast; ; rest = min(2*rest, pauseMost) {
		Each(len(left), func(i int) { d.look(ctx, left[i], reason) })
		lists := d.lists(ctx, left)
		Each(len(left), func(i int) { d.ask(ctx, left[i], lists) })
		var open []*Cancelled
		for _, c := range left {
			if !c.Done() {
				open = append(open, c)
			}
		}
		if left = open; len(left) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return out
		case <-time.After(rest):
		}
	}
	return out
}

// look stops a work that is not stopped yet, and reads what is known of its launches.
func (d Desk) look(ctx context.Context, c *Cancelled, reason string) {
	v := runners.Dispatcher{Bucket: d.Bucket}
	if !c.barred {
		c.Stop, c.Err = v.Revoke(ctx, c.Work, reason, runners.RevokeOptions{Stop: true})
		if c.barred = c.Err == nil; !c.barred {
			return
		}
	}
	rec := c.Stop.Seen.Record
	last, err := runners.LastDispatch(ctx, d.Bucket, c.Work, max(rec.Dispatch, rec.Floor-1, 0))
	if err != nil {
		c.Err = err
		return
	}
	list, err := v.ReadClaims(ctx, c.Work, max(last-newest, 0), newest)
	if err == nil && c.handed == nil {
		c.handed, err = d.ends(ctx, rec)
	}
	if c.Err = err; err != nil {
		return
	}
	old := map[int64]Dispatch{}
	for _, o := range c.Dispatches {
		old[o.N] = o
	}
	c.Dispatches, c.Again = nil, 0
	for _, e := range list {
		if rec.State != witness.Finished && e.N >= rec.Floor {
			c.Again = e.N
			continue
		}
		if o := old[e.N]; o.Over {
			c.Dispatches = append(c.Dispatches, o)
		} else if e.MayStart() || e.Release != nil {
			c.Dispatches = append(c.Dispatches, c.known(e))
		}
	}
}

// known is what the store says of one launch.
func (c *Cancelled) known(e runners.Dispatch) Dispatch {
	out := Dispatch{N: e.N, Platform: e.Claim.Platform, silent: e.Receipt == nil || !e.Receipt.OK}
	out.Text = "it was not asked yet"
	if e.Receipt != nil {
		out.Price = e.Receipt.Price
	}
	left, worked := c.handed[e.N]
	switch {
	case e.Bad != "":
		out.Text = "its records cannot be read: " + e.Bad
	case e.Release != nil && e.Release.Settlement == runners.Closed.String():
		out.Settlement, out.Text, out.Over = runners.Closed, e.Release.Text, true
	case worked && e.Receipt != nil && !e.Receipt.Outlives:
		out.Text, out.Over = left, true
	}
	return out
}

// ends finds the dispatches whose worker left by itself: it wrote down its end.
func (d Desk) ends(ctx context.Context, rec witness.Record) (map[int64]string, error) {
	out := map[int64]string{}
	for a := max(rec.Attempt-newest, 0) + 1; a <= rec.Attempt; a++ {
		var o record.Open
		var e record.End
		opened, err := d.read(ctx, record.OpenKey(rec.Work, a), &o)
		if err != nil {
			return nil, err
		}
		ended, err := d.read(ctx, record.EndKey(rec.Work, a), &e)
		if err != nil {
			return nil, err
		}
		if opened && ended && o.Work == rec.Work && e.Work == rec.Work && o.Attempt == a && e.Attempt == a {
			out[o.Dispatch] = fmt.Sprintf("its worker has left by itself (%s)", runners.Sanitize([]byte(runners.Bound(e.Class, 60))))
		}
	}
	return out, nil
}

// read reads a small record; one that is absent or damaged says nothing.
func (d Desk) read(ctx context.Context, key string, v any) (bool, error) {
	b, _, err := d.get(ctx, key)
	if bucket.Is(err, bucket.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return record.Decode(b, record.MaxRecord, v) == nil, nil
}
