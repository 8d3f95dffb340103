// Package sim is a platform inside the process: it keeps ground truth, has a meter that counts what is paid for, and
// fails as its script says. Its workers are goroutines that do the real witness protocol on the given store, so that
// what a dispatcher believes can be held against what really ran. It lives in the fake time of a testing/synctest
// bubble as well as in real time; nothing of it outlives the process.
//
// The work that its workers do is a chain of hashes, one link a step: a result is right only when every step was done
// once, in order, from the milestone before, whatever was killed on the way.
package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// Config is what New needs.
type Config struct {
	Platform string
	Slots    int           // instances at a time; 0: 1
	Capacity int           // jobs that one launch may carry; 0: Slots
	Kinds    []string      // empty: all
	Bucket   bucket.Bucket // the store that the workers use; may be a faulty one
	Model    Model
	Script   []Fault
	Price    float64 // per instance and hour, for the meter
	// UntilReleased: an instance whose worker has ended is paid for until it is released, as on most rented machines.
	UntilReleased bool
}

// Model is what every worker does. Zero values mean the default beside them; what a claim's terms say goes first.
type Model struct {
	Start      time.Duration // from the launch to the capture; 2 s
	Step       time.Duration // one step; 100 ms
	Steps      int64         // of the whole run; 100
	Milestone  int64         // steps between milestones; 10
	Notice     time.Duration // what a release leaves for yielding; 0: the worker is killed at once
	Upload     time.Duration // how long a milestone's upload takes; 0
	LeaseFloor time.Duration // 15 s
}

// Runner is the platform.
type Runner struct {
	c Config

	mu    sync.Mutex
	all   []*instance // ground truth: every instance that ever was
	calls map[Op]int  // calls so far, workers included
	fired map[Effect]int
	cut   bool
}

var (
	_ runners.Runner = (*Runner)(nil)
	_ runners.Lister = (*Runner)(nil)
)

// New returns an empty platform. Call Close before the end of a test.
func New(c Config) (*Runner, error) {
	if c.Bucket == nil {
		return nil, fmt.Errorf("platform %s: no store was given for its workers", c.Platform)
	}
	for _, f := range c.Script {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("platform %s: %w", c.Platform, err)
		}
	}
	c.Slots = max(c.Slots, 1)
	if c.Capacity < 1 {
		c.Capacity = c.Slots
	}
	c.Model = c.Model.withDefaults()
	return &Runner{c: c, calls: map[Op]int{}, fired: map[Effect]int{}}, nil
}

func (m Model) withDefaults() Model {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&m.Start, 2*time.Second)
	def(&m.Step, 100*time.Millisecond)
	def(&m.LeaseFloor, 15*time.Second)
	if m.Steps < 1 {
		m.Steps = 100
	}
	if m.Milestone < 1 {
		m.Milestone = 10
	}
	return m
}

// JobKinds lists the configured kinds.
func (r *Runner) JobKinds() []string { return r.c.Kinds }

// Capacity is the configured number.
func (r *Runner) Capacity() int { return r.c.Capacity }

// handle is what a receipt carries.
type handle struct {
	Instance int `json:"instance"` // from 1
}

// Launch starts an instance for each job, all or none, as the script allows.
func (r *Runner) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	f := r.next(OpLaunch)
	if err := r.before(ctx, f, OpLaunch); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if len(r.c.Kinds) > 0 && !slices.Contains(r.c.Kinds, j.Spec.Kind) {
			return nil, r.fail(OpLaunch, runners.Rejected, fmt.Sprintf("jobs of kind %q do not run here", j.Spec.Kind))
		}
	}
	if f.Effect == NoStart {
		return r.receipts(make([]*instance, len(jobs))), nil
	}
	started, err := r.apply(ctx, f, jobs)
	if err != nil {
		return nil, err
	}
	switch f.Effect {
	case Lost:
		return nil, r.fail(OpLaunch, runners.Unreachable, "connection reset by peer")
	case Garbage:
		return r.receipts(started[:len(started)-1]), nil
	case NilHandle:
		return make([]runners.Receipt, len(jobs)), nil
	}
	return r.receipts(started), nil
}

// apply makes the instances.
func (r *Runner) apply(ctx context.Context, f Fault, jobs []runners.Launch) ([]*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	copies := 1
	if f.Effect == Twice {
		copies = 2
	}
	live := 0
	for _, in := range r.all {
		if in.over.IsZero() {
			live++
		}
	}
	if live+len(jobs) > r.c.Slots {
		return nil, r.fail(OpLaunch, runners.NoSlots, fmt.Sprintf("%d of %d instances run", live, r.c.Slots))
	}
	late := time.Duration(0)
	if f.Effect == Late {
		late = f.For
	}
	var started []*instance
	for _, j := range jobs {
		for c := range copies {
			in := r.begin(ctx, j, late)
			if c == 0 {
				started = append(started, in)
			}
		}
	}
	return started, nil
}

// receipts are the answers for instances; a nil one was never started and gets a number that nobody has.
func (r *Runner) receipts(started []*instance) []runners.Receipt {
	out := make([]runners.Receipt, len(started))
	for i, in := range started {
		id := 1 << 30
		if in != nil {
			id = in.id
		}
		out[i] = runners.Receipt{Handle: json.RawMessage(fmt.Sprintf(`{"instance":%d}`, id)), Text: fmt.Sprintf("instance %d", id)}
	}
	return out
}

// Release ends an instance and waits until its worker has left.
func (r *Runner) Release(ctx context.Context, raw json.RawMessage) (runners.Release, error) {
	f := r.next(OpRelease)
	if err := r.before(ctx, f, OpRelease); err != nil {
		return runners.Release{}, err
	}
	switch f.Effect {
	case NotYet:
		return runners.Release{Settlement: runners.Pending, Text: "terminating"}, nil
	case Bound:
		return runners.Release{Settlement: runners.Bounded, Until: time.Now().Add(f.For), Text: "the session has an end"}, nil
	case Garbage:
		return runners.Release{Settlement: 250}, nil
	}
	in, err := r.find(raw)
	if err != nil {
		return runners.Release{}, err
	}
	if in != nil {
		in.leave(r.c.Model.Notice)
		select {
		case <-in.done:
			r.close(in)
		case <-ctx.Done():
			return runners.Release{Settlement: runners.Pending, Text: "it was told to end and has not yet"}, nil
		}
	}
	if f.Effect == Lost {
		return runners.Release{}, r.fail(OpRelease, runners.Unreachable, "connection reset by peer")
	}
	return runners.Release{Settlement: runners.Closed, Text: "no such instance any more"}, nil
}

// find returns the instance of a handle, nil for one that never was.
func (r *Runner) find(raw json.RawMessage) (*instance, error) {
	var h handle
	if err := json.Unmarshal(raw, &h); err != nil || h.Instance < 1 {
		return nil, r.fail(OpRelease, runners.Rejected, "no such instance")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Instance > len(r.all) {
		return nil, nil
	}
	return r.all[h.Instance-1], nil
}

// Running lists the live instances, unless the script hides them.
func (r *Runner) Running(ctx context.Context) ([]runners.Running, error) {
	f := r.next(OpList)
	if err := r.before(ctx, f, OpList); err != nil {
		return nil, err
	}
	if f.Effect == Hide {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []runners.Running
	for _, in := range r.all {
		if in.over.IsZero() {
			out = append(out, runners.Running{Work: in.job.Work, Dispatch: in.job.Dispatch,
				Handle: json.RawMessage(fmt.Sprintf(`{"instance":%d}`, in.id)), Text: fmt.Sprintf("instance %d", in.id)})
		}
	}
	return out, nil
}

// next counts a call and returns the fault that the script has for it.
func (r *Runner) next(op Op) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextLocked(op)
}

func (r *Runner) nextLocked(op Op) Fault {
	r.calls[op]++
	for _, f := range r.c.Script {
		if f.Op == op && f.matches(r.calls[op]) {
			r.fired[f.Effect]++
			return f
		}
	}
	return Fault{Op: op}
}

// Cut makes the platform unreachable, or reachable again. Its workers go on meanwhile.
func (r *Runner) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

// before plays the effects that come before anything is applied.
func (r *Runner) before(ctx context.Context, f Fault, op Op) error {
	r.mu.Lock()
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return r.fail(op, runners.Unreachable, "no route to host")
	}
	switch f.Effect {
	case Delay:
		t := time.NewTimer(f.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return r.fail(op, runners.Unreachable, "no answer in time")
		}
	case Hang:
		<-ctx.Done()
		return r.fail(op, runners.Unreachable, "no answer in time")
	case Drop:
		return r.fail(op, runners.Unreachable, "connection refused")
	case NoSlots:
		return r.fail(op, runners.NoSlots, "there are no longer any instances available")
	case Quota:
		q := r.fail(op, runners.QuotaExhausted, "weekly quota reached")
		q.Until = time.Now().Add(f.For)
		return q
	case Reject:
		return r.fail(op, runners.Rejected, "this account may not do that")
	case Foreign:
		return fmt.Errorf("an error that is no failure")
	case Panic:
		panic("sim: as the script says") // the fault that a dispatcher must survive
	}
	return nil
}

func (r *Runner) fail(op Op, c runners.Class, words string) *runners.Failure {
	return &runners.Failure{Class: c, Platform: r.c.Platform, Op: string(op), Hint: c.Advice(), Raw: words, Err: fmt.Errorf("%s", strings.TrimSpace(words))}
}

// Close kills every worker and waits until all have ended.
func (r *Runner) Close() {
	r.mu.Lock()
	all := append([]*instance{}, r.all...)
	r.mu.Unlock()
	for _, in := range all {
		in.leave(0)
		<-in.done
		r.close(in)
	}
}
