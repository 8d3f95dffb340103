package reconcile

import (
	"cmp"
	"time"

	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
)

// Rung is one platform of a ladder as it stands now. Numbers that are zero are not known.
type Rung struct {
	Platform string
	Refused  string        // why it can never take this job as configured, or ""
	Fatal    string        // why it is left alone until a person looks, or ""
	Parked   time.Duration // how long it is left alone; 0: it is not
	Waited   time.Duration // for how long it has been parked again and again; 0: the end of its park is a promise
	Why      string        // why it is parked
	Doubt    time.Duration // for how long nothing that runs leaves for it, since its launches were refused
	Full     string        // why no launch fits right now, or ""
	Soon     bool          // it is full for this round alone
	Price    *record.Price // of the whole launch, per hour
	Rate     float64       // FLOP/s that are expected to be kept there
	Start    time.Duration // from a launch to the first steady step
	Quota    *ladder.Quota // nil: it has none, or does not say
}

// Rest is what a job still takes, as far as its ladder has to know. Zero: not known.
type Rest struct {
	FLOPs     float64       // behind its resume pointer; of one that runs, behind its last step
	Milestone time.Duration // between two milestones
	Lost      time.Duration // work since the last milestone of the attempt that runs
}

// rung chooses the platform of the next launch, or says what is waited for. A retry that was spent on a platform, by a
// refusal or by an attempt that was worth too little there, moves the work one rung down. What the program itself did
// wrong never does.
func rung(f Facts, charges []Charge) ladder.Choice {
	return ladder.Choose(demanded(f, weighed(f, spentOn(charges))), ladder.Job{Left: f.Rest.FLOPs, Milestone: f.Rest.Milestone})
}

// demanded are the rungs that a person leaves, and leaves unparked.
func demanded(f Facts, rungs []ladder.Rung) []ladder.Rung {
	if f.Demand == nil {
		return rungs
	}
	for i := range rungs {
		r := &rungs[i]
		r.Parked = 0
		if f.Demand.Platform != "" && r.Platform != f.Demand.Platform && r.Barred == "" {
			r.Barred = "it was to be launched on " + f.Demand.Platform
		}
	}
	return rungs
}

// spentOn counts the retries that platforms have cost.
func spentOn(charges []Charge) map[string]int {
	spent := map[string]int{}
	for _, c := range charges {
		if c.Spent && !ruleOf(c.Class).Program {
			spent[c.Platform]++
		}
	}
	return spent
}

// weighed are the rungs as the choice takes them.
func weighed(f Facts, spent map[string]int) []ladder.Rung {
	out := make([]ladder.Rung, len(f.Rungs))
	for i, r := range f.Rungs {
		out[i] = ladder.Rung{Platform: r.Platform, Barred: cmp.Or(r.Refused, r.Fatal), Parked: r.Parked, Waited: r.Waited,
			Why: r.Why, Doubt: r.Doubt, Full: r.Full, Soon: r.Soon, Spent: spent[r.Platform], Price: r.Price, Rate: r.Rate, Start: r.Start, Quota: r.Quota}
	}
	return out
}

// guessed is for how long a platform has been parked again and again, where the end of its park is no more than a backoff;
// 0: the platform itself named it. rest is what is left of the park.
func (p park) guessed(rest time.Duration) time.Duration {
	this := nominal(p.Series)
	if p.Class == string(runners.QuotaExhausted) && p.ParkS > 1.5*this.Seconds() {
		return 0
	}
	before := max(p.Series-1, 0)
	var sum time.Duration
	for k := 1; k <= min(before, 7); k++ {
		sum += nominal(k)
	}
	return sum + time.Duration(min(max(before-7, 0), 3000))*backoffCap + max(this-rest, 0) // a month of them at most
}

// doubt is for how much longer nothing that runs leaves for a platform whose launches were refused in a row and whose park was
// a guess: a wrong guess costs a work its place and a restart. It lasts, from the last refusal on, as long as all parks of
// the series together, so that what is lost to a platform that refuses for ever becomes ever rarer. A launch that it takes ends it.
func (p park) doubt(since time.Duration) time.Duration { return max(p.guessed(0)-since, 0) }

// nominal is a platform's park after a series of failures, without its jitter.
func nominal(series int) time.Duration {
	if series < 1 {
		return 0
	}
	if shift := series - 1; shift < 16 && parkBase<<shift < backoffCap {
		return parkBase << shift
	}
	return backoffCap
}
