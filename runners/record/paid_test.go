package record

import (
	"math"
	"testing"
)

func TestAPriceThatMakesNoSenseIsRefused(t *testing.T) {
	for _, p := range []Price{{PerHour: 0}, {PerHour: 0.45, Unit: "USD"}, {PerHour: 1, Unit: "quota hours"}, {PerHour: 1e9, Unit: "credits", AtMost: true}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []Price{{PerHour: -1}, {PerHour: math.NaN()}, {PerHour: math.Inf(1)}, {PerHour: 1e10}, {Unit: "US$"}, {Unit: " USD"}, {Unit: "a\x1b[31m"}, {Unit: "abcdefghijklmnopqrstuvwxyzabcdefghijk"}} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func TestACarriedCostIsChecked(t *testing.T) {
	usd := func(v float64) []Amount { return []Amount{{Sum: v, Unit: "USD"}} }
	for _, p := range []Paid{{}, {Through: 9, Unknown: 9}, {Through: 1, Amounts: usd(3)}, {Through: 2, Amounts: []Amount{{Sum: 1, Unit: "USD"}, {Sum: 0, Unit: "credits", AtMost: true}}}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []Paid{{Through: -1}, {Through: 1, Unknown: 2}, {Amounts: usd(-1)}, {Amounts: usd(math.NaN())}, {Amounts: usd(math.Inf(1))}, {Amounts: []Amount{{Unit: "b"}, {Unit: "a"}}},
		{Amounts: []Amount{{Unit: "a"}, {Unit: "a"}}}, {Amounts: make([]Amount, MaxUnits+1)}} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}
