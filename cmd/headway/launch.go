package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

func newLaunch(e env) *cobra.Command {
	var on string
	c := &cobra.Command{Use: "launch JOB|GROUP…", Short: "launches jobs now, whatever they would wait for", Args: cobra.MinimumNArgs(1),
		Long: "Makes one pass over the commit that is checked out, and carries out nothing but the launches of these jobs, each once.\nIt overrules pauses (a backoff, a parked platform, a rung that the ladder would wait for) and spent retries, also\nretries: 0. It overrules nothing else: what is finished, running, on its way, suspended, failing alike again or over a\nlimit on time or money is not launched, and the reason is said.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			e := e.at(c)
			root, err := findRoot(e)
			if err != nil {
				return err
			}
			p, git, err := openCommit(e, root, "HEAD")
			if err != nil {
				return err
			}
			defer git.Close()
			jobs, err := p.demanded(args, on)
			if err != nil {
				return err
			}
			l, err := newLoop(ctx, p, git, time.Hour)
			if err != nil {
				return err
			}
			defer l.r.Wait()
			l.demand = &reconcile.Demand{Platform: on}
			for _, j := range jobs {
				l.demand.Works = append(l.demand.Works, j.Work)
			}
			report, err := l.pass(ctx, true)
			if err != nil {
				return err
			}
			printRefusals(e, report.Refusals)
			all := make([]outcome, len(jobs))
			for i, j := range jobs {
				all[i] = launched(j, report)
			}
			return tell(e, all)
		}}
	c.Flags().StringVar(&on, "on", "", "which platform of its ladder")
	return c
}

// demanded are the jobs of the commit that names mean: a job, or all of a group.
func (p *project) demanded(names []string, on string) ([]*plan.Job, error) {
	var out []*plan.Job
	for _, name := range names {
		before := len(out)
		add := func(is func(*plan.Job) bool) {
			for i := range p.plan.Jobs {
				if j := &p.plan.Jobs[i]; is(j) && !slices.Contains(out, j) {
					out = append(out, j)
				}
			}
		}
		if _, ok := p.plan.Job(name); ok {
			add(func(j *plan.Job) bool { return j.Name == name })
			continue
		}
		if add(func(j *plan.Job) bool { return j.Group == name }); len(out) == before {
			return nil, &exit{code: exitError, err: fmt.Errorf("the commit that is checked out names no job %q", name), hint: "headway plan lists its jobs"}
		}
	}
	for _, j := range out {
		if on != "" && !slices.Contains(j.On, on) {
			return nil, &exit{code: exitError, err: fmt.Errorf("job %s does not name platform %q", j.Name, on), hint: "its ladder is " + strings.Join(j.On, ", ")}
		}
	}
	return out, nil
}

// launched says what became of a launch that was asked for.
func launched(j *plan.Job, report *reconcile.Report) outcome {
	o := outcome{job: j.Name, word: "not launched"}
	var last *reconcile.Action
	for i, a := range report.Actions {
		if a.Work != j.Work {
			continue
		}
		last = &report.Actions[i]
		if a.Kind != reconcile.Launch {
			continue
		}
		if a.Err != nil {
			o.err = &exit{code: exitError, err: fmt.Errorf("%s: dispatch %d on %s: %w", j.Name, a.Dispatch, a.Platform, a.Err)}
			return o
		}
		if a.Done {
			o.word, o.text = "launched", fmt.Sprintf("%s: dispatch %d on %s: %s", j.Name, a.Dispatch, a.Platform, a.Result)
			return o
		}
	}
	if len(report.Errors) > 0 {
		o.err = errors.Join(report.Errors...)
		return o
	}
	why, hint := "this commit is not followed", "headway explain "+j.Name+" says how it came there"
	if last != nil {
		why = clean(last.Reason)
		if last.Kind == reconcile.Fail {
			hint += "; mend what it names and commit: other code is other work, and so is the same with another replica: N"
		}
	}
	o.err = &exit{code: exitError, err: fmt.Errorf("%s was not launched: %s", j.Name, why), hint: hint}
	return o
}
