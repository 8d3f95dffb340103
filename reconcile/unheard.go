package reconcile

import "github.com/headway-run/headway/plan"

// unheardFrom is how many new works there have to be until their first claims are not asked for one by one.
const unheardFrom = 64

// unheardOf are the works of a commit that nobody knows: no plan in force names them, and this process has not looked at
// them. That they were claimed before is possible (by hand, for another plan), and rare. Of a thousand of them a thousand
// reads would say that there is nothing, before the first launch; so in this one pass they count as never claimed. What
// makes that safe is that it can only decide dispatch 1, whose claim creates what is absent: where there was a claim, this
// one is lost, nobody is asked, nothing is spent, and the records are read. A claim that vanished while later ones are
// there misleads a read in the same way. A dry pass tells people how things are, and a person's demand is one work: both
// read.
func (p *pass) unheardOf() map[plan.Digest]bool {
	if p.r.c.Dry || p.d.Demand != nil || len(p.d.Plan.Jobs) < unheardFrom {
		return nil
	}
	known := map[plan.Digest]bool{}
	for _, j := range p.base.force.jobs() {
		known[j.Work] = true
	}
	if p.base.force != nil {
		for _, l := range p.base.force.Leaving {
			known[l.Work] = true
		}
	}
	out := map[plan.Digest]bool{}
	for i := range p.d.Plan.Jobs {
		if w := p.d.Plan.Jobs[i].Work; !known[w] && p.r.looks[w] == nil {
			out[w] = true
		}
	}
	if len(out) < unheardFrom {
		return nil
	}
	return out
}

// heard ends what a pass took for granted: the works that it did not claim are read by the next one.
func (p *pass) heard() {
	for w := range p.r.records.unheard {
		if s := p.r.records.shelf(w); s.last == 0 {
			s.stale = true
		}
	}
	p.r.records.unheard = nil
}
