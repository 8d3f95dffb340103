package record

import (
	"fmt"
	"math"
	"strings"
)

// Check refuses a price that no platform can mean: negative, infinite or absurd, or a unit that is no short word or two.
func (p Price) Check() error {
	if !(p.PerHour >= 0) || p.PerHour > 1e9 {
		return fmt.Errorf("a price of %v per hour: expected a number from 0 to 1e9", p.PerHour)
	}
	return checkUnit(p.Unit)
}

// checkUnit accepts letters, with single spaces between words; no unit at all is one too.
func checkUnit(unit string) error {
	if len(unit) > 32 {
		return fmt.Errorf("a unit of %d bytes: expected at most 32", len(unit))
	}
	if strings.Trim(unit, " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || strings.TrimSpace(unit) != unit {
		return fmt.Errorf("the unit %.40q: expected letters, such as USD, credits or quota hours", unit)
	}
	return nil
}

// Paid is what a work's oldest launches have cost, so that whoever reads the newest few knows the whole. It is carried
// from claim to claim, like Claim.Spent: written once, with the claim, and never changed.
type Paid struct {
	Through int64    `json:"through"`           // dispatches 1 to this one are in it
	Amounts []Amount `json:"amounts,omitempty"` // one for each unit, by unit
	// Unknown are the launches of them that had no known price, or whose end was not confirmed: they cost more than Amounts say.
	Unknown int64 `json:"unknown,omitempty"`
}

// Amount is a sum in one unit.
type Amount struct {
	Sum    float64 `json:"sum"`
	Unit   string  `json:"unit"`
	AtMost bool    `json:"at_most,omitempty"` // some of it is an upper bound
}

// MaxUnits is how many units one work's launches may be paid in.
const MaxUnits = 16

// Check refuses sums that no honest claimer can have counted.
func (p Paid) Check() error {
	if p.Through < 0 || p.Unknown < 0 || p.Unknown > p.Through || len(p.Amounts) > MaxUnits {
		return fmt.Errorf("the cost of %d launches, %d of them unknown, in %d units: expected at most %d units and no more unknown ones than launches", p.Through, p.Unknown, len(p.Amounts), MaxUnits)
	}
	for i, a := range p.Amounts {
		if !(a.Sum >= 0) || math.IsInf(a.Sum, 0) || a.Sum > 1e15 {
			return fmt.Errorf("a cost of %v: expected a number from 0 to 1e15", a.Sum)
		}
		if err := checkUnit(a.Unit); err != nil {
			return err
		}
		if i > 0 && p.Amounts[i-1].Unit >= a.Unit {
			return fmt.Errorf("costs in %q after %q: expected one for each unit, in order", a.Unit, p.Amounts[i-1].Unit)
		}
	}
	return nil
}
