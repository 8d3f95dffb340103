package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/runners/local"
	"github.com/headway-run/headway/runners/sim"
)

// optionNames are what the runners of this build take beside what every platform has. (Table of values.)
var optionNames = map[string][]string{
	"local": {"cards", "grace", "keep", "scratch"},
	"sim":   {"capacity", "milestone", "notice", "per", "quota", "script", "start", "step", "steps", "until_released", "upload"},
}

// badOptions holds one platform's own fields against its runner, each by itself, so that all mistakes are said at once
// and where they stand.
func badOptions(c plan.Platform) (found []plan.Problem) {
	names, built := optionNames[c.Runner]
	if !built {
		return nil
	}
	say := func(key string, s plan.Severity, code, text, hint string) {
		pos, ok := c.At[key]
		if !ok {
			pos = c.Pos
		}
		found = append(found, plan.Problem{Pos: pos, Severity: s, Code: code, Text: fmt.Sprintf("platform %s: %s", c.Name, text), Hint: hint})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Options)) {
		one := map[string]string{key: c.Options[key]}
		if quota, ok := c.Options["quota"]; key == "per" && ok { // the one makes no sense without the other
			one["quota"] = quota
		}
		if err := checkOption(c.Runner, one, 0); err != nil {
			hint := ""
			if near := plan.Nearest(key, names); near != "" && near != key && c.Runner != "local" { // which says it itself
				hint = "did you mean " + near + "?"
			}
			say(key, plan.Error, "BadOption", err.Error(), hint)
		}
	}
	if err := checkOption(c.Runner, nil, c.Slots); err != nil {
		say("slots", plan.Error, "BadOption", err.Error(), "")
	}
	if n := cardsOffered(c); c.Runner == "local" && capacityOf(c) < n && c.Options["cards"] != "" {
		say("cards", plan.Error, "BadOption", fmt.Sprintf("cards is %d, and gpu offers %d at once", capacityOf(c), n), "raise cards, or name the card without a count")
	}
	if c.Runner == "local" && c.Price.Amount > 0 {
		say("price", plan.Warning, "PriceIgnored", "its price counts for nothing: the runner local says that it is free", "leave it out")
	}
	if c.Price.Amount > c.MaxPrice.Amount && c.MaxPrice.Amount > 0 && c.Runner != "local" && (c.Price.Unit == c.MaxPrice.Unit || c.Price.Unit == "" || c.MaxPrice.Unit == "") {
		say("price", plan.Warning, "TooDear", "its price is above its max_price, so nothing is launched there", "raise max_price")
	}
	return found
}

// cardsOffered is how many cards of an entry of a platform's gpu come at once, as in T4x2; 0: it names none.
func cardsOffered(c plan.Platform) (n int) {
	for _, name := range c.GPU {
		if m, err := flops.LookupOn(c.Runner, name); err == nil {
			n = max(n, m.Count)
		}
	}
	return n
}

// dealtTwice refuses a second platform that deals the cards of this machine: each would begin with the first of them.
func (p *project) dealtTwice() (found []plan.Problem) {
	first := ""
	for _, name := range slices.Sorted(maps.Keys(p.plan.Config.Platforms)) {
		c := p.plan.Config.Platforms[name]
		if c.Runner != "local" || c.Options["cards"] == "" {
			continue
		}
		if first != "" {
			found = append(found, plan.Problem{Pos: c.At["cards"], Severity: plan.Error, Code: "BadOption",
				Text: fmt.Sprintf("platform %s: cards of this machine are dealt by platform %s already, and both would begin with the first", name, first),
				Hint: "let one platform deal all of them"})
		}
		first = cmp.Or(first, name)
	}
	return found
}

// idleLabels warns of limits.parallel on labels that no job carries.
func (p *project) idleLabels() (found []plan.Problem) {
	carried := map[string]bool{}
	for i := range p.plan.Jobs {
		for k, v := range p.plan.Jobs[i].Labels {
			carried[k+"="+v] = true
		}
	}
	for _, label := range slices.Sorted(maps.Keys(p.plan.Config.Parallel)) {
		if carried[label] || len(p.plan.Jobs) == 0 {
			continue
		}
		q := plan.Problem{Pos: plan.Pos{File: plan.ConfigFile}, Severity: plan.Warning, Code: "IdleLimit", Text: fmt.Sprintf("limits.parallel: no job carries the label %s, so it limits nothing", label)}
		if near := plan.Nearest(label, slices.Sorted(maps.Keys(carried))); near != "" {
			q.Hint = "did you mean " + near + "?"
		}
		found = append(found, q)
	}
	return found
}

// checkOption asks a runner's own reader of options.
func checkOption(runner string, options map[string]string, slots int) error {
	if runner == "sim" {
		_, err := sim.Config{}.With(options)
		return err
	}
	return local.Check(local.Config{Slots: slots, Options: options})
}
