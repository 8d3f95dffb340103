// Package reconcile is the loop: look at the store, decide, act, write down why. It holds a plan against the leases
// and the immutable records of its works, launches what is missing, writes off what is silent, stops what an accepted
// commit no longer names, and says the reason of each.
//
// Deciding is one pure function (decide.go), what a failure costs is one table (budget.go), what a commit may stop is
// one pure function (guard.go). It keeps nothing that is not in the store but caches, so any number of reconcilers
// may run on one store: claims decide between them. DESIGN.md says why it is as it is.
package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// Config is what a reconciler needs; all of it comes in as values.
type Config struct {
	Bucket   bucket.Bucket             // the store, rooted at the team's prefix
	StoreURL string                    // what a worker opens; handed to runners
	Runners  map[string]runners.Runner // by configured platform name; a platform without one launches nothing
	ID       string                    // of this dispatcher, written into claims; for people
	Log      *slog.Logger              // nil: nothing is said
	// Secrets resolves a secret's name at launch; nil: none are known.
	Secrets func(name string) (string, bool)
	// Bundle makes sure that code/<tree>.tar.zst of a job exists, before its first launch; nil: jobs have no code.
	Bundle func(ctx context.Context, job *plan.Job) error
	// Dry makes Pass decide and report, and write nothing: neither to the store nor to a platform.
	Dry bool
}

// Desired is one read of a plan, and how far it may be trusted.
type Desired struct {
	Plan   *plan.Plan
	Commit string // full hash, or a name for a work tree
	// Fresh: the source was asked in this pass and answered. False, for example while the remote is away: the plan
	// goes on as accepted, and nothing new is stopped.
	Fresh bool
	// Complete: every object that the read needed was there. A plan with problems may be complete.
	Complete bool
	// AllowStops is the trailer "Allow-Stops: <n>" of the commit; -1: none. AllowEmpty is "Allow-Empty: yes".
	AllowStops int
	AllowEmpty bool
	// Refusals are those of whoever read the commit: rewritten history, a branch that went back or vanished. Any of
	// them keeps the whole of the last accepted plan.
	Refusals []Refusal
}

// Refusal says why a commit is not followed, one sentence for people. Code is stable.
type Refusal struct {
	Code string `json:"code"` // EmptyPlan, TooManyStops, NotFresh, NotComplete, PlanErrors, …, or the repository's own
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
	// Whole: nothing of the commit is followed. Otherwise its starts and updates are, and only its stops wait.
	Whole bool `json:"whole"`
	// New: not said before, by any reconciler of this store, for this commit. Only then is it worth a line.
	New bool `json:"-"`
}

// Kind of an [Action]. A closed set.
type Kind string

const (
	None     Kind = "none"      // nothing to do: it runs, it is finished, it is suspended
	Wait     Kind = "wait"      // something must pass first; Until says how long at most before looking again
	Blocked  Kind = "blocked"   // an input failed, or no platform can take it: waits for a person
	Launch   Kind = "launch"    // claim dispatch number Dispatch on Platform, then call
	WriteOff Kind = "write_off" // revoke the lease version that was judged silent
	Stop     Kind = "stop"      // revoke, and raise the floor: it left the plan
	Release  Kind = "release"   // end what a receipt names at its platform
	Fail     Kind = "fail"      // given up for good; recomputed from the records, written nowhere
)

// Action is one decision about one work, and what became of it.
type Action struct {
	Kind     Kind           `json:"kind"`
	Work     plan.Digest    `json:"work"`
	Job      string         `json:"job,omitempty"`
	Platform string         `json:"platform,omitempty"`
	Dispatch int64          `json:"dispatch,omitempty"` // Launch, Release: its number
	Version  bucket.Version `json:"-"`                  // WriteOff, Stop: the witness version that was judged
	Floor    int64          `json:"floor,omitempty"`    // Stop: the floor to raise to
	Until    time.Duration  `json:"until_ns,omitempty"` // Wait: how long from now at most; 0: no bound is known
	Reason   string         `json:"reason"`             // one sentence
	Done     bool           `json:"done"`               // it was carried out in this pass
	Result   string         `json:"result,omitempty"`   // what came of it, one sentence
	Err      error          `json:"-"`
}

// Report is the outcome of one pass.
type Report struct {
	Commit   string                  // the commit that is in force after the pass
	Accepted bool                    // the desired commit is the one in force
	Actions  []Action                // one or more per work: the last one per work says where it stands
	States   map[plan.Digest]Standing // of every work that was looked at
	Refusals []Refusal
	Errors   []error       // what failed in this pass; the next one tries again
	Next     time.Duration // when to look again, if nothing wakes the loop before
	Requests int64         // store requests of the pass
}

// Standing is where a work stands after a pass, as one word of plan's and one sentence.
type Standing struct {
	State  string // plan.StateHeld, plan.StateFinished, …
	Reason string
}

// Reconciler reconciles plans with one store. Its methods may be called from any goroutine; passes run one at a time.
type Reconciler struct {
	c    Config
	pass sync.Mutex // held during a pass

	mu sync.Mutex // guards what follows
}

// New returns a reconciler.
func New(c Config) (*Reconciler, error) {
	if c.Bucket == nil {
		return nil, errors.New("reconcile: no store was given")
	}
	if c.ID == "" {
		return nil, errors.New("reconcile: a dispatcher needs an id")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{c: c}, nil
}
