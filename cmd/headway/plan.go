package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

// maxComment is below what the forges accept for one comment (65,536 characters).
const maxComment = 60_000

func newPlan(e env) *cobra.Command {
	var asJSON, markdown bool
	var at, out string
	c := &cobra.Command{Use: "plan", Short: "what the files ask for against what the store proves: a diff with reasons", Args: cobra.NoArgs,
		Long: "Shows what the next pass over these files would do. Exit code: 0 nothing to do, 2 changes, 1 error, 3 refused by a guard.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			p, err := readProject(ctx, e.at(c), at)
			if err != nil {
				return err
			}
			if p.commit == workTreeName && !asJSON {
				warn(e, "this is the work tree as it lies on disk, not a commit: only commits are launched")
			}
			d, err := p.diff(ctx)
			if err != nil {
				return err
			}
			if !asJSON && len(p.plan.Errors()) == 0 {
				p.printWarnings()
			}
			changes, refusals := d.Changes, d.Refusals
			if err := d.show(e, asJSON, markdown); err != nil {
				return err
			}
			if out != "" && len(p.plan.Errors()) == 0 {
				if err := d.save(e.at(c), p.commit, out); err != nil {
					return err
				}
			}
			switch {
			case len(p.plan.Errors()) > 0:
				if !asJSON {
					p.printProblems()
				}
				return &exit{code: exitError}
			case len(refusals) > 0:
				return &exit{code: exitRefused}
			case changes.Any():
				return &exit{code: exitChanges}
			}
			return nil
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document (docs/json.md)")
	c.Flags().BoolVar(&markdown, "markdown", false, "a comment for a pull request")
	c.Flags().StringVar(&out, "out", "", "also save it to this file, for headway apply FILE")
	c.Flags().StringVar(&at, "at", "", "read the plan of this commit instead of the files on disk (a full hash, or HEAD)")
	return c
}

// planDoc is what `plan --json` prints: plan.Changes, and the guards that would refuse this commit.
type planDoc struct {
	*plan.Changes
	Refusals []reconcile.Refusal `json:"refusals,omitempty"`
}

// diff holds the project's plan against the store, and asks a pass that writes nothing what it would do next.
func (p *project) diff(ctx context.Context) (*planDoc, error) {
	r, _, err := p.reader(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	world, err := r.Observe(ctx, p.works(accepted), p.plan.Jobs)
	if err != nil {
		return nil, err
	}
	d := &planDoc{Changes: plan.Diff(p.plan, accepted, world.Observed())}
	d.Problems = p.problems
	report, err := p.rehearse(ctx, r, accepted)
	if err != nil {
		return nil, err
	}
	d.Refusals = report.Refusals
	next := map[plan.Digest]reconcile.Action{}
	for _, a := range report.Actions {
		next[a.Work] = a
	}
	for i := range d.Changes.Changes {
		c := &d.Changes.Changes[i]
		if a, ok := next[cmp.Or(c.NewWork, c.OldWork)]; ok && !told(c, a) {
			c.Next = nextOf(a)
		}
	}
	return d, nil
}

// rehearse makes a pass that writes nothing: what the next one would do.
func (p *project) rehearse(ctx context.Context, r *reconcile.Reconciler, accepted *plan.Accepted) (*reconcile.Report, error) {
	d := p.desired()
	if p.commit == workTreeName {
		return r.Pass(ctx, d) // no commit yet, so nothing is known of its message
	}
	git, err := repo.Open(repo.Options{Remote: p.root})
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
	case reconcile.WriteOff:
		return "write off: " + a.Reason
	case reconcile.Stop:
		return "stop: " + a.Reason
	case reconcile.Release:
		return "release: " + a.Reason
	case reconcile.Wait:
		return "wait: " + a.Reason
	case reconcile.Blocked:
		return "nothing, until somebody helps: " + a.Reason
	case reconcile.Fail:
		return "nothing, it was given up: " + a.Reason
	case reconcile.None:
	}
	return ""
}

func (d *planDoc) show(e env, asJSON, markdown bool) error {
	switch {
	case asJSON:
		return printJSON(e.stdout, d)
	case markdown:
		for _, r := range d.Refusals {
			fmt.Fprintf(e.stdout, "> **Refused (%s):** %s\n\n", r.Code, clean(r.Text))
		}
		_, err := fmt.Fprint(e.stdout, d.Markdown(maxComment))
		return err
	}
	if err := d.Text(e.stdout, e.color()); err != nil {
		return err
	}
	printRefusals(e, d.Refusals)
	return nil
}

func printRefusals(e env, refusals []reconcile.Refusal) {
	for _, r := range refusals {
		fmt.Fprintf(e.stderr, "refused: %s: %s\n", r.Code, clean(r.Text))
		if r.Hint != "" {
			fmt.Fprintf(e.stderr, "hint: %s\n", clean(r.Hint))
		}
	}
}
