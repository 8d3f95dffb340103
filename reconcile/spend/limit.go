package spend

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits are those of one job. Zero means none.
type Limits struct {
	Wall time.Duration // since its first launch
	Paid Amount        // of all its launches; Unit "" counts every unit by itself
}

// None reports whether there is nothing to judge.
func (l Limits) None() bool { return l.Wall <= 0 && l.Paid.Sum <= 0 }

// Account is what is known of a work's launches at one instant.
type Account struct {
	Now      time.Time // the store's
	First    time.Time // its first launch was claimed then; zero: it has none
	Launches []Interval
	Carried  Bill // of launches that are older than those
}

// Verdict says what the limits ask for.
type Verdict struct {
	Why   string        // the limit that was crossed and by how much, one clause; "": none was
	Since time.Duration // how long ago it was crossed
	Next  time.Duration // how long until it is, as things stand; 0: it is not known
}

// Over reports whether a limit was crossed.
func (v Verdict) Over() bool { return v.Why != "" }

// Judge holds an account against the limits. Of two that were crossed the earlier one counts. When a limit was crossed is
// a function of the account alone, so that every dispatcher, and one that was restarted, says the same.
func Judge(l Limits, a Account) Verdict {
	out := Verdict{}
	if l.Wall > 0 && !a.First.IsZero() {
		out.take(a.First.Add(l.Wall), a.Now, func() string {
			return fmt.Sprintf("limits.wall: its first launch was more than %s ago", round(l.Wall))
		})
	}
	if l.Paid.Sum > 0 {
		bill := Total(a.Launches, a.Carried, a.Now)
		for _, unit := range units(l.Paid.Unit, bill) {
			if at, ever := crossing(a, unit, l.Paid.Sum); ever {
				out.take(at, a.Now, func() string { return paidText(l, bill, unit) })
			}
		}
	}
	return out
}

// take notes one limit that is, or will be, crossed at an instant.
func (v *Verdict) take(at, now time.Time, why func() string) {
	if since := now.Sub(at); since >= 0 {
		if !v.Over() || since > v.Since {
			v.Why, v.Since = why(), since
		}
		return
	}
	if next := at.Sub(now); v.Next == 0 || next < v.Next {
		v.Next = next
	}
}

// units lists those that a limit counts.
func units(limit string, b Bill) []string {
	if limit != "" {
		return []string{limit}
	}
	var out []string
	for _, a := range b.Amounts {
		out = append(out, a.Unit)
	}
	return out
}

// paidText is the sentence of limits.paid.
func paidText(l Limits, bill Bill, unit string) string {
	text := fmt.Sprintf("limits.paid: %s are spent, the limit is %s", bill.Of(unit), Amount{Sum: l.Paid.Sum, Unit: unit})
	rest := Bill{Unknown: bill.Unknown}
	for _, a := range bill.Amounts {
		if a.Unit != unit {
			rest.Amounts = append(rest.Amounts, a)
		}
	}
	if s := rest.String(); s != "0" {
		text += "; not counted: " + s
	}
	return text
}

// crossing is when the sum in a unit reached limit, or will at the rate of what is paid for now. ever is false when it
// never does. A sum that was carried over that limit was crossed before anything that is known.
func crossing(a Account, unit string, limit float64) (at time.Time, ever bool) {
	sum := a.Carried.Of(unit).Sum
	type edge struct {
		at   time.Time
		rate float64 // what begins, or ends, to be paid
	}
	var edges []edge
	for _, i := range a.Launches {
		if i.Rate == nil || i.Rate.Unit != unit || i.Rate.PerHour <= 0 {
			continue
		}
		edges = append(edges, edge{i.From, i.Rate.perHour()})
		if !i.To.IsZero() {
			edges = append(edges, edge{maxTime(i.To, i.From), -i.Rate.perHour()})
		}
	}
	slices.SortStableFunc(edges, func(x, y edge) int { return x.at.Compare(y.at) })
	if sum >= limit {
		if len(edges) > 0 {
			return edges[0].at, true
		}
		return a.First, true
	}
	rate := 0.0
	for k, e := range edges {
		rate += e.rate
		if rate <= 1e-12 {
			rate = 0
			continue
		}
		hours := (limit - sum) / rate
		if k+1 < len(edges) {
			if span := edges[k+1].at.Sub(e.at).Hours(); span < hours {
				sum += rate * span
				continue
			}
		}
		if hours > Longest.Hours() {
			return time.Time{}, false
		}
		return e.at.Add(time.Duration(hours * float64(time.Hour))), true
	}
	return time.Time{}, false
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// round prints a duration with what matters of it.
func round(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	}
	s := d.String()
	if whole, ok := strings.CutSuffix(s, "h0m0s"); ok {
		return whole + "h"
	}
	if whole, ok := strings.CutSuffix(s, "m0s"); ok {
		return whole + "m"
	}
	return s
}
