package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
)

// most is the highest price per hour at which a job may be launched on a platform: nothing where its runner says that it is
// free, else the lowest of what the plan says that it costs, its max_price and the job's limits.price. What a market asks
// today bounds nothing. Not ok: nothing bounds it.
func (k known) most(c *plan.Config, platform string, j *plan.Job) (m plan.Money, ok bool) {
	if k.free(platform) {
		return m, true
	}
	conf := c.Platforms[platform]
	unit := cmp.Or(conf.Price.Unit, conf.MaxPrice.Unit) // the platform's own; a limit in another one bounds nothing there
	for _, p := range []plan.Money{conf.Price, conf.MaxPrice, j.Limits.Price} {
		if p.Amount > 0 && comparable(p.Unit, unit) && (!ok || p.Amount < m.Amount) {
			m, ok = plan.Money{Amount: p.Amount, Unit: cmp.Or(p.Unit, unit)}, true
			unit = m.Unit
		}
	}
	return m, ok
}

// dearRung says on which platform a job may cost more per hour than guard.price, or "".
func dearRung(c *plan.Config, j *plan.Job, k known) string {
	limit := c.Guard.Price
	if limit.Amount <= 0 {
		return ""
	}
	above := spend.Rate{PerHour: limit.Amount, Unit: limit.Unit}
	for _, name := range j.On {
		switch m, ok := k.most(c, name, j); {
		case !ok:
			return fmt.Sprintf("may run on %s at any price, and guard.price is %s", name, above)
		case comparable(m.Unit, limit.Unit) && m.Amount > limit.Amount:
			return fmt.Sprintf("may run on %s for %s, above guard.price of %s", name, spend.Rate{PerHour: m.Amount, Unit: m.Unit}, above)
		}
	}
	return ""
}

// bound is the most that a job may cost: its limits.paid, else its dearest rung for limits.wall, else for the time that it is
// estimated to take there. Not ok: one of these is not known for one of its rungs.
func (k known) bound(c *plan.Config, j *plan.Job) (a spend.Amount, ok bool) {
	if len(j.On) > 0 && !slices.ContainsFunc(j.On, func(name string) bool { return !k.free(name) }) {
		return a, true
	}
	if j.Limits.Paid.Amount > 0 {
		return amountOf(j.Limits.Paid), true
	}
	for _, name := range j.On {
		m, known := k.most(c, name, j)
		h := j.Limits.Wall.Hours()
		if _, peak, rated := plan.Card(c.Platforms[name], j.GPU); h <= 0 && rated {
			h = j.FLOPs.Total / (peak * plan.AssumedMFULow) / 3600
		}
		switch {
		case known && m.Amount == 0:
		case !known || h <= 0 || !comparable(m.Unit, a.Unit):
			return a, false
		default:
			a.Sum, a.Unit = max(a.Sum, m.Amount*h), cmp.Or(a.Unit, m.Unit)
		}
	}
	return a, len(j.On) > 0
}

// dearJob says how a job may cost more than guard.paid_per_job, or "".
func dearJob(c *plan.Config, j *plan.Job, k known) string {
	limit := amountOf(c.Guard.PaidPerJob)
	if limit.Sum <= 0 {
		return ""
	}
	switch a, ok := k.bound(c, j); {
	case !ok:
		return fmt.Sprintf("may cost any amount, and guard.paid_per_job is %s: it has no limits.paid", limit)
	case comparable(a.Unit, limit.Unit) && a.Sum > limit.Sum:
		return fmt.Sprintf("may cost %s, above guard.paid_per_job of %s", a, limit)
	}
	return ""
}

// spending adds up what the works of a commit may newly cost, each once, and what limits that it raises allow beyond what
// they did.
func spending(d *Desired, list []entering, k known) breach {
	limit := amountOf(d.Plan.Config.Guard.Paid)
	if limit.Sum <= 0 {
		return breach{}
	}
	type part struct {
		entering
		sum float64
	}
	var parts []part
	var open []entering // may cost any amount
	sum, elsewhere, seen := 0.0, 0, map[plan.Digest]bool{}
	for _, e := range list {
		if seen[e.Work] {
			continue
		}
		seen[e.Work] = true
		switch a, ok := k.bound(&d.Plan.Config, e.Job); {
		case !ok && (e.fresh || e.allowed().Amount > 0):
			open = append(open, e)
		case !ok:
		case !comparable(a.Unit, limit.Unit):
			elsewhere++
		default:
			if old := e.allowed(); !e.fresh && old.Amount > 0 && comparable(old.Unit, a.Unit) {
				a.Sum = max(a.Sum-old.Amount, 0)
			} else if !e.fresh {
				a.Sum = 0 // it had no limit before
			}
			if sum += a.Sum; a.Sum > 0 {
				parts = append(parts, part{e, a.Sum})
			}
		}
	}
	b := breach{rule: "paid", code: CodeGuardPaid}
	switch {
	case sum > limit.Sum:
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.sum, a.sum) })
		b.pos = parts[0].Pos
		var names []string
		for _, p := range parts {
			names = append(names, p.Name+" "+spend.Number(p.sum))
		}
		b.text = fmt.Sprintf("what is new may cost %s, above guard.paid of %s: %s", spend.Amount{Sum: sum, Unit: limit.Unit}, limit, few(names))
		b.hint = "set limits.paid of the jobs lower, or guard.paid of " + plan.ConfigFile + " higher"
		if elsewhere > 0 {
			b.text += fmt.Sprintf("; not counted, since it is in other units: %s", count(elsewhere, "job", "jobs"))
		}
	case len(open) > 0:
		var names []string
		for _, e := range open {
			names = append(names, e.Name)
		}
		b.pos, b.text = open[0].Pos, fmt.Sprintf("what is new may cost any amount, and guard.paid is %s: no limits.paid is given by %s", limit, few(names))
		b.hint = "give limits.paid, or limits.wall and a price of each platform of the ladder"
	default:
		return breach{}
	}
	return b
}

// allowed is the limits.paid that a job had where it is in force; zero: none, or it cannot be read.
func (e entering) allowed() (m plan.Money) {
	if e.old == nil {
		return m
	}
	var had struct {
		Paid string `json:"limits.paid"`
	}
	if json.Unmarshal(e.old.Placement, &had) != nil {
		return m
	}
	num, unit, _ := strings.Cut(had.Paid, " ")
	m.Amount, _ = strconv.ParseFloat(num, 64)
	m.Unit = unit
	return m
}
