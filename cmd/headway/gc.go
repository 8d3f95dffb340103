package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/gc"
)

// gcDoc is `gc --json`.
type gcDoc struct {
	FormatVersion string `json:"format_version"`
	Milestones    int    `json:"milestones"` // the retention that was followed
	Finished      string `json:"finished"`
	Logs          string `json:"logs"`
	Grace         string `json:"grace"`
	gc.Report
}

// meanings says to people what each reason is: a table of values.
var meanings = map[gc.Reason]string{
	gc.Unnamed:  "milestones and results of attempts that are over, which no pointer can name any more",
	gc.Partial:  "files of uploads that never got their manifest",
	gc.Behind:   "milestones further behind the resume pointer than retention.milestones",
	gc.Finished: "milestones of works that finished longer ago than retention.finished",
	gc.Launches: "claims, receipts and releases of these works",
	gc.Logs:     "logs and events older than retention.logs",
	gc.Code:     "code bundles that no work and no plan in force needs",
}

// mostLeft bounds how many works that were left alone are named for people.
const mostLeft = 20

// collection is what the flags of gc say.
type collection struct {
	o                           gc.Options
	asJSON, list                bool
	milestones                  int
	finished, logs, grace, span string
}

func newGC(e env) *cobra.Command {
	var f collection
	c := &cobra.Command{Use: "gc", Short: "what nothing in the store can name any more, or retention lets go; --apply deletes it", Args: cobra.NoArgs,
		Long: "Lists what no resume pointer, no lane, no plan in force and no retention rule keeps: snapshots of attempts that lost\n" +
			"their lease, milestones far behind the pointer, launch records of finished works, old logs, code that nothing needs.\n" +
			"Without --apply nothing is deleted. Results are never deleted, nor a lease, nor anything of an attempt that holds one,\n" +
			"nor anything younger than the grace period. Exit code: 0 done, 1 an error or\n" +
			"something that was due stayed, 3 refused since a pin cannot be read.",
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c, e) }}
	flags := c.Flags()
	flags.BoolVar(&f.o.Apply, "apply", false, "delete")
	flags.BoolVar(&f.asJSON, "json", false, "one JSON document")
	flags.BoolVar(&f.list, "list", false, "name each thing that goes")
	flags.IntVar(&f.o.Max, "max", gc.DefaultMax, "objects that one run deletes at most; the next run goes on")
	flags.StringVar(&f.span, "for", plan.FormatKeep(gc.DefaultFor), "how long one run deletes at most; looking comes on top")
	flags.StringVar(&f.grace, "grace", plan.FormatKeep(gc.DefaultGrace), "least age of what is deleted, by the store's own clock; never less than 1h or two leases")
	flags.IntVar(&f.milestones, "milestones", 0, "instead of retention.milestones")
	flags.StringVar(&f.finished, "finished", "", "instead of retention.finished: a duration such as 30d, or forever")
	flags.StringVar(&f.logs, "logs", "", "instead of retention.logs: likewise")
	return c
}

func (f *collection) run(c *cobra.Command, e env) error {
	ctx := c.Context()
	p, err := readProject(ctx, e.at(c), "")
	if err != nil {
		return err
	}
	if err := p.unusable(); err != nil {
		return err
	}
	if err := f.keep(c, p.plan.Config.Retention); err != nil {
		return err
	}
	b, _, err := p.openStore(ctx, f.o.Apply)
	if err != nil {
		return err
	}
	for _, lane := range p.plan.Config.Lanes {
		s, _, err := p.openURL(ctx, lane, false)
		if err != nil {
			return fmt.Errorf("what a lane names cannot be known, so nothing is deleted: %w", err)
		}
		f.o.Lanes = append(f.o.Lanes, s)
	}
	report, err := gc.Run(ctx, b, f.o)
	if r, ok := errors.AsType[*gc.Refusal](err); ok {
		return &exit{code: exitRefused, err: r, hint: "what pins works keeps all of them while it cannot be read"}
	}
	stays, some := errors.AsType[*gc.Incomplete](err)
	if err != nil && !some {
		if n := report.Sum().Objects; f.o.Apply && n > 0 {
			warn(e, "%s deleted before this; headway gc --apply goes on", count(n, "object"))
		}
		return err
	}
	if f.asJSON {
		err = printJSON(e.stdout, gcDoc{"1.0", f.o.Milestones, plan.FormatKeep(f.o.Finished), plan.FormatKeep(f.o.Logs), plan.FormatKeep(f.o.Grace), report})
	} else {
		err = f.print(e, report)
	}
	if err == nil && some {
		return &exit{code: exitError, err: stays, hint: "all else was seen to; what no store deletes must be removed by hand in the store itself, anything else the next headway gc --apply tries again"}
	}
	return err
}

// keep joins retention and flags.
func (f *collection) keep(c *cobra.Command, r plan.Retention) error {
	f.o.Milestones, f.o.Finished, f.o.Logs = r.Milestones, r.Finished, r.Logs
	if c.Flags().Changed("milestones") {
		if f.o.Milestones = f.milestones; f.milestones < 0 || f.milestones > plan.MaxKept {
			return fmt.Errorf("--milestones is %d: expected 0 to %d", f.milestones, plan.MaxKept)
		}
	}
	if f.o.Max < 1 {
		return fmt.Errorf("--max is %d: expected 1 or more", f.o.Max)
	}
	for _, flag := range []struct {
		name, text string
		into       *time.Duration
		least      time.Duration
	}{{"finished", f.finished, &f.o.Finished, 0}, {"logs", f.logs, &f.o.Logs, 0}, {"grace", f.grace, &f.o.Grace, gc.MinGrace}, {"for", f.span, &f.o.For, 0}} {
		if flag.text == "" && !c.Flags().Changed(flag.name) {
			continue
		}
		v, why := plan.ParseKeep(flag.text)
		if why != "" {
			return fmt.Errorf("--%s is %q: expected a duration such as 30d or 36h, or forever; %s", flag.name, flag.text, why)
		}
		if v < flag.least {
			return fmt.Errorf("--%s is %s: expected %s or more, so that an upload that is under way is never touched", flag.name, flag.text, plan.FormatKeep(flag.least))
		}
		*flag.into = v
	}
	return nil
}

func (f *collection) print(e env, r gc.Report) error {
	fmt.Fprintf(e.stdout, "looked at %s of %s, %d bytes, in %s\n", count(int(r.Objects), "object"), count(r.Works, "work"), r.Bytes, count(r.Requests, "request"))
	span := func(d time.Duration) string {
		return strings.Replace("for "+plan.FormatKeep(d), "for forever", "for ever", 1)
	}
	fmt.Fprintf(e.stdout, "kept: %s behind each resume pointer, what led to a finished work %s, logs %s, anything %s\n",
		count(f.o.Milestones, "milestone"), span(f.o.Finished), span(f.o.Logs), span(f.o.Grace))
	rows := [][]string{{"REASON", "THINGS", "OBJECTS", "BYTES", "WHAT"}}
	line := func(name, what string, t gc.Total) {
		rows = append(rows, []string{name, strconv.Itoa(t.Items), strconv.Itoa(t.Objects), strconv.FormatInt(t.Bytes, 10), what})
	}
	for _, t := range r.Totals {
		line(string(t.Reason), meanings[t.Reason], t)
	}
	sum := r.Sum()
	if len(r.Totals) > 1 {
		line("all", "", sum)
	}
	if len(r.Totals) > 0 {
		if err := table(e.stdout, rows); err != nil {
			return err
		}
	}
	if f.list {
		rows := [][]string{{"REASON", "OBJECTS", "BYTES", "BEGINS WITH"}}
		for _, it := range r.Items {
			rows = append(rows, []string{string(it.Reason), strconv.Itoa(it.Objects), strconv.FormatInt(it.Bytes, 10), it.Prefix})
		}
		if err := table(e.stdout, rows); err != nil {
			return err
		}
		if sum.Items > len(r.Items) {
			fmt.Fprintf(e.stdout, "and %d more\n", sum.Items-len(r.Items))
		}
	}
	f.rest(e, r, sum)
	return nil
}

// rest says what stayed and why, and what comes next.
func (f *collection) rest(e env, r gc.Report, sum gc.Total) {
	for i, l := range r.Left {
		if i == mostLeft {
			fmt.Fprintf(e.stdout, "left alone: %d more; headway gc --json names them\n", len(r.Left)-i)
			break
		}
		name := "the code bundles"
		if l.Work != "" {
			name = fmt.Sprintf("work %.12s", l.Work)
		}
		fmt.Fprintf(e.stdout, "left alone: %s: %s\n", clean(name), clean(l.Why))
	}
	if r.Pinned > 0 {
		fmt.Fprintf(e.stdout, "left alone: %s that a lane names\n", count(r.Pinned, "work"))
	}
	if r.Young > 0 {
		fmt.Fprintf(e.stdout, "still too young: %s\n", count(r.Young, "object"))
	}
	switch {
	case f.o.Apply && r.More:
		fmt.Fprintf(e.stdout, "deleted %s; there is more: headway gc --apply goes on\n", count(sum.Objects, "object"))
	case f.o.Apply:
		fmt.Fprintf(e.stdout, "deleted %s\n", count(sum.Objects, "object"))
	case sum.Objects == 0:
		fmt.Fprintln(e.stdout, "nothing to delete")
	default:
		fmt.Fprintf(e.stdout, "nothing was deleted: headway gc --apply deletes %s, up to %d in one run\n", count(sum.Objects, "object"), f.o.Max)
	}
}
