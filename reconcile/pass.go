package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// When the loop looks again: never sooner, and never later.
const (
	nextSoon = 100 * time.Millisecond
	nextBusy = 5 * time.Second // while a launch has not taken the lease yet
	nextLate = time.Minute
)

// actsPerPass bounds what one pass does about one work: a write-off or a stop, releases, one launch.
const actsPerPass = 6

// target is one work during a pass.
type target struct {
	work     plan.Digest
	name     string
	asked    // job nil: known only by name
	wish     Wish
	leaving  *departing
	stays    string // why its wish is Frozen
	unready  string // why it can't be launched from here, or ""
	acts     int
	launched bool
	last     Action // the newest decision
	standing Standing
}

// pass is the state of one pass. It ends in one place: summarize.
type pass struct {
	r         *Reconciler
	d         *Desired
	root      string
	base      stored
	world     *World
	platforms map[string]*platform
	targets   []*target
	byWork    map[plan.Digest]*target
	allowed   map[string]bool // suspects that the brake lets be written off, by witness key
	brake     time.Duration
	groups    map[string]int // live works of a group
	memo      map[plan.Digest]string
	patience  time.Duration // that is left for waiting on platforms
	report    *Report
	start     int64
}

// Pass looks once at everything that the desired and the accepted plan name, and acts. The error is of the store or
// the context; then nothing was decided. What failed for single works is in the report.
//
// It waits for platforms as long as Config.Patience says. A launch or a release that takes longer goes on under ctx
// after Pass has returned, so ctx has to live as long as the loop does; the work waits meanwhile, and a later pass
// reports what came of it. When ctx ends, Pass returns once nothing is under way; between passes Wait is for that.
func (r *Reconciler) Pass(ctx context.Context, d *Desired) (*Report, error) {
	if d == nil || d.Plan == nil {
		return nil, errors.New("reconcile: a pass needs a plan")
	}
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	p := &pass{r: r, d: d, root: d.Plan.Config.Name, start: r.requests.Load(), patience: cmp.Or(r.c.Patience, passPatience), report: &Report{States: map[plan.Digest]Standing{}}}
	defer p.summarize()
	defer func() {
		if ctx.Err() != nil {
			r.drain()
		}
	}()
	r.unpack()
	if err := p.look(ctx); err != nil {
		r.storeErrors = true
		return nil, err
	}
	if err := p.accept(ctx); err != nil {
		return nil, err
	}
	p.targetsInForce(ctx)
	p.refresh(ctx, p.file(ctx))
	p.judgeSilence()
	p.recovered(ctx)
	p.rounds(ctx)
	if err := p.settleLeaving(ctx); err != nil {
		p.fail(err)
	}
	return p.report, ctx.Err()
}

func (p *pass) fail(err error) { p.report.Errors = append(p.report.Errors, err) }

// look reads what is in force, the leases and the platforms.
func (p *pass) look(ctx context.Context) (err error) {
	if p.base, err = p.r.loadForce(ctx, p.root); err != nil {
		return err
	}
	if p.world, err = p.r.observe(ctx, worksOf(p.d.Plan, p.base.force)); err != nil {
		return err
	}
	for _, e := range p.world.trouble {
		p.fail(e)
	}
	p.platforms, err = p.r.platforms(ctx, p.d.Plan.Config.Platforms)
	return err
}

// judgeSilence asks the mass brake about all suspects at once.
func (p *pass) judgeSilence() {
	round := witness.Pass{Now: time.Now(), Errors: p.r.shaky(p.world)}
	for w, s := range p.world.works {
		if s.lease.State != witness.Held {
			continue
		}
		round.Held++
		if s.lease.Suspect {
			round.Suspects = append(round.Suspects, record.WitnessKey(string(w)))
			round.Limit = max(round.Limit, s.silence.Limit)
		}
	}
	slices.Sort(round.Suspects)
	var off []string
	off, p.brake = p.r.brake.Allow(round)
	p.allowed = map[string]bool{}
	for _, key := range off {
		p.allowed[key] = true
	}
}

// recovered closes the series of a platform whose launches brought no worker, once one of a later claim has come.
func (p *pass) recovered(ctx context.Context) {
	for _, pl := range p.platforms {
		if pl.park.Class != classNoCapture || pl.park.Series == 0 || p.r.c.Dry {
			continue
		}
		for w, s := range p.world.works {
			if s.lease.State == witness.Held && s.platform == pl.conf.Name && p.r.records.claimAge(w, s.lease.Dispatch) < pl.since {
				if err := p.r.judge(ctx, pl, nil, ""); err != nil {
					p.fail(err)
				}
				break
			}
		}
	}
}

// facts gathers what a decision about one work rests on.
func (p *pass) facts(t *target) Facts {
	f := Facts{Job: t.job, Work: t.work, Name: t.name, Wish: t.wish, Stays: t.stays, Lease: Lease{State: leaseUnknown, Text: "it was not looked at"}}
	if s := p.world.works[t.work]; s != nil {
		f.Lease, f.History = s.lease, s.history
	}
	f.Brake = !p.allowed[record.WitnessKey(string(t.work))]
	if t.leaving == nil {
		delete(p.r.leaves, t.work)
	} else {
		f.OnDelete, f.Pointer = t.leaving.OnDelete, t.leaving.Pointer
		f.Drained, f.Drain = p.r.leavesFor(t), drainFor(nil, nil)
		if s := p.world.works[t.work]; s != nil {
			f.Drain = drainFor(s.claim, s.record)
		}
	}
	if t.job == nil {
		return f
	}
	for _, in := range t.job.Inputs {
		n := Need{Job: in.Job, Work: in.Work}
		if s := p.world.works[in.Work]; s != nil {
			n.Finished, n.Exit = s.lease.State == witness.Finished, s.lease.Exit
		}
		if !n.Finished {
			n.Failed, n.Suspended = p.stuck(in.Work), p.suspended(in.Work)
		}
		f.Inputs = append(f.Inputs, n)
	}
	f.Rungs = rungs(t.job, p.platforms)
	f.Unready, f.Hurdle = t.unready, p.r.hurdleOf(t.work)
	if n := t.job.Limits.Parallel; n > 0 && p.groups[t.job.Group] >= n {
		f.Crowded = fmt.Sprintf("limits.parallel: %s of group %s at once", count(n, "work", "works"), t.job.Group)
	}
	return f
}

// stuck says why a work never finishes by itself, or "". Inputs are works of their own, so there is no cycle.
func (p *pass) stuck(w plan.Digest) string {
	if why, ok := p.memo[w]; ok {
		return why
	}
	p.memo[w] = ""
	if t := p.byWork[w]; t != nil {
		if a := Decide(p.facts(t)); a.Kind == Fail || a.Kind == Blocked && t.blockedByInput(a) {
			p.memo[w] = a.Reason
		}
	}
	return p.memo[w]
}

// suspended reports whether nothing of a work runs and its job says suspend.
func (p *pass) suspended(w plan.Digest) bool {
	t, s := p.byWork[w], p.world.works[w]
	return t != nil && t.job != nil && t.job.Suspend && (s == nil || s.lease.State != witness.Held)
}

func (t *target) blockedByInput(a Action) bool { return strings.HasPrefix(a.Reason, "needs ") }

// tally counts what runs or is on its way, from the store alone.
func (p *pass) tally() {
	p.groups, p.memo = map[string]int{}, map[plan.Digest]string{}
	for _, pl := range p.platforms {
		pl.live, pl.batch, pl.releasing = 0, 0, 0
	}
	for k, f := range p.r.flights {
		if pl := p.platforms[f.a.Platform]; pl != nil && k.kind == Launch {
			pl.batch++
		} else if pl != nil {
			pl.releasing++
		}
	}
	for w, s := range p.world.works {
		name := ""
		switch s.lease.State {
		case witness.Held:
			name = s.platform
		case witness.Finished, leaseUnknown:
			continue
		default:
			if f := p.r.flights[flightKey{Launch, w, 0}]; f != nil {
				name = f.a.Platform // not claimed yet, perhaps
			}
			for _, d := range s.history.Dispatches {
				if d.inFlight(s.lease.Floor) {
					name = d.Platform
				}
			}
		}
		if s.lease.State != witness.Held && name == "" {
			continue
		}
		if pl := p.platforms[name]; pl != nil {
			pl.live++
		}
		if t := p.byWork[w]; t != nil && t.job != nil {
			p.groups[t.job.Group]++
		}
	}
}

// rounds is the queue: every work is decided, what is to be done is done side by side, and what changed is looked at
// and decided again, until nothing is left to do.
func (p *pass) rounds(ctx context.Context) {
	queue := p.targets
	for len(queue) > 0 && ctx.Err() == nil {
		p.tally()
		var todo []*order
		var again []*target
		for _, t := range queue {
			orders := p.decide(t)
			todo = append(todo, orders...)
			if len(orders) > 0 || t.last.Kind == Wait && strings.HasSuffix(t.last.Reason, paceText) {
				again = append(again, t)
			}
		}
		if len(todo) == 0 || p.r.c.Dry {
			return
		}
		p.refresh(ctx, p.act(ctx, todo))
		queue = again
		if p.patience <= 0 {
			p.report.Next = nextSoon
			p.tally()
			for _, t := range again {
				p.decide(t) // where it stands; what there is to do about it is done in the next pass
			}
			return
		}
	}
}

// decide makes the decision about one target, and the orders that follow from it now.
func (p *pass) decide(t *target) []*order {
	if p.underWay(t) {
		return nil
	}
	f := p.facts(t)
	t.last = Decide(f)
	if t.acts >= actsPerPass {
		return nil
	}
	// What is still held at a platform for us is released before the next launch, which may need its place.
	var out []*order
	later := false
	for _, a := range p.r.dueReleases(releases(f), t, p.world.works[t.work]) {
		pl := p.platforms[a.Platform]
		if p.r.flights[keyOf(a)] != nil || pl != nil && pl.releasing >= batchSize {
			later = true
			continue
		}
		if pl != nil {
			pl.releasing++
		}
		out = append(out, &order{t: t, a: a})
	}
	if later && len(out) == 0 && t.last.Kind == Launch {
		t.last = Action{Work: t.work, Job: t.name}.wait(nextBusy, "its earlier dispatch is being released")
	}
	if len(out) > 0 && t.last.Kind == Launch {
		return p.ordered(t, out)
	}
	switch t.last.Kind {
	case Launch:
		if t.launched {
			t.last = Action{Work: t.work, Job: t.name}.wait(nextSoon, "launched in this pass already: "+t.last.Reason)
			break
		}
		pl := p.platforms[t.last.Platform]
		pl.live++
		pl.batch++
		p.groups[t.job.Group]++
		out = append(out, &order{t: t, a: t.last, history: f.History})
	case WriteOff, Stop:
		out = append(out, &order{t: t, a: t.last})
	case None, Wait, Blocked, Fail, Release:
	}
	return p.ordered(t, out)
}

func (p *pass) ordered(t *target, out []*order) []*order {
	t.acts += len(out)
	return out
}

// refresh looks again at the works that were acted on.
func (p *pass) refresh(ctx context.Context, done []*order) {
	if len(done) == 0 {
		return
	}
	changed := map[plan.Digest]bool{}
	for _, o := range done {
		if o.a.Kind != Release {
			changed[o.t.work] = true
		}
		if o.a.Kind == WriteOff || o.a.Kind == Stop {
			p.r.records.spoil(o.t.work)
		}
	}
	p.r.getAll(ctx, slices.Collect(maps.Keys(changed)))
	for _, o := range done {
		changed[o.t.work] = true
	}
	again := &World{works: map[plan.Digest]*sight{}}
	if err := p.r.sights(ctx, changed, again); err != nil {
		p.fail(err)
	}
	for w, s := range again.works {
		p.world.works[w] = s
		if s.err != nil {
			p.r.sour[w] = true
			p.fail(fmt.Errorf("work %s: %w", w.Short(), s.err))
		}
	}
}

// settleLeaving strikes works off that are wholly gone, so that nothing touches them any more.
func (p *pass) settleLeaving(ctx context.Context) error {
	if p.base.force == nil || p.r.c.Dry || ctx.Err() != nil {
		return ctx.Err()
	}
	rest := slices.DeleteFunc(slices.Clone(p.base.force.Leaving), func(l departing) bool {
		t := p.byWork[l.Work]
		return t != nil && t.wish == Leaving && t.last.Kind == None && t.gone(p.world.works[l.Work]) && !p.r.asking(l.Work)
	})
	if len(rest) == len(p.base.force.Leaving) {
		return nil
	}
	next := *p.base.force
	next.Leaving = rest
	_, _, err := p.r.saveForce(ctx, p.root, p.base, &next)
	return err
}

// gone: nothing of it runs, and nothing of it can start.
func (t *target) gone(s *sight) bool {
	switch s.lease.State {
	case witness.Held, leaseUnknown:
		return false
	}
	return true
}

// summarize is where every pass ends: the state of each work, its line in the log when it changed, and when to look
// again.
func (p *pass) summarize() {
	rep := p.report
	rep.Requests = p.r.requests.Load() - p.start
	next := nextLate
	sooner := func(d time.Duration) {
		if d > 0 {
			next = min(next, d)
		}
	}
	sooner(rep.Next)
	sooner(p.brake)
	if len(rep.Errors) > 0 {
		sooner(5 * time.Second)
	}
	for _, t := range p.targets {
		s := p.world.works[t.work]
		rep.Actions = append(rep.Actions, t.last)
		t.standing = standingOf(t.last, s, t.work)
		rep.States[t.work] = t.standing
		sooner(t.last.Until)
		if t.standing.State == plan.StateClaimed {
			sooner(nextBusy)
		}
		if s != nil && s.lease.State == witness.Held {
			// Half a lease without a look counts as blindness and costs grace: look three times in one.
			sooner(s.silence.Limit / 3)
		}
		p.r.say(t)
	}
	p.unfollowed()
	sooner(p.r.nextAsk())
	if len(p.r.flights) > 0 {
		sooner(nextBusy)
	}
	rep.Next = max(next, nextSoon)
}

// standingOf is a work's state as one word and one sentence.
func standingOf(a Action, s *sight, w plan.Digest) Standing {
	out := Standing{State: plan.StateUnknown, Reason: a.Reason}
	if s != nil {
		out.State = s.observed(w).State
	}
	if a.Kind == Fail {
		out.State = plan.StateFailed
	}
	return out
}

// say logs where a work stands, when that is news.
func (r *Reconciler) say(t *target) {
	line := string(t.last.Kind) + " " + t.last.Reason
	if r.said[t.work] == line {
		return
	}
	r.said[t.work] = line
	say := r.c.Log.Debug
	if t.last.Kind == Fail || t.last.Kind == Blocked {
		say = r.c.Log.Warn
	}
	say("decided", "job", t.name, "work", t.work.Short(), "action", string(t.last.Kind), "reason", t.last.Reason)
}
