package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

// maxComment is below what the forges accept for one comment (65,536 characters).
const maxComment = 60_000

// planning is the verb plan and its flags.
type planning struct {
	asJSON, markdown        bool
	at, out, base, showFile string
}

func newPlan(e env) *cobra.Command {
	v := &planning{}
	c := &cobra.Command{Use: "plan", Short: "what the files ask for against what the store proves: a diff with reasons", Args: cobra.NoArgs,
		Long: "Shows what the next pass over these files would do. Exit code: 0 nothing to do, 2 changes, 1 error, 3 refused by a guard.",
		RunE: func(c *cobra.Command, _ []string) error {
			if v.showFile != "" {
				return v.saved(c.Context(), e.at(c))
			}
			return v.run(c.Context(), e.at(c))
		}}
	c.Flags().BoolVar(&v.asJSON, "json", false, "one JSON document (docs/json.md)")
	c.Flags().BoolVar(&v.markdown, "markdown", false, "a comment for a pull request")
	c.Flags().StringVar(&v.out, "out", "", "also save it to this file, for headway apply FILE")
	c.Flags().StringVar(&v.at, "at", "", "read the plan of this commit instead of the files on disk (HEAD, a branch, a tag or a full hash)")
	c.Flags().StringVar(&v.base, "base", "", "show what this commit changes beside what the plan at this ref (a branch, tag or hash) changes already")
	c.Flags().StringVar(&v.showFile, "show", "", "show a plan that was saved, whether or not it still holds")
	c.MarkFlagsMutuallyExclusive("json", "markdown")
	for _, other := range []string{"base", "at", "show"} {
		if other != "at" {
			c.MarkFlagsMutuallyExclusive("out", other)
		}
		if other != "show" {
			c.MarkFlagsMutuallyExclusive("show", other)
		}
	}
	return c
}

func (v *planning) run(ctx context.Context, e env) error {
	at := v.at
	if at != "" && at != "HEAD" {
		root, err := findRoot(e)
		if err == nil {
			at, err = resolve(root, "--at", at)
		}
		if err != nil {
			return err
		}
	}
	p, err := readProject(ctx, e, at)
	if err != nil {
		return err
	}
	p.hide()
	d, err := p.diff(ctx, v.base)
	if err != nil {
		return err
	}
	if !v.asJSON && len(p.plan.Errors()) == 0 {
		p.printWarnings()
	}
	if err := v.show(e, d); err != nil {
		return err
	}
	if v.out != "" && !d.Errored {
		if err := save(e, d, v.out); err != nil {
			return err
		}
	}
	if d.Errored && !v.asJSON {
		p.printProblems()
	}
	return exitOf(d)
}

// exitOf is the exit code that a diff comes to, as an error.
func exitOf(d *plan.Changes) error {
	switch d.Verdict {
	case plan.VerdictError:
		return &exit{code: exitError}
	case plan.VerdictRefused:
		return &exit{code: exitRefused}
	case plan.VerdictChanges:
		return &exit{code: exitChanges}
	case plan.VerdictNothing:
	}
	return nil
}

// hide notes the values of the secrets that the plan's jobs name: no face of a diff may show them.
func (p *project) hide() {
	for i := range p.plan.Jobs {
		for _, name := range p.plan.Jobs[i].Secrets {
			p.env.hidden.add(p.env.getenv(name))
		}
	}
}

// diff holds the project's plan against the store, and asks a pass that writes nothing what it would do next.
// With base it is what the plan adds to the one at that ref; else base is "".
func (p *project) diff(ctx context.Context, base string) (*plan.Changes, error) {
	r, _, err := p.reader(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	works, jobs := p.works(accepted), p.plan.Jobs
	var other *basis
	if base != "" {
		if other, err = p.basis(ctx, base); err != nil {
			return nil, err
		}
		works, jobs = append(works, other.works(nil)...), slices.Concat(jobs, other.plan.Jobs)
	}
	world, err := r.Observe(ctx, works, jobs)
	if err != nil {
		return nil, err
	}
	var d *plan.Changes
	if other == nil {
		d = plan.Diff(p.plan, accepted, world.Observed())
	} else {
		d = plan.DiffOver(p.plan, other.plan, accepted, world.Observed())
		d.Pending.Ref, d.Pending.Commit, d.Pending.Behind = base, other.commit, other.behind
	}
	if err := environments(ctx, r, world, d, p, other); err != nil {
		return nil, err
	}
	d.Problems = p.problems
	if d.Dirty, d.Uncommitted = p.commit == workTreeName, p.differ; !d.Dirty {
		d.Commit = p.commit
	}
	report, err := p.rehearse(ctx, r, accepted)
	if err != nil {
		return nil, err
	}
	p.problems = append(p.problems, report.Warnings...) // rules of guard that only warn
	d.Problems = p.problems
	for _, x := range report.Refusals {
		d.Refusals = append(d.Refusals, plan.Refusal{Code: x.Code, Text: x.Text, Hint: x.Hint, Whole: x.Whole})
	}
	d.Drift = report.Drift
	foresee(d.Changes, report)
	if d.Pending != nil {
		foresee(d.Pending.Changes, report)
	}
	d.Settle(p.plan)
	return d, nil
}

// environments adds to changes what is known of the machines that pinned jobs would meet.
func environments(ctx context.Context, r *reconcile.Reconciler, world *reconcile.World, d *plan.Changes, p *project, other *basis) error {
	add := func(list []plan.Change, of *plan.Plan) error {
		found, err := r.Environments(ctx, of, world)
		for i := range list {
			list[i].Environment = found[list[i].NewWork]
		}
		return err
	}
	if err := add(d.Changes, p.plan); err != nil || other == nil {
		return err
	}
	return add(d.Pending.Changes, other.plan)
}

// foresee adds to changes what a pass would do about each.
func foresee(list []plan.Change, report *reconcile.Report) {
	next := map[plan.Digest]reconcile.Action{}
	for _, a := range report.Actions {
		next[a.Work] = a
	}
	for i := range list {
		c := &list[i]
		a, ok := next[cmp.Or(c.NewWork, c.OldWork)]
		if !ok {
			continue
		}
		c.Rungs = rungsOf(a)
		if !told(c, a) {
			c.Next = nextOf(a)
		}
	}
}

// rehearse makes a pass that writes nothing: what the next one would do.
func (p *project) rehearse(ctx context.Context, r *reconcile.Reconciler, accepted *plan.Accepted) (*reconcile.Report, error) {
	d := p.desired()
	if p.commit == workTreeName {
		return r.Pass(ctx, d) // no commit yet, so nothing is known of its message
	}
	git, err := repo.Open(repo.Options{Remote: p.root, Branch: p.branch})
	if err != nil {
		return nil, repoFailure(err)
	}
	defer git.Close()
	message, err := commitMessage(git, p.commit)
	if err != nil {
		return nil, err
	}
	if err := ask(ctx, d, git, message, accepted, false); err != nil {
		return nil, err
	}
	return r.Pass(ctx, d)
}

// rungsOf is where a launch that is due would go, as the diff says it.
func rungsOf(a reconcile.Action) []plan.Rung {
	var out []plan.Rung
	for _, v := range a.Rungs {
		r := plan.Rung{Platform: v.Platform, Chosen: v.Chosen, WaitS: v.WaitS, Why: v.Why}
		switch p := v.Price; {
		case p == nil:
		case p.PerHour > 0:
			r.PerHour, r.Unit, r.AtMost = p.PerHour, cmp.Or(p.Unit, "of its own unit"), p.AtMost
		default:
			r.Free = true
		}
		out = append(out, r)
	}
	return out
}

// told: the change's own line says the same already.
func told(c *plan.Change, a reconcile.Action) bool {
	switch a.Kind {
	case reconcile.Launch:
		return (c.Op == plan.OpCreate || c.Op == plan.OpReplace) && a.Dispatch == 1 && len(c.On) > 0 && a.Platform == c.On[0]
	case reconcile.Wait:
		return len(c.After) > 0 || c.Op == plan.OpRemove
	case reconcile.Stop:
		return c.Op == plan.OpRemove
	default:
		return false
	}
}

// nextOf says in a few words what a pass would do, and why; empty where there is nothing to do.
func nextOf(a reconcile.Action) string {
	switch a.Kind {
	case reconcile.Launch:
		return fmt.Sprintf("launch on %s: %s", a.Platform, a.Reason)
	case reconcile.Move:
		return a.Reason
	case reconcile.WriteOff:
		return "write off: " + a.Reason
	case reconcile.Stop:
		return "stop: " + a.Reason
	case reconcile.Release:
		return "release: " + a.Reason
	case reconcile.Wait:
		return "wait: " + reasonOf(a)
	case reconcile.Blocked:
		return "nothing, until somebody helps: " + a.Reason
	case reconcile.Fail:
		return "nothing, it was given up: " + a.Reason
	case reconcile.None:
	}
	return ""
}

// reasonOf is why nothing is done yet, and how long that lasts at most where it is known. A pass keeps the time apart, so
// that what it says stays the same while it lasts.
func reasonOf(a reconcile.Action) string {
	if a.Kind != reconcile.Wait || a.Until < time.Second {
		return a.Reason
	}
	return fmt.Sprintf("%s; %s at most, then it is looked at again", a.Reason, ago(a.Until))
}

// show prints one of the faces of a diff. What is secret here is in none of them.
func (v *planning) show(e env, d *plan.Changes) error {
	var b bytes.Buffer
	switch {
	case v.asJSON:
		doc, err := d.JSON()
		if err != nil {
			return err
		}
		b.Write(doc)
	case v.markdown:
		b.WriteString(d.Markdown(maxComment))
	default:
		if err := d.Text(&b, e.color()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(e.stdout, e.hidden.known(b.String()))
	return err
}

func printRefusals(e env, refusals []reconcile.Refusal) {
	for _, r := range refusals {
		fmt.Fprintf(e.stderr, "refused: %s: %s\n", r.Code, clean(r.Text))
		if r.Hint != "" {
			fmt.Fprintf(e.stderr, "hint: %s\n", clean(r.Hint))
		}
	}
}
