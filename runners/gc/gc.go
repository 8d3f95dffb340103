// Package gc deletes what nothing in the store can name any more, and what retention lets go. It never deletes a
// witness, a spec, a reservation (open.json), an account of an end, or a result that finished a work; nothing of an
// attempt that holds its lease; not the resume pointer's milestone, nor as many behind it as retention keeps; nothing
// that a lane object names; nothing younger, by the store's own two stamps, than the grace period; nothing at all of a
// work whose witness is absent, cannot be read, or does not fit what is listed.
//
// Works are listed before their witness is read, and it is read again right before the deletes. What it allows is never
// forbidden by a later version (README.md has the proof), so a capture, a renewal or another gc in between does no harm.
// A manifest goes before its files. A run is bounded; the next one goes on. Any crash leaves a store that holds.
package gc

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Store is the read side of bucket.Bucket: all that a plan needs.
type Store interface {
	Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error)
	List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error)
}

// Times and bounds where Options says nothing. MinGrace holds whatever they say.
const (
	DefaultGrace = 24 * time.Hour
	MinGrace     = time.Hour
	DefaultMax   = 10_000
	DefaultFor   = 10 * time.Minute
	mostItems    = 10_000 // of Report.Items and of Report.Left
)

// Forever is a time that nothing outlives.
const Forever time.Duration = 1<<63 - 1

// Options of a run. The zero value keeps the pointer's milestone alone, and what is finished and logs for ever.
type Options struct {
	Milestones int           // of a line that goes on, kept behind the resume pointer
	Finished   time.Duration // after its end a finished work keeps its milestones and launch records; 0: Forever
	Logs       time.Duration // the log and events of an attempt that is over are kept after their last byte; 0: Forever
	Grace      time.Duration // least age of anything that is deleted; 0: DefaultGrace; never less than MinGrace or two leases
	Apply      bool          // Run deletes; otherwise it only looks
	Max        int           // objects that one run deletes at most; 0: DefaultMax
	Lanes      []Store       // of deploy lanes that lie elsewhere: what their records name stays
	For        time.Duration // a run that has deleted for this long begins no further work; 0: DefaultFor

	off off
}

// off takes protections away: only tests can, to see that each is needed.
type off struct {
	grace bool // anything is old enough
	held  bool // the attempt that holds the lease is like any other
	kept  bool // nothing of the line is kept
	pins  bool // lane and plans pin nothing
}

func (o Options) filled() Options {
	if o.Finished <= 0 {
		o.Finished = Forever
	}
	if o.Logs <= 0 {
		o.Logs = Forever
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	o.Grace = max(o.Grace, MinGrace)
	if o.Max <= 0 {
		o.Max = DefaultMax
	}
	if o.For <= 0 {
		o.For = DefaultFor
	}
	return o
}

// Reason is why something goes. A closed set.
type Reason string

const (
	Unnamed  Reason = "unnamed"  // a milestone or a result of an attempt that is over, which no pointer can name any more
	Partial  Reason = "partial"  // files of a snapshot whose manifest never came, of an attempt that is over
	Behind   Reason = "behind"   // a milestone further behind the resume pointer than retention keeps
	Finished Reason = "finished" // a milestone of a work that finished longer ago than retention keeps
	Launches Reason = "launches" // claims, receipts and releases of such a work
	Logs     Reason = "logs"     // log and event segments older than retention keeps
	Code     Reason = "code"     // a code bundle that no work and no plan in force needs
)

// Reasons lists all of them, in the order of the report.
func Reasons() []Reason { return []Reason{Unnamed, Partial, Behind, Finished, Launches, Logs, Code} }

// Item is one thing that goes, or went: a snapshot, the records of one launch, the log of an attempt, a bundle.
type Item struct {
	Work    string `json:"work,omitempty"`
	Prefix  string `json:"prefix"` // all its keys begin with it
	Reason  Reason `json:"reason"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// Left is a work, or the code bundles, that a run left alone though something may be wrong there.
type Left struct {
	Work string `json:"work,omitempty"`
	Why  string `json:"why"` // one sentence, printable
}

// Total is the sum of the items of one reason.
type Total struct {
	Reason  Reason `json:"reason"`
	Items   int    `json:"items"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// Incomplete says that a run went on to its end, and that something that was due stayed. The report says all else.
type Incomplete struct {
	Failed int    // as in the report
	First  string // what came first, printable
	Err    error  // of that
}

func (e *Incomplete) Error() string {
	if e.Failed == 1 {
		return "one thing that was due stays: " + e.First
	}
	return fmt.Sprintf("%d things that were due stay, among them: %s", e.Failed, e.First)
}

func (e *Incomplete) Unwrap() error { return e.Err }

// Report is what a run saw and did. When it was applied Totals and Items are what was deleted, otherwise what would be.
type Report struct {
	Applied  bool    `json:"applied"`
	Works    int     `json:"works"`
	Objects  int64   `json:"objects"` // listed, of works and code
	Bytes    int64   `json:"bytes"`   // of these
	Pinned   int     `json:"pinned"`  // works that a lane object names: left wholly alone
	Totals   []Total `json:"totals"`  // of the reasons that have any, in the order of Reasons
	Items    []Item  `json:"items"`   // the first 10,000
	Left     []Left  `json:"left"`    // likewise
	Failed   int     `json:"failed"`  // what was due and stayed: keys that could not be deleted, works that could not be noted
	Young    int     `json:"young"`   // objects that would go and are younger than the grace period
	More     bool    `json:"more"`    // a bound ended the run: the next one goes on
	Requests int     `json:"requests"`
}

// Sum is the total over all reasons.
func (r *Report) Sum() Total {
	var t Total
	for _, of := range r.Totals {
		t.Items, t.Objects, t.Bytes = t.Items+of.Items, t.Objects+of.Objects, t.Bytes+of.Bytes
	}
	return t
}

// Plan looks at a store and says what a run would delete, without the bounds of one. It writes nothing.
func Plan(ctx context.Context, s Store, o Options) (Report, error) {
	return newRun(s, nil, o).all(ctx)
}

// Apply deletes, within the bounds. An error is one of the store, of the context, a *Refusal, or, when all was seen to and
// something stayed, an *Incomplete; what was deleted until then is in the report, and the next run goes on.
func Apply(ctx context.Context, b bucket.Bucket, o Options) (Report, error) {
	return newRun(b, b, o).all(ctx)
}

// Run is Apply or Plan, as o.Apply says: a gc as an actor beside others.
func Run(ctx context.Context, b bucket.Bucket, o Options) (Report, error) {
	if o.Apply {
		return Apply(ctx, b, o)
	}
	return Plan(ctx, b, o)
}

// Refusal says that nothing may be deleted at all, since what pins works cannot be read.
type Refusal struct {
	Key  string // printable
	Text string // found, and what to do
}

func (e *Refusal) Error() string {
	return "nothing may be deleted while " + e.Key + " " + e.Text
}
