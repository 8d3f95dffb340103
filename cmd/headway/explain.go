package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

// explainDoc is `explain --json`.
type explainDoc struct {
	FormatVersion string `json:"format_version"`
	*reconcile.Explanation
}

func newExplain(e env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "explain JOB", Short: "why it is where it is: every attempt, every decision and its reason", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			name, x, err := p.explain(c.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(e.stdout, explainDoc{"1.0", x})
			}
			p.printWarnings()
			return printExplanation(e, name, x)
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	return c
}

// explain reads a work's history, and asks a pass that writes nothing what would be done about it now.
func (p *project) explain(ctx context.Context, named string) (string, *reconcile.Explanation, error) {
	r, b, err := p.reader(ctx)
	if err != nil {
		return "", nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return "", nil, err
	}
	name, work, err := p.named(ctx, b, named, accepted)
	if err != nil {
		return "", nil, err
	}
	p.follow(accepted, name, work)
	job, ok := p.plan.Job(name)
	if !ok || job.Work != work {
		job = &plan.Job{Name: name, Work: work}
	}
	x, err := r.Explain(ctx, job, &p.plan.Config)
	if err != nil {
		return "", nil, err
	}
	if x.Lines == nil {
		x.Lines = []reconcile.Line{}
	}
	report, err := p.rehearse(ctx, r, accepted)
	if err != nil {
		return "", nil, err
	}
	for _, a := range report.Actions {
		if a.Work == work {
			x.Now = a
		}
	}
	if s, ok := report.States[work]; ok && s.Final == reconcile.Fail {
		x.State = s.State
	}
	x.Requests += report.Requests
	return name, x, nil
}

// follow takes the plan of the accepted commit where the files on disk mean other work by the name. Where that commit
// cannot be read here the files stay: then less is known of the job, and nothing wrong is said.
func (p *project) follow(accepted *plan.Accepted, name string, work plan.Digest) {
	if job, ok := p.plan.Job(name); accepted == nil || ok && job.Work == work {
		return
	}
	at, git, err := openCommit(p.env, p.root, accepted.Commit)
	if err != nil {
		return
	}
	defer git.Close()
	if _, ok := at.plan.Job(name); ok && at.unusable() == nil {
		p.plan, p.problems, p.commit = at.plan, at.problems, at.commit
	}
}

func printExplanation(e env, name string, x *reconcile.Explanation) error {
	fmt.Fprintf(e.stdout, "%s (work %s): %s\nnow: %s: %s\n", name, x.Work.Short(), x.State, x.Now.Kind, clean(reasonOf(x.Now)))
	for _, r := range x.Now.Rungs {
		fmt.Fprintf(e.stdout, "  %s: %s\n", clean(r.Platform), clean(r.Why))
	}
	fmt.Fprintf(e.stdout, "retries spent: %d of %d\n", min(x.Spent, x.Limit), x.Limit)
	if x.Earlier > 0 {
		fmt.Fprintf(e.stdout, "%d earlier launches are not shown\n", x.Earlier)
	}
	fmt.Fprintf(e.stdout, "paid: %s\n", clean(x.Cost.Total.String()))
	for _, l := range x.Lines {
		fmt.Fprintln(e.stdout)
		spent := ""
		if l.Spent {
			spent = ", spent a retry"
		}
		switch {
		case l.Dispatch == 0:
			fmt.Fprintln(e.stdout, "unknown launch: its worker took the lease and died before it wrote down which one it was")
		case l.Time == "" && l.Answer == "" && x.State == plan.StateFinished: // nothing at all is there of it
			fmt.Fprintf(e.stdout, "launch %d on %s: its records are gone, as headway gc lets them once a work is finished\n", l.Dispatch, clean(l.Platform))
		case l.Time == "":
			fmt.Fprintf(e.stdout, "launch %d: its claim is missing or damaged: headway doctor says more\n", l.Dispatch)
		default:
			fmt.Fprintf(e.stdout, "launch %d on %s at %s: %s\n", l.Dispatch, l.Platform, l.Time, clean(l.Reason))
		}
		if l.Answer != "" {
			fmt.Fprintf(e.stdout, "  platform: %s\n", clean(l.Answer))
		}
		if l.Attempt > 0 {
			fmt.Fprintf(e.stdout, "  attempt %d: %s\n", l.Attempt, l.Steps())
		}
		fmt.Fprintf(e.stdout, "  %s%s: %s\n", l.Class, spent, clean(l.Why))
		if l.Error != "" {
			fmt.Fprintf(e.stdout, "  error: %s\n", clean(l.Error))
		}
		if l.Goodput != nil {
			fmt.Fprintf(e.stdout, "  goodput: %s\n", clean(l.Goodput.String()))
		}
		if l.Cost != "" {
			fmt.Fprintf(e.stdout, "  paid: %s\n", clean(l.Cost))
		}
		if l.Released != "" {
			text := l.Released
			if l.Ends != "" {
				text += ": " + l.Ends
			}
			fmt.Fprintf(e.stdout, "  release: %s\n", clean(text))
		}
	}
	if x.Timers != nil {
		fmt.Fprintln(e.stdout)
		for _, line := range x.Timers.Lines() {
			fmt.Fprintln(e.stdout, clean(line))
		}
	}
	return nil
}
