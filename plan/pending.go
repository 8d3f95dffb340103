package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Pending is what the plan at another ref changes already, as long as nobody has applied it: what a pull request finds
// there, and does not make.
type Pending struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
	// Behind: the commit of the diff does not descend from Commit, so what Ref changed since shows as undone.
	Behind  bool     `json:"behind,omitempty"`
	Errored bool     `json:"errored"`
	Changes []Change `json:"changes"` // sorted by job name; only those that change something
	Totals  Totals   `json:"totals"`
}

// DiffOver is the difference that head makes to the plan at a base, as [Diff] says it, with what base changes already in
// Pending: desired against desired, so that what is left is what a merge adds. The caller fills in Pending's Ref, Commit and
// Behind.
//
// A job that both change is in both lists, each with a warning: merged, it is as head has it.
func DiffOver(head, base *Plan, accepted *Accepted, observed map[Digest]Observed) *Changes {
	if accepted == nil {
		accepted = &Accepted{}
	}
	over := acceptedWith(base, accepted)
	out := Diff(head, &over, observed)
	out.Base = accepted.Commit
	first := Diff(base, accepted, observed)
	p := &Pending{Errored: first.Errored, Changes: []Change{}, Totals: first.Totals}
	pending := map[string]int{}
	for _, c := range first.Changes {
		if c.Op != OpUnchanged && (c.Op != OpWaiting || c.OldWork != c.NewWork) {
			pending[c.Job] = len(p.Changes)
			p.Changes = append(p.Changes, c)
		}
	}
	p.Totals.Waiting -= len(first.Changes) - len(p.Changes) - first.Totals.Unchanged
	p.Totals.Unchanged = 0
	base.twins(out)
	for i := range out.Changes {
		c := &out.Changes[i]
		if c.Op == OpWaiting && c.OldWork == c.NewWork && len(c.Fields) == 0 { // so it is at base, and waits there
			c.Op, c.Reason = OpUnchanged, ""
			out.Totals.Waiting--
			out.Totals.Unchanged++
		}
		if k, both := pending[c.Job]; both && c.Op != OpUnchanged {
			c.Warnings = append(c.Warnings, "the base changes this job too, and that is pending: merged, it is as this commit has it")
			q := &p.Changes[k]
			q.Warnings = append(slices.Clone(q.Warnings), "this commit changes this job too: merged, it is as that has it")
		}
	}
	out.Pending = p
	out.Settle(head)
	return out
}

// twins warns of jobs of a diff whose work a job of base computes under another name: two changes that are each fine and
// together ask for the same work twice.
func (p *Plan) twins(c *Changes) {
	names := make(map[Digest][]string, len(p.Jobs))
	for i := range p.Jobs {
		names[p.Jobs[i].Work] = append(names[p.Jobs[i].Work], p.Jobs[i].Name)
	}
	for i := range c.Changes {
		ch := &c.Changes[i]
		if ch.OldWork == ch.NewWork && ch.Previous == "" || ch.NewWork == "" {
			continue
		}
		for _, n := range names[ch.NewWork] {
			if n != ch.Job {
				ch.Warnings = append(ch.Warnings, fmt.Sprintf("the same work as %s at the base: if both stay it is computed once and both have it", n))
				break
			}
		}
	}
}

// acceptedWith is what would be accepted once p was: what p cannot say stays as it was.
func acceptedWith(p *Plan, before *Accepted) Accepted {
	a := Accept(p, before.Commit)
	for _, old := range before.Jobs {
		_, kept := p.Job(old.Name)
		frozen := slices.ContainsFunc(p.Frozen, func(f Frozen) bool { return f.Name == old.Name })
		if !kept && (frozen || !p.OK()) {
			a.Jobs = append(a.Jobs, old)
		}
	}
	slices.SortFunc(a.Jobs, func(x, y AcceptedJob) int { return strings.Compare(x.Name, y.Name) })
	return a
}
