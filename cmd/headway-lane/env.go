package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/runners"
)

// env is everything that a verb gets from the process: tests hand in their own.
type env struct {
	args   []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	dir    string // working folder
	self   string // this executable, for starting the worker
}

func environment() env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return env{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, dir: dir, self: self}
}

// Exit codes are part of the interface (docs/lane.md), and the same as those of headway.
const (
	exitOK          = 0
	exitError       = 1
	exitBlocked     = 2 // of ring check
	exitRefused     = 3
	exitFailed      = 100
	exitParked      = 104
	exitInterrupted = 130
)

// exit carries an exit code through cobra. A nil err means that everything was said already.
type exit struct {
	code int
	err  error
	hint string
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// run is the whole program but for the process: it returns the exit code.
func run(ctx context.Context, e env) int {
	root := newRoot(e)
	root.SetArgs(e.args)
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.ExecuteContext(ctx)
	switch x, ok := errors.AsType[*exit](err); {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case ok:
		if x.err != nil {
			e.fail(x.err, x.hint)
		}
		return x.code
	}
	e.fail(err, "")
	return exitError
}

// fail says what went wrong and what to do, on standard error: lower case, no full stop.
func (e env) fail(err error, hint string) {
	for i, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
		if i == 0 {
			line = "error: " + line
		}
		fmt.Fprintln(e.stderr, clean(line))
	}
	if hint != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", clean(hint))
	}
}

// clean makes text of others fit for a terminal.
func clean(s string) string { return runners.Sanitize([]byte(s)) }

// at returns the environment with -C applied.
func (e env) at(c *cobra.Command) env {
	if dir, err := c.Flags().GetString("directory"); err == nil && dir != "" {
		e.dir = e.path(dir)
	}
	return e
}

// path is a file as a person named it, from the working folder.
func (e env) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(e.dir, p)
}

// newRoot builds the command tree; nothing is kept at package level.
func newRoot(e env) *cobra.Command {
	root := &cobra.Command{Use: "headway-lane", Short: "takes a model from a signed tag to its release", SilenceUsage: true, SilenceErrors: true, Version: version,
		Long:              "headway-lane reads signed tags, retrains what they name in the pinned environment, holds it against the parent's seeds, runs the\nbacktest that decides, and releases it with an attestation. docs/lane.md has the whole way.",
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true}}
	root.PersistentFlags().StringP("directory", "C", "", "start in this folder instead of the working folder")
	root.AddGroup(&cobra.Group{ID: "act", Title: "Acting:"}, &cobra.Group{ID: "look", Title: "Looking (these write nothing in a store):"}, &cobra.Group{ID: "more", Title: "More:"})
	group := func(id string, cs ...*cobra.Command) {
		for _, c := range cs {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("act", newRun(e), newWatch(e), newRing(e))
	group("look", newStatus(e), newShow(e), newFetch(e), newVerify(e), newTag(e), newPolicy(e))
	group("more", newAgent(e))
	return root
}
