package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Verdict is what a diff comes to, for whoever reads one word of it.
type Verdict string

// Verdicts, the gravest first.
const (
	VerdictError   Verdict = "error"   // the files have errors
	VerdictRefused Verdict = "refused" // a guard refuses it, or its stops
	VerdictChanges Verdict = "changes" // something is to be done
	VerdictNothing Verdict = "nothing" // moves alone included
)

// Refusal is a guard that refuses a commit: Whole, or only its stops.
type Refusal struct {
	Code  string `json:"code"` // stable
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
	Whole bool   `json:"whole"`
}

// Cost is what a whole run comes to in one unit: the hours of an [Estimate] at a price per hour. Both ends are 0 where it is
// free.
type Cost struct {
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Unit   string  `json:"unit,omitempty"`
	AtMost bool    `json:"at_most,omitempty"` // the price is an upper bound
}

// Bill adds up what starts and what is replaced, each on the platform where it would run now. What is unknown is counted.
type Bill struct {
	Jobs        int     `json:"jobs"`
	FLOPs       float64 `json:"flops"`
	FLOPsOpen   int     `json:"flops_unknown"` // jobs
	LowHours    float64 `json:"low_hours"`     // of machines, not of the clock: jobs run side by side
	HighHours   float64 `json:"high_hours"`
	HoursOpen   int     `json:"hours_unknown"`
	Costs       []Cost  `json:"costs"` // by unit
	CostUnknown int     `json:"cost_unknown"`
}

// Settle works out what follows from the rest, once a caller has filled in Refusals, Rungs and Next: the verdict, time and
// cost where each job would run now, and their sums. It takes what looks like a secret out of those texts. p is the plan
// that the diff is of.
func (c *Changes) Settle(p *Plan) {
	for i := range c.Refusals {
		r := &c.Refusals[i]
		r.Text, r.Hint = redact(r.Text), redact(r.Hint)
	}
	for i := range c.Drift {
		c.Drift[i].Text = redact(c.Drift[i].Text)
	}
	for i := range c.Uncommitted {
		c.Uncommitted[i] = redact(c.Uncommitted[i])
	}
	s := &settler{rater: rater{plan: p, rates: map[string]rate{}}, prices: map[string]price{}}
	s.bill(c.Changes, &c.Totals)
	if c.Pending != nil {
		s.bill(c.Pending.Changes, &c.Pending.Totals)
	}
	c.State = c.state()
	switch {
	case c.Errored:
		c.Verdict = VerdictError
	case len(c.Refusals) > 0:
		c.Verdict = VerdictRefused
	case c.Any():
		c.Verdict = VerdictChanges
	default:
		c.Verdict = VerdictNothing
	}
}

type settler struct {
	rater
	prices map[string]price // of a platform, as any job's rungs tell it
}

type price struct {
	perHour float64
	unit    string
	free    bool
	atMost  bool
}

func (s *settler) bill(list []Change, t *Totals) {
	for i := range list {
		c := &list[i]
		c.Next, c.Pos.File = redact(c.Next), redact(c.Pos.File)
		for k := range c.Environment {
			c.Environment[k] = redact(c.Environment[k])
		}
		for k := range c.Rungs {
			r := &c.Rungs[k]
			r.Why = redact(r.Why)
			if r.Free || r.Unit != "" {
				s.prices[r.Platform] = price{r.PerHour, r.Unit, r.Free, r.AtMost}
			}
		}
	}
	t.Bill, t.Ending, t.Drained = Bill{Costs: []Cost{}}, 0, 0
	for i := range list {
		c := &list[i]
		if c.stops() {
			t.Ending++
			if c.OnDelete == Drain {
				t.Drained++
			}
		}
		if c.Op == OpCreate || c.Op == OpReplace {
			s.run(c)
			t.Bill.add(c)
		}
	}
	slices.SortFunc(t.Bill.Costs, func(a, b Cost) int { return strings.Compare(a.Unit, b.Unit) })
}

// run says how long a job takes where it would run now, and what that costs: nil where anything is unknown.
func (s *settler) run(c *Change) {
	at := c.at()
	if j, ok := s.plan.Job(c.Job); ok && j.Work == c.NewWork {
		c.Estimate = s.estimate(j, at)
	}
	c.Cost = nil
	switch p, ok := s.prices[at]; {
	case ok && p.free:
		c.Cost = &Cost{}
	case ok && c.Estimate != nil:
		c.Cost = &Cost{Low: c.Estimate.Low * p.perHour, High: c.Estimate.High * p.perHour, Unit: p.unit, AtMost: p.atMost}
	}
}

// at is the platform that a launch would go to: the chosen rung, else the first one that its ladder names.
func (c *Change) at() string {
	for _, r := range c.Rungs {
		if r.Chosen {
			return r.Platform
		}
	}
	if len(c.On) > 0 {
		return c.On[0]
	}
	return ""
}

func (b *Bill) add(c *Change) {
	b.Jobs++
	b.FLOPs += c.FLOPs
	if c.FLOPs <= 0 {
		b.FLOPsOpen++
	}
	if c.Estimate != nil {
		b.LowHours += c.Estimate.Low
		b.HighHours += c.Estimate.High
	} else {
		b.HoursOpen++
	}
	switch {
	case c.Cost == nil:
		b.CostUnknown++
	case c.Cost.High > 0:
		i := slices.IndexFunc(b.Costs, func(k Cost) bool { return k.Unit == c.Cost.Unit })
		if i < 0 {
			b.Costs, i = append(b.Costs, Cost{Unit: c.Cost.Unit}), len(b.Costs)
		}
		k := &b.Costs[i]
		k.Low, k.High, k.AtMost = k.Low+c.Cost.Low, k.High+c.Cost.High, k.AtMost || c.Cost.AtMost
	}
}

// String is the bill in one line.
func (b *Bill) String() string {
	open := func(known string, n int) string {
		switch {
		case n == 0:
			return known
		case n == b.Jobs:
			return "unknown"
		}
		return known + " and " + strconv.Itoa(n) + " unknown"
	}
	costs := "nothing"
	if len(b.Costs) > 0 {
		var list []string
		for i := range b.Costs {
			list = append(list, b.Costs[i].String())
		}
		costs = strings.Join(list, " and ")
	}
	return fmt.Sprintf("To run, %s: work %s; time %s; cost %s", count(b.Jobs, "job"), open(flop(b.FLOPs), b.FLOPsOpen),
		open(hours(b.LowHours)+" to "+hours(b.HighHours), b.HoursOpen), open(costs, b.CostUnknown))
}

func flop(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) + " FLOP" }

// String is the range in its unit, "nothing" where it is free.
func (k *Cost) String() string {
	if k.High <= 0 {
		return "nothing"
	}
	n := func(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }
	unit := line(cmp.Or(k.Unit, "of its own unit"))
	if k.AtMost {
		return "at most " + n(k.High) + " " + unit
	}
	return n(k.Low) + " to " + n(k.High) + " " + unit
}

// price is what a job's line says of work, time and cost. Unknown is said.
func (c *Change) price() string {
	var open []string
	var known []string
	if c.FLOPs > 0 {
		known = append(known, flop(c.FLOPs))
	} else {
		open = append(open, "work")
	}
	if c.Estimate != nil {
		known = append(known, c.Estimate.String())
	} else {
		open = append(open, "time")
	}
	switch {
	case c.Cost == nil:
		open = append(open, "cost")
	default:
		known = append(known, "costs "+c.Cost.String())
	}
	if n := len(open); n > 0 {
		words := open[n-1]
		if n > 1 {
			words = strings.Join(open[:n-1], ", ") + " and " + words
		}
		known = append(known, words+" unknown")
	}
	return strings.Join(known, ", ")
}

// ends says in one line what would be ended, and what has been paid there that no milestone holds yet.
func (t *Totals) ends() string {
	s := count(t.Ending, "running attempt") + " would end"
	if t.Drained > 0 {
		s += fmt.Sprintf(", %d of them after the next milestone", t.Drained)
	}
	if t.Lost > 0 {
		s += fmt.Sprintf("; %.2f GPU-hours since the last milestones are at stake", t.Lost)
	}
	return s + "."
}

// state is a digest over the leases that the changes rest on: which attempt holds what they stop, start or find again. Steps
// and ages are not in it: they move while nothing changes.
func (c *Changes) state() string {
	var lines [][]byte
	for i := range c.Changes {
		ch := &c.Changes[i]
		if ch.Op == OpUnchanged || ch.Op == OpWaiting {
			continue
		}
		for _, o := range []*Observed{ch.Now, ch.Leaving} {
			if o != nil {
				lines = append(lines, fmt.Appendf(nil, "%s %s %d %d\n", o.Work, o.State, o.Attempt, o.Dispatch))
			}
		}
	}
	slices.SortFunc(lines, bytes.Compare)
	h := sha256.New()
	for _, l := range slices.CompactFunc(lines, bytes.Equal) {
		h.Write(l)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// alarms are the lines that a reader must not miss, the verdict first: what is refused and why, what of the state of the
// files keeps it from being applied, and what would end.
func (c *Changes) alarms() []string {
	var out []string
	for _, s := range c.Stale {
		out = append(out, "stale: "+line(s))
	}
	for _, r := range c.Refusals {
		s := "refused: " + line(r.Code) + ": " + line(r.Text)
		if r.Hint != "" {
			s += "; " + line(r.Hint)
		}
		out = append(out, s)
	}
	if c.Errored {
		out = append(out, fmt.Sprintf("The plan has %s: stops wait until there are none.", count(c.errors(), "error")))
	}
	if c.Dirty {
		s := "This is the work tree as it lies on disk, not a commit: only commits are launched."
		if len(c.Uncommitted) > 0 {
			s += " Not committed: " + line(strings.Join(c.Uncommitted, ", ")) + "."
		}
		out = append(out, s)
	}
	if p := c.Pending; p != nil && p.Behind {
		out = append(out, fmt.Sprintf("This commit lacks some of %s: what %[1]s changed since shows here as undone. Merge it, or rebase, and look again.", line(p.Ref)))
	}
	if t := &c.Totals; t.Ending > 0 {
		out = append(out, t.ends())
	}
	if s := c.otherwise(); s != "" {
		out = append(out, s)
	}
	return out
}

// otherwise names the jobs whose environment was measured otherwise than they require; "": there are none.
func (c *Changes) otherwise() string {
	var names []string
	for i := range c.Changes {
		if len(c.Changes[i].Environment) > 0 {
			names = append(names, line(c.Changes[i].Job))
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - 5; n > 0 {
		names, more = names[:5], fmt.Sprintf(" and %d more", n)
	}
	return "Environment: what was measured is not what the job requires: " + strings.Join(names, ", ") + more + "."
}
