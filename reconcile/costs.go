package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/witness"
)

// Cost is what the launches of one work have cost until now, as far as the store tells.
type Cost struct {
	Work     plan.Digest  `json:"work"`
	Named    string       `json:"-"`                 // job that its newest claim is for; "": none is known
	Family   string       `json:"-"`                 // and that job's group
	Launches []LaunchCost `json:"launches"`          // the newest that were paid for, in order
	Earlier  *spend.Bill  `json:"earlier,omitempty"` // of those before, as claims carry it; nil: there are none
	Total    spend.Bill   `json:"total"`
}

// LaunchCost is one paid interval.
type LaunchCost struct {
	Dispatch int64      `json:"dispatch"`
	Platform string     `json:"platform"`
	From     time.Time  `json:"from"`   // the store's stamp of its receipt, or of its claim where that was lost
	PaidS    float64    `json:"paid_s"` // seconds until now, or until its end was confirmed
	Price    string     `json:"price"`  // per hour, for people; "unknown"
	Cost     spend.Bill `json:"cost"`
	Open     bool       `json:"open"`              // its end is not confirmed: it is still paid for
	Release  string     `json:"release,omitempty"` // newest answer of its platform to a release: pending, bounded, closed
	Running  bool       `json:"running"`           // its worker holds the lease, or is on the way
}

// Leaks reports whether it is paid for although nobody works on it.
func (l LaunchCost) Leaks() bool { return l.Open && !l.Running && l.Cost.Open > 0 }

// Costs adds up what works have cost. It writes nothing, and reads the newest launches of each: what older ones cost is
// carried by the claims.
func (r *Reconciler) Costs(ctx context.Context, works []plan.Digest) (map[plan.Digest]*Cost, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	world, err := r.observe(ctx, works)
	if err != nil {
		return nil, err
	}
	type answer struct {
		w    plan.Digest
		cost *Cost
		err  error
	}
	var list []answer
	for w := range world.works {
		r.records.shelf(w)
		list = append(list, answer{w: w})
	}
	parallel(len(list), func(i int) {
		s := world.works[list[i].w]
		if s.err != nil {
			list[i].err = s.err
			return
		}
		h, err := r.records.history(ctx, list[i].w, s.seen)
		if list[i].err = err; err == nil {
			list[i].cost = r.records.shelf(list[i].w).cost(list[i].w, h, s)
		}
	})
	out := make(map[plan.Digest]*Cost, len(list))
	for _, a := range list {
		if a.err != nil {
			return nil, a.err
		}
		out[a.w] = a.cost
	}
	return out, nil
}

// cost is the bill of one work.
func (s *shelf) cost(w plan.Digest, h History, at *sight) *Cost {
	s.purse.sees(at.seen)
	now := s.purse.now()
	named := int64(0)
	list, earlier, gone := s.paid(w, h, at.seen, runners.MaxDispatch)
	earlier.Unknown += gone
	out := &Cost{Work: w, Launches: []LaunchCost{}, Total: earlier}
	for n, d := range s.listed {
		if d.claim != nil && n > named {
			named, out.Named, out.Family = n, shown(d.claim.Job, 100), shown(d.claim.Family, 100)
		}
	}
	if len(earlier.Amounts)+int(earlier.Unknown) > 0 {
		out.Earlier = &earlier
	}
	for _, l := range list {
		c := LaunchCost{Dispatch: l.n, From: l.From.UTC(), PaidS: l.Length(now).Seconds(), Price: "unknown", Cost: spend.Charge(l.Interval, now), Open: l.Open(now)}
		if l.Rate != nil {
			c.Price = l.Rate.String()
		}
		for _, d := range h.Dispatches {
			if d.N == l.n {
				c.Platform, c.Release = d.Platform, shown(d.Settled, 20)
			}
		}
		c.Running = c.Open && (at.lease.State == witness.Held && at.lease.Dispatch == l.n || h.starting(l.n))
		out.Launches = append(out.Launches, c)
		out.Total = out.Total.Add(c.Cost)
	}
	return out
}

// starting reports whether a worker of a dispatch is still waited for.
func (h History) starting(n int64) bool {
	for _, d := range h.Dispatches {
		if d.N == n {
			return d.inFlight(h.Floor)
		}
	}
	return false
}

// tell adds to the lines of an explanation what was paid for each launch; one that led to two attempts was paid once.
func (c *Cost) tell(lines []Line) []Line {
	told := map[int64]bool{}
	for i := range lines {
		for _, l := range c.Launches {
			if l.Dispatch != lines[i].Dispatch || told[l.Dispatch] {
				continue
			}
			told[l.Dispatch] = true
			lines[i].Cost = l.text()
		}
	}
	return lines
}

// text says what one launch costs: "0.32 USD for 48m12s at 0.40 USD per hour, and still paid for".
func (l LaunchCost) text() string {
	s := fmt.Sprintf("%s for %s at %s", l.Cost, time.Duration(l.PaidS*float64(time.Second)).Round(time.Second), l.Price)
	switch {
	case l.Leaks() && l.Release != "":
		s += ", and still paid for: its release is " + l.Release
	case l.Leaks():
		s += ", and still paid for: its end is not confirmed"
	case l.Cost.Open > 0:
		s += ", and still paid for"
	}
	return s
}

// lostPaid is what so many seconds of the holder's machine cost, in money; "": its price is not known, or it is free.
func (s *sight) lostPaid(seconds float64) string {
	r := (&slip{claim: s.claim}).rate()
	if r == nil || r.PerHour == 0 || seconds <= 0 {
		return ""
	}
	a := spend.Amount{Sum: r.PerHour * seconds / 3600, Unit: r.Unit, AtMost: r.AtMost || s.claim.Launch != ""}
	return a.String()
}
