package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners/witness"
)

// Over says how a work stands with its limits on time and money.
type Over struct {
	Why   string        // the limit that was crossed, one clause that begins with its name; "": none was
	Since time.Duration // how long ago, or for how long the limit has held if that is shorter
	Kept  bool          // a milestone was acknowledged since
	Drain time.Duration // how long one is waited for
	Next  time.Duration // how long until a limit is crossed, as things stand; 0: it is not known
	// Shared names another plan on this store that names the work: its stop is not ours alone to decide.
	Shared string
	// Blind: what it has cost could not be read.
	Blind bool
}

// halt decides about a work that has crossed a limit. It is stopped like one that left the plan by a drain, and nothing
// starts any more; raising the limit is an update in place, and it goes on from its milestone.
func halt(a Action, f Facts) Action {
	l, o, next := f.Lease, f.Over, max(f.History.Last, f.Lease.Dispatch)+1
	held, starts := l.State == witness.Held, f.History.waits()
	if held && l.Suspect {
		return watch(a, f)
	}
	a.Dispatch = l.Dispatch
	switch {
	case (held || starts) && o.Shared != "":
		return a.none(fmt.Sprintf("%s; the plan %q names the work too, so it is not stopped for this one's limit", o.Why, o.Shared))
	case held && !o.Kept && o.Since < o.Drain:
		until := o.Drain - o.Since
		if l.Left > 0 {
			until = min(until, l.Left)
		}
		return a.wait(until, fmt.Sprintf("%s; attempt %d"+drainText+"%s if there is none", o.Why, l.Attempt, o.Drain))
	case held || starts:
		a.Kind, a.Version, a.Floor = Stop, l.Version, next
		switch {
		case !held:
			a.Reason = o.Why + "; a launch that comes late must not start"
		case o.Kept:
			a.Reason = o.Why + "; its next milestone is acknowledged"
		default:
			a.Reason = fmt.Sprintf("%s; no milestone of attempt %d was acknowledged within %s: stopped without one", o.Why, l.Attempt, o.Drain)
		}
		return a
	}
	a.Kind, a.Reason = Blocked, o.Why+"; raise the limit to go on"
	if l.Resume != nil {
		a.Reason += fmt.Sprintf(" from step %d", l.Resume.Step)
	}
	return a
}

// limitsOf are the limits of a job that crossing stops.
func limitsOf(j *plan.Job) spend.Limits {
	if j == nil {
		return spend.Limits{}
	}
	return spend.Limits{Wall: j.Limits.Wall, Paid: spend.Amount{Sum: j.Limits.Paid.Amount, Unit: j.Limits.Paid.Unit}}
}

// lastResort is the bound that a launch carries to its platform: it ends a machine that is paid for when no dispatcher is left to
// do it. Twice limits.wall, so that neither the wait for a milestone behind the limit nor a limit that is raised meets it, and
// the least grace of a drain; 0 where the job has no limit on its time: then nobody has said how long is too long.
func lastResort(j *plan.Job) time.Duration {
	if j.Limits.Wall <= 0 {
		return 0
	}
	return 2*min(j.Limits.Wall, 10*365*24*time.Hour) + drainLeast
}

// reckonings is what a pass found out about costs before it decides.
type reckonings struct {
	blind  map[plan.Digest]bool
	shared map[plan.Digest]string // works that have crossed a limit, and the other plan that names them
}

// reckon brings the costs of the works with a limit up to date.
func (p *pass) reckon(ctx context.Context) {
	p.costs.blind = map[plan.Digest]bool{}
	var list []*target
	for _, t := range p.targets {
		l, s := limitsOf(t.job), p.world.works[t.work]
		if t.wish != Wanted || l.None() {
			continue
		}
		if s != nil && s.err == nil && s.lease.State != leaseUnknown && s.lease.State != witness.Finished {
			list = append(list, t)
			p.r.records.shelf(t.work)
		}
	}
	var mu sync.Mutex
	stops := false
	parallel(len(list), func(i int) {
		w, s := list[i].work, p.world.works[list[i].work]
		err := p.r.records.reckon(ctx, w, s.seen)
		over := err == nil && p.over(list[i]).Why != "" && s.lease.State == witness.Held
		if over {
			_, err = p.r.records.keptAt(ctx, w, s.record)
		}
		mu.Lock()
		defer mu.Unlock()
		stops = stops || over
		if err != nil {
			p.costs.blind[w] = true
			p.fail(fmt.Errorf("what work %s has cost: %w", w.Short(), err))
		}
	})
	if !stops {
		return
	}
	others, err := p.r.elsewhere(ctx, p.root)
	if err != nil {
		p.fail(err)
		for _, t := range list {
			p.costs.blind[t.work] = true // what cannot be ruled out is not stopped
		}
		return
	}
	p.costs.shared = others
}

// over holds a work against its limits, from what was read.
func (p *pass) over(t *target) (o Over) {
	l := limitsOf(t.job)
	s := p.world.works[t.work]
	if l.None() || s == nil || s.err != nil || s.lease.State == leaseUnknown || s.lease.State == witness.Finished {
		return o
	}
	if p.costs.blind[t.work] {
		return Over{Blind: true}
	}
	shelf, h := p.r.records.shelf(t.work), s.history
	if !shelf.have || shelf.purse.first.IsZero() {
		return o
	}
	if shelf.purse.doubted() {
		return Over{Blind: true} // a wrong time would stop what runs
	}
	if s.lease.State == witness.Held {
		h = p.r.records.build(t.work, shelf, *s.record)
	}
	account := shelf.account(t.work, h, s.seen)
	v := spend.Judge(l, account)
	o.Next = v.Next
	if !v.Over() {
		return o
	}
	o.Why, o.Since, o.Shared, o.Drain = v.Why, v.Since, shown(p.costs.shared[t.work], 100), haltFor(s.claim, s.record)
	if held, ok := p.base.force.limitsHeld(t.work, account.Now); ok {
		o.Since = min(o.Since, held)
	}
	if kept := shelf.purse.kept; s.record != nil && s.record.Resume != nil && shelf.purse.manifest == s.record.Resume.Manifest {
		o.Kept = !kept.Before(account.Now.Add(-o.Since))
	}
	return o
}

// crowded says why no more of a job's group, or of those with one of its labels, may run at once, or "".
func (p *pass) crowded(j *plan.Job) string {
	if n := j.Limits.Parallel; n > 0 && p.groups[j.Group] >= n {
		return fmt.Sprintf("limits.parallel: %s of group %s at once", count(n, "work", "works"), j.Group)
	}
	for _, label := range p.bounded(j) {
		if n := p.d.Plan.Config.Parallel[label]; p.groups[label] >= n {
			return fmt.Sprintf("limits.parallel of %s: %s labelled %s at once", plan.ConfigFile, count(n, "work", "works"), shown(label, 100))
		}
	}
	return ""
}

// occupies counts a job that runs or is on its way among its group and its labels; vacates takes that back.
func (p *pass) occupies(j *plan.Job) { p.occupy(j, 1) }
func (p *pass) vacates(j *plan.Job)  { p.occupy(j, -1) }

func (p *pass) occupy(j *plan.Job, n int) {
	p.groups[j.Group] += n
	for _, label := range p.bounded(j) {
		p.groups[label] += n // no group has a name like KEY=VALUE
	}
}

// bounded lists the labels of a job that limits.parallel names, in order.
func (p *pass) bounded(j *plan.Job) (out []string) {
	if p.d == nil || len(p.d.Plan.Config.Parallel) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(j.Labels)) {
		if label := key + "=" + j.Labels[key]; p.d.Plan.Config.Parallel[label] > 0 {
			out = append(out, label)
		}
	}
	return out
}

// byLimit reports whether a work stands still for a limit that was crossed.
func byLimit(a Action) bool { return a.Kind == Blocked && strings.HasPrefix(a.Reason, "limits.") }
