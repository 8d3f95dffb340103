// Package ladder chooses the platform of a job: launch on a rung now, wait for a better one, stay where it runs, or move
// back up. It weighs the cost of waiting against the cost of moving, in shares of the time and the money that the job
// still takes: all its knobs are dimensionless. Pure: it knows no clock, no store and no platform. DESIGN.md has the
// formula with a worked example.
package ladder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// The knobs of the balance.
const (
	// Slack is how much later than on the next rung a job may be done, as a share, for the sake of a rung that its ladder
	// prefers. It is also the least gain that a move up is worth.
	Slack = 0.1
	// Thrift is what saving all of the money is worth, as a share of the time until the job is done: 1 waits up to twice as
	// long for a rung that costs nothing.
	Thrift = 1.0
	// Gain is how many times what the restart loses a move up has to win.
	Gain = 2.0
)

// QuotaUnit is the unit of [record.Price] that is no money: what is left of a quota at its reset is gone, so spending it
// costs nothing. Every other unit is compared with itself alone.
const QuotaUnit = "quota hours"

// Rung is one platform of a ladder as it stands now. A number that is zero is not known, unless its comment says more.
type Rung struct {
	Platform string
	Barred   string        // why it is no option however long one waits, or ""
	Parked   time.Duration // how long until it may be asked; 0: now
	Waited   time.Duration // the end of the park is a guess that was made again and again for this long; 0: it was promised
	Why      string        // why it is parked
	Doubt    time.Duration // for so long nothing that runs leaves for it, though it may be asked: it has refused launch after launch
	Full     string        // why no launch fits though it is not parked, or ""; Parked says for how long, 0: nobody knows
	Soon     bool          // it is full for an instant alone: launches go out in batches
	Spent    int           // retries that the job has spent here; 0: none
	Price    *record.Price // of the whole launch; nil: not known
	Rate     float64       // FLOP/s that are expected to be kept: rated peak × goodput
	Start    time.Duration // from a launch to the first steady step
	Quota    *Quota        // nil: it has none, or does not say
}

// Quota is what is left of a platform's allowance for our account.
type Quota struct {
	Left   time.Duration // 0: nothing
	Whole  time.Duration // what there is after a reset; 0: not known
	Resets time.Duration // until there is more; 0: not known
}

// Job is what the choice needs to know of a job.
type Job struct {
	Left      float64       // FLOPs that remain; 0: not known
	Milestone time.Duration // between two milestones; 0: not known
	On        string        // where it runs; "": nowhere, and a launch is due
	Lost      time.Duration // On: work since its last milestone, which a move would repeat
}

// Kind of a [Choice]. A closed set.
type Kind string

const (
	Launch  Kind = "launch"  // on Platform, now
	Wait    Kind = "wait"    // for Platform, or for whichever is there first
	Blocked Kind = "blocked" // no rung can take it until a person helps, or there is none
	Stay    Kind = "stay"    // where it runs
	Move    Kind = "move"    // leave after the next milestone: Platform is worth a restart
)

// Choice is what to do, and why.
type Choice struct {
	Kind     Kind
	Platform string
	Until    time.Duration // Wait: how long at most before looking again; 0: not known
	Reason   string        // one sentence; of a launch: why not on the rungs above, "" where there is none. It holds no passing number
	Rungs    []Verdict     // the rungs that were considered, the best first, down to the chosen one
}

// Verdict is why a rung was taken or not. Its JSON is that of headway plan.
type Verdict struct {
	Platform string  `json:"platform"`
	Chosen   bool    `json:"chosen,omitempty"`
	WaitS    float64 `json:"wait_s,omitempty"` // seconds until it may take the job, as far as is known
	// Price is that of the whole launch; nil: not known.
	Price *record.Price `json:"price,omitempty"`
	Why   string        `json:"why"`
}

// Choose decides about one job. rungs is its ladder, the most preferred platform first. A rung on which more retries were
// spent stands below all with fewer, so that each spent retry moves the work one rung down, and behind the last one it
// begins at the first again.
func Choose(rungs []Rung, job Job) Choice {
	order := slices.Clone(rungs)
	slices.SortStableFunc(order, func(a, b Rung) int { return a.Spent - b.Spent })
	if job.On != "" {
		return stay(order, job)
	}
	return launch(order, job)
}

func launch(order []Rung, job Job) Choice {
	best := slices.IndexFunc(order, func(r Rung) bool { return obstacle(r, job).text == "" })
	if best < 0 {
		return none(order, job)
	}
	to := order[best]
	c := Choice{Kind: Launch, Platform: to.Platform}
	var skipped []string
	for _, r := range order[:best] {
		o := obstacle(r, job)
		why := o.detail
		if !o.forever {
			worth, balance := worthWaiting(r, o.wait, to, job)
			why += "; " + balance
			if worth {
				c.Rungs = append(c.Rungs, Verdict{Platform: r.Platform, Chosen: true, WaitS: o.wait.Seconds(), Price: r.Price, Why: why})
				return Choice{Kind: Wait, Platform: r.Platform, Until: o.again, Rungs: c.Rungs,
					Reason: fmt.Sprintf("waits for %s (%s), which costs less than moving on to %s", r.Platform, o.text, to.Platform)}
			}
		}
		c.Rungs = append(c.Rungs, Verdict{Platform: r.Platform, WaitS: o.wait.Seconds(), Price: r.Price, Why: why})
		skipped = append(skipped, r.Platform+": "+o.text)
	}
	c.Rungs = append(c.Rungs, Verdict{Platform: to.Platform, Chosen: true, Price: to.Price, Why: "would wait 0 s, " + costs(to)})
	c.Reason = strings.Join(skipped, "; ")
	return c
}

// none tells what is waited for when no rung takes the job now: whichever is there first, and then it is decided again.
func none(order []Rung, job Job) Choice {
	c := Choice{Kind: Blocked}
	var reasons []string
	for _, r := range order {
		o := obstacle(r, job)
		if !o.forever {
			c.Kind = Wait
			if o.again > 0 && (c.Until == 0 || o.again < c.Until) {
				c.Until, c.Platform = o.again, r.Platform
			}
		}
		c.Rungs = append(c.Rungs, Verdict{Platform: r.Platform, WaitS: o.wait.Seconds(), Price: r.Price, Why: o.detail})
		reasons = append(reasons, r.Platform+": "+o.text)
	}
	if len(order) == 0 {
		reasons = []string{"the job names no platform"}
	}
	c.Reason = "no platform can take it now: " + strings.Join(reasons, "; ")
	return c
}

// stay decides about a job that runs. It moves only to where a launch would go anyhow, so that leaving and launching
// never disagree.
func stay(order []Rung, job Job) Choice {
	c := Choice{Kind: Stay, Platform: job.On}
	on := slices.IndexFunc(order, func(r Rung) bool { return r.Platform == job.On })
	if on < 0 {
		c.Reason = "runs on " + job.On + ", which its ladder does not name"
		return c
	}
	to := launch(order[:on], Job{Left: job.Left, Milestone: job.Milestone})
	c.Rungs = to.Rungs
	if to.Kind != Launch {
		c.Reason = "no better rung takes it now"
		if on == 0 {
			c.Reason = "it is on its best rung"
		}
		return c
	}
	i := slices.IndexFunc(order, func(r Rung) bool { return r.Platform == to.Platform })
	if d := order[i].Doubt; d > 0 {
		c.Reason = fmt.Sprintf("%s may be asked again, but has refused every launch lately: nothing that runs leaves for it for %s", to.Platform, span(d))
		return c
	}
	worth, balance := worthMoving(order[on], order[i], job)
	c.Reason = fmt.Sprintf("%s takes it now; %s", to.Platform, balance)
	if worth {
		c.Kind, c.Platform = Move, to.Platform
	}
	return c
}

// barrier is why a rung does not take a job now.
type barrier struct {
	text    string        // says the same until something happens
	detail  string        // with the numbers of this moment
	forever bool          // waiting does not help
	wait    time.Duration // expected; 0: not known
	again   time.Duration // when to look again; 0: not known
}

func obstacle(r Rung, job Job) barrier {
	switch {
	case r.Barred != "":
		return barrier{text: r.Barred, detail: r.Barred, forever: true}
	case r.Full != "":
		b := barrier{text: r.Full, detail: r.Full, wait: r.Parked + r.Waited, again: r.Parked}
		if r.Parked > 0 {
			b.detail += ", one is expected in " + span(r.Parked)
		}
		return b
	case r.Parked > 0:
		text, detail := "parked", "parked "+span(r.Parked)
		if r.Why != "" {
			text, detail = text+": "+r.Why, detail+": "+r.Why
		}
		return barrier{text: text, detail: detail, wait: r.Parked + r.Waited, again: r.Parked}
	case r.Quota != nil && (r.Quota.Left <= 0 || r.Quota.Left < r.Start+job.Milestone && r.Quota.Whole >= r.Start+job.Milestone):
		// Where not even a whole quota is enough by what is known, waiting would not help: it is tried.
		b := barrier{text: "its quota is used up", wait: r.Quota.Resets, again: r.Quota.Resets}
		b.detail = b.text
		if r.Quota.Left > 0 {
			b.text = "too little of its quota is left for a start and a milestone"
			b.detail = fmt.Sprintf("%s left of its quota, and a start and a milestone take %s", span(r.Quota.Left), span(r.Start+job.Milestone))
		}
		if r.Quota.Resets > 0 {
			b.detail += ", until it resets in " + span(r.Quota.Resets)
		}
		return b
	}
	return barrier{}
}

// Text is verdicts in one line: "kaggle: parked 3 h 12 min: …; vast: would wait 0 s, costs 0.45 USD/h".
func Text(list []Verdict) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = v.Platform + ": " + v.Why
	}
	return strings.Join(parts, "; ")
}
