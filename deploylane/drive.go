package deploylane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

const (
	grace       = 30 * time.Second // SIGTERM to SIGKILL of the program
	callWithin  = 30 * time.Second // a launch rests on what was read at most so long ago
	callTimeout = 2 * time.Minute  // of one call of a platform
	maxTries    = 100              // dispatches of one work, whatever came of them
)

// Facts are what a decision about one work rests on; only durations that somebody measured, no clock.
type Facts struct {
	Phase    runners.Phase
	Why      string // PhaseUnknown
	Last     int64  // last dispatch
	Attempts int64  // captures so far
	Failed   int    // tries that failed
	Most     int    // after which the work is given up
	Error    string // of the last one that failed
	Refused  string // a worker's refusal: the machine is not what is pinned
	Silent   bool   // held, and longer silent than promised
	Late     bool   // claimed, and its capture window has passed
	Left     time.Duration
}

// What Decide answers.
const (
	doWait     = "wait"
	doLaunch   = "launch"
	doWriteOff = "write off"
	doStop     = "stop"
	doDone     = "done"
)

// Decide says what to do about one work of the lane. Pure. It never launches what is held, finished or unknown, nor while an
// earlier launch may still take the lease, and it gives up for good rather than spend more than it was given.
func Decide(f Facts) (do, why string, after time.Duration) {
	switch {
	case f.Phase == runners.PhaseFinished:
		return doDone, "finished", 0
	case f.Phase == runners.PhaseUnknown:
		return doWait, "the store contradicts itself, so nothing is decided: " + f.Why, 0
	case f.Phase == runners.PhaseStopped:
		return doStop, "was stopped by a person", 0
	case f.Phase == runners.PhaseRunning && f.Silent:
		return doWriteOff, "was silent for longer than it promised", 0
	case f.Phase == runners.PhaseRunning:
		return doWait, "runs", f.Left
	case f.Refused != "":
		return doStop, f.Refused, 0
	case f.Phase == runners.PhaseStarting && !f.Late:
		return doWait, fmt.Sprintf("dispatch %d was launched, and no worker has taken the lease yet", f.Last), f.Left
	case f.Failed >= f.Most:
		return doStop, fmt.Sprintf("%d tries failed, %d are allowed; the last one: %s", f.Failed, f.Most, cmp.Or(f.Error, "no worker took the lease")), 0
	case f.Last >= maxTries:
		return doStop, fmt.Sprintf("%d dispatches came to nothing", f.Last), 0
	}
	return doLaunch, "", 0
}

// drive brings a work of the lane a step further. nil: it is finished. *Wait: it is under way. *Stop: it never will be.
// Everything that it knows lies in the store; what it watched is lost with the process, and seeded anew from the store's stamps.
func (l *Lane) drive(ctx context.Context, c *Chosen, o Ordered) error {
	f, s, err := l.facts(ctx, c, o)
	if err != nil {
		l.shaky = true
		return err
	}
	do, why, after := Decide(f)
	switch do {
	case doDone:
		return l.settle(ctx, o.Spec.Work, s.all, 0)
	case doStop:
		return stop(cmp.Or(map[bool]string{true: "EnvRefused"}[f.Refused != ""], "Failed"), "%s (work %s): %s", o.Job, short(o.Spec.Work), why)
	case doWriteOff:
		return l.writeOff(ctx, o, s)
	case doLaunch:
		return l.launch(ctx, c, o, f)
	}
	return &Wait{fmt.Sprintf("%s (work %s) %s", o.Job, short(o.Spec.Work), why), min(cmp.Or(after, l.poll()), l.poll())}
}

// sighted is what was read of a work.
type sighted struct {
	runners.Status
	all []runners.Dispatch
}

// facts reads a work's state, its tries, and judges silence.
func (l *Lane) facts(ctx context.Context, c *Chosen, o Ordered) (f Facts, s sighted, err error) {
	d := runners.Dispatcher{Bucket: l.Store}
	work := o.Spec.Work
	if s.Status, err = d.Status(ctx, work); err != nil {
		return f, s, err
	}
	f = Facts{Phase: s.Phase, Why: s.Why, Last: s.LastDispatch, Most: c.Model.Attempts}
	if s.Witness != nil {
		f.Attempts = s.Witness.Record.Attempt
	}
	if f.Last > 0 {
		if s.all, err = d.ReadClaims(ctx, work, 0, maxTries); err != nil {
			return f, s, err
		}
	}
	captured := map[int64]bool{}
	if s.Witness != nil {
		for a := int64(1); a <= s.Witness.Record.Attempt; a++ {
			if err := l.attempt(ctx, d, &f, s, a, captured); err != nil {
				return f, s, err
			}
		}
	}
	switch s.Phase {
	case runners.PhaseRunning:
		silence := l.eyes.See(record.WitnessKey(work), sightOf(*s.Witness))
		f.Silent, f.Left = silence.Suspect, silence.Limit-silence.Age
	case runners.PhaseStarting:
		f.Late, f.Left, err = l.overdue(ctx, work, s)
	}
	for i, e := range s.all {
		l.tried(&f, e, captured[e.N], i == len(s.all)-1)
	}
	return f, s, err
}

func sightOf(s witness.Seen) witness.Sight {
	return witness.Sight{Version: s.Version, Modified: s.Modified, Date: s.Date, Now: time.Now(), Promise: s.Record.Lease.Length()}
}

// attempt counts one attempt that is over and did not finish.
func (l *Lane) attempt(ctx context.Context, d runners.Dispatcher, f *Facts, s sighted, a int64, captured map[int64]bool) error {
	at, err := d.Attempt(ctx, s.Work, a)
	if err != nil {
		return err
	}
	w := s.Witness.Record
	if at.Open != nil {
		captured[at.Open.Dispatch] = true
	}
	if a == w.Attempt {
		captured[w.Dispatch] = true
		if w.State == witness.Held || w.State == witness.Finished {
			return nil
		}
	}
	f.Failed++
	f.Error = "attempt " + fmt.Sprint(a) + " went silent"
	if at.End != nil && at.End.Class == "refused" { // what its machine computes, or what it was given, is not what was pinned
		f.Refused = shown(cmp.Or(at.End.Text, "attempt "+fmt.Sprint(a)+" refused"), 2000)
	}
	if at.End != nil {
		f.Error = shown(fmt.Sprintf("attempt %d: %s: %s", a, at.End.Class, cmp.Or(at.End.Error, at.End.Text)), 500)
	}
	return nil
}

// tried counts one dispatch that brought no worker. A platform that had no room, or that another lane asked first, costs nothing;
// nor does a claim whose claimer died before it wrote the answer down.
func (l *Lane) tried(f *Facts, e runners.Dispatch, captured, last bool) {
	if e.Refusal != nil && !captured {
		f.Refused = shown(e.Refusal.Text, 2000)
		return
	}
	if captured || e.Receipt == nil {
		return
	}
	switch runners.Class(e.Receipt.Class) {
	case runners.NoSlots, runners.QuotaExhausted, runners.SpawnedElsewhere:
		return
	case runners.Rejected, runners.ProtocolError:
		f.Failed++
		f.Error = shown(e.Receipt.Text, 500)
		return
	case runners.Unreachable, runners.UserCode:
	}
	if e.Receipt.OK && (!last || f.Phase != runners.PhaseStarting || f.Late) {
		f.Failed++
		f.Error = fmt.Sprintf("dispatch %d was launched, and no worker took the lease", e.N)
	}
}

// overdue says whether the capture window of the last dispatch has passed, by this observer's own time between looks at its claim.
func (l *Lane) overdue(ctx context.Context, work string, s sighted) (late bool, left time.Duration, err error) {
	if len(s.Dispatches) == 0 {
		return false, 0, nil
	}
	e := s.Dispatches[len(s.Dispatches)-1]
	key := record.ClaimKey(work, e.N)
	o, err := l.Store.Get(ctx, key, bucket.Range{})
	if err != nil {
		return false, 0, err
	}
	_ = o.Body.Close()
	window := time.Duration(min(max(e.Claim.CaptureS, 1), 86400) * float64(time.Second))
	silence := l.eyes.See(key, witness.Sight{Version: o.Version, Modified: o.Modified, Date: o.Date, Now: time.Now(), Promise: window})
	return silence.Suspect, silence.Limit - silence.Age, nil
}

// writeOff ends a silent lease: a fresh read has to be silent still, the brake has to let it pass, and only the version that was
// judged is revoked. Whoever renews in between stays.
func (l *Lane) writeOff(ctx context.Context, o Ordered, s sighted) error {
	work := o.Spec.Work
	seen, err := witness.Read(ctx, l.Store, work)
	if err != nil {
		l.shaky = true
		return err
	}
	key := record.WitnessKey(work)
	silence := l.eyes.See(key, sightOf(seen))
	wait := &Wait{fmt.Sprintf("%s (work %s) is silent", o.Job, short(work)), l.poll()}
	if !silence.Suspect || seen.Version != s.Witness.Version {
		return wait
	}
	errs := l.shaky
	l.shaky = false
	off, after := l.brake.Allow(witness.Pass{Now: time.Now(), Held: 1, Suspects: []string{key}, Limit: silence.Limit, Errors: errs})
	if len(off) == 0 {
		wait.Text, wait.After = wait.Text+", and so was the store: it is looked at again before anything is written off", max(after, time.Second)
		return wait
	}
	got, err := runners.Dispatcher{Bucket: l.Store}.Revoke(ctx, work, fmt.Sprintf("attempt %d was silent for longer than it promised", seen.Record.Attempt), runners.RevokeOptions{Judged: &seen})
	if err != nil {
		return err
	}
	l.log().Info("a lease of the lane was written off", "job", o.Job, "work", work, "answer", got.Text)
	wait.Text, wait.After = got.Text, time.Millisecond
	return wait
}

// launch claims the next dispatch and asks the platforms in their order.
func (l *Lane) launch(ctx context.Context, c *Chosen, o Ordered, f Facts) error {
	until := time.Now().Add(callWithin)
	err := l.settle(ctx, o.Spec.Work, nil, f.Last)
	if err != nil {
		return err
	}
	n := f.Last
	var full error
	for _, on := range c.Model.On {
		r, p := l.Runners[on], l.Platforms[on]
		if r == nil {
			full = fmt.Errorf("%s has no platform %s any more, or this build lacks its runner", File, on)
			continue
		}
		n++
		if n > maxTries {
			break
		}
		order := l.order(c, o, p, n)
		if order.Env, err = l.lend(ctx, o, n, f.Attempts+1); err != nil {
			return &Wait{fmt.Sprintf("%s (work %s): there are no keys for its worker: %v", o.Job, short(o.Spec.Work), err), 6 * l.poll()}
		}
		got := l.call(ctx, r, p, order, until)
		l.log().Info("launched for the lane", "job", o.Job, "work", o.Spec.Work, "dispatch", n, "platform", on, "err", got.Err)
		switch {
		case got.Err == nil:
			return &Wait{fmt.Sprintf("%s (work %s): dispatch %d was launched on %s", o.Job, short(o.Spec.Work), n, on), l.poll()}
		case got.Receipt == nil: // nothing was asked: another lane was first, or the store did not take the claim
			if _, is := errors.AsType[*runners.Failure](got.Err); is {
				return &Wait{got.Err.Error(), l.poll()}
			}
			return got.Err
		}
		full = got.Err
		switch runners.ClassOf(got.Err) {
		case runners.NoSlots, runners.QuotaExhausted:
		case runners.SpawnedElsewhere, runners.Unreachable, runners.Rejected, runners.ProtocolError, runners.UserCode:
			return &Wait{fmt.Sprintf("%s (work %s): dispatch %d: %v", o.Job, short(o.Spec.Work), n, got.Err), l.poll()}
		}
	}
	return &Wait{fmt.Sprintf("%s (work %s): no platform takes it: %v", o.Job, short(o.Spec.Work), full), 6 * l.poll()}
}

// lend asks for a worker's keys: for its work, and in it for the attempt that its capture will make. Whoever takes the lease
// in its stead makes another number of it, and finds its prefix closed.
func (l *Lane) lend(ctx context.Context, o Ordered, dispatch, attempt int64) (map[string]string, error) {
	if l.Keys == nil {
		return nil, nil
	}
	own, err := access.At(l.StoreURL)
	if err != nil {
		return nil, err
	}
	a := access.Attempt{Work: o.Spec.Work, Dispatch: dispatch, Attempt: attempt, Code: o.Spec.CodeTree}
	for _, in := range o.Spec.Inputs {
		a.Inputs = append(a.Inputs, in.Work)
	}
	return l.Keys(ctx, access.Worker(own, a))
}

func (l *Lane) call(ctx context.Context, r runners.Runner, p Platform, order runners.Launch, until time.Time) runners.Launched {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return runners.Dispatcher{Bucket: l.Store, Until: until}.Launch(ctx, r, []runners.Launch{order})[0]
}

// order is what a worker and its platform get.
func (l *Lane) order(c *Chosen, o Ordered, p Platform, n int64) runners.Launch {
	spec := o.spec()
	terms := o.Terms
	terms.LeaseFloorS = max(terms.LeaseFloorS, cmp.Or(l.Floor, witness.DefaultFloor).Seconds())
	claim := record.Claim{Protocol: record.Protocol, Work: spec.Work, Dispatch: n, Nonce: record.Nonce(), Dispatcher: l.ID, Platform: p.Name, Runner: p.Runner,
		Job: o.Job, Commit: c.Order.Commit, Reason: fmt.Sprintf("release %s %s by tag %s", c.Model.Name, c.Order.Version, short(c.Order.Object)),
		CaptureS: cmp.Or(p.Capture, defaultCapture).Seconds(), Terms: terms, GPUs: o.Cards, Time: time.Now().UTC().Format(time.RFC3339)}
	return runners.Launch{Work: spec.Work, Dispatch: n, Job: o.Job, Store: l.StoreURL, Spec: spec, Claim: claim, Cards: o.Cards}
}

// settle asks the platforms to end what is over for us: every dispatch up to the given one, and once the work is finished
// (0) all of them. An answer that is no end is asked for again when the lane looks next; it holds nothing up.
func (l *Lane) settle(ctx context.Context, work string, all []runners.Dispatch, upTo int64) (err error) {
	d := runners.Dispatcher{Bucket: l.Store, Until: time.Now().Add(callWithin)}
	if all == nil {
		if all, err = d.ReadClaims(ctx, work, 0, maxTries); err != nil {
			return err
		}
	}
	for _, e := range all {
		r := l.Runners[e.Claim.Platform]
		over := e.Release != nil && e.Release.Settlement == runners.Closed.String()
		if r == nil || over || upTo > 0 && e.N > upTo || e.Receipt == nil || !e.Receipt.OK || e.Refusal != nil {
			continue
		}
		if _, err := d.Release(ctx, r, work, e.N); err != nil {
			l.log().Warn("a platform did not say that a launch is over: it is asked again", "work", work, "dispatch", e.N, "err", err)
		}
	}
	return nil
}
