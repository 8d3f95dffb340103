package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/headway-run/headway/runners/bucket"
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

	log    *slog.Logger                      // of the verbs that act; nil: by HEADWAY_LOG alone
	events bool                              // every line is an event of log, and none is for people
	hidden *hidden                           // what no line may show
	id     string                            // of this dispatcher; "": made up
	wrap   func(bucket.Bucket) bucket.Bucket // around a store that is opened for writing; nil: as it is
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

// wrapped is a store that is opened for writing, as this process looks at it.
func (e env) wrapped(b bucket.Bucket) bucket.Bucket {
	if e.wrap == nil {
		return b
	}
	return e.wrap(b)
}

// color reports whether standard output may carry colours: only on a terminal, never with NO_COLOR.
func (e env) color() bool { return e.tty && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb" }

// Exit codes are part of the interface (docs/cli.md). plan: 0 nothing to do, 2 changes, 1 error, 3 refused, 4 stale.
// Verbs that wait: 0 finished, 100 failed, 101 cancelled, 104 parked.
const (
	exitOK        = 0
	exitError     = 1
	exitChanges   = 2
	exitBlocked   = 2 // of preflight
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

// run is the whole program but for the process: it returns the exit code. What could not be printed is an error: whoever
// reads half a report must not take it for the whole.
func run(ctx context.Context, e env) int {
	out := &checked{w: e.stdout}
	e.stdout = out
	code := verb(ctx, e)
	if err := out.failed(); err != nil && code != exitError && code != exitInterrupted {
		fail(e, fmt.Errorf("standard output: %w", err), "not everything was printed; what the verb did is done all the same")
		return exitError
	}
	return code
}

// checked is a writer that remembers its first failure.
type checked struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (c *checked) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = cmp.Or(c.err, err)
	}
	return n, err
}

// own is standard output itself, for what has exit codes of its own: a worker whose log is full still says how it ended.
func (e env) own() io.Writer {
	if c, ok := e.stdout.(*checked); ok {
		return c.w
	}
	return e.stdout
}

func (c *checked) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// verb runs one verb.
func verb(ctx context.Context, e env) int {
	e.hidden = hide(e.getenv)
	root := newRoot(e)
	forgiving(root)
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
	err = unknownVerb(root, err)
	if x, ok := errors.AsType[*exit](err); ok {
		if x.err != nil {
			fail(e, x.err, x.hint)
		}
		return x.code
	}
	fail(e, err, "")
	return exitError
}
