package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/agent/fetch"
	"github.com/headway-run/headway/runners/witness"
)

func newFetch(e env) *cobra.Command {
	var to string
	c := &cobra.Command{Use: "fetch JOB", Short: "downloads a finished job's result, every byte verified", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			op, err := openNamed(ctx, e.at(c), args[0])
			if err != nil {
				return err
			}
			job, work, b := op.job, op.work, op.b
			status, err := runners.Dispatcher{Bucket: b}.Status(ctx, string(work))
			if err != nil {
				return err
			}
			if status.Phase != runners.PhaseFinished || status.Witness == nil || status.Witness.Record.State != witness.Finished {
				world, err := op.r.Observe(ctx, []plan.Digest{work}, op.p.plan.Jobs)
				if err != nil {
					return err
				}
				state := cmp.Or(world.Observed()[work].State, plan.StateAbsent)
				return &exit{code: exitError, err: fmt.Errorf("%s has no result: it is %s", job, state), hint: "headway status " + job + " says more"}
			}
			if to == "" {
				to = "result-" + filepath.Base(job)
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(e.at(c).dir, to)
			}
			if err := emptyFolder(to); err != nil {
				return err
			}
			f := status.Witness.Record.Finished
			m, err := fetch.Result(ctx, b, string(work), f.Attempt, f.Manifest, f.SHA256, to, nil)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%s of attempt %d, verified, in %s:\n", job, f.Attempt, clean(to))
			for _, file := range m.Files {
				fmt.Fprintf(e.stdout, "%s  %d bytes\n", runners.Sanitize([]byte(file.Path)), file.Size)
			}
			return nil
		}}
	c.Flags().StringVar(&to, "to", "", "folder to make (default result-JOB)")
	return c
}

// emptyFolder makes a folder, and refuses one that holds something: a download overwrites nothing.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return &exit{code: exitError, err: fmt.Errorf("%s is not empty", dir), hint: "name another folder: --to DIR"}
	}
	return nil
}
