package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/examples/digits/twin"
)

// newExample runs a program of the examples that is compiled in: what the demo trains with where there is no python3.
func newExample(e env) *cobra.Command {
	return &cobra.Command{Use: "example digits train|backtest [ARGS]", Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] + " " + args[1] {
			case "digits train":
				return twin.Train(c.Context(), args[2:], e.own())
			case "digits backtest":
				return twin.Backtest(c.Context(), args[2:], e.own())
			}
			return &exit{code: exitError, err: fmt.Errorf("there is no example program %q", args[0]+" "+args[1]), hint: "one of: digits train, digits backtest"}
		}}
}
