package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/examples/digits/twin"
)

// newExample runs a program of the examples that is compiled in: what the demo trains with where there is no python3.
func newExample(e env) *cobra.Command {
	return &cobra.Command{Use: "example NAME [ARGS]", Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] != "digits" {
				return fmt.Errorf("there is no example program %q", args[0])
			}
			return twin.Train(c.Context(), args[1:], e.stdout)
		}}
}
