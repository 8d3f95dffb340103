// Package timeline tells what happened to one work, in order: submitted, claimed, launched or refused, captured,
// milestones, written off, ended, released, each with the store's own stamp and its reason. Nothing is stored for it: it
// is read out of the immutable records that the work leaves anyway (spec, claims, receipts, answers to releases,
// open.json, end.json, the manifests on its line) and the lease as it stands. It never writes.
package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// What an [Event] may be. A closed set.
const (
	Submitted  = "submitted"  // the first dispatcher wrote down what is to be computed
	Claimed    = "claimed"    // a dispatcher decided to launch it
	Launched   = "launched"   // the platform took the launch
	Refused    = "refused"    // it did not; Class says why
	Captured   = "captured"   // a worker took the lease and reserved its prefix
	Milestone  = "milestone"  // a snapshot that the resume pointer came to name
	Yielded    = "yielded"    // the worker gave the place back
	Revoked    = "revoked"    // the lease was taken away: its holder was silent, or somebody revoked it; Reason says which
	Ended      = "ended"      // the worker's own account of its end; Class says how
	Finished   = "finished"   // for ever
	Released   = "released"   // the platform's answer to the question whether the dispatch is over; Class is pending, bounded or closed
	Unreadable = "unreadable" // a record that is damaged or of a newer protocol
)

// Event is one line. Texts come from other machines: they are bounded and safe to print.
type Event struct {
	Time     time.Time `json:"time"` // the store's stamp of the object that says so; of a lost lease: of the lease (of the claim after it, where that is of an older version)
	What     string    `json:"what"`
	Dispatch int64     `json:"dispatch,omitempty"`
	Attempt  int64     `json:"attempt,omitempty"`
	Platform string    `json:"platform,omitempty"`
	By       string    `json:"by,omitempty"` // the dispatcher
	Class    string    `json:"class,omitempty"`
	Step     int64     `json:"step,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Timeline is what is known of a work.
type Timeline struct {
	Events []Event // in order
	// Earlier are launches and attempts that are older than what was read; Gone says that milestones before the first one
	// shown are no longer in the store, as retention lets them go.
	Earlier int64
	Gone    bool
	Over    bool // the work is finished: nothing more will happen but answers of platforms
}

// Bounds of one reading: the newest dispatches and attempts, and the newest milestones on the line.
const (
	MaxDispatches = 100
	MaxMilestones = 200
	atOnce        = 16
)

// Reader reads one work. It keeps the immutable records that it has read, so that looking again costs little. Not for
// several goroutines at a time.
type Reader struct {
	b    bucket.Bucket
	work string

	mu    sync.Mutex
	known map[string]object // by key: records that never change
}

// object is a record as it was read.
type object struct {
	body     []byte
	modified time.Time
	bad      string // why it was not read
}

// New returns a reader of one work (64 hex digits).
func New(b bucket.Bucket, work string) *Reader {
	return &Reader{b: b, work: work, known: map[string]object{}}
}

// Read looks at the store. An error is the store's; damaged records are events.
func (r *Reader) Read(ctx context.Context) (*Timeline, error) {
	t := &teller{out: &Timeline{Events: []Event{}}, lost: map[int64]Event{}, ended: map[int64]bool{}}
	seen, err := witness.Read(ctx, r.b, r.work)
	switch {
	case errors.Is(err, witness.ErrAbsent):
	case err != nil && isStore(err):
		return nil, fmt.Errorf("read the lease: %w", err)
	case err != nil:
		t.add(Event{What: Unreadable, Reason: "the lease: " + err.Error()})
	default:
		t.lease(seen)
	}
	if err := r.dispatches(ctx, t, seen.Record.Dispatch); err != nil {
		return nil, err
	}
	if err := r.attempts(ctx, t, seen.Record.Attempt); err != nil {
		return nil, err
	}
	if err := r.line(ctx, t, &seen.Record); err != nil {
		return nil, err
	}
	if err := r.fetch(ctx, []string{record.SpecKey(r.work), record.ClaimKey(r.work, 1)}); err != nil {
		return nil, err
	}
	if o, ok := r.known[record.SpecKey(r.work)]; ok {
		t.submitted(o, r.known[record.ClaimKey(r.work, 1)])
	}
	t.losses()
	t.order()
	return t.out, nil
}

// dispatches reads claims, receipts and the newest answers to releases: one listing, a GET for each that is new.
func (r *Reader) dispatches(ctx context.Context, t *teller, captured int64) error {
	last, err := runners.LastDispatch(ctx, r.b, r.work, captured)
	if err != nil {
		return fmt.Errorf("read the launches: %w", err)
	}
	after := ""
	if first := last - MaxDispatches; first > 0 {
		after = strings.TrimSuffix(record.ClaimKey(r.work, first), "json") + "~"
		t.out.Earlier = max(t.out.Earlier, first)
	}
	var keys []string
	for pages := 0; pages < 10; pages++ {
		p, err := r.b.List(ctx, record.DispatchPrefix(r.work), after, 1000)
		if err != nil {
			return fmt.Errorf("list the launches: %w", err)
		}
		for _, it := range p.Items {
			after = it.Key
			if k, ok := record.Parse(it.Key); ok && k.Work == r.work {
				keys = append(keys, it.Key)
			}
		}
		if !p.More || len(p.Items) == 0 {
			break
		}
	}
	if err := r.fetch(ctx, keys); err != nil {
		return err
	}
	for _, key := range keys {
		if o, ok := r.known[key]; ok {
			k, _ := record.Parse(key)
			t.dispatch(k, o)
		}
	}
	return nil
}

// attempts reads what each attempt wrote of its begin and its end.
func (r *Reader) attempts(ctx context.Context, t *teller, last int64) error {
	last = min(last, math.MaxInt64-1) // a worker writes its lease: counting up to what it says must end
	first := max(last-MaxDispatches, 0) + 1
	t.out.Earlier = max(t.out.Earlier, first-1)
	var keys []string
	for a := first; a <= last; a++ {
		keys = append(keys, record.OpenKey(r.work, a), record.EndKey(r.work, a))
	}
	if err := r.fetch(ctx, keys); err != nil {
		return err
	}
	for a := first; a <= last; a++ {
		if o, ok := r.known[record.OpenKey(r.work, a)]; ok {
			t.open(a, o)
		}
		if o, ok := r.known[record.EndKey(r.work, a)]; ok {
			t.end(a, o)
		}
	}
	return nil
}

// line follows the manifests from where the lease points to: every snapshot that a pointer ever named is on it, and no
// other.
func (r *Reader) line(ctx context.Context, t *teller, rec *witness.Record) error {
	at := rec.Resume
	if rec.Finished != nil && at == nil {
		key := rec.Finished.Manifest
		if !strings.HasPrefix(key, record.WorkPrefix(r.work)) {
			return nil // doctor says more of it
		}
		if err := r.fetch(ctx, []string{key}); err != nil {
			return err
		}
		var m record.Manifest
		if o := r.known[key]; record.Decode(o.body, record.MaxManifest, &m) == nil {
			at = m.Parent
		}
	}
	for n := 0; at != nil && n < MaxMilestones; n++ {
		key := record.MilestoneManifestKey(r.work, at.Attempt, at.Milestone)
		if at.Attempt < 1 || at.Milestone < 1 {
			return nil
		}
		if err := r.fetch(ctx, []string{key}); err != nil {
			return err
		}
		o, ok := r.known[key]
		if !ok {
			t.out.Gone = true
			return nil
		}
		var m record.Manifest
		if err := decode(o, record.MaxManifest, &m); err != nil {
			t.add(Event{Time: o.modified, What: Unreadable, Attempt: at.Attempt, Reason: key + ": " + err.Error()})
			return nil
		}
		t.add(Event{Time: o.modified, What: Milestone, Attempt: at.Attempt, Step: m.Step, Reason: fmt.Sprintf("snapshot %d, %s in %s", at.Milestone, size(m), files(m))})
		if m.Parent != nil && (m.Parent.Attempt > at.Attempt || m.Parent.Attempt == at.Attempt && m.Parent.Milestone >= at.Milestone) {
			return nil // goes in circles: doctor says more of it
		}
		at = m.Parent
	}
	t.out.Gone = t.out.Gone || at != nil
	return nil
}

// fetch reads the records that are not known yet. Absent ones stay unknown.
func (r *Reader) fetch(ctx context.Context, keys []string) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, ok := r.known[k]; return ok })
	errs := make([]error, len(keys))
	var wg sync.WaitGroup
	gate := make(chan struct{}, atOnce)
	for i, key := range keys {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			o, found, err := r.get(ctx, key)
			if errs[i] = err; err == nil && found {
				r.mu.Lock()
				r.known[key] = o
				r.mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("read %s: %w", keys[i], err)
		}
	}
	return nil
}

// teller makes events out of records. It knows no store.
type teller struct {
	out   *Timeline
	lost  map[int64]Event // by attempt: how its lease was lost
	ended map[int64]bool  // attempts that left an account of their end
}

// add makes an event's texts safe.
func (t *teller) add(e Event) {
	e.Reason, e.Class, e.Platform, e.By = safe(e.Reason, 500), safe(e.Class, 60), safe(e.Platform, 128), safe(e.By, 100)
	t.out.Events = append(t.out.Events, e)
}

// safe bounds a foreign text and takes out what must not be printed.
func safe(s string, n int) string { return runners.Bound(runners.Sanitize([]byte(plan.Redact(s))), n) }

// order sorts by the store's stamps; what a stamp of whole seconds cannot tell apart, by what must have come first.
func (t *teller) order() {
	by := map[int64]Event{} // how attempts began
	for _, e := range t.out.Events {
		if e.What == Captured {
			by[e.Attempt] = e
		}
	}
	for i := range t.out.Events {
		e := &t.out.Events[i]
		if e.Dispatch == 0 && e.Attempt > 0 {
			e.Dispatch = by[e.Attempt].Dispatch
		}
	}
	rank := map[string]int{Submitted: 0, Claimed: 1, Launched: 2, Refused: 2, Captured: 3, Milestone: 4, Yielded: 6, Revoked: 6, Ended: 5, Finished: 7, Released: 8, Unreadable: 9}
	slices.SortStableFunc(t.out.Events, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Dispatch, b.Dispatch), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(rank[a.What], rank[b.What]), cmp.Compare(a.Step, b.Step))
	})
}
