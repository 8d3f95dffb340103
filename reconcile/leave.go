package reconcile

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// leave decides about a work that no job names any more.
func leave(a Action, f Facts) Action {
	l, next := f.Lease, max(f.History.Last, f.Lease.Dispatch)+1
	live := l.State == witness.Held || f.History.waits()
	switch {
	case f.OnDelete == plan.Orphan && l.State == witness.Held && !l.Suspect:
		return a.none("left the plan; on_delete: orphan lets it finish")
	case f.OnDelete == plan.Orphan && l.State == witness.Held:
		// Nobody launches it again; but it must not take a place of its platform for ever.
		if a = watch(a, f); a.Kind == WriteOff {
			a.Reason = "left the plan; " + a.Reason
		}
		return a
	case f.OnDelete == plan.Orphan:
		return a.none("left the plan; nothing of it runs")
	case !live && (l.Floor >= next || f.History.Last == 0 && l.State == leaseAbsent):
		return a.none("left the plan, and is stopped")
	case f.drains() && f.Drained < f.Drain:
		a.Dispatch = l.Dispatch
		return a.wait(min(l.Left, f.Drain-f.Drained), fmt.Sprintf("left the plan; attempt %d"+drainText+"%s if there is none", l.Attempt, f.Drain))
	case l.Suspect && f.Brake:
		return a.wait(0, "left the plan; silent, but so is too much else, so nothing is written off")
	}
	a.Kind, a.Version, a.Floor, a.Dispatch = Stop, l.Version, next, l.Dispatch
	switch {
	case l.Suspect:
		a.Reason = fmt.Sprintf("left the plan; attempt %d was silent for longer than it promised", l.Attempt)
	case l.State != witness.Held:
		a.Reason = "left the plan; a launch of it that comes late must not start"
	case f.OnDelete == plan.Revoke:
		a.Reason = "left the plan; on_delete: revoke"
	case f.drains():
		a.Reason = fmt.Sprintf("left the plan; no milestone of attempt %d was acknowledged within %s: stopped without one", l.Attempt, f.Drain)
	default:
		a.Reason = "left the plan; its next milestone is acknowledged"
	}
	return a
}

// drains: somebody works, and nothing has been kept since the commit that left it out.
func (f Facts) drains() bool {
	l := f.Lease
	return f.OnDelete != plan.Revoke && l.State == witness.Held && !l.Suspect && !moved(f.Pointer, l.Resume)
}

// drainLeast is how long a drain waits at least.
const drainLeast = 10 * time.Minute

// drainText is in what is said of a drain, and of nothing else.
const drainText = " stops after its next milestone, or in "

// Drains reports whether a decision is to let a work that runs come to its next milestone and then stop it.
func (a Action) Drains() bool { return a.Kind == Wait && strings.Contains(a.Reason, drainText) }

// drainFor is how long a drain waits for a milestone: three intervals of the terms that the attempt was launched with.
// One that never had a milestone, under the terms of a job that states none, may well never have one, once it has run for
// longer than it takes to the first.
func drainFor(c *record.Claim, rec *witness.Record) time.Duration {
	if c == nil || rec == nil {
		return drainLeast
	}
	t := c.Terms
	if maySaveNone(t, rec) {
		from := int64(0)
		if rec.Resume != nil {
			from = rec.Resume.Step
		}
		first := 1.5 * min(max(t.MilestoneS, 0), milestoneMost)
		if ran := float64(rec.Progress.Step-from) * rec.Lease.StepS; ran > 0 && ran < first {
			return max(bounded(first), drainLeast).Round(time.Second)
		}
		return drainLeast
	}
	s := max(t.MilestoneS, float64(t.MilestoneSteps)*rec.Lease.StepS, t.WatchIntervalS)
	d := time.Duration(min(max(3*s, 0), 7*86400) * float64(time.Second))
	return max(d, drainLeast).Round(time.Second)
}

// maySaveNone: nobody states when the job makes milestones, and this attempt has made none.
func maySaveNone(t record.Terms, rec *witness.Record) bool {
	own := rec.Resume != nil && rec.Resume.Attempt == rec.Attempt
	return !own && t.MilestoneSteps == 0 && t.WatchIntervalS == 0 && t.MilestoneAssumed
}

// haltFor is how long a limit that was crossed waits for a milestone: as a drain does, but what was stated is a bound on
// money or time, and no advice of ours holds it open for a milestone that may never come.
func haltFor(c *record.Claim, rec *witness.Record) time.Duration {
	if c != nil && rec != nil && maySaveNone(c.Terms, rec) {
		return drainLeast
	}
	return drainFor(c, rec)
}

// moved reports whether the resume pointer is not the one of then.
func moved(then, now *record.Pointer) bool {
	if then == nil || now == nil {
		return then != now
	}
	return *then != *now
}

// noteLeaving writes down since when works leave, so that a restart begins no grace anew. A time that is behind what the store said
// of the work itself is not written down: it would stop what runs too early.
func (p *pass) noteLeaving(next *inForce) {
	now := p.base.now()
	for i := range next.Leaving {
		l, s := &next.Leaving[i], p.world.works[next.Leaving[i].Work]
		if l.Waits || l.Since != "" || now.IsZero() || s == nil || s.seen == nil || s.seen.Date.Sub(now) > clockSlack {
			continue
		}
		l.Since = now.UTC().Format(time.RFC3339)
	}
}

// leavesFor is for how long a work has been leaving: by our own clock since we first saw it, and what had passed by then.
func (p *pass) leavesFor(t *target) time.Duration {
	if t.wish != Leaving {
		delete(p.r.leaves, t.work)
		return 0
	}
	at, known := p.r.leaves[t.work]
	if !known {
		at = time.Now().Add(-p.left(t))
		p.r.leaves[t.work] = at
	}
	return time.Since(at)
}

// left is how long ago a work began to leave, by the store's time. It counts only where two answers of the store agree on that: a
// wrong one would stop what runs.
func (p *pass) left(t *target) time.Duration {
	s, now := p.world.works[t.work], p.base.now()
	since, err := time.Parse(time.RFC3339, t.leaving.Since)
	if err != nil || now.IsZero() || s == nil || s.seen == nil || now.Sub(s.seen.Date).Abs() > clockSlack {
		return 0
	}
	return max(now.Sub(since), 0)
}
