package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Climb is what is remembered of a running work that a better rung could take. It is kept in memory alone: a new process
// begins anew, and then it leaves one milestone later.
type Climb struct {
	Attempt int64
	Spent   map[string]int  // retries that it has spent, by platform
	No      string          // why it would not be launched again, so that it must not leave, or ""
	To      string          // the rung for which it leaves at its next milestone; "": none
	Pointer *record.Pointer // the resume pointer when that was first wished
}

// moveReason begins the reason of a lease that was ended for a better rung. It tells such an end from a write-off.
const moveReason = "moves up the ladder"

// movedUp reports whether a lease was ended so that its work may go on on a better rung.
func movedUp(rec *witness.Record) bool {
	return writtenOff(rec) && strings.HasPrefix(rec.Reason, moveReason)
}

// climb decides whether a work that runs leaves for a better rung: right behind a milestone of this attempt that was
// acknowledged after the wish, if it is worth it still. So it leaves once per milestone at most, loses next to nothing, and
// no retry; with retries: 0 it never does. Choose lets it leave only for where its launch goes at once.
func climb(a Action, f Facts) Action {
	l := f.Lease
	if f.Climb == nil || f.Climb.Attempt != l.Attempt || f.Climb.No != "" || f.Wish != Wanted || f.Job == nil || f.Job.Suspend || f.Job.Limits.Retries <= 0 || f.Unready != "" || f.Hurdle.Left > 0 {
		return a
	}
	acknowledged := f.Climb.To != "" && l.Resume != nil && l.Resume.Attempt == l.Attempt && moved(f.Climb.Pointer, l.Resume)
	c := upwards(f, acknowledged)
	if c.Kind != ladder.Move || c.Platform != f.Climb.To {
		return a
	}
	a.Climb, a.Rungs = c.Platform, c.Rungs
	if !acknowledged {
		a.Reason += fmt.Sprintf("; it leaves for %s behind its next milestone", c.Platform)
		return a
	}
	a.Kind, a.Version, a.Until = Move, l.Version, 0
	a.Reason = fmt.Sprintf("%s from %s to %s: %s", moveReason, f.On, c.Platform, c.Reason)
	return a
}

// upwards asks the ladder about a work that runs. What is lost since its milestone counts when it would leave now.
func upwards(f Facts, now bool) ladder.Choice {
	job := ladder.Job{Left: f.Rest.FLOPs, Milestone: f.Rest.Milestone, On: f.On}
	if now {
		job.Lost = f.Rest.Lost
	}
	return ladder.Choose(weighed(f, f.Climb.Spent), job)
}

// climbers finds the works that may want to leave for a better rung, before anything is decided. The history of such a one
// is read once for each of its attempts: what it has spent where does not change while it runs.
func (p *pass) climbers(ctx context.Context) {
	room := map[string]int{}
	for name, pl := range p.platforms {
		if room[name] = 1; pl.conf.Slots > 0 { // else nobody knows how many places there are: one at a time
			room[name] = pl.conf.Slots - pl.live
		}
	}
	// Those that wish already go first, so that nobody takes their place over and over again.
	for _, wished := range []bool{true, false} {
		for _, t := range p.targets {
			s := p.world.works[t.work]
			if t.job == nil || t.wish != Wanted || len(t.job.On) < 2 || t.job.Limits.Retries <= 0 || s == nil || s.lease.State != witness.Held || s.lease.Suspect {
				if wished {
					delete(p.r.climbs, t.work)
				}
				continue
			}
			old := p.r.climbs[t.work]
			if had := old != nil && old.To != "" && old.Attempt == s.lease.Attempt; had != wished {
				continue
			}
			p.r.climbs[t.work] = p.wish(ctx, t, s, old, room)
			if p.r.climbs[t.work] == nil {
				delete(p.r.climbs, t.work)
			}
		}
	}
}

// wish is what a running work wants now, and since when; nil: nothing.
func (p *pass) wish(ctx context.Context, t *target, s *sight, old *Climb, room map[string]int) *Climb {
	now := &Climb{Attempt: s.lease.Attempt}
	if old != nil && old.Attempt == now.Attempt {
		now.Spent, now.No = old.Spent, old.No
	}
	f := p.facts(t)
	f.Climb = now
	c := upwards(f, false)
	if c.Kind == ladder.Move && now.Spent == nil {
		h, err := p.r.records.history(ctx, t.work, s.seen)
		if err != nil {
			p.fail(fmt.Errorf("work %s: %w", t.work.Short(), err))
			return nil
		}
		charges := account(h)
		now.Spent, now.No = spentOn(charges), cmp.Or(failed(h, charges, t.job.Limits.Retries), excluded(h)[c.Platform])
		c = upwards(f, false)
	}
	if now.Spent == nil {
		return nil
	}
	if c.Kind == ladder.Move && now.No == "" && room[c.Platform] > 0 {
		room[c.Platform]--
		now.To, now.Pointer = c.Platform, s.lease.Resume
		if old != nil && old.Attempt == now.Attempt && old.To == now.To {
			now.Pointer = old.Pointer
		}
	}
	return now
}

// forgetClimbs drops what is remembered of works that nobody asks about.
func (r *Reconciler) forgetClimbs(wanted map[plan.Digest]bool) {
	maps.DeleteFunc(r.climbs, func(w plan.Digest, _ *Climb) bool { return !wanted[w] })
}
