package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
)

// aFew is how many jobs of a group are still shown one by one where nobody asks for them.
const aFew = 3

// statusLine is one line of the table: a job, or a whole group.
type statusLine struct {
	group []statusRow // nil: the job alone
	row   statusRow
}

// lines are the document's jobs with each larger group on one line, where its first job stands; with all every job.
func (d *statusDoc) lines() (out []statusLine) {
	groups := map[string][]statusRow{}
	for _, r := range d.Jobs {
		groups[r.Group] = append(groups[r.Group], r)
	}
	shown := map[string]bool{}
	for _, r := range d.Jobs {
		g := groups[r.Group]
		switch {
		case d.all || len(g) <= aFew:
			out = append(out, statusLine{row: r})
		case !shown[r.Group]:
			shown[r.Group] = true
			out = append(out, statusLine{group: g, row: r})
		}
	}
	return out
}

// groupStates is the order in which a group's states are counted: a table of values.
var groupStates = []string{plan.StateHeld, plan.StateClaimed, plan.StateYielded, plan.StateRevoked, plan.StateAbsent, plan.StateFailed, plan.StateUnknown}

// stateOfGroup says how far a group is: "3 of 5 finished, 2 held, 61 %". The share is of all steps, and left out where one
// job's plan does not state how many it has.
func stateOfGroup(rows []statusRow) string {
	count := map[string]int{}
	var done, steps int64
	known := true
	for _, r := range rows {
		count[r.State]++
		known = known && r.Steps > 0
		steps += r.Steps
		if r.State == plan.StateFinished {
			done += r.Steps
		} else {
			done += min(max(r.Step, 0), r.Steps)
		}
	}
	var parts []string
	if n := count[plan.StateFinished]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d finished", n, len(rows)))
	}
	for _, s := range groupStates {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	if known && done > 0 {
		parts = append(parts, fmt.Sprintf("%d %%", 100*done/steps))
	}
	return strings.Join(parts, ", ")
}

// whyOfGroup is the reason that most of a group's jobs give, a failed one's first.
func whyOfGroup(rows []statusRow) string {
	type reason struct {
		text   string
		failed bool
		n      int
	}
	var all []reason
	for _, r := range rows {
		if r.Reason == "" || r.State == plan.StateHeld || r.State == plan.StateFinished {
			continue
		}
		i := slices.IndexFunc(all, func(o reason) bool { return o.text == r.Reason })
		if i < 0 {
			i, all = len(all), append(all, reason{text: r.Reason, failed: r.State == plan.StateFailed})
		}
		all[i].n++
	}
	if len(all) == 0 {
		return ""
	}
	slices.SortStableFunc(all, func(a, b reason) int {
		if a.failed != b.failed {
			return map[bool]int{true: -1, false: 1}[a.failed]
		}
		return cmp.Compare(b.n, a.n)
	})
	return fmt.Sprintf("%d: %s", all[0].n, all[0].text)
}

// groupCells are the table's cells of a whole group, but for its cost.
func groupCells(rows []statusRow) []string {
	var where []string
	for _, r := range rows {
		if r.Platform != "" && r.State == plan.StateHeld && !slices.Contains(where, r.Platform) {
			where = append(where, r.Platform)
		}
	}
	return []string{rows[0].Group, count(len(rows), "job"), stateOfGroup(rows), "", strings.Join(where, ", "), "", "", "", whyOfGroup(rows)}
}

// cost is what a line has cost, or "" where nobody asked.
func (l statusLine) cost() string {
	if l.group == nil {
		if l.row.Cost == nil {
			return ""
		}
		return l.row.Cost.String()
	}
	var sum spend.Bill
	for _, r := range l.group {
		if r.Cost != nil {
			sum = sum.Add(*r.Cost)
		}
	}
	return sum.String()
}
