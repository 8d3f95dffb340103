package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// atOnce bounds how many requests are open at a time.
const atOnce = 64

// countable bounds the numbers of a lease that is acted on: a worker writes it, and whoever counts on from them, or up to them,
// must not overflow.
const countable = 1 << 53

// getsPerList is how many GETs cost as much as one LIST (s3.md §5.1).
const getsPerList = 12

// look is what is known of one lease.
type look struct {
	seen    *witness.Seen // nil: absent, or not readable
	version bucket.Version
	bad     string // it exists, or must exist, and cannot be acted on: why
	err     error  // the store did not answer for it this time
	silence witness.Silence
	claim   *record.Claim // of the holder's dispatch
	// unlisted: a listing lacked it, and it is there: it is asked for by name.
	unlisted bool
	clear    bool // finished, and nothing of it is left to release
	ran      bool // this process has seen it before it was finished
	result   *arrival
}

// World is what one look at the store showed.
type World struct {
	Requests int64 // store requests that the look cost

	works   map[plan.Digest]*sight
	pages   int
	trouble []error // what single works failed with
}

// sight is one work in a World.
type sight struct {
	lease    Lease
	record   *witness.Record
	seen     *witness.Seen
	silence  witness.Silence
	history  History
	platform string        // where it is held
	claim    *record.Claim // of the holder; nil: not held, or not known
	job      *plan.Job
	retries  *int // limits.retries of a job that only the accepted plan names
	gpus     int  // likewise; 0: none, or not known
	err      error
}

// Observe looks at works: their leases (one LIST and a GET for each that changed since the last look, or only GETs
// where that costs less), and the newest dispatches and attempts of those that neither run nor are finished. It
// writes nothing. jobs may be nil; those given let a state also say what a job's budget says (failed). It does not
// run beside a Pass of the same Reconciler: one that must not wait for launches has a Reconciler of its own.
func (r *Reconciler) Observe(ctx context.Context, works []plan.Digest, jobs []plan.Job) (*World, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	if len(jobs) > 0 {
		r.learnNow(ctx) // what a retry was spent for depends on it
	}
	w, err := r.observe(ctx, works)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		if s := w.works[jobs[i].Work]; s != nil && s.job == nil {
			s.job = &jobs[i]
		}
	}
	for _, f := range r.forces { // what was accepted and is not among jobs has a budget too
		for _, j := range f.force.jobs() {
			if s := w.works[j.Work]; s != nil && s.job == nil {
				s.retries, s.gpus = placedOf(j)
			}
		}
	}
	return w, nil
}

// placedOf is limits.retries and gpu.count of an accepted job; nil: they can't be read.
func placedOf(j plan.AcceptedJob) (retries *int, gpus int) {
	var placed struct {
		Retries int `json:"limits.retries"` // left out: 0
		GPUs    int `json:"gpu.count"`
	}
	if err := json.Unmarshal(j.Placement, &placed); err != nil {
		return nil, 0
	}
	return &placed.Retries, placed.GPUs
}

func (r *Reconciler) observe(ctx context.Context, works []plan.Digest) (*World, error) {
	before := r.requests.Load()
	ask := make([]plan.Digest, 0, len(works))
	wanted := make(map[plan.Digest]bool, len(works))
	for _, w := range works {
		if wanted[w] {
			continue
		}
		wanted[w] = true
		if l := r.looks[w]; l == nil || l.seen == nil || l.seen.Record.State != witness.Finished || l.err != nil {
			ask = append(ask, w) // finished is terminal: once that was seen without trouble, it is not asked about again
		}
	}
	r.forget(wanted)
	r.outlives = r.outlive()
	var err error
	if len(ask) <= getsPerList*max(r.pages, 1) {
		r.getAll(ctx, ask)
	} else {
		err = r.list(ctx, ask)
	}
	if err != nil {
		return nil, fmt.Errorf("look at the leases: %w", err)
	}
	w := &World{works: make(map[plan.Digest]*sight, len(works)), pages: r.pages}
	if err := r.sights(ctx, wanted, w); err != nil {
		return nil, err
	}
	w.Requests = r.requests.Load() - before
	return w, nil
}

// forget drops what is known of works that nobody asks about.
func (r *Reconciler) forget(wanted map[plan.Digest]bool) {
	for w := range r.looks {
		if !wanted[w] {
			delete(r.looks, w)
			r.silence.Forget(record.WitnessKey(string(w)))
		}
	}
	r.records.keep(wanted)
	for k := range r.asks {
		if !wanted[k.work] {
			delete(r.asks, k)
		}
	}
	for w := range r.said {
		if !wanted[w] {
			delete(r.said, w)
		}
	}
	maps.DeleteFunc(r.leaves, func(w plan.Digest, _ time.Time) bool { return !wanted[w] })
	r.forgetClimbs(wanted)
	maps.DeleteFunc(r.hurdles, func(w plan.Digest, _ *hurdle) bool { return !wanted[w] })
}

// getAll looks at leases one by one. What the store does not answer for is kept as an error of that work alone.
func (r *Reconciler) getAll(ctx context.Context, works []plan.Digest) {
	get := r.getter(ctx, min(atOnce, len(works)))
	for _, w := range works {
		get.works <- w
	}
	get.take()
}

// getter gets leases side by side; take waits for all of them and files the answers.
type getter struct {
	r       *Reconciler
	works   chan plan.Digest
	wg      sync.WaitGroup
	mu      sync.Mutex
	answers []answer
}

type answer struct {
	work plan.Digest
	seen witness.Seen
	now  time.Time
	err  error
}

func (r *Reconciler) getter(ctx context.Context, width int) *getter {
	g := &getter{r: r, works: make(chan plan.Digest)}
	for range width {
		g.wg.Go(func() {
			for w := range g.works {
				seen, err := witness.Read(ctx, r.b, string(w))
				a := answer{w, seen, time.Now(), err}
				g.mu.Lock()
				g.answers = append(g.answers, a)
				g.mu.Unlock()
			}
		})
	}
	return g
}

func (g *getter) take() {
	close(g.works)
	g.wg.Wait()
	for _, a := range g.answers {
		g.r.take(a.work, a.seen, a.now, a.err)
	}
}

// take files one answer of the store for one lease.
func (r *Reconciler) take(w plan.Digest, seen witness.Seen, now time.Time, err error) {
	old := r.looks[w]
	if old == nil {
		old = &look{}
	}
	unreadable, bad := errors.AsType[*witness.Unreadable](err)
	switch {
	case err == nil:
		rec := &seen.Record
		if p := old.seen; p != nil && (rec.Rev < p.Record.Rev || rec.Attempt < p.Record.Attempt) {
			r.looks[w] = &look{seen: old.seen, bad: fmt.Sprintf("the lease went back from rev %d (attempt %d) to rev %d (attempt %d): it was restored or written by something else; run headway doctor", p.Record.Rev, p.Record.Attempt, rec.Rev, rec.Attempt)}
			return
		}
		if max(rec.Rev, rec.Attempt, rec.Dispatch, rec.Floor) > countable {
			r.looks[w] = &look{seen: old.seen, bad: "the lease has a number that nobody can have counted to: something else wrote it; run headway doctor"}
			return
		}
		l := &look{seen: &seen, version: seen.Version, ran: old.seen != nil && old.seen.Record.State != witness.Finished}
		if old.seen != nil && old.seen.Record.Dispatch == rec.Dispatch {
			l.claim = old.claim
		}
		r.looks[w] = l
		r.saw(w, l, witness.Sight{Version: seen.Version, Modified: seen.Modified, Date: seen.Date, Now: now})
	case bad:
		r.looks[w] = &look{seen: old.seen, bad: shown(unreadable.Error(), 500)}
	case errors.Is(err, witness.ErrAbsent) && old.seen != nil:
		r.looks[w] = &look{seen: old.seen, bad: "the lease vanished: it was deleted by something else; run headway doctor"}
	case errors.Is(err, witness.ErrAbsent):
		r.looks[w] = &look{}
		r.silence.Idle(record.WitnessKey(string(w)), now)
	default:
		l := *old
		l.err = err
		r.looks[w] = &l
	}
}

// saw feeds one successful sight of a lease to the observer of silence.
func (r *Reconciler) saw(w plan.Digest, l *look, s witness.Sight) {
	l.err = nil
	if l.seen == nil || l.seen.Record.State != witness.Held {
		if key := record.WitnessKey(string(w)); l.seen != nil && l.seen.Record.State == witness.Finished {
			r.silence.Forget(key) // nobody captures it again
		} else {
			r.silence.Idle(key, s.Now)
		}
		l.silence = witness.Silence{}
		return
	}
	s.Promise = l.seen.Record.Lease.Length()
	l.silence = r.silence.See(record.WitnessKey(string(w)), s)
}

// sights turns what is known into a World, and reads the histories that decisions rest on.
func (r *Reconciler) sights(ctx context.Context, wanted map[plan.Digest]bool, w *World) error {
	list := slices.Collect(maps.Keys(wanted))
	out := make([]*sight, len(list))
	for _, d := range list {
		r.records.shelf(d) // made here, so that the goroutines below share no map
	}
	parallel(len(list), func(i int) { out[i] = r.sight(ctx, list[i]) })
	for i, d := range list {
		w.works[d] = out[i]
		if out[i].err != nil {
			w.trouble = append(w.trouble, fmt.Errorf("work %s: %w", d.Short(), out[i].err))
		}
	}
	return ctx.Err()
}

// sight reads what belongs to one lease. It touches nothing that another work's goroutine touches.
func (r *Reconciler) sight(ctx context.Context, w plan.Digest) *sight {
	l := r.looks[w]
	s := &sight{seen: l.seen, silence: l.silence, err: l.err}
	s.lease = leaseOf(l)
	if l.seen != nil {
		s.record = &l.seen.Record
	}
	switch s.lease.State {
	case leaseUnknown:
		return s
	case witness.Finished:
		if r.outlives {
			r.owes(ctx, w, l, s)
		}
		if s.err == nil {
			r.arrives(ctx, w, l, s)
		}
		return s
	case witness.Held:
		if l.claim == nil {
			c, err := r.records.claim(ctx, w, r.records.shelf(w), l.seen.Record.Dispatch)
			if err != nil {
				return s.unknown(err)
			}
			l.claim = c
		}
		if l.claim != nil {
			s.platform, s.claim = shown(l.claim.Platform, 128), l.claim
		}
		return s
	}
	if s.err != nil {
		return s
	}
	h, err := r.records.history(ctx, w, l.seen)
	if err != nil {
		return s.unknown(err)
	}
	s.history = h
	if l.seen == nil && h.Last > 0 && !h.waits() {
		// No lease beside dispatches that are over: either none of them was captured, or the record was lost.
		p, err := r.b.List(ctx, record.AttemptsPrefix(string(w)), "", 1)
		if err != nil {
			return s.unknown(err)
		}
		if len(p.Items) > 0 {
			s.lease = Lease{State: leaseUnknown, Text: "there are attempts and no lease: the record was removed; run headway doctor"}
			if _, err := witness.Read(ctx, r.b, string(w)); !errors.Is(err, witness.ErrAbsent) {
				l.unlisted, s.lease.Text = true, "its lease is there, and no listing shows it yet: it is asked for by name"
			}
		}
	}
	return s
}

func (s *sight) unknown(err error) *sight {
	s.err = err
	s.lease.State, s.lease.Text = leaseUnknown, "the store did not answer: "+shown(err.Error(), 300)
	return s
}

func leaseOf(l *look) Lease {
	switch {
	case l.bad != "":
		return Lease{State: leaseUnknown, Text: l.bad}
	case l.err != nil:
		return Lease{State: leaseUnknown, Text: "the store did not answer: " + shown(l.err.Error(), 300)}
	case l.seen == nil:
		return Lease{State: leaseAbsent}
	}
	rec := &l.seen.Record
	out := Lease{State: rec.State, Version: l.seen.Version, Attempt: rec.Attempt, Dispatch: rec.Dispatch, Floor: rec.Floor,
		Step: rec.Progress.Step, Resume: rec.Resume, Reason: shown(rec.Reason, 500), Suspect: l.silence.Suspect, Left: max(l.silence.Limit-l.silence.Age, 0)}
	if rec.Finished != nil {
		out.Exit = rec.Finished.ExitCode
	}
	if l.result != nil {
		out.Lacks = l.result.lacks
	}
	return out
}

// parallel calls f for 0 … n-1, at most atOnce at a time, and returns when all are done.
func parallel(n int, f func(int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, atOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// Observed is the form that plan.Diff takes.
func (w *World) Observed() map[plan.Digest]plan.Observed {
	out := make(map[plan.Digest]plan.Observed, len(w.works))
	for d, s := range w.works {
		out[d] = s.observed(d)
	}
	return out
}

func (s *sight) observed(w plan.Digest) plan.Observed {
	o := plan.Observed{Work: w, Dispatch: s.history.Last, Platform: s.platform, Age: s.silence.Age, Reason: s.lease.Reason}
	if rec := s.record; rec != nil {
		o.Attempt, o.Step = rec.Attempt, rec.Progress.Step
		o.Dispatch = max(o.Dispatch, rec.Dispatch)
		if rec.Resume != nil {
			o.Milestone, o.MilestoneStep = rec.Resume.Milestone, rec.Resume.Step
		}
	}
	if s.job != nil {
		o.Steps = s.job.FLOPs.Steps
	}
	switch s.lease.State {
	case leaseUnknown:
		o.State, o.Reason = plan.StateUnknown, s.lease.Text
	case leaseAbsent:
		o.State = plan.StateAbsent
	case witness.Held:
		o.State = plan.StateHeld
		gpus := s.gpus
		if s.job != nil {
			gpus = s.job.GPU.Count
		}
		if rec := s.record; rec.Lease.StepS > 0 {
			lost := float64(max(o.Step-o.MilestoneStep, 0)) * rec.Lease.StepS
			o.LostPaid, o.LostGPUHours = s.lostPaid(lost), lost*float64(gpus)/3600
		}
		if s.lease.Suspect {
			o.Reason = "silent for longer than it promised"
		}
	case witness.Yielded:
		o.State = plan.StateYielded
	case witness.Revoked:
		o.State = plan.StateRevoked
	case witness.Finished:
		o.State = plan.StateFinished
		if why := s.lease.unwhole(); why != "" {
			o.State, o.Reason = plan.StateUnknown, why
			return o
		}
		if s.lease.Exit != 0 {
			o.Reason = fmt.Sprintf("with exit code %d", s.lease.Exit)
		}
		return o
	}
	if s.lease.State == witness.Held || s.lease.State == leaseUnknown {
		return o
	}
	for _, d := range s.history.Dispatches {
		if d.inFlight(s.history.Floor) {
			o.State, o.Platform, o.Reason = plan.StateClaimed, d.Platform, d.Reason
			return o
		}
	}
	retries := s.retries
	if s.job != nil {
		retries = &s.job.Limits.Retries
	}
	if retries != nil {
		if why := failed(s.history, account(s.history), *retries); why != "" {
			o.State, o.Reason = plan.StateFailed, why
		}
	}
	return o
}
