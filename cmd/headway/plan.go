package main

import (
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
	var at string
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
			changes, refusals, err := p.diff(ctx)
			if err != nil {
				return err
			}
			if err := show(e, changes, refusals, asJSON, markdown); err != nil {
				return err
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
	c.Flags().StringVar(&at, "at", "", "read the plan of this commit instead of the files on disk (a full hash, or HEAD)")
	return c
}

// diff holds the project's plan against the store. It writes nothing.
func (p *project) diff(ctx context.Context) (*plan.Changes, []reconcile.Refusal, error) {
	r, _, err := p.reconciler(ctx, actor{})
	if err != nil {
		return nil, nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, nil, err
	}
	world, err := r.Observe(ctx, p.works(accepted), p.plan.Jobs)
	if err != nil {
		return nil, nil, err
	}
	changes := plan.Diff(p.plan, accepted, world.Observed())
	changes.Problems = p.problems
	d := p.desired()
	if err := p.vouch(ctx, d, accepted); err != nil {
		return nil, nil, err
	}
	refusals, err := r.Check(ctx, d)
	return changes, refusals, err
}

// vouch adds what a commit says of itself: the trailers of its message, and whether it descends from the one in force. A
// work tree that differs from its commit says nothing.
func (p *project) vouch(ctx context.Context, d *reconcile.Desired, accepted *plan.Accepted) error {
	if p.commit == workTreeName {
		return nil
	}
	git, err := repo.Open(repo.Options{Remote: p.root})
	if err != nil {
		return repoFailure(err)
	}
	defer git.Close()
	commit, err := git.Commit(p.commit)
	if err != nil {
		return repoFailure(err)
	}
	allow(d, commit.Message)
	d.Refusals, err = p.history(ctx, git, accepted)
	return err
}

func show(e env, changes *plan.Changes, refusals []reconcile.Refusal, asJSON, markdown bool) error {
	switch {
	case asJSON:
		b, err := changes.JSON()
		if err != nil {
			return err
		}
		_, err = e.stdout.Write(b)
		return err
	case markdown:
		for _, r := range refusals {
			fmt.Fprintf(e.stdout, "> **Refused (%s):** %s\n\n", r.Code, clean(r.Text))
		}
		_, err := fmt.Fprint(e.stdout, changes.Markdown(maxComment))
		return err
	}
	if err := changes.Text(e.stdout, e.color()); err != nil {
		return err
	}
	printRefusals(e, refusals)
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
