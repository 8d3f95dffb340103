package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// Codes of the refusals that are made here; a repository adds its own.
const (
	CodeEmptyPlan    = "EmptyPlan"
	CodeTooManyStops = "TooManyStops"
	CodePlanErrors   = "PlanErrors"
	CodeNotFresh     = "NotFresh"
	CodeNotComplete  = "NotComplete"
	CodeOvertaken    = "Overtaken"
)

// allowStops begins every hint that names a trailer.
const allowStops = "if they shall stop, say so in the commit message: "

// pruneFloor is how many live works one commit may always stop.
const pruneFloor = 3

// departing is a work that was accepted once and that no job names any more.
type departing struct {
	Work     plan.Digest     `json:"work"`
	Job      string          `json:"job"` // name at the time
	OnDelete plan.OnDelete   `json:"on_delete"`
	Commit   string          `json:"commit"`            // that left it out
	Pointer  *record.Pointer `json:"pointer,omitempty"` // resume pointer at that moment
	// Waits: its stop was not allowed yet, since the commit that left it out had errors.
	Waits bool `json:"waits,omitempty"`
	// Since is the store's time from which on its drain waits for a milestone; "": it is not known.
	Since string `json:"since,omitempty"`
}

// overtaken: the plan in force is neither this one nor the one that it was held against. With Once it must be the latter.
func (d *Desired) overtaken(force *inForce) bool {
	return d.Over != nil && force.commit() != *d.Over && (d.Once || force.commit() != d.Commit)
}

func meanwhile(force *inForce) Refusal {
	return Refusal{Code: CodeOvertaken, Whole: true, Text: fmt.Sprintf("commit %.12s was accepted meanwhile, by another reconciler", shown(force.commit(), 40)),
		Hint: "the next pass compares anew"}
}

// guard says why a commit is not followed, or not wholly. Pure. live says whether somebody works on a work, or is
// about to; force is nil when nothing was ever accepted.
func guard(d *Desired, force *inForce, live func(plan.Digest) bool) []Refusal {
	out := make([]Refusal, 0, 2)
	for _, r := range d.Refusals {
		r.Whole = true
		out = append(out, r)
	}
	errs := d.Plan.Errors()
	gone := leaving(d, force)
	if d.overtaken(force) {
		return append(out, meanwhile(force))
	}
	switch {
	case !d.Complete:
		out = append(out, Refusal{Code: CodeNotComplete, Whole: true, Text: "the commit could not be read whole, so it is not followed",
			Hint: "look at the errors of the repository; what was accepted before stays in force"})
	case force.empty():
	case len(errs) == 0 && len(d.Plan.Jobs)+len(d.Plan.Frozen) == 0 && !d.AllowEmpty:
		out = append(out, Refusal{Code: CodeEmptyPlan, Whole: true,
			Text: fmt.Sprintf("the plan has no jobs (%s matched), so nothing is stopped", count(len(d.Plan.Files), "file", "files")),
			Hint: allowStops + "Allow-Empty: yes"})
	}
	if len(errs) > 0 {
		out = append(out, Refusal{Code: CodePlanErrors, Text: fmt.Sprintf("the plan has %s, so nothing is stopped until it has none", count(len(errs), "error", "errors")),
			Hint: "headway validate lists them"})
	}
	if !d.Fresh && len(gone) > 0 {
		out = append(out, Refusal{Code: CodeNotFresh, Text: "the plan was not read afresh, so nothing is stopped",
			Hint: "stops wait until the repository answers again"})
	}
	r, many := tooMany(d, force, gone, live)
	switch {
	case !many:
	case len(out) > 0 && out[len(out)-1].Code == CodeEmptyPlan:
		out[len(out)-1].Hint += " and " + strings.TrimPrefix(r.Hint, allowStops)
	case !slices.ContainsFunc(out, func(r Refusal) bool { return r.Whole }):
		out = append(out, r)
	}
	return out
}

// tooMany holds the live works that would leave against guard.prune. An exact Allow-Stops lifts it. A commit that was
// refused for it stays so while it would stop anything: that other works have finished meanwhile says nothing for it.
func tooMany(d *Desired, force *inForce, gone []departing, live func(plan.Digest) bool) (Refusal, bool) {
	if !slices.ContainsFunc(gone, func(g departing) bool { return live(g.Work) }) {
		return Refusal{}, false
	}
	all, stops := 0, 0
	seen := map[plan.Digest]bool{}
	for _, j := range force.jobs() {
		if !seen[j.Work] && live(j.Work) {
			all++
		}
		seen[j.Work] = true
	}
	for _, g := range gone {
		if live(g.Work) {
			stops++
			if !seen[g.Work] {
				all++
			}
		}
	}
	limit := max(pruneFloor, int(d.Plan.Config.Guard.Prune*float64(all)))
	// With errors nothing is stopped anyway, and a broken file makes its jobs look like leaving ones.
	before := force != nil && force.Refused != nil && force.Refused.Commit == d.Commit && slices.Contains(force.Refused.Codes, CodeTooManyStops)
	if stops <= limit && !before || d.AllowStops == stops || !d.Plan.OK() {
		return Refusal{}, false
	}
	said := ""
	if d.AllowStops >= 0 {
		said = fmt.Sprintf(" (the commit says %d)", d.AllowStops)
	}
	if stops <= limit {
		return Refusal{Code: CodeTooManyStops, Whole: true,
			Text: fmt.Sprintf("%d of %d live works would leave, and the commit was refused when more would have, so it is still not followed%s", stops, all, said),
			Hint: fmt.Sprintf(allowStops+"Allow-Stops: %d", stops)}, true
	}
	return Refusal{Code: CodeTooManyStops, Whole: true,
		Text: fmt.Sprintf("%d of %d live works would leave, at most %d may in one commit, so it is not followed%s", stops, all, limit, said),
		Hint: fmt.Sprintf(allowStops+"Allow-Stops: %d", stops)}, true
}

// leaving lists the works that are in force, and would not be with the desired plan. Pure.
func leaving(d *Desired, force *inForce) []departing {
	if force == nil {
		return nil
	}
	stay := map[plan.Digest]bool{}
	for i := range d.Plan.Jobs {
		stay[d.Plan.Jobs[i].Work] = true
	}
	frozen := map[string]bool{}
	for _, f := range d.Plan.Frozen {
		frozen[f.Name] = true
	}
	var out []departing
	for _, j := range force.jobs() {
		if !stay[j.Work] && !frozen[j.Name] {
			stay[j.Work] = true
			out = append(out, departing{Work: j.Work, Job: j.Name, OnDelete: j.OnDelete, Commit: d.Commit})
		}
	}
	for _, l := range force.Leaving {
		if l.Waits && !stay[l.Work] {
			l.Commit = d.Commit
			out = append(out, l)
		}
	}
	return out
}

// advance is what is in force after a commit that no refusal holds back as a whole. stops says whether works may
// leave. pointer answers the resume pointer of a work as it is now. Pure.
func advance(d *Desired, force *inForce, stops bool, pointer func(plan.Digest) *record.Pointer) *inForce {
	next := &inForce{Format: forceFormat, plan: plan.Accept(d.Plan, d.Commit)}
	if force != nil {
		next.Clean = force.Clean
	}
	if stops {
		next.Clean = d.Commit
	}
	if force == nil {
		return next
	}
	named, works := map[string]bool{}, map[plan.Digest]bool{}
	for _, j := range next.plan.Jobs {
		named[j.Name], works[j.Work] = true, true
	}
	gone := map[plan.Digest]bool{}
	for _, l := range leaving(d, force) {
		if stops {
			l.Pointer = pointer(l.Work)
		} else if !l.Waits && !named[l.Job] {
			continue // it stays a job, as it was accepted
		}
		l.Waits, gone[l.Work] = !stops, true
		next.Leaving = append(next.Leaving, l)
	}
	for _, l := range force.Leaving {
		if !l.Waits && !works[l.Work] {
			next.Leaving = append(next.Leaving, l)
		}
	}
	for _, j := range force.jobs() {
		if !named[j.Name] && !works[j.Work] && !gone[j.Work] {
			next.plan.Jobs = append(next.plan.Jobs, j)
		}
	}
	slices.SortFunc(next.plan.Jobs, func(a, b plan.AcceptedJob) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	slices.SortFunc(next.Leaving, func(a, b departing) int {
		if a.Work < b.Work {
			return -1
		}
		return 1
	})
	return next
}
