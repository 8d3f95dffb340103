// Package sim is a platform inside the process: it keeps ground truth, has a meter that counts what is paid for, and
// fails as its script says. Its workers are goroutines that do the real witness protocol on the given store, so that
// what a dispatcher believes can be held against what really ran. It lives in the fake time of a testing/synctest
// bubble as well as in real time; nothing of it outlives the process.
//
// The work that its workers do is a chain of hashes, one link a step: a result is right only when every step was done
// once, in order, from the milestone before, whatever was killed on the way.
package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Config is what New needs.
type Config struct {
	Platform string
	Slots    int           // launches at a time: each takes a machine of its own, until the last of its jobs is over; 0: 1
	Capacity int           // jobs that one launch may carry, each an instance on the launch's machine; 0: 1
	Kinds    []string      // empty: all
	Bucket   bucket.Bucket // the store that the workers use; may be a faulty one
	Model    Model
	Script   []Fault
	Price    float64 // per machine and hour; 0: free
	Unit     string  // of Price; "": USD
	// UntilReleased: an instance whose worker has ended is paid for until it is released, as on most rented machines.
	UntilReleased bool
	// Quota is the machine time that every Per gives, from New on; 0: no limit. Give a dispatcher Quoted then.
	Quota, Per time.Duration

	Work Work                             // what every instance runs; nil: the platform's own simulated worker
	Port func(instance int) bucket.Bucket // the store as that instance reaches it, called once for each; nil: Bucket
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
	GPU        string        // the card that its machine finds; "simulated", which nobody rates
	Driver     string        // that its machine finds; none
}

// Runner is the platform.
type Runner struct {
	c      Config
	opened time.Time

	mu               sync.Mutex
	all              []*instance // ground truth: every instance that ever was
	machines         int         // that ever were
	jobs             map[int]int // machine → its instances that are not over
	calls            map[Op]int  // calls so far, workers included
	fired, ofWorkers map[Effect]int
	cut              bool
	says             string // to every launch; "": it takes them
}

var (
	_ runners.Runner = (*Runner)(nil)
	_ runners.Lister = (*Runner)(nil)
	_ runners.Pricer = (*Runner)(nil)

	_ runners.Outliver = (*Runner)(nil)
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
	c.Capacity = max(c.Capacity, 1)
	c.Model = c.Model.withDefaults()
	if c.Per <= 0 {
		c.Per = week
	}
	return &Runner{c: c, opened: time.Now(), jobs: map[int]int{}, calls: map[Op]int{}, fired: map[Effect]int{}, ofWorkers: map[Effect]int{}}, nil
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
	m.GPU = cmp.Or(m.GPU, "simulated")
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
			return nil, r.fail(OpLaunch, fmt.Sprintf("jobs of kind %q do not run here", j.Spec.Kind))
		}
	}
	for _, j := range jobs {
		if m := j.MaxPrice; m != nil && (m.Unit == "" || m.Unit == r.price().Unit) && r.c.Price > m.PerHour {
			return nil, r.fail(OpLaunch, fmt.Sprintf("no offer below %v per hour", m.PerHour))
		}
	}
	if err := r.usedUp(); err != nil {
		return nil, err
	}
	if f.Effect == NoStart {
		return r.receipts(make([]*instance, len(jobs))), nil
	}
	if f.Effect == Part {
		return nil, r.part(ctx, f, jobs)
	}
	started, err := r.apply(ctx, f, jobs)
	if err != nil {
		return nil, err
	}
	switch f.Effect {
	case Lost:
		return nil, r.fail(OpLaunch, "connection reset by peer")
	case Kept:
		return nil, r.fail(OpLaunch, "there are no longer any instances available")
	case Garbage:
		return r.receipts(started[:len(started)-1]), nil
	case NilHandle:
		return make([]runners.Receipt, len(jobs)), nil
	}
	return r.receipts(started), nil
}

// part starts all jobs but the last one, which finds no place, and ends them again: all or nothing.
func (r *Runner) part(ctx context.Context, f Fault, jobs []runners.Launch) error {
	started, err := r.apply(ctx, f, jobs[:len(jobs)-1])
	if err != nil {
		return err
	}
	for _, in := range started {
		in.leave(0)
		<-in.done
		r.close(in)
	}
	return r.fail(OpLaunch, "there are no longer any instances available")
}

// apply makes the instances.
func (r *Runner) apply(ctx context.Context, f Fault, jobs []runners.Launch) ([]*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	copies := 1
	if f.Effect == Twice {
		copies = 2
	}
	if live := len(r.jobs); live >= r.c.Slots {
		return nil, r.fail(OpLaunch, fmt.Sprintf("%d of %d machines are taken", live, r.c.Slots))
	}
	needed := 0
	for _, j := range jobs {
		needed += max(j.Cards, 1)
	}
	if len(jobs) > r.c.Capacity || r.c.Capacity > 1 && needed > r.c.Capacity {
		return nil, r.fail(OpLaunch, fmt.Sprintf("%d jobs on %d cards for a machine of %d", len(jobs), needed, r.c.Capacity))
	}
	late := time.Duration(0)
	if f.Effect == Late {
		late = f.For
	}
	var started []*instance
	first := r.machines + 1
	r.machines += copies
	card := 0
	for _, j := range jobs {
		from := card
		card += max(j.Cards, 1)
		for c := range copies {
			in := r.begin(ctx, j, first+c, late)
			in.cards = [2]int{from, card}
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
		id := 1<<30 + i
		if in != nil {
			id = in.id
		}
		out[i] = runners.Receipt{Handle: json.RawMessage(fmt.Sprintf(`{"instance":%d}`, id)), Text: fmt.Sprintf("instance %d", id), Price: r.price(), Outlives: r.c.UntilReleased}
	}
	return out
}

// price is what one machine costs, and so one launch.
func (r *Runner) price() *record.Price {
	if r.c.Price <= 0 {
		return &record.Price{}
	}
	return &record.Price{PerHour: r.c.Price, Unit: cmp.Or(r.c.Unit, "USD")}
}

// Outlives implements runners.Outliver.
func (r *Runner) Outlives() bool { return r.c.UntilReleased }

// Price is the configured one.
func (r *Runner) Price(context.Context) (record.Price, error) { return *r.price(), nil }

// Release ends an instance and waits until its worker has left. The others of its launch stay on their machine, which is
// paid for as long as one of them is.
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
		return runners.Release{}, r.fail(OpRelease, "connection reset by peer")
	}
	return runners.Release{Settlement: runners.Closed, Text: "no such instance any more"}, nil
}

// find returns the instance of a handle, nil for one that never was.
func (r *Runner) find(raw json.RawMessage) (*instance, error) {
	var h handle
	if err := json.Unmarshal(raw, &h); err != nil || h.Instance < 1 {
		return nil, r.fail(OpRelease, "no such instance")
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
			if f.Op == OpWorker {
				r.ofWorkers[f.Effect]++
			}
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
	cut, says := r.cut, r.says
	r.mu.Unlock()
	switch {
	case cut:
		return r.fail(op, "no route to host")
	case says != "" && op == OpLaunch:
		return r.fail(op, says)
	}
	switch f.Effect {
	case Delay:
		t := time.NewTimer(f.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return r.fail(op, "no answer in time")
		}
	case Hang:
		<-ctx.Done()
		return r.fail(op, "no answer in time")
	case Drop:
		return r.fail(op, "connection refused")
	case NoSlots:
		return r.fail(op, "there are no longer any instances available")
	case Quota:
		q := r.fail(op, "weekly quota reached")
		q.Until = time.Now().Add(f.For)
		return q
	case Reject:
		return r.fail(op, "this account may not do that")
	case Foreign:
		return fmt.Errorf("an error that is no failure")
	case Panic:
		panic("sim: as the script says") // the fault that a dispatcher must survive
	}
	return nil
}

// fail is what becomes of the platform's own words: their class is what sentences says, as for any platform.
func (r *Runner) fail(op Op, words string) *runners.Failure {
	return runners.Refused(r.c.Platform, string(op), Sentences(), words)
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
