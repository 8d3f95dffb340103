// Package patience is how long before a silence is a death: the capture window, the bound of the first steps, the lease
// in steps and the interval of milestones, each from what was observed. It is pure arithmetic on plain samples: no clock,
// no store, no platform's name.
//
// Every result is a [Derived]: the number, the rule that gave it, how many samples it rests on and what went in, so that
// headway explain can show its work. DESIGN.md says why it is as it is; science.md §4 has the formulas.
package patience

import "math"

// Rule names how a number came about. A closed set; the values are stable.
type Rule string

const (
	RulePlan       Rule = "plan"       // the plan says it
	RulePrior      Rule = "prior"      // nothing was observed yet
	RuleWork       Rule = "work"       // of what is computed, at a speed that is assumed or usual
	RulePrediction Rule = "prediction" // 95 % bound of the next one, blended with the prior
	RuleQuantile   Rule = "quantile"   // 90 % quantile, its upper confidence bound by order statistics
	RuleCost       Rule = "cost"       // where waiting on costs as much as giving up
	RuleStart      Rule = "start"      // too few steps: the start value
	RuleTail       Rule = "tail"       // cost optimum of the tail that was measured, or on the way down to it
	RuleFew        Rule = "few"        // too few long steps for a tail: the largest one, and a saving that is provable
	RuleFalse      Rule = "write-off"  // raised: somebody who was alive was written off
	RuleYoungDaly  Rule = "young-daly" // least loss by snapshots and by what is computed twice
	RuleUsual      Rule = "usual"      // what those before it usually gave
	RuleFloor      Rule = "floor"      // the least that the store or the worker allows
	RuleBounded    Rule = "bounded"    // cut to what is sane
)

// Derived is a number with where it comes from.
type Derived struct {
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"` // "s", "steps"
	Rule     Rule    `json:"rule"`
	N        int64   `json:"n"`                  // samples it rests on, censored ones not counted
	Censored int64   `json:"censored,omitempty"` // samples that only say "longer than this"
	Inputs   []Input `json:"inputs,omitempty"`
	Why      string  `json:"why"` // one clause, for people
}

// Input is one number that a [Derived] was made of.
type Input struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

func (d Derived) with(name string, v float64, unit string) Derived {
	d.Inputs = append(d.Inputs[:len(d.Inputs):len(d.Inputs)], Input{name, v, unit})
	return d
}

// Within cuts a number to sane bounds and says so when that changed it. least wins over most.
func (d Derived) Within(least, most float64, why string) Derived {
	v := max(min(d.Value, most), least)
	if v == d.Value && !math.IsNaN(d.Value) {
		return d
	}
	if math.IsNaN(d.Value) {
		v = most
	}
	d = d.with("before it was cut", d.Value, d.Unit)
	d.Value, d.Rule = v, RuleBounded
	d.Why += "; " + why
	return d
}
