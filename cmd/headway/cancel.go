package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/operate"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func newCancel(e env) *cobra.Command {
	var timeout time.Duration
	var reason string
	c := &cobra.Command{Use: "cancel JOB|GROUP…", Short: "stops jobs, and says so only when their platforms have", Args: cobra.MinimumNArgs(1),
		Long: "Takes the lease away, bars every launch made so far (also one whose call is under way), and asks each platform to end\nwhat may still run, until it has answered closed, or named the time at which it ends by itself (bounded). What is\npending after --timeout is said, with its price where that is known, and headway watch goes on asking.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			e := e.at(c)
			many, err := openMany(ctx, e, args)
			if err != nil {
				return err
			}
			platforms, err := many.p.platforms(many.b)
			if err != nil {
				return err
			}
			many.warnNamed(e)
			done := operate.Desk{Bucket: e.wrapped(many.b), Runners: platforms}.Cancel(ctx, many.targets, reason, timeout)
			all := make([]outcome, len(done))
			for i, d := range done {
				all[i] = cancelled(d)
			}
			return tell(e, all)
		}}
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "for how long platforms are asked again")
	c.Flags().StringVar(&reason, "reason", "cancelled by an operator", "why, kept in the lease for people")
	return c
}

// cancelled says what a cancel came to. Only what is settled is acknowledged.
func cancelled(c *operate.Cancelled) outcome {
	o := outcome{job: c.Job, word: "cancelled"}
	var parts []string
	for _, d := range c.Dispatches {
		parts = append(parts, ending(d, c.Done()))
	}
	what := strings.Join(parts, "; ")
	switch {
	case c.Err != nil:
		o.word = "not stopped"
		o.err = &exit{code: exitError, err: fmt.Errorf("%s: not cancelled: %w", c.Job, c.Err), hint: "the write may have landed: look with headway status, then ask again"}
	case !c.Done():
		o.word = "pending"
		o.err = &exit{code: exitError, err: fmt.Errorf("%s: stopped, and not settled: %s", c.Job, what), hint: "headway watch goes on asking until it is over; so does headway cancel " + c.Job}
	case c.Again > 0:
		o.word = "launched again"
		o.err = &exit{code: exitError, err: fmt.Errorf("%s: stopped, and launched again since as dispatch %d: the plan names it", c.Job, c.Again), hint: "set suspend: true on the job or remove it, commit, then headway cancel " + c.Job}
	case c.Stop.Seen.Record.State == witness.Finished:
		o.word = "finished"
		o.text = fmt.Sprintf("%s: finished before, its result stays", c.Job)
	case what == "":
		o.text = fmt.Sprintf("%s: cancelled: nothing of it was launched", c.Job)
	default:
		o.text = fmt.Sprintf("%s: cancelled: %s", c.Job, what)
	}
	return o
}

// ending says what is known of the end of one launch. Of a cancel that is not done only what is open tells something new.
func ending(d operate.Dispatch, done bool) string {
	s := fmt.Sprintf("dispatch %d on %s: ", d.N, d.Platform)
	switch {
	case d.Settlement == runners.Closed:
		return s + "closed: " + d.Text
	case d.Settlement == runners.Bounded:
		return s + fmt.Sprintf("bounded: the platform says that it ends by itself at %s", d.Until.UTC().Format(time.RFC3339))
	case d.Over:
		return s + d.Text
	}
	return s + "pending: " + d.Text + "; " + rate(d.Price)
}

func rate(p *record.Price) string {
	if p == nil || p.Check() != nil {
		return "price unknown"
	}
	if p.PerHour == 0 {
		return "free"
	}
	most := ""
	if p.AtMost {
		most = "at most "
	}
	return fmt.Sprintf("%s%.2f %s per hour while it runs", most, p.PerHour, p.Unit)
}

// warnNamed says which of the works the accepted plan still asks for: they would be launched again.
func (c *crowd) warnNamed(e env) {
	if c.accepted == nil {
		return
	}
	wanted := map[string]bool{}
	for _, j := range c.accepted.Jobs {
		var placed struct {
			Suspend bool `json:"suspend"`
		}
		if json.Unmarshal(j.Placement, &placed) == nil && !placed.Suspend {
			wanted[string(j.Work)] = true
		}
	}
	var named []string
	for _, t := range c.targets {
		if wanted[t.Work] {
			named = append(named, t.Job)
		}
	}
	if len(named) == 0 {
		return
	}
	which := named[0]
	if len(named) > 1 {
		which += fmt.Sprintf(" and %d more", len(named)-1)
	}
	where := ""
	if j, ok := c.p.plan.Job(named[0]); ok && j.Pos != (plan.Pos{}) {
		where = " (" + j.Pos.String() + ")"
	}
	warn(e, "the accepted plan still asks for %s%s, and what has not finished would be launched again: set suspend: true or remove it, and commit", which, where)
}
