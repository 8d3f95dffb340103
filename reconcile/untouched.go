package reconcile

// likeness is what decides about a work that nobody has touched yet and that only one platform takes. Of thousands that wait
// for its places all but the name is equal, so that one decision serves them all while they wait.
type likeness struct {
	platform, kind, dear, class string
	places, asked               int // of a launch; of this round: one more launch is another state of the platform
}

// likenessOf is what the decision about a target rests on, where that is all: no lease, no record of it, no input, no limit,
// no trouble, no wish of a person, and a ladder of one rung. Else ok is false, and its facts have to be gathered.
func (p *pass) likenessOf(t *target) (k likeness, ok bool) {
	s, j := p.world.works[t.work], t.job
	if s == nil || j == nil || len(j.On) != 1 || len(j.Inputs) > 0 || j.Suspend || j.Limits.Parallel > 0 || !limitsOf(j).None() {
		return k, false
	}
	if s.err != nil || s.seen != nil || s.lease != (Lease{State: leaseAbsent}) || s.history.Last != 0 || len(s.history.Dispatches)+len(s.history.Attempts) > 0 {
		return k, false
	}
	if t.wish != Wanted || t.leaving != nil || t.stays != "" || t.unready != "" || p.r.hurdles[t.work] != nil {
		return k, false
	}
	if p.d == nil || p.d.Demand != nil || len(p.d.Plan.Config.Parallel) > 0 || len(p.r.asks) > 0 {
		return k, false
	}
	pl := p.platforms[j.On[0]]
	if pl == nil || pl.quota != nil {
		return k, false // quotas that run out make a difference between jobs
	}
	class, places := pl.askedFor(j)
	return likeness{j.On[0], j.Kind, pl.dear(j), class, places, pl.asked[class]}, true
}

// waits is the decision of an earlier target of this round for this one, if both wait for the same. It is what Decide would
// say: TestOneDecisionServesThoseThatAreAlike holds one against the other.
func (p *pass) waits(t *target) (a Action, ok bool) {
	k, ok := p.likenessOf(t)
	if !ok {
		return a, false
	}
	if a, ok = p.alike[k]; ok {
		a.Work, a.Job = t.work, t.name
		delete(p.r.leaves, t.work) // as facts does
	}
	return a, ok
}

// serves keeps a decision to wait for those that are alike. Launches are not kept: each changes what the next one finds.
func (p *pass) serves(t *target) {
	if t.last.Kind != Wait {
		return
	}
	if k, ok := p.likenessOf(t); ok {
		if p.alike == nil {
			p.alike = map[likeness]Action{}
		}
		p.alike[k] = t.last
	}
}
