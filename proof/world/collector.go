package world

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/gc"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// sweepDraw is what a seed draws of the collector.
type sweepDraw struct {
	at    []time.Duration // when one begins; none: nothing is collected
	keep  int             // milestones behind the resume pointer
	grace time.Duration   // of what goes, by the collector's own view
	ended time.Duration   // a finished work keeps its milestones and launch records for so long
	last  bool            // it comes once more when all have finished, and retention is over
}

// Careless is a collector that leaves its rule aside. The judge must see it.
type Careless string

// What a careless one deletes: besides None, the milestone that a resume pointer names, and the newest of whoever holds.
const (
	OfThePointer Careless = "the resume pointer's milestone"
	OfTheHolder  Careless = "the newest milestone of an attempt that holds"
)

// mostDelay bounds how long the world's requests take and what a paused process still sends: nothing arrives later.
func (s *setup) mostDelay() time.Duration { return 9 * s.lease }

// ahead is how much older everything looks to the collector than it is. The shipped collector deletes nothing that is
// younger than an hour or two leases, and the worlds here are not older than that. What it deletes of a work that goes on
// needs no age to be safe (the proof in runners/gc/README.md rests on the witness alone), so here it has next to none;
// code bundles do need one, and there are none here. A lease's length can be doubled by a commit.
func (s *setup) ahead() time.Duration { return max(gc.MinGrace, 4*s.lease) - s.sweeps.grace }

// aged is a store whose clock, by its answers, is ahead.
type aged struct {
	bucket.Bucket
	by time.Duration
}

// Get implements bucket.Bucket.
func (a aged) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := a.Bucket.Get(ctx, key, r)
	if err == nil {
		o.Date = o.Date.Add(a.by)
	}
	return o, err
}

// List implements bucket.Bucket.
func (a aged) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := a.Bucket.List(ctx, prefix, after, limit)
	if err == nil {
		older := *p // the world may keep the page to serve it again
		older.Date = p.Date.Add(a.by)
		p = &older
	}
	return p, err
}

// sweep is one run of headway gc --apply, a process of its own. The scheduler calls it.
func (w *World) sweep() {
	w.sweeper++
	ctx, kill := context.WithCancel(w.ctx)
	l := w.newLife(aCollector, fmt.Sprintf("gc %d", w.sweeper), kill)
	calm := w.healed
	by := w.s.ahead()
	o := gc.Options{Grace: gc.MinGrace, Milestones: w.s.sweeps.keep, Finished: by + w.s.sweeps.ended, Logs: by + w.s.sweeps.ended, Apply: true}
	w.note(l, "looks for what may go")
	w.sweeping++
	if w.sweeping > 1 {
		w.stats.Reached["gc: two at once"]++
	}
	ended := func() { w.sweeping--; l.dies = nil }
	l.dies = ended
	w.running.Go(func() {
		b := aged{w.mutant.As(l), by}
		if w.cfg.Careless != "" {
			w.careless(ctx, b)
		}
		rep, err := gc.Run(ctx, b, o)
		w.post(func() {
			w.swept(l, calm, rep, err)
			if l.dies != nil {
				ended()
			}
			w.end(l)
		})
	})
}

// lastSweep is one that comes when retention of what is finished is over.
func (w *World) lastSweep() {
	w.lastSwept = true
	w.sweep()
}

// swept counts what a run did. The scheduler calls it.
func (w *World) swept(l *life, calm bool, rep gc.Report, err error) {
	for _, t := range rep.Totals {
		w.stats.Reached["gc deleted "+string(t.Reason)] += int64(t.Items)
	}
	switch {
	case l.dead:
		return
	case err == nil:
		w.stats.Reached["gc went through"]++
	case calm:
		w.breaks("gc", "with all faults over it ended with: %v", err)
	}
	w.note(l, "deleted %v: %v", rep.Totals, err)
}

// careless deletes what it must not.
func (w *World) careless(ctx context.Context, b bucket.Bucket) {
	p, err := b.List(ctx, record.WitnessPrefix, "", 0)
	if err != nil {
		return
	}
	for _, it := range p.Items {
		work := strings.TrimPrefix(it.Key, record.WitnessPrefix)
		seen, err := witness.Read(ctx, b, work)
		if err != nil {
			continue
		}
		switch r := seen.Record; {
		case w.cfg.Careless == OfThePointer && r.Resume != nil && r.State != witness.Finished: // what led to an end may go
			_ = b.Delete(ctx, r.Resume.Manifest)
		case w.cfg.Careless == OfTheHolder && r.State == witness.Held:
			prefix := record.AttemptPrefix(work, r.Attempt) + "milestone/"
			if p, err := b.List(ctx, prefix, "", 0); err == nil && len(p.Items) > 0 {
				_ = b.Delete(ctx, p.Items[len(p.Items)-1].Key)
			}
		}
	}
}
