package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/spend"
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

	Cost *spend.Bill `json:"cost,omitempty"` // with --cost
}

type statusDoc struct {
	FormatVersion string        `json:"format_version"`
	Commit        string        `json:"commit,omitempty"`
	AsOfS         float64       `json:"as_of_s,omitempty"` // how old the rows are; absent: they are of now
	Jobs          []statusRow   `json:"jobs"`
	Platforms     []platformRow `json:"platforms,omitempty"` // absent while no commit was accepted
	Drift         []plan.Drift  `json:"drift,omitempty"`
	Requests      int64         `json:"store_requests"`

	all   bool           // every job has a line of its own, also those of groups
	wrong []plan.Problem // errors of the files
}

func newStatus(e env) *cobra.Command {
	var asJSON, watch, cost, all bool
	var every time.Duration
	c := &cobra.Command{Use: "status [JOB|GROUP]", Short: "jobs, attempts, platforms", Args: cobra.MaximumNArgs(1),
		Long: "Shows a group of more than three jobs as one line: how many are in which state, and how much of their steps is done.\nWith the group's name its jobs are listed, with --all those of every group.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkInterval(every); err != nil {
				return err
			}
			if !watch && !cost {
				doc, err := fromBoard(c.Context(), e.at(c), args)
				if err != nil {
					return err
				}
				if doc != nil {
					doc.all = all || len(args) == 1
					return showStatus(e, doc, asJSON)
				}
			}
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
				doc.all = all || len(args) == 1
				doc.wrong = p.plan.Errors()
				past.fill(c.Context(), doc)
				if err := p.reasons(c.Context(), r, doc); err != nil {
					return err
				}
				var owed []string
				if cost {
					if owed, err = doc.price(c.Context(), r); err != nil {
						return err
					}
				}
				if len(args) == 1 {
					doc.Drift = driftAmong(doc, args[0])
					if doc.Jobs = only(doc.Jobs, args[0]); len(doc.Jobs) == 0 {
						_, _, err := p.named(c.Context(), nil, args[0], nil)
						return err
					}
				}
				if asJSON {
					err = printJSON(e.stdout, doc)
				} else {
					err = printStatus(e, doc)
					for _, l := range owed {
						fmt.Fprintln(e.stdout, clean(l))
					}
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
	c.Flags().BoolVar(&all, "all", false, "a line for every job, also of groups")
	c.Flags().BoolVar(&cost, "cost", false, "what each job has cost until now, and what is still paid for although nobody works on it")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "again and again")
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch: how often")
	return c
}

func showStatus(e env, doc *statusDoc, asJSON bool) error {
	if asJSON {
		return printJSON(e.stdout, doc)
	}
	return printStatus(e, doc)
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

// reasons adds what a pass that writes nothing says: why a job waits, and the works that left the plan and still run
// or may be paid for.
func (p *project) reasons(ctx context.Context, r *reconcile.Reconciler, doc *statusDoc) error {
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil || accepted == nil {
		return err
	}
	report, err := p.rehearse(ctx, r, accepted)
	if err != nil {
		return err
	}
	doc.Platforms, doc.Drift = p.platformRows(report.Platforms), report.Drift
	row := map[string]int{}
	for i := range doc.Jobs {
		row[doc.Jobs[i].Work] = i
		if s, ok := report.States[plan.Digest(doc.Jobs[i].Work)]; ok && s.Final == reconcile.Fail {
			doc.Jobs[i].State, doc.Jobs[i].Reason = s.State, s.Reason // also where its lease alone says that it may go on
		}
	}
	for _, a := range report.Actions {
		i, known := row[string(a.Work)]
		switch state := report.States[a.Work].State; {
		case known && doc.Jobs[i].Reason == "" && state == plan.StateHeld && (a.Kind == reconcile.Wait || a.Kind == reconcile.Stop):
			doc.Jobs[i].Reason = reasonOf(a) // it runs, and stops at a limit or is silent beside too many others
		case known && doc.Jobs[i].Reason == "" && state != plan.StateHeld && state != plan.StateFinished:
			doc.Jobs[i].Reason = reasonOf(a)
		case !known && (a.Ending || state == plan.StateHeld || state == plan.StateClaimed) && a.Kind != reconcile.Launch:
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
		return printNoJobs(e, doc)
	}
	rows := [][]string{{"JOB", "WORK", "STATE", "ATTEMPT", "PLATFORM", "STEP", "MILESTONE", "CHANGED", "WHY"}}
	costs := slices.ContainsFunc(doc.Jobs, func(r statusRow) bool { return r.Cost != nil })
	if costs {
		rows[0] = slices.Insert(rows[0], len(rows[0])-1, "COST")
	}
	for _, l := range doc.lines() {
		cells := l.row.cells()
		if l.group != nil {
			cells = groupCells(l.group)
		}
		if costs {
			cells = slices.Insert(cells, len(cells)-1, l.cost())
		}
		rows = append(rows, cells)
	}
	if err := table(e.stdout, rows); err != nil {
		return err
	}
	for _, p := range doc.Platforms {
		if l := p.line(); l != "" {
			fmt.Fprintln(e.stdout, l)
		}
	}
	for _, d := range doc.Drift {
		fmt.Fprintf(e.stdout, "drift: %s\n", clean(d.String()))
	}
	if len(doc.wrong) > 0 {
		fmt.Fprintf(e.stdout, "the files have %s: what was accepted goes on, and nothing is stopped until they have none\n", count(len(doc.wrong), "error"))
		printWrong(e, doc)
	}
	if doc.AsOfS > 0 {
		fmt.Fprintf(e.stdout, "as a dispatcher saw it %s ago; headway status JOB looks again\n", ago(time.Duration(doc.AsOfS*float64(time.Second))))
	}
	return nil
}

// cells are the table's cells of one job, but for its cost.
func (r statusRow) cells() []string {
	step, milestone, attempt, changed := "", "", "", ""
	if r.Step > 0 || r.Attempt > 0 {
		step = strconv.FormatInt(r.Step, 10)
		if r.Steps > 0 {
			step += "/" + strconv.FormatInt(r.Steps, 10)
		}
	}
	if r.MilestoneStep > 0 {
		milestone = fmt.Sprintf("step %d", r.MilestoneStep)
	}
	if r.Attempt > 0 {
		attempt = strconv.FormatInt(r.Attempt, 10)
		if r.State == plan.StateHeld || r.AgeS > 0 { // else it is not known
			changed = ago(time.Duration(r.AgeS*float64(time.Second))) + " ago"
		}
	}
	return []string{r.Job, plan.Digest(r.Work).Short(), r.State, attempt, r.Platform, step, milestone, changed, r.Reason}
}

// printNoJobs says why there is nothing to show: files with an error may name jobs, and none of them is known.
func printNoJobs(e env, doc *statusDoc) error {
	if len(doc.wrong) == 0 {
		_, err := fmt.Fprintln(e.stdout, "no jobs: nothing was accepted yet and the files name none")
		return err
	}
	fmt.Fprintf(e.stdout, "no jobs: nothing was accepted yet, and the files have %s:\n", count(len(doc.wrong), "error"))
	printWrong(e, doc)
	return nil
}

// printWrong lists the first errors of the files.
func printWrong(e env, doc *statusDoc) {
	for _, q := range doc.wrong[:min(len(doc.wrong), 3)] {
		fmt.Fprintf(e.stdout, "  %s\n", clean(q.String()))
	}
	if more := len(doc.wrong) - 3; more > 0 {
		fmt.Fprintf(e.stdout, "  and %d more: headway validate lists all\n", more)
	}
}

// shortest bounds --interval from below: whoever looks more often only asks the store for more.
const shortest = 100 * time.Millisecond

func checkInterval(d time.Duration) error {
	if d >= shortest {
		return nil
	}
	return &exit{code: exitError, err: fmt.Errorf("--interval %s is too short", d), hint: "the least is " + shortest.String()}
}
