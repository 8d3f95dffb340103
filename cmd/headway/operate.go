package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/operate"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// operation is a verb about one work that a person named, and what it looks at.
type operation struct {
	p    *project
	r    *reconcile.Reconciler // looks, never acts
	b    bucket.Bucket
	job  string
	work plan.Digest
}

// openNamed opens the project for reading and finds the work.
func openNamed(ctx context.Context, e env, name string) (*operation, error) {
	p, err := readProject(ctx, e, "")
	if err != nil {
		return nil, err
	}
	r, b, err := p.reader(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	job, work, err := p.named(ctx, b, name, accepted)
	return &operation{p: p, r: r, b: b, job: job, work: work}, err
}

func newRevoke(e env) *cobra.Command {
	var stop bool
	var reason string
	c := &cobra.Command{Use: "revoke JOB|GROUP…", Short: "takes the lease away; the worker stops at its next write", Args: cobra.MinimumNArgs(1),
		Long: "Takes the lease of a job's work away. Without --stop the next attempt may start at once, from the last\nacknowledged milestone. With --stop every launch made so far is barred, also one that starts hours late; a job\nthat the plan still names is launched again by the next pass unless it is suspended.",
		RunE: func(c *cobra.Command, args []string) error {
			many, err := openMany(c.Context(), e.at(c), args)
			if err != nil {
				return err
			}
			d, all := runners.Dispatcher{Bucket: many.b}, make([]outcome, len(many.targets))
			operate.Each(len(all), func(i int) {
				t := many.targets[i]
				answer, err := d.Revoke(c.Context(), t.Work, reason, runners.RevokeOptions{Stop: stop})
				all[i] = outcome{job: t.Job, word: strings.ToLower(answer.Answer.String()), text: fmt.Sprintf("%s: %s", answer.Answer, answer.Text)}
				if err != nil {
					all[i].text = ""
					all[i].err = &exit{code: exitError, err: fmt.Errorf("%s: %s: %w", t.Job, answer.Answer, err), hint: "the write may have landed: look with headway status, then ask again"}
				}
			})
			return tell(e, all)
		}}
	c.Flags().BoolVar(&stop, "stop", false, "also bar every launch made so far")
	c.Flags().StringVar(&reason, "reason", "revoked by an operator", "why, kept in the lease for people")
	return c
}

func newRelease(e env) *cobra.Command {
	var dispatch int64
	c := &cobra.Command{Use: "release JOB|GROUP…", Short: "asks the platform to end what it runs: Closed, Bounded or Pending", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			many, err := openMany(ctx, e.at(c), args)
			if err != nil {
				return err
			}
			if dispatch != 0 && len(many.targets) > 1 {
				return &exit{code: exitError, err: fmt.Errorf("--dispatch names a launch of one job, and %s are asked about", count(len(many.targets), "job"))}
			}
			platforms, err := many.p.platforms(many.b)
			if err != nil {
				return err
			}
			all := make([]outcome, len(many.targets))
			operate.Each(len(all), func(i int) { all[i] = many.release(ctx, platforms, many.targets[i], dispatch) })
			return tell(e, all)
		}}
	c.Flags().Int64Var(&dispatch, "dispatch", 0, "which launch; the last one when left out")
	return c
}

// release asks about one launch of a work; 0: about the last one.
func (c *crowd) release(ctx context.Context, platforms map[string]runners.Runner, t operate.Target, dispatch int64) (o outcome) {
	o = outcome{job: t.Job, word: "not asked"}
	d := runners.Dispatcher{Bucket: c.b}
	if dispatch == 0 {
		if dispatch, o.err = runners.LastDispatch(ctx, c.b, t.Work, 0); o.err != nil {
			return o
		}
	}
	if seen, err := witness.Read(ctx, c.b, t.Work); dispatch == 0 && err == nil && seen.Record.State == witness.Finished {
		o.err = &exit{code: exitError, err: fmt.Errorf("%s is finished, and its launch records are gone, as headway gc lets them: there is nothing left to ask a platform about", t.Job)}
		return o
	}
	if dispatch == 0 {
		o.err = &exit{code: exitError, err: fmt.Errorf("%s was never launched: there is nothing to release", t.Job)}
		return o
	}
	claims, err := d.ReadClaims(ctx, t.Work, dispatch-1, 1)
	if err != nil {
		o.err = err
		return o
	}
	if len(claims) == 0 || claims[0].N != dispatch {
		o.err = &exit{code: exitError, err: fmt.Errorf("%s has no dispatch %d", t.Job, dispatch), hint: "headway explain " + t.Job + " lists its dispatches"}
		return o
	}
	name := claims[0].Claim.Platform
	r, ok := platforms[name]
	if conf, known := c.p.plan.Config.Platforms[name]; known && !ok {
		o.err = &exit{code: exitError, err: fmt.Errorf("dispatch %d went to platform %s, and this build has no runner %s", dispatch, name, conf.Runner),
			hint: "use the build that launched it"}
		return o
	}
	if !ok {
		o.err = &exit{code: exitError, err: fmt.Errorf("dispatch %s went to platform %q, which headway.yaml no longer names", strconv.FormatInt(dispatch, 10), name),
			hint: "put the platform back to release what runs there"}
		return o
	}
	answer, err := d.Release(ctx, r, t.Work, dispatch)
	text := answer.Text
	switch answer.Settlement {
	case runners.Bounded:
		text += fmt.Sprintf("; the platform says that it ends by itself at %s: ask again after that", answer.Until.UTC().Format(time.RFC3339))
	case runners.Pending:
		var price *record.Price
		if rc := claims[0].Receipt; rc != nil {
			price = rc.Price
		}
		text += "; " + rate(price)
	}
	o.word, o.text, o.err = answer.Settlement.String(), fmt.Sprintf("%s: %s", answer.Settlement, text), err
	return o
}
