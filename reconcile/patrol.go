package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/witness"
)

// patrol is the loop's own census: it runs beside the passes, so that a platform that is slow to list delays nobody, and
// a later pass takes its answer.
type patrol struct {
	due   time.Time
	done  chan struct{} // nil: none is under way
	found []Orphan      // once done is closed
	err   error         // likewise
	lists []Listing     // likewise
	since map[string]time.Time
	known []Orphan // of the newest census
	asked error    // what that one could not ask
}

// patrols takes the answer of a census that is over, and starts the next one when it is due.
func (p *pass) patrols(ctx context.Context) {
	c := &p.r.patrol
	if p.r.c.Dry {
		return
	}
	if c.done != nil {
		select {
		case <-c.done:
			c.done = nil
			p.counted(c)
		default:
		}
	}
	p.report.Orphans = c.seenTwice()
	if c.done != nil || time.Now().Before(c.due) || ctx.Err() != nil {
		return
	}
	held := map[plan.Digest]int64{}
	for w, s := range p.world.works {
		if s.lease.State == witness.Held {
			held[w] = s.lease.Dispatch
		}
	}
	c.due, c.done = time.Now().Add(censusEvery), make(chan struct{})
	platforms, done := maps.Clone(p.d.Plan.Config.Platforms), c.done
	go func() {
		defer close(done)
		c.lists = p.r.listings(ctx, platforms, held)
		c.found, c.err = orphansOf(c.lists)
	}()
}

// counted compares a census with the one before. What both show and what is surely over is released, as if its receipt
// had been read: the platform's own list is all there is of a launch whose answer was lost.
func (p *pass) counted(c *patrol) {
	if c.err != nil && (c.asked == nil || c.asked.Error() != c.err.Error()) {
		p.r.c.Log.Warn("not every platform said what it runs", "error", shown(c.err.Error(), 500))
	}
	// Another dispatcher may have launched what this one has only seen wait: its records are read, so that it is released
	// when nobody comes of it.
	for _, l := range c.lists {
		for w, n := range l.Launches {
			if p.byWork[w] != nil && p.r.records.shelf(w).last < n {
				p.r.records.spoil(w)
			}
		}
	}
	mute := c.take()
	since := map[string]time.Time{}
	ours := map[askKey]bool{}
	for _, o := range c.known {
		at, again := c.since[o.key()]
		if !again {
			at = time.Now()
		}
		since[o.key()] = at
		if !again || mute[o.Platform] {
			continue
		}
		say := p.r.c.Log.Debug
		if time.Since(at) < 2*censusEvery {
			say = p.r.c.Log.Warn // for the first time, or nearly
		}
		say("nothing explains an instance", "platform", o.Platform, "work", o.Work.Short(), "dispatch", o.Dispatch,
			"age", o.Age.Round(time.Second), "price", o.Price, "why", o.Why, "end", o.End)
		if k := (askKey{o.Work, o.Dispatch}); o.Ours && p.byWork[o.Work] == nil {
			p.strayed(o)
		} else if o.Ours {
			ours[k] = true
			if q := p.r.asks[k]; q == nil || q.over {
				p.r.asks[k] = &ask{action: Action{Kind: Release, Work: o.Work, Platform: o.Platform, Dispatch: o.Dispatch, Reason: "the platform lists it, and " + o.Why}}
			}
			p.r.asks[k].listed = true
		}
	}
	for k, q := range p.r.asks {
		q.listed = q.listed && (ours[k] || mute[q.action.Platform])
	}
	c.since = since
}

// take makes a census the newest one, and returns the platforms that did not answer: of these, what was known before may still
// be there. They hide nothing of the others.
func (c *patrol) take() (mute map[string]bool) {
	mute = map[string]bool{}
	for _, l := range c.lists {
		if l.Err != nil {
			mute[l.Platform] = true
		}
	}
	found := slices.DeleteFunc(c.found, func(o Orphan) bool { return mute[o.Platform] })
	for _, o := range c.known {
		if _, seen := c.since[o.key()]; seen && mute[o.Platform] {
			found = append(found, o)
		}
	}
	c.asked, c.known, c.found, c.lists = c.err, found, nil, nil
	return mute
}

// strayed orders the end of what no plan names any more: what still runs after that is found by the next census. No history of
// such a work is kept here, so nothing is remembered of the answer but in the store.
func (p *pass) strayed(o Orphan) {
	a := Action{Kind: Release, Work: o.Work, Job: o.Job, Platform: o.Platform, Dispatch: o.Dispatch, Reason: "the platform lists it, no plan names it, and " + o.Why}
	if p.platforms[o.Platform] == nil || p.r.flights[keyOf(a)] != nil || len(p.strays) >= batchSize {
		return
	}
	for _, s := range p.strays {
		if keyOf(s.a) == keyOf(a) {
			return // its launch started more than once: one release ends all of them
		}
	}
	p.strays = append(p.strays, &order{t: &target{work: o.Work, name: o.Job}, a: a})
}

// seenTwice are the orphans that two looks in a row have shown.
func (c *patrol) seenTwice() (out []Orphan) {
	for _, o := range c.known {
		if at, ok := c.since[o.key()]; ok && time.Since(at) >= censusEvery/2 {
			out = append(out, o)
		}
	}
	return out
}

// wait returns when no census is under way.
func (c *patrol) wait() {
	if c.done != nil {
		<-c.done
	}
}
