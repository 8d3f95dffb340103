package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
)

// Codes of the rules that headway.yaml sets under guard: Guard and the field's name.
const (
	CodeGuardReplaceAfter = "GuardReplaceAfter"
	CodeGuardPaid         = "GuardPaid"
	CodeGuardPaidPerJob   = "GuardPaidPerJob"
	CodeGuardPrice        = "GuardPrice"
	CodeGuardPlatforms    = "GuardPlatforms"
	CodeGuardPinned       = "GuardPinned"
)

// known is what rules are judged by beside the plan; all of it was read before.
type known struct {
	approved       []string // jobs that may be replaced, whatever the message says
	live, finished func(plan.Digest) bool
	free           func(platform string) bool                     // its runner says that it costs nothing
	age            func(plan.Digest) (old time.Duration, ok bool) // since the first launch of a live work; not ok: it is not known
}

// breach is one rule that a commit breaks. Pos is that of the first job.
type breach struct {
	rule, code string
	pos        plan.Pos
	text, hint string
	warn       bool // whatever guard.warn says
}

// entering is a job that a commit brings or changes.
type entering struct {
	*plan.Job
	old   *plan.AcceptedJob // of that name or that work; nil: there is none
	fresh bool              // its work is not in force
}

// arriving lists what a commit brings: the jobs that are not in force as they stand there. What was accepted once is not
// judged again by a rule that came later, and of what is finished nothing runs. Pure.
func arriving(d *Desired, force *inForce, k known) (out []entering) {
	if force.commit() == d.Commit && force != nil {
		return nil
	}
	works, names := map[plan.Digest]*plan.AcceptedJob{}, map[string]*plan.AcceptedJob{}
	for i, j := range force.jobs() {
		old := &force.plan.Jobs[i]
		works[j.Work], names[j.Name] = old, old
	}
	drains := map[plan.Digest]bool{}
	if force != nil {
		for _, l := range force.Leaving {
			drains[l.Work] = true
		}
	}
	now := plan.Accept(d.Plan, d.Commit)
	for i := range d.Plan.Jobs {
		e := entering{Job: &d.Plan.Jobs[i]}
		e.old = works[e.Work]
		e.fresh = e.old == nil && !drains[e.Work]
		e.old = cmp.Or(e.old, names[e.Name])
		same := e.old != nil && e.old.Work == e.Work && bytes.Equal(e.old.Placement, now.Jobs[i].Placement) && bytes.Equal(e.old.Metadata, now.Jobs[i].Metadata)
		if !same && !k.finished(e.Work) {
			out = append(out, e)
		}
	}
	return out
}

// judge holds a commit against the rules of its own headway.yaml, in the order of their table. Pure.
func judge(d *Desired, force *inForce, k known) (out []breach) {
	g := &d.Plan.Config.Guard
	add := func(b breach) {
		if b.code != "" {
			out = append(out, b)
		}
	}
	add(replacing(d, force, k))
	list := arriving(d, force, k)
	add(spending(d, list, k))
	add(breaking(list, breach{rule: "paid_per_job", code: CodeGuardPaidPerJob, hint: "set limits.paid of the job lower, or guard.paid_per_job of " + plan.ConfigFile + " higher"},
		func(e entering) string { return dearJob(&d.Plan.Config, e.Job, k) }))
	add(breaking(list, breach{rule: "price", code: CodeGuardPrice, hint: "set limits.price of the job, or max_price of the platform, lower; take the platform out of its on; or set guard.price of " + plan.ConfigFile + " higher"},
		func(e entering) string { return dearRung(&d.Plan.Config, e.Job, k) }))
	add(breaking(list, breach{rule: "platforms", code: CodeGuardPlatforms, hint: "take the platform out of its on, give the job one of these labels, or change guard.platforms of " + plan.ConfigFile},
		func(e entering) string { return strange(g, e.Job) }))
	on := "branch " + shown(d.Branch, 100)
	if d.Branch == "" && len(g.Pinned) > 0 {
		on = strings.Join(g.Pinned, ", ") + " (which branch this is, is not known here)"
	}
	if g.Pins(d.Branch) || d.Branch == "" && len(g.Pinned) > 0 {
		add(breaking(list, breach{rule: "pinned", code: CodeGuardPinned, warn: d.Branch == "", hint: "give the job requires, with what it was tried with, such as requires: {cuda: \"12.4\"}; or take the branch out of guard.pinned"},
			func(e entering) string {
				if !e.fresh || len(e.Requires) > 0 {
					return ""
				}
				return "pins nothing of its environment, and guard.pinned asks for that on " + on
			}))
	}
	return out
}

// breaking makes one breach of all jobs that break a rule: the first with its reason, and the names of a few more. A breach
// without a code is none.
func breaking(list []entering, b breach, why func(entering) string) breach {
	var names []string
	for _, e := range list {
		reason := why(e)
		if reason == "" {
			continue
		}
		if len(names) == 0 {
			b.pos, b.text = e.Pos, "job "+shown(e.Name, 128)+" "+reason
		}
		names = append(names, e.Name)
	}
	if len(names) == 0 {
		return breach{}
	}
	if len(names) > 1 {
		b.text += fmt.Sprintf("; likewise %s", few(names[1:]))
	}
	return b
}

// few names at most three, and counts the rest.
func few(names []string) string {
	text := make([]string, 0, 3)
	for _, n := range names[:min(3, len(names))] {
		text = append(text, shown(n, 128))
	}
	out := strings.Join(text, ", ")
	if more := len(names) - len(text); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// strange says on which platform a job may not run, or "".
func strange(g *plan.Guard, j *plan.Job) string {
	for _, name := range j.On {
		if who, ok := g.Admits(name, j); !ok {
			return fmt.Sprintf("may not run on %s: guard.platforms leaves that to %s", name, shown(strings.Join(who, ", "), 300))
		}
	}
	return ""
}

// rules are what judge found, as refusals and as warnings. Nothing is judged of a commit that is not read whole.
func (p *pass) rules(ctx context.Context, said []Refusal) (refusals []Refusal, warnings []plan.Problem) {
	warnings = slices.Clone(p.d.Warnings)
	unread := func(r Refusal) bool { return r.Code == CodeOvertaken || r.Code == CodeNotComplete }
	if slices.ContainsFunc(said, unread) {
		return nil, warnings
	}
	ages := p.agesOf(ctx, replaced(p.d, p.base.force, p.live))
	k := known{live: p.live,
		finished: func(w plan.Digest) bool {
			s := p.world.works[w]
			return s != nil && s.observed(w).State == plan.StateFinished
		},
		free: func(name string) bool {
			pl := p.platforms[name]
			return pl != nil && pl.price != nil && pl.price.PerHour == 0
		},
		age: func(w plan.Digest) (time.Duration, bool) { old, ok := ages[w]; return old, ok },
	}
	if old, _ := overdue(p.d, p.base.force, k); len(old) > 0 && p.d.Approved != nil {
		k.approved = p.d.Approved(ctx, jobsOf(old))
	}
	for _, b := range judge(p.d, p.base.force, k) {
		if b.warn || p.d.Plan.Config.Guard.Warns(b.rule) {
			warnings = append(warnings, plan.Problem{Pos: b.pos, Severity: plan.Warning, Code: b.code, Text: b.text, Hint: b.hint})
			continue
		}
		refusals = append(refusals, Refusal{Code: b.code, Whole: true, Text: b.pos.String() + ": " + b.text, Hint: b.hint})
	}
	return refusals, warnings
}

// money says whether a rule needs to know what platforms cost.
func money(g *plan.Guard) bool { return g.Paid.Amount+g.PaidPerJob.Amount+g.Price.Amount > 0 }

func amountOf(m plan.Money) spend.Amount { return spend.Amount{Sum: m.Amount, Unit: m.Unit} }
