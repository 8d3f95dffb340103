package reconcile

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/witness"
)

// A commit that changes a few jobs of many is acted on before the pass over all of them: what it brings is launched, and
// what it drops is stopped, at a cost that goes with what it changes. The pass that follows looks at everything as ever,
// finds the commit in force, and mends whatever was left undone here.
const (
	aheadMost     = 64              // jobs, beyond which the pass over all is as good
	aheadShare    = 4               // of which a commit changes one at most
	aheadPatience = 2 * time.Second // for the answers of platforms; what takes longer goes on by itself
)

// previous is what the last pass over everything leaves for the next commit: the plan that it found in force, and what it
// counted. It holds for as long as anything that was read may be acted on (groundsFor).
type previous struct {
	pass   *plan.Plan
	base   stored
	looked time.Time
	live   map[string]int // launches that run or are on their way, by platform
	groups map[string]int // likewise works, by group and by label
}

// leavesBehind keeps what the next commit may go ahead by, if this pass has seen everything and left nothing in doubt.
func (p *pass) leavesBehind(ctx context.Context) {
	p.r.last = previous{}
	rep := p.report
	if ctx.Err() != nil || p.r.c.Dry || !rep.Accepted || len(rep.Refusals)+len(rep.Errors)+len(p.d.Plan.Frozen) > 0 || !p.d.Plan.OK() || p.d.Demand != nil {
		return
	}
	force := p.r.forces[forceKey(p.root)]
	if force.force == nil || force.force.commit() != p.d.Commit || len(force.force.jobs()) != len(p.d.Plan.Jobs) || force.force.Refused != nil {
		return
	}
	if slices.ContainsFunc(force.force.Leaving, func(l departing) bool { return l.Waits }) {
		return
	}
	p.r.last = previous{pass: p.d.Plan, base: force, looked: p.looked, live: map[string]int{}, groups: p.groups}
	for name, pl := range p.platforms {
		p.r.last.live[name] = pl.live
	}
}

// ahead acts on what a commit changes, where that is little and nothing has to be said of it. before is what was in force
// until then; nil: nothing was done, and the pass over everything does it all. rep has what was done.
func (r *Reconciler) ahead(ctx context.Context, d *Desired) (before *inForce, rep *Report) {
	last := r.last
	r.last = previous{} // whatever comes of this, it is over
	if last.pass == nil || d.Commit == last.base.force.commit() || runners.Passed(last.looked.Add(groundsFor)) || r.storeErrors {
		return nil, nil
	}
	if !d.Fresh || !d.Complete || len(d.Refusals)+len(d.Plan.Frozen) > 0 || len(d.Plan.Jobs) == 0 || d.Demand != nil || !d.Plan.OK() {
		return nil, nil
	}
	gone, come, ok := plan.Changed(last.pass, d.Plan, min(aheadMost, len(last.pass.Jobs)/aheadShare))
	if !ok || len(gone)+len(come) == 0 || !reflect.DeepEqual(last.pass.Config, d.Plan.Config) {
		return nil, nil
	}
	p := &pass{r: r, d: d, root: d.Plan.Config.Name, began: time.Now(), looked: time.Now(), beside: &last, report: &Report{}, patience: min(aheadPatience, cmp.Or(r.c.Patience, aheadPatience))}
	change := p.changes(last.pass, gone, come)
	if !p.lookAt(ctx, change, &last) || !p.acceptAt(ctx, change) {
		return nil, nil
	}
	p.grounds = &grounds{key: forceKey(p.root), version: p.base.version, asked: p.looked}
	p.targetsOf(ctx, change)
	p.refresh(ctx, p.file(ctx))
	p.reckon(ctx)
	p.tally()
	p.rounds(ctx)
	r.c.Log.Debug("a commit was acted on ahead of the pass", "commit", shown(d.Commit, 40), "works", len(p.targets), "took", time.Since(p.began))
	return last.base.force, p.report
}

// change is what a commit does to the works in force.
type change struct {
	plan   *plan.Plan         // of the jobs that come alone
	jobs   []*plan.Job        // these, as the commit has them
	force  []plan.AcceptedJob // the jobs that go, as they are in force
	leaves []departing        // their works that no job names any more
	works  []plan.Digest      // all of these, and what the jobs need
}

// changes puts together what a commit changes.
func (p *pass) changes(was *plan.Plan, gone, come []int) *change {
	c := &change{plan: &plan.Plan{Config: p.d.Plan.Config, Files: p.d.Plan.Files}}
	for _, i := range come {
		j := &p.d.Plan.Jobs[i]
		c.jobs, c.plan.Jobs = append(c.jobs, j), append(c.plan.Jobs, *j)
		c.works = append(c.works, j.Work)
		for _, in := range j.Inputs {
			c.works = append(c.works, in.Work)
		}
	}
	left := map[plan.Digest]bool{}
	for _, i := range gone {
		left[was.Jobs[i].Work] = true
	}
	for w := range left {
		for i := range p.d.Plan.Jobs {
			if p.d.Plan.Jobs[i].Work == w {
				delete(left, w) // another name has it
				break
			}
		}
	}
	accepted := plan.Accept(&plan.Plan{Config: was.Config, Jobs: pick(was.Jobs, gone)}, "")
	c.force = accepted.Jobs
	for _, j := range c.force {
		if left[j.Work] {
			delete(left, j.Work)
			c.works = append(c.works, j.Work)
			c.leaves = append(c.leaves, departing{Work: j.Work, Job: j.Name, OnDelete: j.OnDelete, Commit: p.d.Commit})
		}
	}
	return c
}

func pick[T any](list []T, which []int) []T {
	out := make([]T, len(which))
	for i, n := range which {
		out[i] = list[n]
	}
	return out
}

// lookAt reads what a decision about the changed works rests on. It reports whether the plan that was in force still is, and
// everything could be read.
func (p *pass) lookAt(ctx context.Context, c *change, last *previous) bool {
	var err error
	if p.base, err = p.r.loadForce(ctx, p.root); err != nil || p.base.version != last.base.version || p.d.overtaken(p.base.force) {
		return false
	}
	p.r.passing = true
	p.r.firsts.Store(0)
	wanted := map[plan.Digest]bool{}
	var ask []plan.Digest
	for _, w := range c.works {
		if l := p.r.looks[w]; !wanted[w] && (l == nil || l.seen == nil || l.seen.Record.State != witness.Finished || l.err != nil) {
			ask = append(ask, w)
		}
		wanted[w] = true
	}
	p.r.getAll(ctx, ask)
	p.world = &World{works: make(map[plan.Digest]*sight, len(wanted))}
	if err := p.r.sights(ctx, wanted, p.world); err != nil || len(p.world.trouble) > 0 {
		return false
	}
	for _, s := range p.world.works {
		if s.lease.State == leaseUnknown {
			return false
		}
	}
	p.platforms, err = p.r.platforms(ctx, p.d.Plan.Config.Platforms)
	guarded(p.platforms, &p.d.Plan.Config.Guard)
	return err == nil
}

// acceptAt holds the guards against what changes, and writes down what is in force from now on. Where a guard has anything to
// say, or might if it saw everything, that is left to the pass over everything.
func (p *pass) acceptAt(ctx context.Context, c *change) bool {
	stops := 0
	for _, l := range c.leaves {
		if p.live(l.Work) {
			stops++
		}
	}
	if stops > pruneFloor {
		return false
	}
	small := *p
	d, force := *p.d, *p.base.force
	d.Plan, force.plan.Jobs = c.plan, c.force
	small.d, small.base.force = &d, &force
	if refusals, warnings := small.rules(ctx, nil); len(refusals) > 0 || len(warnings) > len(p.d.Warnings) || len(p.report.Errors) > 0 {
		return false
	}
	next := &inForce{Format: forceFormat, Clean: p.d.Commit, plan: plan.Accept(p.d.Plan, p.d.Commit)}
	for _, l := range c.leaves {
		l.Pointer = p.pointer(l.Work)
		next.Leaving = append(next.Leaving, l)
	}
	back := map[plan.Digest]bool{} // what is leaving and named again is among what comes
	for _, j := range c.jobs {
		back[j.Work] = true
	}
	for _, l := range p.base.force.Leaving {
		if !back[l.Work] {
			next.Leaving = append(next.Leaving, l)
		}
	}
	slices.SortFunc(next.Leaving, func(a, b departing) int { return cmp.Compare(a.Work, b.Work) })
	next.noteLimits(p.base.force, p.base.now(), func(w plan.Digest) bool { return p.begun(w) > 0 })
	p.noteLeaving(next)
	saved, moved, err := p.r.saveForce(ctx, p.root, p.base, next)
	p.base, p.report.Accepted = saved, true
	return err == nil && !moved
}

// targetsOf lists what there is to see to of a change.
func (p *pass) targetsOf(ctx context.Context, c *change) {
	p.byWork = map[plan.Digest]*target{}
	add := func(t *target) {
		if p.byWork[t.work] == nil {
			p.byWork[t.work], p.targets = t, append(p.targets, t)
		}
	}
	for _, j := range c.jobs {
		add(&target{work: j.Work, name: j.Name, asked: asked{j, p.d.Commit}, unready: p.r.unready(j)})
	}
	for i := range p.base.force.Leaving {
		l := &p.base.force.Leaving[i]
		if slices.ContainsFunc(c.leaves, func(g departing) bool { return g.Work == l.Work }) {
			add(&target{work: l.Work, name: l.Job, wish: Leaving, leaving: l})
		}
	}
	p.keepWanted(ctx)
	all := p.r.ranking
	p.r.ranking = ranking{} // whatever needs a work that changed has changed with it, so these rank among themselves
	p.ranked()
	p.placed()
	p.r.ranking = all
}

// counts are what the last pass over everything counted, for one that looks at a part.
func (last *previous) counts(p *pass) {
	if last == nil {
		return
	}
	for name, pl := range p.platforms {
		pl.live = last.live[name]
	}
	p.groups = maps.Clone(last.groups)
	if p.groups == nil {
		p.groups = map[string]int{}
	}
}
