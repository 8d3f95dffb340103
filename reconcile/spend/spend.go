// Package spend adds up what the launches of a work cost, by paid interval, in each platform's own unit, and says when a
// limit on time or money was crossed. It is pure: instants are the store's own, and nothing here knows a clock. Unknown
// is a value of its own: what has no known price, or no confirmed end, is counted beside the sums and never guessed.
package spend

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Longest bounds what the store's stamps may claim of one interval.
const Longest = 10 * 366 * 24 * time.Hour

// Rate is what one launch costs.
type Rate struct {
	PerHour float64 // of the whole launch, in Unit; never negative
	Unit    string  // the platform's own word; "": it has none
	AtMost  bool    // an upper bound
	Share   float64 // of the launch that is this job's, above 0 and up to 1; 0: all of it
}

// perHour is this job's part.
func (r Rate) perHour() float64 {
	if r.Share > 0 && r.Share < 1 {
		return r.PerHour * r.Share
	}
	return r.PerHour
}

// Interval is the time for which one launch is paid.
type Interval struct {
	From time.Time
	To   time.Time // zero: its end is not confirmed, so it is still paid for
	Rate *Rate     // nil: its price is not known
}

// Open reports whether the end is not confirmed by now.
func (i Interval) Open(now time.Time) bool { return i.To.IsZero() || i.To.After(now) }

// Length is the paid time until now: never negative, and no more than Longest.
func (i Interval) Length(now time.Time) time.Duration {
	end := now
	if !i.Open(now) {
		end = i.To
	}
	return min(max(end.Sub(i.From), 0), Longest)
}

// Amount is a sum in one unit. AtMost: some of it is an upper bound.
type Amount struct {
	Sum    float64 `json:"sum"`
	Unit   string  `json:"unit"`
	AtMost bool    `json:"at_most,omitempty"`
}

// Bill is what launches have cost. Units are never converted into one another.
type Bill struct {
	Amounts []Amount `json:"amounts,omitempty"` // one for each unit, by unit
	Unknown int64    `json:"unknown,omitempty"` // launches that cost more than Amounts say: their price, or the rest of their time, is not known
	Open    int64    `json:"open,omitempty"`    // launches that are still paid for: the bill grows
}

// Charge is the bill of one launch until now.
func Charge(i Interval, now time.Time) (b Bill) {
	if i.Open(now) && (i.Rate == nil || i.Rate.PerHour > 0) {
		b.Open = 1
	}
	switch {
	case i.Rate == nil:
		b.Unknown = 1
	case i.Rate.PerHour > 0 || i.Rate.Unit != "": // what is free has no unit to be shown in
		b.Amounts = []Amount{{Sum: i.Rate.perHour() * i.Length(now).Hours(), Unit: i.Rate.Unit, AtMost: i.Rate.AtMost}}
	}
	return b
}

// Total is the bill of several launches, and of what was carried over from earlier ones.
func Total(list []Interval, carried Bill, now time.Time) Bill {
	out := carried
	for _, i := range list {
		out = out.Add(Charge(i, now))
	}
	return out
}

// Add adds two bills, unit by unit.
func (b Bill) Add(o Bill) Bill {
	out := Bill{Amounts: slices.Clone(b.Amounts), Unknown: b.Unknown + o.Unknown, Open: b.Open + o.Open}
	for _, a := range o.Amounts {
		at, found := slices.BinarySearchFunc(out.Amounts, a.Unit, func(x Amount, unit string) int { return cmp.Compare(x.Unit, unit) })
		if !found {
			out.Amounts = slices.Insert(out.Amounts, at, a)
			continue
		}
		out.Amounts[at].Sum += a.Sum
		out.Amounts[at].AtMost = out.Amounts[at].AtMost || a.AtMost
	}
	return out
}

// Of is the sum in one unit; zero when there is none.
func (b Bill) Of(unit string) Amount {
	for _, a := range b.Amounts {
		if a.Unit == unit {
			return a
		}
	}
	return Amount{Unit: unit}
}

// String is a bill for people: "12.40 USD + at most 0.90 credits + unknown (2 launches)". Nothing is "0".
func (b Bill) String() string {
	var parts []string
	for _, a := range b.Amounts {
		parts = append(parts, a.String())
	}
	if b.Unknown > 0 {
		word := "launches"
		if b.Unknown == 1 {
			word = "launch"
		}
		parts = append(parts, "unknown ("+strconv.FormatInt(b.Unknown, 10)+" "+word+")")
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}

// String is an amount for people.
func (a Amount) String() string {
	text := Number(a.Sum)
	if a.Unit != "" {
		text += " " + a.Unit
	}
	if a.AtMost {
		text = "at most " + text
	}
	return text
}

// Number prints an amount with two decimals, and a small one with as many as show two digits of it.
func Number(v float64) string {
	if v > 0 && v < 1e-7 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	if v > 0 && v < 0.1 {
		return strconv.FormatFloat(v, 'f', min(1-int(math.Floor(math.Log10(v))), 8), 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// String is a price per hour for people: "0.40 USD per hour".
func (r Rate) String() string {
	if r.PerHour == 0 {
		return "free"
	}
	text := Amount{r.perHour(), r.Unit, r.AtMost}.String() + " per hour"
	if r.Share > 0 && r.Share < 1 {
		text += " (a part of " + Amount{r.PerHour, r.Unit, r.AtMost}.String() + ")"
	}
	return text
}
