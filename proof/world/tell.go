package world

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/proof/history"
)

// tellLines is how many lines of a timeline are told.
const tellLines = 80

// Tell says what broke, what the seed had drawn, how it came to that, and how to see it again.
func (o *Outcome) Tell(seed uint64) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "seed %d: %v\n%s", seed, o.Broken, o.Setup)
	var lines bytes.Buffer
	history.Print(&lines, relevant(o.History, fmt.Sprint(o.Broken)))
	all := strings.SplitAfter(lines.String(), "\n")
	if left := len(all) - tellLines; left > 0 {
		fmt.Fprintf(&b, "… %d lines before\n", left)
		all = all[left:]
	}
	for _, l := range all {
		b.WriteString(l)
	}
	fmt.Fprintf(&b, "all of it: go test ./proof/world -run 'TestSeed$' -v -args -all -seed %d", seed)
	return b.String()
}

// relevant leaves out what concerns only works that are not named.
func relevant(all []history.Entry, text string) []history.Entry {
	named := func(work string) bool { return len(work) >= 12 && strings.Contains(text, work[:12]) }
	if !slices.ContainsFunc(all, func(e history.Entry) bool { return named(workOf(e.Key)) }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(e history.Entry) bool {
		work := workOf(e.Key)
		return len(work) == 64 && !named(work)
	})
}
