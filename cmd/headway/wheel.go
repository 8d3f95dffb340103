package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/runners/pyclient"
)

// newWheel writes the Python client that this binary carries, so that a laptop's scripts import what the agents bring.
func newWheel(e env) *cobra.Command {
	return &cobra.Command{Use: "wheel [DIR]", Short: "writes the Python client as a wheel and prints its path, for pip install", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := e.at(c).dir
			if len(args) == 1 {
				dir = filepath.Join(dir, args[0])
				if filepath.IsAbs(args[0]) {
					dir = args[0]
				}
			}
			v := version
			if v == "dev" {
				v = "0.0.0.dev0"
			}
			var b bytes.Buffer
			name, err := pyclient.WriteWheel(&b, v)
			if err != nil {
				return err
			}
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.stdout, path)
			return err
		}}
}
