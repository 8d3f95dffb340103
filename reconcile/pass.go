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
	// What decides who goes first; see targetsInForce.
	rank, length float64
	begun        int
}

// pass is the state of one pass. It ends in one place: summarize.
type pass struct {
	r         *Reconciler
	d         *Desired
	root      string
	base      stored
	was       *inForce // in force before this pass
	world     *World
	began     time.Time
	looked    time.Time // when the look began
	grounds   *grounds  // from the acceptance on
	platforms map[string]*platform
	targets   []*target
	strays    []*order // releases of what no plan names
	byWork    map[plan.Digest]*target
	allowed   map[string]bool // suspects that the brake lets be written off, by witness key
	brake     time.Duration
	groups    map[string]int // live works of a group, and of a label as KEY=VALUE
	costs     reckonings
	memo      map[plan.Digest]string
	alike     map[likeness]Action  // of this round
	appraised map[string]appraised // what platforms are expected to give
	ends      map[string][]float64 // seconds until works that run are done, by platform
	queued    map[string]int       // works of this round that wait for a platform
	patience  time.Duration        // that is left for waiting on platforms
	beside    *previous            // of a pass that looks at a part: what there is beside that; nil: it looks at everything
	report    *Report
	start     Verbs // requests before it
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
	p := &pass{r: r, d: d, root: d.Plan.Config.Name, began: time.Now(), start: r.requests.verbs(), patience: cmp.Or(r.c.Patience, passPatience), report: &Report{States: map[plan.Digest]Standing{}}}
	defer p.accounted()
	defer p.post(ctx)
	defer p.summarize()
	defer p.heard()
	defer func() {
		if ctx.Err() != nil {
			r.drain()
		}
	}()
	r.unpack()
	r.learnNow(ctx)
	before, early := r.ahead(ctx, d)
	if before != nil && r.c.Ahead != nil {
		r.c.Ahead()
	}
	if err := p.look(ctx); err != nil {
		r.storeErrors = true
		return nil, err
	}
	if before != nil {
		p.was, p.report.Actions, p.report.Errors = before, early.Actions, append(early.Errors, p.report.Errors...)
	}
	if err := p.accept(ctx); err != nil {
		return nil, err
	}
	p.grounds = &grounds{key: forceKey(p.root), version: p.base.version, asked: p.looked}
	p.targetsInForce(ctx)
	p.refresh(ctx, p.file(ctx))
	p.reckon(ctx)
	p.judgeSilence()
	p.recovered(ctx)
	p.tally()
	p.climbers(ctx)
	p.patrols(ctx)
	p.drifted()
	p.rounds(ctx)
	r.learns(ctx)
	if err := p.settleLeaving(ctx); err != nil {
		p.fail(err)
	}
	p.leavesBehind(ctx)
	return p.report, ctx.Err()
}

func (p *pass) fail(err error) { p.report.Errors = append(p.report.Errors, err) }

// look reads what is in force, the leases and the platforms.
func (p *pass) look(ctx context.Context) (err error) {
	p.looked = time.Now()
	if p.base, err = p.r.loadForce(ctx, p.root); err != nil {
		return err
	}
	p.was = p.base.force
	p.r.records.unheard = p.unheardOf()
	p.r.passing = !p.r.c.Dry
	p.r.firsts.Store(0)
	if p.world, err = p.r.observe(ctx, worksOf(p.d.Plan, p.base.force)); err != nil {
		return err
	}
	for _, e := range p.world.trouble {
		p.fail(e)
	}
	p.platforms, err = p.r.platforms(ctx, p.d.Plan.Config.Platforms)
	guarded(p.platforms, &p.d.Plan.Config.Guard)
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
	for _, name := range slices.Sorted(maps.Keys(p.platforms)) {
		pl := p.platforms[name]
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
		f.Drained, f.Drain = p.leavesFor(t), drainFor(nil, nil)
		if s := p.world.works[t.work]; s != nil {
			f.Drain = drainFor(s.claim, s.record)
		}
	}
	if p.d != nil && p.d.Demand.names(t.work) {
		f.Demand = p.d.Demand
	}
	if t.job == nil || f.Lease.State == witness.Finished {
		return f // of what is over nothing more is asked, and in the end most works are
	}
	for _, in := range t.job.Inputs {
		n := Need{Job: in.Job, Work: in.Work}
		if s := p.world.works[in.Work]; s != nil {
			n.Finished, n.Exit, n.Failed = s.lease.State == witness.Finished && s.lease.Lacks == "", s.lease.Exit, s.lease.unwhole()
		}
		if !n.Finished && n.Failed == "" {
			n.Failed, n.Suspended = p.stuck(in.Work), p.suspended(in.Work)
		}
		f.Inputs = append(f.Inputs, n)
	}
	f.Rungs = barred(rungs(t.job, p.platforms), f.History)
	if s := p.world.works[t.work]; s != nil {
		f.On, f.Climb = s.platform, p.r.climbs[t.work]
	}
	p.appraise(&f)
	f.Unready, f.Hurdle = t.unready, p.r.hurdleOf(t.work)
	f.Crowded, f.Over = p.crowded(t.job), p.over(t)
	return f
}

// stuck says why a work never finishes by itself, or "". Inputs are works of their own, so there is no cycle.
func (p *pass) stuck(w plan.Digest) string {
	if why, ok := p.memo[w]; ok {
		return why
	}
	p.memo[w] = ""
	if t := p.byWork[w]; t != nil {
		if a := Decide(p.facts(t)); a.Kind == Fail || byLimit(a) || a.Kind == Blocked && (t.blockedByInput(a) || notWhole(a.Reason)) {
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

// rounds is the queue: every work is decided, what is to be done is done side by side, and what changed is looked at
// and decided again, until nothing is left to do.
func (p *pass) rounds(ctx context.Context) {
	queue := p.targets
	for round := 0; len(queue)+len(p.strays) > 0 && ctx.Err() == nil; round++ {
		p.tally()
		todo := p.strays
		p.strays = nil
		var again []*target
		for _, t := range queue {
			if round > 0 && len(todo) > 0 && p.later(t) {
				again = append(again, t)
				continue
			}
			orders := p.decide(t)
			todo = append(todo, orders...)
			if len(orders) > 0 || t.last.Kind == Wait && strings.Contains(t.last.Reason, paceText) {
				again = append(again, t)
			}
		}
		if todo = p.crews(todo); len(todo) == 0 || p.r.c.Dry {
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
	var f Facts
	if a, ok := p.waits(t); ok {
		t.last = a
	} else {
		f = p.facts(t)
		p.hand(t)
		t.last = Decide(f)
		p.serves(t)
	}
	p.queues(t.last)
	if t.acts >= actsPerPass || p.d.Demand != nil && !p.d.Demand.names(t.work) {
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
		p.platforms[t.last.Platform].ask(t.job)
		p.occupies(t.job)
		out = append(out, &order{t: t, a: t.last, history: f.History})
	case Move:
		p.platforms[t.last.Climb].ask(t.job) // nobody else of this round takes its place
		out = append(out, &order{t: t, a: t.last})
	case WriteOff, Stop:
		out = append(out, &order{t: t, a: t.last})
	case Fail:
		p.r.records.givenUp(t.work)
	case None, Wait, Blocked, Release:
	}
	return p.ordered(t, out)
}

func (p *pass) ordered(t *target, out []*order) []*order {
	t.acts += len(out)
	return out
}

// refresh looks again at the works that were acted on. One that this pass does not look at has left what is in force
// while its call was under way: another process has settled it.
func (p *pass) refresh(ctx context.Context, done []*order) {
	done = slices.DeleteFunc(slices.Clone(done), func(o *order) bool { return p.world.works[o.t.work] == nil })
	if len(done) == 0 {
		return
	}
	changed := map[plan.Digest]bool{}
	for _, o := range done {
		if o.a.Kind != Release {
			changed[o.t.work] = true
		}
		if o.a.Kind == WriteOff || o.a.Kind == Move || o.a.Kind == Stop {
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
	return !s.history.waits() // an orphan's launch may bring a worker yet, or has to be released if it does not
}

// summarize is where every pass ends: the state of each work, its line in the log when it changed, and when to look
// again.
func (p *pass) summarize() {
	rep := p.report
	next := nextLate
	sooner := func(d time.Duration) {
		if d > 0 {
			next = min(next, d)
		}
	}
	sooner(rep.Next)
	taken, filled := p.waiting() // before the decisions are added to what was done
	sooner(p.r.turn.next(time.Now(), taken, filled, time.Since(p.looked)))
	sooner(p.brake)
	if len(rep.Errors) > 0 {
		sooner(5 * time.Second)
	}
	rep.Actions, rep.States = slices.Grow(rep.Actions, len(p.targets)), make(map[plan.Digest]Standing, len(p.targets))
	for _, t := range p.targets {
		s := p.world.works[t.work]
		rep.Actions = append(rep.Actions, t.last)
		standing := standingOf(t.last, s, t.work)
		standing.Job = t.name
		rep.States[t.work] = standing
		sooner(t.last.Until)
		if standing.State == plan.StateClaimed {
			sooner(nextBusy)
		}
		if s != nil && s.lease.State == witness.Held {
			// Half a lease without a look counts as blindness and costs grace: look three times in one.
			sooner(s.silence.Limit / 3)
		}
		p.r.say(t, standing)
	}
	rep.Platforms, rep.Releasing = platformStates(p.platforms), p.r.releasing()
	if p.world != nil {
		rep.Owed = p.owing()
	}
	p.unfollowed()
	sooner(p.r.nextAsk())
	if len(p.r.flights) > 0 {
		sooner(nextBusy)
	}
	rep.Next = max(next, nextSoon)
}

// spoken is a decision as it was logged.
type spoken struct {
	kind   Kind
	reason string
}

// say logs where a work stands, when that is news.
func (r *Reconciler) say(t *target, s Standing) {
	if line := (spoken{t.last.Kind, t.last.Reason}); r.said[t.work] != line {
		r.said[t.work] = line
	} else {
		return
	}
	say := r.c.Log.Debug
	if t.last.Kind == Fail || t.last.Kind == Blocked {
		say = r.c.Log.Warn
	}
	say("decided", "job", t.name, "work", t.work.Short(), "action", string(t.last.Kind), "reason", t.last.Reason, "state", s.State,
		"attempt", s.Attempt, "dispatch", s.Dispatch, "platform", s.Platform)
}
