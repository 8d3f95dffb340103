package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	called  bool          // the platform was asked
	known   bool          // what it left in the store is known without a look
	receipt *record.Receipt
	settled bool // Release: it is over
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
}

// dueReleases merges what the records say with what is remembered, and returns what is to be asked now.
func (r *Reconciler) dueReleases(listed []Action, t *target, s *sight) []Action {
	known := map[askKey]bool{}
	for _, a := range listed {
		k := askKey{a.Work, a.Dispatch}
		known[k] = true
		if r.asks[k] == nil {
			r.asks[k] = &ask{action: a}
		}
	}
	var due []Action
	for k, q := range r.asks {
		if k.work != t.work {
			continue
		}
		if q.over && s != nil && s.lease.State == witness.Finished {
			delete(r.asks, k)
			continue
		}
		if !known[k] && s != nil && s.lease.State != witness.Held && s.lease.State != witness.Finished && s.lease.State != leaseUnknown {
			delete(r.asks, k) // the records were read, and say that it is over
			continue
		}
		if !q.over && !time.Now().Before(q.next) {
			due = append(due, q.action)
		}
	}
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
	var store []*order
	var calls []*flight
	for _, o := range todo {
		switch o.a.Kind {
		case WriteOff, Stop:
			store = append(store, o)
		case Release, Launch:
			calls = append(calls, p.takeOff(ctx, o))
		case None, Wait, Blocked, Fail:
		}
	}
	parallel(len(store), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if store[i].a.Kind == WriteOff {
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
	p.report.Actions = append(p.report.Actions, a)
	log := p.r.c.Log.With("job", o.t.name, "work", a.Work.Short(), "action", string(a.Kind), "reason", a.Reason)
	if a.Platform != "" {
		log = log.With("platform", a.Platform, "dispatch", a.Dispatch)
	}
	f, failure := errors.AsType[*runners.Failure](a.Err)
	switch {
	case a.Err == nil:
		log.Info("done", "result", a.Result)
	case failure && a.Kind == Launch:
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

// writeOff ends a silent lease: a fresh read has to show the version that was judged, and only that one is revoked.
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

// stop ends a lease for good and bars every launch that was claimed so far.
func (p *pass) stop(ctx context.Context, o *order) {
	reason := o.a.Reason
	if o.t.leaving != nil {
		reason += " (commit " + shown(o.t.leaving.Commit, 40) + ")"
	}
	d := runners.Dispatcher{Bucket: p.r.b}
	got, err := d.Revoke(ctx, string(o.t.work), reason, runners.RevokeOptions{Stop: true})
	o.a.Err, o.a.Result, o.a.Done = err, got.Text, got.Answer == witness.Ended
}

// release asks a platform to end a dispatch. Whatever it answers but "closed" or "bounded" is asked again.
func (r *Reconciler) release(ctx context.Context, o *order) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if o.runner == nil {
		o.a.Result = fmt.Sprintf("platform %s is not configured here any more, so it can't be asked", shown(o.a.Platform, 60))
		return
	}
	answer, err := runners.Dispatcher{Bucket: r.b}.Release(ctx, o.runner, string(o.t.work), o.a.Dispatch)
	o.settled = answer.Settlement != runners.Pending
	o.a.Err, o.a.Result, o.a.Done = err, answer.Settlement.String()+": "+answer.Text, o.settled
}

// answered paces the next question.
func (r *Reconciler) answered(k askKey, settled bool) {
	q := r.asks[k]
	switch {
	case q == nil:
	case settled:
		q.over = true
	default:
		q.k++
		q.next = time.Now().Add(delay(askBase, q.k, fmt.Sprintf("%s/%d", k.work, k.n)))
	}
}

// launch claims the next dispatch number and asks the platform. The claim decides between dispatchers: the one that
// loses it has asked nobody and spends nothing.
func (r *Reconciler) launch(ctx context.Context, f *flight) {
	o := f.o
	if o.a.Err = r.bundle(ctx, o.t.asked); o.a.Err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	if ok, err := r.unchanged(ctx, o); err != nil || !ok {
		o.a.Err, o.a.Result = err, "the lease has changed since: nothing was claimed"
		return
	}
	if f.abandoned.Load() {
		o.a.Result = "the plan does not want it any more: nothing was claimed"
		return
	}
	got := runners.Dispatcher{Bucket: r.b}.Launch(ctx, o.runner, []runners.Launch{o.launch})[0]
	o.called, o.receipt = got.Receipt != nil, got.Receipt
	o.known = got.Claimed && o.called
	o.a.Err, o.a.Done = got.Err, got.Err == nil
	if got.Err == nil && got.Receipt != nil {
		o.a.Result = shown(got.Receipt.Text, 200)
	}
	if got.Noted != nil {
		r.c.Log.Warn("the receipt could not be written", "work", o.t.work.Short(), "dispatch", o.a.Dispatch, "error", shown(got.Noted.Error(), 300))
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
	window := pl.conf.Capture
	if window <= 0 {
		window = capturePrior
	}
	spec := record.Spec{Protocol: record.Protocol, Work: string(j.Work), Kind: j.Kind, CodeTree: j.CodeTree, Argv: j.Argv,
		Params: maps.Clone(j.Params), Seed: j.Seed, Replica: j.Replica, Requires: j.Requires, Generation: j.Generation,
		Parent: string(j.Parent), Env: j.Env, Result: j.Result, Metrics: j.Metrics, Identity: j.IdentityJSON()}
	for _, in := range j.Inputs {
		spec.Inputs = append(spec.Inputs, record.Input{Job: in.Job, Work: string(in.Work)})
	}
	claim := record.Claim{Protocol: record.Protocol, Work: string(j.Work), Dispatch: o.a.Dispatch, Nonce: record.Nonce(),
		Dispatcher: r.c.ID, Platform: pl.conf.Name, Runner: pl.conf.Runner, Job: j.Name, Commit: o.t.commit, Reason: o.a.Reason,
		CaptureS: window.Seconds(), Terms: r.terms(j), Secrets: j.Secrets, Time: time.Now().UTC().Format(time.RFC3339)}
	claim.Spent = Spent(o.history, account(o.history))
	if before != nil && before.Attempt > 0 {
		claim.Before = &record.Before{Attempt: before.Attempt, Dispatch: before.Dispatch, Step: before.Progress.Step, Off: writtenOff(before)}
		if before.Resume != nil {
			claim.Before.Kept = before.Resume.Step
		}
	}
	env := map[string]string{}
	for _, name := range j.Secrets {
		if v, ok := r.c.Secrets(name); ok {
			env[name] = v
		}
	}
	return runners.Launch{Work: string(j.Work), Dispatch: o.a.Dispatch, Job: j.Name, Store: r.c.StoreURL, Spec: spec, Claim: claim, Env: env}
}

const milestoneDefault = 10 * time.Minute

// terms are a job's placement knobs as the worker obeys them. Neither milestone interval set means ten minutes.
func (r *Reconciler) terms(j *plan.Job) record.Terms {
	t := record.Terms{MilestoneSteps: j.Milestones.Steps, MilestoneS: j.Milestones.Every.Seconds(), LeaseK: j.Lease.K,
		LeaseFloorS: max(j.Lease.Floor, r.c.LeaseFloor).Seconds(), WatchPath: j.Watch.Path, WatchIntervalS: j.Watch.Interval.Seconds(),
		FLOPsPerStep: j.FLOPs.PerStep, Steps: j.FLOPs.Steps, GraceS: grace.Seconds()}
	if t.MilestoneSteps == 0 && t.MilestoneS == 0 {
		t.MilestoneS = milestoneDefault.Seconds()
	}
	if t.LeaseK <= 0 {
		t.LeaseK = witness.DefaultK
	}
	if t.LeaseFloorS <= 0 {
		t.LeaseFloorS = witness.DefaultFloor.Seconds()
	}
	return t
}
