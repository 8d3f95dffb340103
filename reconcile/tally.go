package reconcile

import (
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/witness"
)

// tally counts what runs or is on its way, from the store alone.
func (p *pass) tally() {
	p.groups, p.memo, p.alike, p.ends, p.queued = map[string]int{}, map[plan.Digest]string{}, nil, nil, nil
	for _, pl := range p.platforms {
		pl.live, pl.batch, pl.flying, pl.releasing, pl.asked = 0, 0, 0, 0, map[string]int{}
	}
	p.beside.counts(p)
	machines := map[[2]string]bool{} // platform and launch of those that are counted already
	machine := func(platform, launch string) bool {
		at := [2]string{platform, launch}
		known := launch != "" && machines[at]
		machines[at] = true
		return !known
	}
	for k, f := range p.r.flights {
		if pl := p.platforms[f.a.Platform]; pl != nil && k.kind == Launch {
			if machine("flying "+f.a.Platform, f.crew) {
				pl.batch++
				pl.flying++
			}
		} else if pl != nil {
			pl.releasing++
		}
	}
	for w, s := range p.world.works {
		for _, d := range s.history.Dispatches {
			if pl := p.platforms[d.Platform]; pl != nil && d.owed(s.lease) && !p.r.isOver(w, d.N) && machine(d.Platform, d.Launch) {
				pl.live++
			}
		}
		name, launch := "", ""
		switch s.lease.State {
		case witness.Held:
			if name = s.platform; s.claim != nil {
				launch = s.claim.Launch
			}
		case witness.Finished, leaseUnknown:
			continue
		default:
			if f := p.r.flights[flightKey{Launch, w, 0}]; f != nil {
				name, launch = f.a.Platform, f.crew // not claimed yet, perhaps
			}
			for _, d := range s.history.Dispatches {
				if d.inFlight(s.lease.Floor) {
					name, launch = d.Platform, d.Launch
				}
			}
		}
		if s.lease.State != witness.Held && name == "" {
			continue
		}
		if pl := p.platforms[name]; pl != nil && machine(name, launch) {
			pl.live++
		}
		if t := p.byWork[w]; t != nil && t.job != nil {
			p.occupies(t.job)
		}
	}
}
