package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// operation is a verb about one work that a person named: what it looks at, and for revoke and release a writing store.
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

// openOperation is openNamed with a store that takes writes.
func openOperation(ctx context.Context, e env, name string) (*operation, error) {
	op, err := openNamed(ctx, e, name)
	if err != nil {
		return nil, err
	}
	op.b, _, err = op.p.openStore(ctx, true)
	return op, err
}

func newRevoke(e env) *cobra.Command {
	var stop bool
	var reason string
	c := &cobra.Command{Use: "revoke JOB", Short: "takes the lease away; the worker stops at its next write", Args: cobra.ExactArgs(1),
		Long: "Takes the lease of a job's work away. Without --stop the next attempt may start at once, from the last\nacknowledged milestone. With --stop every launch made so far is barred, also one that starts hours late; a job\nthat the plan still names is launched again by the next pass unless it is suspended.",
		RunE: func(c *cobra.Command, args []string) error {
			op, err := openOperation(c.Context(), e.at(c), args[0])
			if err != nil {
				return err
			}
			answer, err := runners.Dispatcher{Bucket: op.b}.Revoke(c.Context(), string(op.work), reason, runners.RevokeOptions{Stop: stop})
			if err != nil {
				return &exit{code: exitError, err: fmt.Errorf("%s: %s: %w", op.job, answer.Answer, err), hint: "the write may have landed: look with headway status, then ask again"}
			}
			fmt.Fprintf(e.stdout, "%s: %s\n", answer.Answer, clean(answer.Text))
			return nil
		}}
	c.Flags().BoolVar(&stop, "stop", false, "also bar every launch made so far")
	c.Flags().StringVar(&reason, "reason", "revoked by an operator", "why, kept in the lease for people")
	return c
}

func newRelease(e env) *cobra.Command {
	var dispatch int64
	c := &cobra.Command{Use: "release JOB", Short: "asks the platform to end what it runs: Closed, Bounded or Pending", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			op, err := openOperation(ctx, e.at(c), args[0])
			if err != nil {
				return err
			}
			d := runners.Dispatcher{Bucket: op.b}
			if dispatch == 0 {
				if dispatch, err = runners.LastDispatch(ctx, op.b, string(op.work), 0); err != nil {
					return err
				}
			}
			if dispatch == 0 {
				return &exit{code: exitError, err: fmt.Errorf("%s was never launched: there is nothing to release", op.job)}
			}
			claims, err := d.ReadClaims(ctx, string(op.work), dispatch-1, 1)
			if err != nil {
				return err
			}
			if len(claims) == 0 || claims[0].N != dispatch {
				return &exit{code: exitError, err: fmt.Errorf("%s has no dispatch %d", op.job, dispatch), hint: "headway explain " + op.job + " lists its dispatches"}
			}
			platforms, err := op.p.platforms(op.b)
			if err != nil {
				return err
			}
			name := claims[0].Claim.Platform
			r, ok := platforms[name]
			if c, known := op.p.plan.Config.Platforms[name]; known && !ok {
				return &exit{code: exitError, err: fmt.Errorf("dispatch %d went to platform %s, and this build has no runner %s", dispatch, name, c.Runner),
					hint: "use the build that launched it"}
			}
			if !ok {
				return &exit{code: exitError, err: fmt.Errorf("dispatch %s went to platform %q, which headway.yaml no longer names", strconv.FormatInt(dispatch, 10), name),
					hint: "put the platform back to release what runs there"}
			}
			answer, err := d.Release(ctx, r, string(op.work), dispatch)
			fmt.Fprintf(e.stdout, "%s: %s\n", answer.Settlement, clean(answer.Text))
			return err
		}}
	c.Flags().Int64Var(&dispatch, "dispatch", 0, "which launch; the last one when left out")
	return c
}
