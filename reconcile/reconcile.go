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
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
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
	// Bundle makes sure that code/<tree>.tar.zst of a job exists, before each launch; nil: jobs have no code. commit is
	// the one that the job was read from: an earlier one than the newest, while that is refused or has errors.
	Bundle func(ctx context.Context, job *plan.Job, commit string) error
	// Load reads the plan at an earlier accepted commit again, so that what was accepted goes on after a restart while a
	// newer commit is refused; nil, or an error: the jobs of that commit are left as they are.
	Load func(ctx context.Context, commit string) (*plan.Plan, error)
	// LeaseFloor is the shortest lease on this store; 0: witness.DefaultFloor.
	LeaseFloor time.Duration
	// Patience is how long one pass waits for the answers of platforms at most; 0: 20 s, and 5 s for each round of calls.
	// What takes longer goes on by itself, and a later pass reports it. Whoever makes a single pass sets it high.
	Patience time.Duration
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
	Until    time.Duration  `json:"until_ns,omitempty"` // Wait, Blocked: how long from now at most; 0: no bound is known
	Reason   string         `json:"reason"`             // one sentence
	Done     bool           `json:"done"`               // it was carried out in this pass
	Result   string         `json:"result,omitempty"`   // what came of it, one sentence
	Err      error          `json:"-"`
}

// Report is the outcome of one pass.
type Report struct {
	Commit   string                   // the commit that is in force after the pass
	Accepted bool                     // the desired commit is the one in force
	Actions  []Action                 // one or more per work: the last one per work says where it stands
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

// Reconciler reconciles plans with one store. Its methods may be called from any goroutine; they run one at a time.
type Reconciler struct {
	c        Config
	b        bucket.Bucket // counts
	requests atomic.Int64
	gate     chan struct{} // holds one token while a method runs; what follows belongs to whoever has it

	looks   map[plan.Digest]*look
	pages   int // of the newest listing of leases
	silence witness.Observer
	brake   witness.Brake
	records records
	parks   map[string]parkSeen
	forces  map[string]stored
	told    map[string]*refused    // by root: the refusal that was said last
	said    map[plan.Digest]string // the decision that was logged last
	current accepting
	jobs    map[plan.Digest]asked     // of the accepted plan
	leaves  map[plan.Digest]time.Time // since when a work was seen to leave
	loaded  map[string]*plan.Plan     // by commit; nil: it could not be read
	// storeErrors: a look at the store failed as a whole since the last judgement of silence. sour are the works for
	// which it answered an error since then, sore counts for how many judgements in a row it has.
	storeErrors bool
	sour        map[plan.Digest]bool
	sore        map[plan.Digest]int

	hurdles map[plan.Digest]*hurdle

	asks    map[askKey]*ask
	flights map[flightKey]*flight
	landed  []*order // over, and not filed yet

	mu       sync.Mutex // guards what follows while acts run side by side
	packings map[string]*packing
}

// asked is a job and the commit that it was read from.
type asked struct {
	job    *plan.Job
	commit string
}

// accepting says which plan was held against which stored version last, to spare comparing large plans.
type accepting struct {
	plan    *plan.Plan
	version bucket.Version
	stops   bool
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
	r := &Reconciler{c: c, gate: make(chan struct{}, 1), looks: map[plan.Digest]*look{}, parks: map[string]parkSeen{},
		forces: map[string]stored{}, told: map[string]*refused{}, said: map[plan.Digest]string{},
		jobs: map[plan.Digest]asked{}, loaded: map[string]*plan.Plan{}, asks: map[askKey]*ask{},
		sour: map[plan.Digest]bool{}, sore: map[plan.Digest]int{}, leaves: map[plan.Digest]time.Time{}, hurdles: map[plan.Digest]*hurdle{}, flights: map[flightKey]*flight{}, packings: map[string]*packing{}}
	r.b = counted{c.Bucket, &r.requests}
	r.records.b = r.b
	return r, nil
}

// enter waits until no other method runs.
func (r *Reconciler) enter(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		r.collect()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reconciler) leave() { <-r.gate }

// Check says which guards refuse a commit, and writes nothing: what the verb plan shows and exits 3 for.
func (r *Reconciler) Check(ctx context.Context, d *Desired) ([]Refusal, error) {
	if d == nil || d.Plan == nil {
		return nil, errors.New("reconcile: a check needs a plan")
	}
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	p := &pass{r: r, d: d}
	var err error
	if p.base, err = r.loadForce(ctx, d.Plan.Config.Name); err != nil {
		return nil, err
	}
	if p.world, err = r.observe(ctx, worksOf(d.Plan, p.base.force)); err != nil {
		return nil, err
	}
	return guard(d, p.base.force, p.live), nil
}

// remember keeps the jobs that are in force, for the time when a later commit is refused or has errors.
func (r *Reconciler) remember(pl *plan.Plan, force *inForce) {
	if r.current.plan == pl && len(r.jobs) > 0 {
		return
	}
	jobs := make(map[plan.Digest]asked, len(pl.Jobs))
	for _, j := range force.jobs() {
		if old, ok := r.jobs[j.Work]; ok {
			jobs[j.Work] = old
		}
	}
	for i := range pl.Jobs {
		jobs[pl.Jobs[i].Work] = asked{&pl.Jobs[i], force.commit()}
	}
	r.jobs = jobs
}

// jobOf finds a job that is in force and not in the desired plan; without a job: it can't be read any more.
func (r *Reconciler) jobOf(ctx context.Context, f *inForce, w plan.Digest) asked {
	if a, ok := r.jobs[w]; ok {
		return a
	}
	for _, commit := range []string{f.commit(), f.Clean} {
		if commit == "" || r.c.Load == nil {
			continue
		}
		pl, tried := r.loaded[commit]
		if !tried {
			var err error
			if pl, err = r.c.Load(ctx, commit); err != nil {
				r.c.Log.Warn("the accepted plan can't be read again", "commit", shown(commit, 40), "error", shown(err.Error(), 300))
				pl = nil
			}
			if len(r.loaded) > 3 {
				clear(r.loaded)
			}
			r.loaded[commit] = pl
		}
		if pl == nil {
			continue
		}
		for i := range pl.Jobs {
			if pl.Jobs[i].Work == w {
				return asked{&pl.Jobs[i], commit}
			}
		}
	}
	return asked{}
}
