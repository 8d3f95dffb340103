package reconcile

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// drawPlan draws up to eight jobs over few names and few works, so that renames, replacements and moves are common.
func drawPlan(t *rapid.T, label string) *plan.Plan {
	p := &plan.Plan{Config: plan.Config{Guard: plan.Guard{Prune: 0.2}}, Files: []string{"a.yaml"}}
	for i := range 8 {
		if !rapid.Bool().Draw(t, label+" has") {
			continue
		}
		j := plan.Job{Name: fmt.Sprint("job", i), Kind: "train", Argv: []string{"x"}, Seed: rapid.Int64Range(0, 9).Draw(t, label+" seed"), Generation: 1,
			OnDelete: rapid.SampledFrom([]plan.OnDelete{plan.Drain, plan.Revoke, plan.Orphan}).Draw(t, label+" on_delete")}
		j.Work = j.Digest()
		if rapid.IntRange(0, 7).Draw(t, label+" frozen") == 0 {
			p.Frozen = append(p.Frozen, plan.Frozen{Name: j.Name})
			p.Problems = append(p.Problems, plan.Problem{Severity: plan.Error, Code: "X"})
			continue
		}
		p.Jobs = append(p.Jobs, j)
	}
	if rapid.IntRange(0, 3).Draw(t, label+" broken") == 0 {
		p.Problems = append(p.Problems, plan.Problem{Severity: plan.Error, Code: "Y"})
	}
	return p
}

// Over any line of commits: what was accepted is named, kept or leaving, and nothing leaves in doubt.
func TestNothingIsForgottenAndNothingLeavesInDoubt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var force *inForce
		live := func(plan.Digest) bool { return true }
		for i := range rapid.IntRange(1, 5).Draw(t, "commits") {
			d := &Desired{Plan: drawPlan(t, fmt.Sprint("c", i)), Commit: fmt.Sprint("c", i), AllowStops: rapid.IntRange(-1, 6).Draw(t, "allow"),
				AllowEmpty: rapid.Bool().Draw(t, "allow empty"), Fresh: rapid.IntRange(0, 4).Draw(t, "fresh") > 0, Complete: rapid.IntRange(0, 9).Draw(t, "complete") > 0}
			refusals := guard(d, force, live)
			if slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Whole }) {
				continue
			}
			next := advance(d, force, len(refusals) == 0, func(plan.Digest) *record.Pointer { return nil })
			checkAdvance(t, d, force, next, len(refusals) == 0)
			b, err := plan.EncodeAccepted(next.plan)
			if err == nil {
				_, err = plan.DecodeAccepted(b)
			}
			if err != nil {
				t.Fatalf("what is in force can't be stored and read back: %v", err)
			}
			force = next
		}
	})
}

func checkAdvance(t *rapid.T, d *Desired, old, next *inForce, stops bool) {
	in := map[plan.Digest]string{}
	for _, j := range next.plan.Jobs {
		in[j.Work] = "job"
	}
	for _, l := range next.Leaving {
		if in[l.Work] == "job" {
			t.Fatalf("%s is a job and leaves", l.Work.Short())
		}
		if in[l.Work] != "" {
			t.Fatalf("%s leaves twice", l.Work.Short())
		}
		in[l.Work] = "leaving"
		if l.Waits {
			in[l.Work] = "waits"
		}
	}
	for i := range d.Plan.Jobs {
		if in[d.Plan.Jobs[i].Work] != "job" {
			t.Fatalf("%s is in the plan and not in force", d.Plan.Jobs[i].Name)
		}
	}
	gone := 0
	check := func(w plan.Digest, wasLeaving bool) {
		if in[w] == "" {
			t.Fatalf("%s was in force and is forgotten", w.Short())
		}
		if in[w] == "leaving" && !wasLeaving {
			if gone++; !stops || !d.Fresh || !d.Complete || !d.Plan.OK() {
				t.Fatalf("%s leaves by a read that is in doubt", w.Short())
			}
		}
	}
	works := map[plan.Digest]bool{}
	for _, j := range old.jobs() {
		if !works[j.Work] {
			check(j.Work, false)
		}
		works[j.Work] = true
	}
	if old != nil {
		for _, l := range old.Leaving {
			check(l.Work, !l.Waits)
		}
	}
	if gone > pruneFloor && gone != d.AllowStops {
		t.Fatalf("%d live works left, and the commit allows %d", gone, d.AllowStops)
	}
}
