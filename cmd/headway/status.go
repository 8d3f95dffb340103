package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

// statusRow is one job of `status --json`.
type statusRow struct {
	Job           string  `json:"job"`
	Group         string  `json:"group"`
	Work          string  `json:"work"`
	State         string  `json:"state"`
	Attempt       int64   `json:"attempt"`
	Dispatch      int64   `json:"dispatch"`
	Platform      string  `json:"platform,omitempty"`
	Step          int64   `json:"step"`
	Steps         int64   `json:"steps,omitempty"`
	Milestone     int64   `json:"milestone"`
	MilestoneStep int64   `json:"milestone_step"`
	AgeS          float64 `json:"age_s"`
	Reason        string  `json:"reason,omitempty"`
}

type statusDoc struct {
	FormatVersion string      `json:"format_version"`
	Commit        string      `json:"commit,omitempty"`
	Jobs          []statusRow `json:"jobs"`
	Requests      int64       `json:"store_requests"`
}

func newStatus(e env) *cobra.Command {
	var asJSON, watch bool
	var every time.Duration
	c := &cobra.Command{Use: "status [JOB]", Short: "jobs, attempts, platforms", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			r, b, err := p.reader(c.Context())
			if err != nil {
				return err
			}
			if !asJSON {
				p.printWarnings()
			}
			past := pastOf(b)
			for {
				doc, err := status(c.Context(), p, r)
				if err != nil {
					return err
				}
				past.fill(c.Context(), doc)
				if err := p.reasons(c.Context(), r, doc); err != nil {
					return err
				}
				if len(args) == 1 {
					if doc.Jobs = only(doc.Jobs, args[0]); len(doc.Jobs) == 0 {
						_, _, err := p.named(c.Context(), nil, args[0], nil)
						return err
					}
				}
				if asJSON {
					err = printJSON(e.stdout, doc)
				} else {
					err = printStatus(e, doc)
				}
				if err != nil || !watch {
					return err
				}
				select {
				case <-c.Context().Done():
					return nil
				case <-time.After(every):
				}
			}
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "again and again")
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch: how often")
	return c
}

// status observes what the accepted plan and the files name. It writes nothing.
func status(ctx context.Context, p *project, r *reconcile.Reconciler) (*statusDoc, error) {
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	world, err := r.Observe(ctx, p.works(accepted), p.plan.Jobs)
	if err != nil {
		return nil, err
	}
	observed := world.Observed()
	doc := &statusDoc{FormatVersion: "1.0", Requests: world.Requests, Jobs: []statusRow{}}
	seen := map[string]bool{}
	add := func(name, group string, work plan.Digest) {
		if seen[name] {
			return
		}
		seen[name] = true
		o, ok := observed[work]
		if !ok {
			o.State = plan.StateAbsent
		}
		doc.Jobs = append(doc.Jobs, statusRow{Job: name, Group: group, Work: string(work), State: o.State, Attempt: o.Attempt,
			Dispatch: o.Dispatch, Platform: o.Platform, Step: o.Step, Steps: o.Steps, Milestone: o.Milestone,
			MilestoneStep: o.MilestoneStep, AgeS: o.Age.Seconds(), Reason: o.Reason})
	}
	if accepted != nil {
		doc.Commit = accepted.Commit
		for _, j := range accepted.Jobs {
			add(j.Name, j.Group, j.Work)
		}
	} else {
		for i := range p.plan.Jobs {
			add(p.plan.Jobs[i].Name, p.plan.Jobs[i].Group, p.plan.Jobs[i].Work)
		}
	}
	return doc, nil
}

// reasons adds what a pass that writes nothing says: why a job waits, and the works that left the plan and still run.
func (p *project) reasons(ctx context.Context, r *reconcile.Reconciler, doc *statusDoc) error {
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil || accepted == nil {
		return err
	}
	report, err := p.rehearse(ctx, r, accepted)
	if err != nil {
		return err
	}
	row := map[string]int{}
	for i := range doc.Jobs {
		row[doc.Jobs[i].Work] = i
	}
	for _, a := range report.Actions {
		i, known := row[string(a.Work)]
		switch state := report.States[a.Work].State; {
		case known && doc.Jobs[i].Reason == "" && state != plan.StateHeld && state != plan.StateFinished:
			doc.Jobs[i].Reason = a.Reason
		case !known && (state == plan.StateHeld || state == plan.StateClaimed) && a.Kind != reconcile.Launch:
			row[string(a.Work)] = len(doc.Jobs)
			doc.Jobs = append(doc.Jobs, statusRow{Job: a.Job, Group: a.Job, Work: string(a.Work), State: state, Dispatch: a.Dispatch, Platform: a.Platform, Reason: a.Reason})
		}
	}
	return nil
}

func only(rows []statusRow, name string) []statusRow {
	var out []statusRow
	for _, r := range rows {
		if r.Job == name || r.Group == name {
			out = append(out, r)
		}
	}
	return out
}

func printStatus(e env, doc *statusDoc) error {
	if len(doc.Jobs) == 0 {
		fmt.Fprintln(e.stdout, "no jobs: nothing was accepted yet and the files name none")
		return nil
	}
	rows := [][]string{{"JOB", "WORK", "STATE", "ATTEMPT", "PLATFORM", "STEP", "MILESTONE", "CHANGED", "WHY"}}
	for _, r := range doc.Jobs {
		step := ""
		if r.Step > 0 || r.Attempt > 0 {
			step = strconv.FormatInt(r.Step, 10)
			if r.Steps > 0 {
				step += "/" + strconv.FormatInt(r.Steps, 10)
			}
		}
		milestone, attempt, changed := "", "", ""
		if r.MilestoneStep > 0 {
			milestone = fmt.Sprintf("step %d", r.MilestoneStep)
		}
		if r.Attempt > 0 {
			attempt = strconv.FormatInt(r.Attempt, 10)
			if r.State == plan.StateHeld || r.AgeS > 0 { // else it is not known
				changed = ago(time.Duration(r.AgeS*float64(time.Second))) + " ago"
			}
		}
		rows = append(rows, []string{r.Job, plan.Digest(r.Work).Short(), r.State, attempt, r.Platform, step, milestone, changed, r.Reason})
	}
	return table(e.stdout, rows)
}
