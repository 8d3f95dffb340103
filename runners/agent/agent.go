// Package agent is the program on the rented machine. It takes one dispatch, measures the machine, captures the
// lease, fetches code, inputs and the snapshot to resume from, starts the user's program and stays between it and
// the store until it ends: steps come in over a local socket (PROTOCOL.md), snapshots go out in the background.
//
// One goroutine owns the lease. It writes only because of evidence: a step, a declared phase, a finished checkpoint
// file, verified or acknowledged bytes. Never because a timer ran out. What it does not do: judge anybody's
// silence, launch, delete, or touch a key outside its own attempt's prefix and its witness.
package agent

import (
	"io/fs"
	"log/slog"

	"github.com/headway-run/headway/runners/bucket"
)

// Config is what one run needs; all of it comes in as values.
type Config struct {
	Bucket   bucket.Bucket // the store, rooted at the team's prefix
	Work     string        // 64 hex digits
	Dispatch int64         // number of the claim that started this agent
	Platform string        // configured name; must be the claim's when not empty
	Scratch  string        // folder for this run's files; empty: the system's temporary folder. Nothing in it outlives the run
	Python   fs.FS         // Python client, laid out on the program's PYTHONPATH; nil: none
	Environ  []string      // the agent's own environment: the program gets it without HEADWAY_STORE and store keys
	Guard    []string      // command that runs Guard in this binary, for example {"/proc/self/exe", "guard"}; required
	Log      *slog.Logger  // nil: nothing is said
	Inside   *Inside       // simulations and tests: the program runs in this process, and Guard is not needed; nil: as a process

	cgroup string // tests: stands for /sys/fs/cgroup
}

// Exit is how a run ended. Code is the process's exit code (README.md has the table), Class the same as a word, and
// Text one sentence for people.
type Exit struct {
	Code  int
	Class string
	Text  string
}

// Exit codes of the agent itself. The program's own exit code is in end.json, never here.
const (
	CodeFinished    = 0  // result acknowledged, witness finished
	CodeInternal    = 1  // a defect of the agent, or bad arguments
	CodeUserCode    = 10 // the program failed
	CodeNoResult    = 11 // the program exited 0 and left no acceptable result
	CodeYielded     = 12 // asked to leave (SIGTERM): the place is free
	CodeLeaseLost   = 13 // another holds the lease, or a dispatcher wrote this attempt off
	CodeRevoked     = 14 // a person stopped this work
	CodeNothingToDo = 15 // finished already, running elsewhere, or below the floor: nothing was touched
	CodeRefused     = 16 // this machine or this dispatch is not what was asked for
	CodeStore       = 17 // the store gave no usable answer, or refuses for good; the lease, if any, runs out by itself
	CodeDiskFull    = 18 // no space for code, inputs or the snapshot to resume from, or the program says that there is none
)
