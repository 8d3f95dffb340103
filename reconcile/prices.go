package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
)

const (
	askEvery    = 5 * time.Minute  // between two questions to a platform what it costs and what is left
	askTimeout  = 20 * time.Second // for its answer
	askPatience = 2 * time.Second  // that a pass waits for it, the first time
)

// offer is what a platform says of its price and its quota. It is asked beside the passes, so that one which does not answer
// delays nobody.
type offer struct {
	runner runners.Runner
	at     time.Time
	done   chan struct{}
	// Once done is closed.
	price *record.Price
	quota *runners.Quota
	err   error
	heard time.Time
}

// answered is the offer if it has an answer.
func (o *offer) answered() *offer {
	if o == nil {
		return nil
	}
	select {
	case <-o.done:
		return o
	default:
		return nil
	}
}

// ask asks one platform.
func (o *offer) ask(ctx context.Context, name string) {
	defer close(o.done)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p, known, err := runners.AskPrice(ctx, o.runner, name)
	if known {
		o.price = &p
	}
	q, has, qerr := runners.AskQuota(ctx, o.runner, name)
	if has {
		o.quota = &q
	}
	o.err, o.heard = cmp.Or(err, qerr), time.Now()
}

// prices fills in what the platforms cost and still give, and asks those whose answer is old.
func (r *Reconciler) prices(ctx context.Context, platforms map[string]*platform) {
	var first []*offer
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		pl := platforms[name]
		_, prices := pl.runner.(runners.Pricer)
		_, quotes := pl.runner.(runners.Quoter)
		if !prices && !quotes {
			continue
		}
		pair := r.offers[name]
		if pair.newest == nil || pair.newest.answered() != nil && time.Since(pair.newest.at) >= askEvery {
			pair = offers{last: pair.newest, newest: &offer{runner: pl.runner, at: time.Now(), done: make(chan struct{})}}
			r.offers[name] = pair
			go pair.newest.ask(ctx, name)
			if pair.last == nil {
				first = append(first, pair.newest)
			}
		}
	}
	timer := time.NewTimer(askPatience)
	defer timer.Stop()
	for _, o := range first {
		select {
		case <-o.done:
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	for name, pl := range platforms {
		pair := r.offers[name]
		o := cmp.Or(pair.newest.answered(), pair.last.answered())
		if o == nil {
			continue
		}
		if o.err != nil && !pair.said {
			r.c.Log.Warn("a platform does not say what it costs or what is left", "platform", name, "error", shown(o.err.Error(), 300))
			pair.said = true
			r.offers[name] = pair
		}
		pl.price, pl.quota = o.price, o.quota
	}
}

// offers are the newest question to a platform, and the answer before.
type offers struct {
	newest, last *offer
	said         bool // that it does not answer
}

// asksOver returns when no question is under way.
func (r *Reconciler) asksOver() {
	for _, pair := range r.offers {
		<-pair.newest.done
	}
}

// expected is what a launch is expected to cost: as the runner says now, else as the plan says, else at most what it may
// cost; nil: nobody knows.
func (pl *platform) expected() *record.Price {
	switch c := pl.conf; {
	case pl.price != nil:
		return pl.price
	case c.Price.Amount > 0:
		return &record.Price{PerHour: c.Price.Amount, Unit: c.Price.Unit}
	case c.MaxPrice.Amount > 0:
		return &record.Price{PerHour: c.MaxPrice.Amount, Unit: c.MaxPrice.Unit, AtMost: true}
	}
	return nil
}

// priceCap is a limit on the price per hour of a launch, and the field that sets it.
type priceCap struct {
	plan.Money
	field string
}

// caps are the limits on what a launch of a job may cost there. guard.price is one of them whenever it is launched: what a
// commit was judged by is what its plan says of prices, and a market may ask for more on the day.
func (pl *platform) caps(j *plan.Job) []priceCap {
	all := []priceCap{{pl.conf.MaxPrice, "its max_price"}, {j.Limits.Price, "limits.price"}, {pl.guard, "guard.price"}}
	return slices.DeleteFunc(all, func(c priceCap) bool { return c.Amount <= 0 })
}

// ceiling is the price above which no launch of a job may be made there; nil: there is none.
func (pl *platform) ceiling(j *plan.Job) *record.Price {
	var least *record.Price
	for _, c := range pl.caps(j) {
		switch {
		case least == nil:
			least = &record.Price{PerHour: c.Amount, Unit: c.Unit}
		case comparable(c.Unit, least.Unit):
			least.PerHour, least.Unit = min(least.PerHour, c.Amount), cmp.Or(least.Unit, c.Unit)
		}
	}
	return least
}

// guarded tells platforms what headway.yaml's guard lets a launch cost.
func guarded(all map[string]*platform, g *plan.Guard) {
	for _, pl := range all {
		if pl.guard = g.Price; g.Warns("price") {
			pl.guard = plan.Money{}
		}
	}
}

// comparable reports whether amounts can be held against one another: a missing unit is the other one's.
func comparable(a, b string) bool { return a == b || a == "" || b == "" }

// dear says why a platform costs too much for a job, or "". It may cost less later: it is asked again and again.
func (pl *platform) dear(j *plan.Job) string {
	p, l := pl.expected(), j.Limits.Price
	if p == nil && l.Amount > 0 {
		return fmt.Sprintf("its price is not known, and limits.price is %s: give it a price or a max_price in %s", spend.Rate{PerHour: l.Amount, Unit: l.Unit}, plan.ConfigFile)
	}
	if p == nil || p.PerHour == 0 {
		return ""
	}
	for _, c := range pl.caps(j) {
		if comparable(c.Unit, p.Unit) && p.PerHour > c.Amount {
			return fmt.Sprintf("it costs %s, above %s of %s", rateOf(*p), c.field, spend.Rate{PerHour: c.Amount, Unit: cmp.Or(c.Unit, p.Unit)})
		}
	}
	return ""
}

func rateOf(p record.Price) spend.Rate {
	return spend.Rate{PerHour: p.PerHour, Unit: p.Unit, AtMost: p.AtMost}
}

func hours(h float64) time.Duration { return time.Duration(min(h, 1e5) * float64(time.Hour)) }

// priced adds to a rung what it costs and what is left of its quota, and bars it where that is too much or nothing.
func (pl *platform) priced(r *Rung, j *plan.Job) {
	if pl == nil {
		return
	}
	r.Price = pl.expected()
	if q := pl.quota; q != nil && q.Unit == "hours" {
		r.Quota = &ladder.Quota{Left: hours(q.Left), Whole: hours(q.Whole), Resets: max(time.Until(q.Resets), 0)}
		if q.Resets.IsZero() {
			r.Quota.Resets = 0
		}
	}
	if r.Refused != "" || r.Fatal != "" {
		return
	}
	switch q := pl.quota; {
	case pl.dear(j) != "":
		r.Refused = pl.dear(j)
	case r.Parked > 0:
	case q != nil && q.Left <= 0 && time.Until(q.Resets) > 0:
		r.Parked, r.Why = min(time.Until(q.Resets), ancient), fmt.Sprintf("its quota of %s is used up until it resets", cmp.Or(shown(q.Unit, 32), "launches"))
	}
}
