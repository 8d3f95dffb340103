package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/pyclient"
)

// newAgent is headway-agent inside this binary, for runs on this machine.
func newAgent(e env) *cobra.Command {
	return &cobra.Command{Use: "agent", Aliases: []string{"worker"}, Short: "the worker: runs one dispatch on this machine", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			deps := agent.Deps{Self: []string{"agent"}, Python: pyclient.FS,
				Open: func(ctx context.Context, url string, environ []string) (bucket.Bucket, error) {
					return open.URL(ctx, url, open.Options{Getenv: lookup(environ)})
				}}
			if code := agent.Main(c.Context(), args, os.Environ(), e.stdout, e.stderr, deps); code != 0 {
				return &exit{code: code}
			}
			return nil
		}}
}

// lookup reads a variable from an environment that was handed over.
func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, kv := range environ {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v
			}
		}
		return ""
	}
}
