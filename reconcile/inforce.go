package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// worksOf lists all works that a pass looks at: the plan's, their inputs, what is in force, what is leaving.
func worksOf(pl *plan.Plan, force *inForce) []plan.Digest {
	var out []plan.Digest
	for i := range pl.Jobs {
		out = append(out, pl.Jobs[i].Work)
		for _, in := range pl.Jobs[i].Inputs {
			out = append(out, in.Work)
		}
	}
	for _, j := range force.jobs() {
		out = append(out, j.Work)
	}
	if force != nil {
		for _, l := range force.Leaving {
			out = append(out, l.Work)
		}
	}
	return out
}

func (p *pass) live(w plan.Digest) bool {
	s := p.world.works[w]
	if s == nil {
		return false
	}
	if s.lease.State == witness.Finished {
		return false // whatever is left of it
	}
	o := s.observed(w)
	// What the store does not answer for is counted as live: a guard must not be lifted by an outage.
	return o.Live() || o.State == plan.StateUnknown
}

// accept holds the guards against the commit and writes down what is in force from now on, before anything is done.
func (p *pass) accept(ctx context.Context) error {
	force := p.base.force
	refusals := guard(p.d, force, p.live)
	broken, warnings := p.rules(ctx, refusals)
	refusals, p.report.Warnings = append(refusals, broken...), warnings
	whole := slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Whole })
	note := noteOf(p.d.Commit, refusals)
	if p.d.overtaken(force) {
		// Nothing is wrong with the commit, and nothing is written down: the next pass asks again how the two stand.
		note, p.report.Next = nil, nextSoon
		if force != nil {
			note = force.Refused
		}
	}
	isNew := note != nil && (force == nil || force.Refused == nil || !force.Refused.same(note)) && !p.r.told[p.root].same(note)
	for i := range refusals {
		refusals[i].New = isNew
	}
	p.report.Refusals = refusals
	next, changed := force, false
	switch {
	case !whole:
		key := accepting{p.d.Plan, p.base.version, len(refusals) == 0}
		if next = force; p.r.current != key || force == nil {
			if next = advance(p.d, force, key.stops, p.pointer); force.equal(next) {
				next = force
			} else {
				changed = true
				next.noteLimits(force, p.base.now(), func(w plan.Digest) bool { return p.begun(w) > 0 })
				p.noteLeaving(next)
			}
		}
	case force != nil:
		same := *force
		next = &same
	}
	p.report.Accepted = !whole
	if next != nil && (changed || !next.Refused.same(note)) && !p.r.c.Dry {
		copied := *next
		copied.Refused = note
		saved, moved, err := p.r.saveForce(ctx, p.root, p.base, &copied)
		switch {
		case err != nil:
			p.fail(err)
			p.report.Accepted = p.report.Accepted && !changed
		case moved:
			// Another reconciler wrote first. What it accepted is in force; the next pass compares afresh.
			p.base = saved
			p.report.Accepted = p.report.Accepted && saved.force.equal(next)
			p.report.Next = nextSoon
			if p.d.Once && changed {
				p.report.Accepted, p.report.Refusals = false, append(p.report.Refusals, meanwhile(saved.force))
			}
		default:
			p.base = saved
		}
	} else if next != nil && p.r.c.Dry {
		p.base.force = next
	}
	p.r.told[p.root] = note
	if p.report.Accepted {
		p.r.remember(p.d.Plan, p.base.force)
		p.r.current = accepting{p.d.Plan, p.base.version, len(refusals) == 0}
	}
	return ctx.Err()
}

func (p *pass) pointer(w plan.Digest) *record.Pointer {
	if s := p.world.works[w]; s != nil && s.record != nil {
		return s.record.Resume
	}
	return nil
}

func noteOf(commit string, rs []Refusal) *refused {
	if len(rs) == 0 {
		return nil
	}
	n := &refused{Commit: commit}
	var texts []string
	for _, r := range rs {
		n.Codes = append(n.Codes, r.Code)
		texts = append(texts, r.Text)
	}
	n.Text = strings.Join(texts, "; ")
	return n
}

// same compares what was refused, not the words: counts in a text change while works come and go.
func (n *refused) same(o *refused) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Commit == o.Commit && slices.Equal(n.Codes, o.Codes)
}

// targetsInForce lists what this pass has to see to.
func (p *pass) targetsInForce(ctx context.Context) {
	p.byWork = make(map[plan.Digest]*target, len(p.d.Plan.Jobs))
	p.targets = make([]*target, 0, len(p.d.Plan.Jobs))
	add := func(t *target) {
		if p.byWork[t.work] == nil {
			p.byWork[t.work] = t
			p.targets = append(p.targets, t)
		}
	}
	frozen := map[string]bool{}
	for _, f := range p.d.Plan.Frozen {
		frozen[f.Name] = true
	}
	if p.report.Accepted {
		for i := range p.d.Plan.Jobs {
			j := &p.d.Plan.Jobs[i]
			add(&target{work: j.Work, name: j.Name, asked: asked{j, p.d.Commit}})
		}
	}
	force := p.base.force
	for _, j := range force.jobs() {
		if p.byWork[j.Work] != nil {
			continue
		}
		t := &target{work: j.Work, name: j.Name, wish: Frozen, stays: staysUnread}
		if frozen[j.Name] {
			t.stays = staysError
		}
		if a := p.r.jobOf(ctx, force, j.Work); a.job != nil {
			t.asked, t.wish, t.stays = a, Wanted, ""
		}
		add(t)
	}
	if force != nil {
		for i := range force.Leaving {
			l := &force.Leaving[i]
			t := &target{work: l.Work, name: l.Job, wish: Leaving, leaving: l}
			if l.Waits {
				t.wish, t.stays = Frozen, "left the plan, and its stop waits: "+p.refusal()
			}
			add(t)
		}
		p.report.Commit = force.commit()
	}
	p.keepWanted(ctx)
	p.ranked()
	p.placed()
	for _, t := range p.targets {
		if t.job != nil {
			t.unready = p.r.unready(t.job)
		}
	}
}

// placed puts those first that go first.
func (p *pass) placed() {
	for _, t := range p.targets {
		at := p.r.ranking.places[t.work].rest(t.job, p.world.works[t.work])
		t.rank, t.length, t.begun = at.rank, at.length, p.begun(t.work)
	}
	slices.SortStableFunc(p.targets, func(a, b *target) int {
		return cmp.Or(cmp.Compare(b.wish, a.wish), cmp.Compare(b.priority(), a.priority()), cmp.Compare(b.rank, a.rank),
			cmp.Compare(b.length, a.length), cmp.Compare(b.begun, a.begun), cmp.Compare(a.name, b.name))
	})
}

// Why a work stays as it is.
const (
	staysError  = "its file has an error: it stays as it is, and nothing starts"
	staysUnread = "the commit that it was accepted with cannot be read here: it stays as it is, and nothing starts"
)

// refusal is why the desired commit, or what it would stop, is not followed.
func (p *pass) refusal() string {
	rs := p.report.Refusals
	if i := slices.IndexFunc(rs, func(r Refusal) bool { return r.Whole }); i >= 0 {
		return rs[i].Text
	}
	if len(rs) > 0 {
		return rs[0].Text
	}
	return "what is accepted could not be written down, and is tried again"
}

// unfollowed says of the jobs of a commit that is not followed why nothing is done about them.
func (p *pass) unfollowed() {
	if p.report.Accepted || p.byWork == nil {
		return
	}
	for i := range p.d.Plan.Jobs {
		j := &p.d.Plan.Jobs[i]
		if p.byWork[j.Work] == nil {
			a := Action{Work: j.Work, Job: j.Name}
			p.report.Actions = append(p.report.Actions, a.none("its commit is not followed: "+p.refusal()))
		}
	}
}

// keepWanted spares works that left this plan while another plan on the store still names them.
func (p *pass) keepWanted(ctx context.Context) {
	leaves := func(t *target) bool { return t.wish == Leaving }
	if !slices.ContainsFunc(p.targets, leaves) {
		return
	}
	others, err := p.r.elsewhere(ctx, p.root)
	for _, t := range p.targets {
		switch {
		case !leaves(t):
		case err != nil:
			// What cannot be ruled out is not stopped.
			t.wish, t.stays = Frozen, "left the plan, and its stop waits: whether another plan of this store names it could not be read"
		case others[t.work] != "":
			t.leaving.OnDelete = plan.Orphan
		}
	}
	if err != nil {
		p.fail(err)
	}
}

// begun is 1 for a work that was launched before. It goes first among equals: what it has kept is worth nothing until it
// is finished, and it was there earlier.
func (p *pass) begun(w plan.Digest) int {
	if s := p.world.works[w]; s != nil && (s.record != nil || s.history.Last > 0) {
		return 1
	}
	return 0
}

func (t *target) priority() int {
	if t.job == nil {
		return 0
	}
	return t.job.Priority
}

// unready says why a job can't be launched from this process, or "".
func (r *Reconciler) unready(job *plan.Job) string {
	for _, name := range job.Secrets {
		if r.c.Secrets == nil {
			return fmt.Sprintf("secret %s is not known here", name)
		}
		if _, ok := r.c.Secrets(name); !ok {
			return fmt.Sprintf("secret %s is not known here: set it in the environment of this process", name)
		}
	}
	return ""
}
