package reconcile

import (
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/pack"
)

// ranking is how urgent each work of a plan is, and how long it takes in all, in seconds or, where the jobs do not say, in
// units that are the same for all. It depends on the jobs alone, so it is made once for each plan that is in force.
type ranking struct {
	of     accepting
	places map[plan.Digest]place
	sorts  map[*plan.Job]sorted // of its jobs, as far as they were asked for: platforms whose launches are shared share them
}

// place is where a work stands in a ranking.
type place struct{ rank, length float64 }

// rest is the place of a work that has kept a part of its steps: it takes only the others again (t is W_remaining in
// science.md §6.1). Nothing that needs it can have begun, so the others' places stay. Where the job does not say what it
// computes, its length is that of the others, whatever it has kept.
func (at place) rest(j *plan.Job, s *sight) place {
	if j == nil || s == nil || s.lease.Resume == nil || j.FLOPs.Steps <= 0 || j.FLOPs.Total <= 0 && j.FLOPs.PerStep <= 0 {
		return at
	}
	kept := at.length * min(max(float64(s.lease.Resume.Step)/float64(j.FLOPs.Steps), 0), 1)
	return place{at.rank - kept, at.length - kept}
}

// ranked makes the ranking of what this pass sees to, unless it is the one at hand.
func (p *pass) ranked() {
	key := accepting{p.d.Plan, p.base.version, p.report.Accepted}
	if p.r.ranking.of == key && p.r.ranking.places != nil {
		return
	}
	clear(p.r.ranking.sorts) // the jobs of another plan
	index := make(map[plan.Digest]int, len(p.targets))
	for i, t := range p.targets {
		index[t.work] = i
	}
	at, length := peaks{}, make([]float64, len(p.targets))
	for i, t := range p.targets {
		if t.job != nil {
			length[i] = at.seconds(t.job)
		}
	}
	length = pack.Times(length)
	graph := make([]pack.Node, len(p.targets))
	for i, t := range p.targets {
		graph[i].T = length[i]
		if t.job == nil {
			continue
		}
		for _, in := range t.job.Inputs {
			if n, ok := index[in.Work]; ok {
				graph[i].Needs = append(graph[i].Needs, n)
			}
		}
	}
	out := ranking{of: key, sorts: p.r.ranking.sorts, places: make(map[plan.Digest]place, len(graph))}
	for i, rank := range pack.Ranks(graph) {
		out.places[p.targets[i].work] = place{rank, length[i]}
	}
	p.r.ranking = out
}

// noCard is the rate at which jobs without a card are ranked, in FLOP/s: it is right for none, and the same for all.
const noCard = 1e11

// peaks is the rated peak of the cards that jobs name, FLOP/s, by name and math mode; 0: not known.
type peaks map[[2]string]float64

// seconds is how long a whole job takes on the first card that it names, W/(peak × MFU), at the MFU that estimates
// assume; 0: not known. Only ratios of it mean anything.
func (k peaks) seconds(j *plan.Job) float64 {
	work := j.FLOPs.Total
	if work <= 0 {
		work = j.FLOPs.PerStep * float64(j.FLOPs.Steps)
	}
	if work <= 0 {
		return 0
	}
	peak := noCard
	if len(j.GPU.Any) > 0 {
		key := [2]string{j.GPU.Any[0], j.GPU.DType}
		known, ok := k[key]
		if !ok {
			if m, err := flops.Lookup(key[0]); err == nil && len(m.GPUs) > 0 {
				if one, err := flops.Peak(m.GPUs[0], flops.Mode(key[1])); err == nil {
					known = one * float64(max(m.Count, 1))
				}
			}
			k[key] = known
		}
		if peak = known * float64(max(j.GPU.Count, 1)); peak <= 0 {
			return 0
		}
	}
	return work / (peak * plan.AssumedMFULow)
}
