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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/reconcile/ladder"
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
	// Board makes Pass leave a Board in the store, at most every ten seconds, for verbs that only look.
	Board bool
	// Ahead is called in Pass, once what a commit changed was acted on and before everything else is looked at; nil: nobody waits
	// for it.
	Ahead func()
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
	// AllowReplace is "Allow-Replace: JOB, JOB", jobs or groups that may be replaced however long they have run; a number
	// alone is how many exactly.
	AllowReplace []string
	// Approved asks which of these jobs may be replaced by other means than the message, such as a label of the pull request that
	// replaces them; nil: nobody can be asked. It is asked of what guard.replace_after holds back, in each pass that it does.
	Approved func(ctx context.Context, jobs []string) []string
	// Branch is where the commit was read from; "": that is not known.
	Branch string
	// Warnings are those of whoever read the commit; they are handed through to the report.
	Warnings []plan.Problem
	// Refusals are those of whoever read the commit: rewritten history, a branch that went back or vanished. Any of
	// them keeps the whole of the last accepted plan.
	Refusals []Refusal
	// Over is the commit that was in force when Refusals were made, "" if none was; nil: it was not asked. A pass that finds
	// another one in force follows nothing of this plan: what is newer by now is for its caller to find out.
	Over *string
	// Once: Over has to be in force still when this plan is written down over it. Of several that do so for the same plan one
	// has its way, and the others follow nothing of it.
	Once bool
	// Demand restricts the pass to launches that a person asks for; nil: everything is done that there is to do.
	Demand *Demand
}

// Demand is a person's wish that works be launched now, each once. It overrules pauses (a backoff, a platform's park, what the
// ladder would wait for) and spent retries, and nothing else: what is finished, held, on its way, suspended, failing alike
// again or over a limit on time and money stays so.
type Demand struct {
	Works    []plan.Digest
	Platform string // of their ladders; "": as the ladder says
}

// names reports whether a work's launch is asked for.
func (d *Demand) names(w plan.Digest) bool { return d != nil && slices.Contains(d.Works, w) }

// Refusal says why a commit is not followed, one sentence for people. Code is stable.
type Refusal struct {
	Code string `json:"code"` // EmptyPlan, TooManyStops, NotFresh, NotComplete, PlanErrors, Overtaken, …, or the repository's own
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
	Move     Kind = "move"      // revoke the lease version that was seen, right behind a milestone: a better rung takes the work
	Stop     Kind = "stop"      // revoke, and raise the floor: it left the plan
	Release  Kind = "release"   // end what a receipt names at its platform
	Fail     Kind = "fail"      // given up for good; recomputed from the records, written nowhere
)

// Action is one decision about one work, and what became of it.
type Action struct {
	Kind     Kind             `json:"kind"`
	Work     plan.Digest      `json:"work"`
	Job      string           `json:"job,omitempty"`
	Platform string           `json:"platform,omitempty"`
	Dispatch int64            `json:"dispatch,omitempty"` // Launch, Release: its number
	Version  bucket.Version   `json:"-"`                  // WriteOff, Stop: the witness version that was judged
	Floor    int64            `json:"floor,omitempty"`    // Stop: the floor to raise to
	Until    time.Duration    `json:"until_ns,omitempty"` // Wait, Blocked: how long from now at most; 0: no bound is known. Release: how long it has time
	Reason   string           `json:"reason"`             // one sentence
	Done     bool             `json:"done"`               // it was carried out in this pass
	Result   string           `json:"result,omitempty"`   // what came of it, one sentence
	Err      error            `json:"-"`
	Spent    int64            `json:"-"`               // Launch: retries that this claim counts and the one before did not
	Rungs    []ladder.Verdict `json:"rungs,omitempty"` // of a launch that is due: where it would go now, and why not on the rungs above
	Climb    string           `json:"climb,omitempty"` // the better rung for which it leaves behind its next milestone
	Ending   bool             `json:"-"`               // a platform has promised an end of an earlier dispatch and not confirmed it; Reason says which
}

// Report is the outcome of one pass.
type Report struct {
	Commit   string                   // the commit that is in force after the pass
	Accepted bool                     // the desired commit is the one in force
	Actions  []Action                 // one or more per work: the last one per work says where it stands
	States   map[plan.Digest]Standing // of every work that was looked at
	Refusals []Refusal
	Warnings []plan.Problem // Desired.Warnings, and rules of guard that only warn: these with the pass that accepts the commit, and before it
	Orphans  []Orphan       // what platforms run for us and nothing explains, as two looks in a row have shown
	Drift    []plan.Drift   // what is otherwise than the accepted plan says, and no commit asks for; sorted by job
	Errors   []error        // what failed in this pass; the next one tries again
	Next     time.Duration  // when to look again, if nothing wakes the loop before
	Requests int64          // store requests of the pass
	Verbs    Verbs          // the same, by verb

	Platforms []PlatformState // every configured platform, by name
	Releasing int             // dispatches that a platform is still asked to end
	Owed      int             // of these: their workers have left, they are paid for until then, and no end is promised
}

// Standing is where a work stands after a pass, as one word of plan's and one sentence.
type Standing struct {
	State    string // plan.StateHeld, plan.StateFinished, …
	Reason   string
	Job      string
	Attempt  int64  // newest; 0: none
	Dispatch int64  // newest; 0: none
	Platform string // of the newest dispatch; "": not known
	Final    Kind   // Fail or Blocked: no later pass goes on with it by itself; else ""
}

// Reconciler reconciles plans with one store. Its methods may be called from any goroutine; they run one at a time.
type Reconciler struct {
	c        Config
	b        bucket.Bucket // counts
	requests meter
	gate     chan struct{} // holds one token while a method runs; what follows belongs to whoever has it

	looks   map[plan.Digest]*look
	pages   int // of the newest listing of leases
	silence witness.Observer
	brake   witness.Brake
	records records
	parks   map[string]parkSeen
	forces  map[string]stored
	told    map[string]*refused    // by root: the refusal that was said last
	said    map[plan.Digest]spoken // the decision that was logged last
	current accepting
	last    previous
	ranking ranking
	turn    turnover
	jobs    map[plan.Digest]asked     // of the accepted plan
	leaves  map[plan.Digest]time.Time // since when a work was seen to leave
	loaded  map[string]*plan.Plan     // by commit; nil: it could not be read
	// storeErrors: a look at the store failed as a whole since the last judgement of silence. sour are the works for
	// which it answered an error since then, sore counts for how many judgements in a row it has.
	storeErrors bool
	sour        map[plan.Digest]bool
	sore        map[plan.Digest]int

	hurdles map[plan.Digest]*hurdle
	climbs  map[plan.Digest]*Climb
	offers  map[string]offers // by platform

	learner learner
	book    *goodput.Book // what ended dispatches of all platforms taught; never nil; see learn.go

	asks     map[askKey]*ask
	flights  map[flightKey]*flight
	landed   []*order     // over, and not filed yet
	passing  bool         // a pass that acts is looking: results are looked for
	firsts   atomic.Int64 // of this look: see firstSights
	outlives bool         // a machine of some platform may be paid for once the worker that was heard of has left
	posted   posted       // the board
	patrol   patrol

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
		forces: map[string]stored{}, told: map[string]*refused{}, said: map[plan.Digest]spoken{},
		jobs: map[plan.Digest]asked{}, loaded: map[string]*plan.Plan{}, asks: map[askKey]*ask{},
		sour: map[plan.Digest]bool{}, sore: map[plan.Digest]int{}, leaves: map[plan.Digest]time.Time{}, hurdles: map[plan.Digest]*hurdle{}, climbs: map[plan.Digest]*Climb{}, offers: map[string]offers{}, flights: map[flightKey]*flight{}, packings: map[string]*packing{}}
	r.book = &goodput.Book{}
	r.learner.start(c.Bucket, c.Dry)
	r.b = counted{c.Bucket, &r.requests}
	r.records.b, r.records.book, r.records.blind = r.b, r.book, blindOf(c.Runners)
	return r, nil
}

// enter waits until no other method runs.
func (r *Reconciler) enter(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		r.passing = false // until a look of a pass says so
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
	if money(&d.Plan.Config.Guard) {
		if p.platforms, err = r.platforms(ctx, d.Plan.Config.Platforms); err != nil {
			return nil, err
		}
	}
	p.report = &Report{}
	refusals := guard(d, p.base.force, p.live)
	broken, _ := p.rules(ctx, refusals)
	return append(refusals, broken...), nil
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
