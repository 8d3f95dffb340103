package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Bounds on what one act may take. A launch that was cut off by it counts as Unreachable: it may have happened.
const (
	bundleTimeout  = 10 * time.Minute
	launchTimeout  = 2 * time.Minute
	releaseTimeout = 30 * time.Second
	storeTimeout   = time.Minute // a write-off or a stop, which a pass waits for
)

// grace is how long a program may take from the polite signal to the hard one.
const grace = 20 * time.Second

// askBase is the first pause between two questions whether a release is done.
const askBase = 15 * time.Second

// order is one action to carry out.
type order struct {
	t       *target
	a       Action
	history History // Launch: what the decision rested on
	// What a flight needs and what it brings back, so that it touches nothing else.
	runner  runners.Runner // nil: none is configured
	launch  runners.Launch
	seen    *witness.Seen // the lease that the decision rested on
	grounds *grounds      // the rest of it
	looked  time.Time     // when the pass began to look
	crew    crew          // Launch: who goes out in the same call; nil: it goes alone
	called  bool          // the platform was asked
	known   bool          // what it left in the store is known without a look
	receipt *record.Receipt
	settled bool      // Release: it is over
	bound   time.Time // Release: until then the platform says that it ends by itself
	heard   time.Time // Launch: when the platform's answer was there
}

// askKey names one dispatch whose end a platform is asked about.
type askKey struct {
	work plan.Digest
	n    int64
}

// ask is a release that is not known to be over. It is remembered here only for its pace and for works whose history
// is not read any more; after a restart the records say again what has to be asked.
type ask struct {
	action Action
	next   time.Time
	k      int
	over   bool // the platform said so; kept until the records say it too
	listed bool // the platform lists it, whatever the records say
}

// dueReleases merges what the records say with what is remembered, and returns what is to be asked now.
func (r *Reconciler) dueReleases(listed []Action, t *target, s *sight) []Action {
	if len(listed)+len(r.asks) == 0 {
		return nil
	}
	known := map[askKey]bool{}
	for _, a := range listed {
		k := askKey{a.Work, a.Dispatch}
		known[k] = true
		if r.asks[k] == nil {
			r.asks[k] = &ask{action: a, next: time.Now().Add(a.Until)}
		}
	}
	var due []Action
	for k, q := range r.asks {
		if k.work != t.work {
			continue
		}
		if q.over && !q.listed && s != nil && s.lease.State == witness.Finished {
			delete(r.asks, k)
			continue
		}
		if !known[k] && !q.listed && s != nil && s.lease.State != witness.Held && s.lease.State != witness.Finished && s.lease.State != leaseUnknown {
			delete(r.asks, k) // the records were read, and say that it is over
			continue
		}
		if !q.over && !time.Now().Before(q.next) {
			due = append(due, q.action)
		}
	}
	slices.SortFunc(due, func(a, b Action) int { return cmp.Compare(a.Dispatch, b.Dispatch) })
	return due
}

func (r *Reconciler) asking(w plan.Digest) bool {
	for k, q := range r.asks {
		if k.work == w && !q.over {
			return true
		}
	}
	return false
}

// nextAsk is how long until the next question is due; 0: none is open.
func (r *Reconciler) nextAsk() time.Duration {
	var next time.Duration
	for k, q := range r.asks {
		if q.over {
			continue
		}
		if r.flights[flightKey{Release, k.work, k.n}] != nil {
			continue
		}
		d := max(time.Until(q.next), nextSoon)
		if len(r.flights) > 0 {
			d = max(d, time.Second) // it may have to wait its turn
		}
		if next == 0 || d < next {
			next = d
		}
	}
	return next
}

// act carries out orders side by side, then files what came of them, one after the other. It returns what was filed;
// a call that is not answered in time goes on by itself.
func (p *pass) act(ctx context.Context, todo []*order) []*order {
	var store, launches []*order
	var calls []*flight
	for _, o := range todo {
		switch o.a.Kind {
		case WriteOff, Move, Stop:
			store = append(store, o)
		case Launch:
			launches = append(launches, o)
		case Release:
			f := p.takeOff(o)
			go func() {
				defer close(f.done)
				p.r.release(ctx, o)
			}()
			calls = append(calls, f)
		case None, Wait, Blocked, Fail:
		}
	}
	calls = append(calls, p.launchAll(ctx, launches)...)
	parallel(len(store), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if store[i].a.Kind != Stop {
			p.writeOff(ctx, store[i])
		} else {
			p.stop(ctx, store[i])
		}
	})
	for _, o := range store {
		p.filed(o)
	}
	p.await(ctx, calls)
	return append(store, p.file(ctx)...)
}

// filed notes one act in the report and the log.
func (p *pass) filed(o *order) {
	a := o.a
	a.Spent = o.spent()
	p.report.Actions = append(p.report.Actions, a)
	log := p.r.c.Log.With("job", o.t.name, "work", a.Work.Short(), "action", string(a.Kind), "reason", a.Reason)
	if a.Platform != "" {
		log = log.With("platform", a.Platform, "dispatch", a.Dispatch)
	}
	if s := p.world.works[a.Work]; s != nil && s.lease.Attempt > 0 && a.Kind != Launch {
		log = log.With("attempt", s.lease.Attempt)
	}
	f, failure := errors.AsType[*runners.Failure](a.Err)
	switch {
	case a.Err == nil:
		log.Info("done", "result", a.Result)
	case failure && a.Kind == Launch:
		if f.Class == runners.ProtocolError { // what a person needs who looks
			log = log.With("raw", shown(f.Raw, 4000), "stack", shown(f.Stack, 4000))
		}
		log.Warn("not launched", "class", string(f.Class), "error", shown(a.Err.Error(), 500))
	default:
		log.Warn("not done", "error", shown(a.Err.Error(), 500))
		p.fail(fmt.Errorf("%s %s: %w", a.Kind, o.t.name, a.Err))
		if ofStore(a) {
			p.r.sour[a.Work] = true
		}
	}
	if a.Kind == Launch {
		p.r.hinder(a, failure)
	}
}

// judgeLaunches says once per round what launches on one platform say of it.
func (p *pass) judgeLaunches(ctx context.Context, pl *platform, orders []*order) {
	var worst error
	some := false
	for _, o := range orders {
		switch {
		case o.a.Err == nil:
			some = true
		case worst == nil || ruleOf(string(runners.ClassOf(o.a.Err))).Platform > ruleOf(string(runners.ClassOf(worst))).Platform:
			worst = o.a.Err
		}
	}
	if some && worst != nil && pl.park.Class != classNoCapture {
		pl.park.Series = 0 // it took some before it had no more room: the first failure of a new series
	}
	at := fmt.Sprintf("%s/%d", orders[0].a.Work, orders[0].a.Dispatch)
	if err := p.r.judge(ctx, pl, worst, at); err != nil {
		p.fail(err)
	}
	for _, o := range orders {
		d, ok := o.history.newest()
		if before := p.platforms[d.Platform]; ok && before != nil && d.class() == classNoCapture && !d.Captured {
			if err := p.r.judge(ctx, before, &uncaptured{d.N}, at); err != nil {
				p.fail(err)
			}
		}
	}
}

// writeOff ends a silent lease, or one that leaves for a better rung: a fresh read has to show the version that was judged, and only that one is revoked.
func (p *pass) writeOff(ctx context.Context, o *order) {
	seen, err := witness.Read(ctx, p.r.b, string(o.t.work))
	if err != nil {
		o.a.Err = fmt.Errorf("read the lease once more before writing it off: %w", err)
		return
	}
	if seen.Version != o.a.Version {
		o.a.Result = "it has changed since: nothing was written"
		return
	}
	d := runners.Dispatcher{Bucket: p.r.b}
	got, err := d.Revoke(ctx, string(o.t.work), o.a.Reason, runners.RevokeOptions{Judged: &seen})
	o.a.Err, o.a.Result, o.a.Done = err, got.Text, got.Answer == witness.Ended
}

// stop ends a lease for good and bars every launch that was claimed so far. It is no write on a version that was judged,
// since whoever renews must not escape it; what keeps an old one from landing is that the plan is looked at once more
// when it is, and that nothing is written behind the deadline of ctx (see counted).
func (p *pass) stop(ctx context.Context, o *order) {
	reason := o.a.Reason
	if o.t.leaving != nil {
		reason += " (commit " + shown(o.t.leaving.Commit, 40) + ")"
	}
	if ok, err := p.grounds.hold(ctx, p.r.b); err != nil || !ok {
		o.a.Err, o.a.Result = err, textPlanChanged
		return
	}
	d := runners.Dispatcher{Bucket: p.r.b}
	got, err := d.Revoke(ctx, string(o.t.work), reason, runners.RevokeOptions{Stop: true})
	o.a.Err, o.a.Result, o.a.Done = err, got.Text, got.Answer == witness.Ended
}

// release asks a platform to end a dispatch. Whatever it answers but "closed" is asked again: "bounded" once the time it
// named has passed.
func (r *Reconciler) release(ctx context.Context, o *order) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if o.runner == nil {
		o.a.Result = fmt.Sprintf("platform %s is not configured here any more, so it can't be asked", shown(o.a.Platform, 60))
		return
	}
	until := time.Now().Add(groundsFor)
	if ok, err := r.stillOver(ctx, o); err != nil || !ok {
		o.a.Err, o.a.Result = err, "the lease has changed since: nobody was asked"
		return
	}
	answer, err := runners.Dispatcher{Bucket: r.b, Until: until}.Release(ctx, o.runner, string(o.t.work), o.a.Dispatch)
	o.settled = answer.Settlement == runners.Closed
	o.a.Err, o.a.Result, o.a.Done = err, answer.Settlement.String()+": "+answer.Text, answer.Settlement != runners.Pending
	if answer.Settlement == runners.Bounded {
		o.bound = time.Now().Add(boundLeft(time.Until(answer.Until))) // from here on by our own monotonic clock
	}
	o.late()
}

// answered paces the next question.
func (r *Reconciler) answered(k askKey, settled bool, bound time.Time) {
	q := r.asks[k]
	switch {
	case q == nil:
	case settled:
		q.over = true
	default:
		q.k++
		q.next = time.Now().Add(delay(askBase, q.k, fmt.Sprintf("%s/%d", k.work, k.n)))
		if bound.After(q.next) {
			q.next = bound
		}
	}
}

// unchanged asks the store once more, by GET, whether the lease is still what the decision rested on.
func (r *Reconciler) unchanged(ctx context.Context, o *order) (bool, error) {
	seen, err := witness.Read(ctx, r.b, string(o.t.work))
	switch {
	case errors.Is(err, witness.ErrAbsent):
		return o.seen == nil, nil
	case err != nil:
		return false, fmt.Errorf("read the lease once more before the claim: %w", err)
	}
	return o.seen != nil && o.seen.Version == seen.Version, nil
}

// launchOf puts together what a worker and its platform need. before is the lease as it stands; nil: there is none.
func (r *Reconciler) launchOf(o *order, pl *platform, before *witness.Record) runners.Launch {
	j := o.t.job
	timers := r.timersOf(j, pl, r.pastOf(j.Work, pl.conf.Name, before))
	spec := record.Spec{Protocol: record.Protocol, Work: string(j.Work), Kind: j.Kind, CodeTree: j.CodeTree, Argv: j.Argv,
		Params: maps.Clone(j.Params), Seed: j.Seed, Replica: j.Replica, Requires: j.Requires, Generation: j.Generation,
		Parent: string(j.Parent), Env: j.Env, Result: j.Result, Metrics: j.Metrics, Identity: j.IdentityJSON()}
	for _, in := range j.Inputs {
		spec.Inputs = append(spec.Inputs, record.Input{Job: in.Job, Work: string(in.Work)})
	}
	claim := record.Claim{Protocol: record.Protocol, Work: string(j.Work), Dispatch: o.a.Dispatch, Nonce: record.Nonce(),
		Dispatcher: r.c.ID, Platform: pl.conf.Name, Runner: pl.conf.Runner, Job: j.Name, Commit: o.t.commit, Reason: o.a.Reason,
		CaptureS: timers.window().Seconds(), Terms: r.terms(j, timers), Secrets: j.Secrets, Time: time.Now().UTC().Format(time.RFC3339)}
	claim.Spent = Spent(o.history, account(o.history))
	claim.Price, claim.Paid = pl.expected(), r.records.shelf(j.Work).carry(j.Work, o.history, o.seen, o.a.Dispatch)
	teach(&claim, j, o.history)
	claim.Before = beforeOf(before, o.seen)
	env := map[string]string{}
	for _, name := range j.Secrets {
		if v, ok := r.c.Secrets(name); ok {
			env[name] = v
		}
	}
	return runners.Launch{Work: string(j.Work), Dispatch: o.a.Dispatch, Job: j.Name, Store: r.c.StoreURL, Spec: spec, Claim: claim, Cards: cards(j), Env: env, MaxPrice: pl.ceiling(j), Within: lastResort(j)}
}

// beforeOf is what a claim says of the attempt before it. nil: there was none. seen brings the stamp of the lease.
func beforeOf(rec *witness.Record, seen *witness.Seen) *record.Before {
	if rec == nil || rec.Attempt < 1 {
		return nil
	}
	b := &record.Before{Attempt: rec.Attempt, Dispatch: rec.Dispatch, Step: rec.Progress.Step, Off: writtenOff(rec), Moved: movedUp(rec), Stopped: stoppedBy(rec),
		State: string(rec.State), Reason: shown(plan.Redact(rec.Reason), 300)}
	if rec.Resume != nil {
		b.Kept = rec.Resume.Step
	}
	if seen != nil && seen.Record.Rev == rec.Rev && !seen.Modified.IsZero() {
		b.At = seen.Modified.UTC().Format(time.RFC3339Nano)
	}
	return b
}

// terms are a job's placement knobs as the worker obeys them, and what was derived where the job says nothing.
func (r *Reconciler) terms(j *plan.Job, timers Timers) record.Terms {
	t := record.Terms{MilestoneSteps: j.Milestones.Steps, LeaseFloorS: max(j.Lease.Floor, r.leaseFloor()).Seconds(),
		WatchPath: j.Watch.Path, WatchIntervalS: j.Watch.Interval.Seconds(), FLOPsPerStep: j.FLOPs.PerStep, Steps: j.FLOPs.Steps, GraceS: grace.Seconds(), Policies: policies(j), RetryCodes: j.ExitCodes.Retry}
	timers.apply(&t)
	return t
}
