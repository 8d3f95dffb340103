package reconcile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/witness"
)

// appraised is what a platform is expected to give a family of jobs that ask for a card.
type appraised struct {
	rate  float64
	start time.Duration
}

// appraise adds to the rungs of a job what the book has on them, and what the job still takes. What nobody has seen stays
// unknown. A ladder of one rung has nothing to weigh, but that its quota may not reach the first milestone.
func (p *pass) appraise(f *Facts) {
	j := f.Job
	if j == nil || len(f.Rungs) < 2 && (len(f.Rungs) == 0 || f.Rungs[0].Quota == nil) || f.Lease.State == witness.Finished {
		return
	}
	f.Rest = p.rest(f)
	for i := range f.Rungs {
		r := &f.Rungs[i]
		pl := p.platforms[r.Platform]
		if pl == nil || r.Refused != "" {
			continue
		}
		k := p.appraisal(pl, j)
		r.Rate, r.Start = k.rate, k.start
		if r.Full != "" && !r.Soon && r.Parked == 0 && f.Lease.State != witness.Held {
			r.Parked = p.frees(pl)
		}
	}
}

// rest is what a job still takes: behind its last step while it runs, behind its resume pointer otherwise.
func (p *pass) rest(f *Facts) Rest {
	j, l := f.Job, f.Lease
	var step, kept int64
	if l.Resume != nil {
		kept = l.Resume.Step
	}
	step = kept
	if l.State == witness.Held {
		step = max(l.Step, kept)
	}
	out := Rest{Milestone: j.Milestones.Every}
	stepS := 0.0
	if s := p.world.works[f.Work]; s != nil && s.record != nil {
		stepS = s.record.Lease.StepS
	}
	if j.Milestones.Steps > 0 {
		out.Milestone = bounded(float64(j.Milestones.Steps) * stepS)
	} else if out.Milestone == 0 {
		out.Milestone = p.untold(f)
	}
	out.Lost = bounded(float64(step-kept) * stepS)
	if w := j.FLOPs; w.Total > 0 && w.Steps > 0 {
		out.FLOPs = w.Total * float64(max(w.Steps-step, 0)) / float64(w.Steps)
	}
	return out
}

// untold is how often a job that states nothing makes milestones: as its worker was told, else as its first rung would have it.
func (p *pass) untold(f *Facts) time.Duration {
	if s := p.world.works[f.Work]; s != nil && s.claim != nil && f.Lease.State == witness.Held && s.claim.Terms.MilestoneS > 0 {
		return bounded(s.claim.Terms.MilestoneS)
	}
	prior := patience.OwnProcess
	if len(f.Rungs) > 0 && p.platforms[f.Rungs[0].Platform] != nil {
		prior = priorOf(p.platforms[f.Rungs[0].Platform].runner)
	}
	return untold(prior)
}

// bounded is seconds as a duration; what is no sane number of them is not known.
func bounded(s float64) time.Duration {
	if !(s > 0) || s > 1e8 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// appraisal asks the book once in a pass for each platform, family and card: medians over histories are no small change.
func (p *pass) appraisal(pl *platform, j *plan.Job) appraised {
	key := fmt.Sprintf("%q %q %q %d %q", pl.conf.Name, j.Group, strings.Join(j.GPU.Any, " "), j.GPU.Count, j.GPU.DType)
	if k, ok := p.appraised[key]; ok {
		return k
	}
	var k appraised
	card, peak, ok := plan.Card(pl.conf, j.GPU)
	e := p.r.book.Expect(pl.conf.Name, cmp.Or(card, "cpu"), cmp.Or(j.GPU.DType, "none"), j.Group)
	if g := e.Goodput(); ok && g.N > 0 {
		k.rate = peak * g.V
	}
	if e.StartS.N > 0 {
		k.start = bounded(e.StartS.V)
		if e.WarmS.N > 0 {
			k.start += bounded(e.WarmS.V)
		}
	}
	if p.appraised == nil {
		p.appraised = map[string]appraised{}
	}
	p.appraised[key] = k
	return k
}

// frees is when a full platform is expected to have a place that none of those before in this round waits for: when the
// works that hold its places have done the steps that their plans name. 0: that is not known.
func (p *pass) frees(pl *platform) time.Duration {
	if p.ends == nil {
		p.ends = map[string][]float64{}
		launches := map[[2]string]float64{}
		for w, s := range p.world.works {
			if s.lease.State != witness.Held || s.platform == "" || s.record == nil {
				continue
			}
			left := math.Inf(1)
			if t := p.byWork[w]; t != nil && t.job != nil && t.job.FLOPs.Steps > 0 && s.record.Lease.StepS > 0 {
				left = float64(max(t.job.FLOPs.Steps-s.record.Progress.Step, 0)) * s.record.Lease.StepS
			}
			launch := string(w)
			if s.claim != nil {
				launch = cmp.Or(s.claim.Launch, launch)
			}
			at := [2]string{s.platform, launch}
			launches[at] = max(launches[at], left) // a machine is free when the last of its works is done
		}
		for at, left := range launches {
			p.ends[at[0]] = append(p.ends[at[0]], left)
		}
		for _, list := range p.ends {
			slices.Sort(list)
		}
	}
	list, k := p.ends[pl.conf.Name], p.queued[pl.conf.Name]
	if k >= len(list) {
		return 0
	}
	return bounded(max(list[k], nextBusy.Seconds()))
}

// queues notes the rung that a decision waits for, so that the next one does not count on the same place.
func (p *pass) queues(a Action) {
	if a.Kind != Wait {
		return
	}
	for _, v := range a.Rungs {
		if v.Chosen {
			if p.queued == nil {
				p.queued = map[string]int{}
			}
			p.queued[v.Platform]++
		}
	}
}
