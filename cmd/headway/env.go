package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/term"
)

// env is everything a verb gets from the process: tests hand in their own.
type env struct {
	args   []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	dir    string // working folder
	self   string // this executable, for starting the worker
	tty    bool   // stdout is a terminal
	errTTY bool   // stderr is a terminal
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
	return env{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, dir: dir, self: self,
		tty: term.IsTerminal(int(os.Stdout.Fd())), errTTY: term.IsTerminal(int(os.Stderr.Fd())),
	}
}

// color reports whether standard output may carry colours: only on a terminal, never with NO_COLOR.
func (e env) color() bool { return e.tty && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb" }

// Exit codes are part of the interface (docs/cli.md). plan: 0 nothing to do, 2 changes, 1 error, 3 refused, 4 stale.
// Verbs that wait: 0 finished, 100 failed, 101 cancelled, 104 parked.
const (
	exitOK        = 0
	exitError     = 1
	exitChanges   = 2
	exitRefused   = 3
	exitStale     = 4
	exitFailed    = 100
	exitCancelled = 101
	exitParked    = 104
	// exitInterrupted: ended by a signal before it was done; what runs goes on.
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
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return exitInterrupted // whoever pressed ctrl-C knows why
	}
	if x, ok := errors.AsType[*exit](err); ok {
		if x.err != nil {
			fail(e, x.err, x.hint)
		}
		return x.code
	}
	fail(e, err, "")
	return exitError
}
