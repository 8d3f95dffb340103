package world

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/proof/judge"
	"github.com/headway-run/headway/proof/model"
	"github.com/headway-run/headway/proof/mutant"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// workState is what the scheduler knows of one work.
type workState struct {
	steps    int64
	first    time.Duration // some commit named it
	state    witness.State // "": no witness yet
	attempt  int64
	dispatch int64
	done     time.Duration
	deleted  bool // a person deleted its witness: nothing is promised of it any more but safety
	failed   string
	said     string // the last decision about it that was heard of
	moved    bool   // its lease was ended for a better rung, and nobody has taken it since
	stopped  bool   // by a policy of its job, or since its program failed twice in the same way
	failures map[string]bool
	off      []string // platforms that its policies keep it off
}

// know notes a work that a commit names.
func (w *World) know(j *plan.Job) {
	if w.works[string(j.Work)] == nil {
		w.works[string(j.Work)] = &workState{steps: j.FLOPs.Steps, first: w.now()}
	}
}

// saw notes a new version of a witness.
func (w *World) saw(work string, body []byte, by *life) {
	var rec witness.Record
	s := w.works[work]
	if s == nil || json.Unmarshal(body, &rec) != nil {
		return
	}
	reached := w.stats.Reached
	if rec.State != s.state || rec.Attempt != s.attempt {
		reached["lease "+string(rec.State)]++
		if rec.State == witness.Held && rec.Attempt > 1 {
			reached["captured again"]++
			if s.moved {
				reached["captured after a move"]++
			}
			if rec.Resume != nil {
				reached["resumed"]++
			}
			if rec.Attempt > 3 {
				reached["attempt 4 and more"]++
			}
		}
		if rec.Stopped() {
			reached["lease stopped"]++
		}
	}
	if s.moved = rec.State == witness.Revoked && strings.HasPrefix(rec.Reason, "moves up the ladder"); rec.State == witness.Revoked {
		defer w.wrote(by, rec.Reason)
	}
	s.state, s.attempt, s.dispatch = rec.State, rec.Attempt, rec.Dispatch
	if rec.State == witness.Finished && s.done == 0 {
		s.done = w.now()
	}
}

// schedule lays out what is known in advance: outages, jumps of the store's clock, commits, verbs, the healing, the end.
func (w *World) schedule() {
	for _, o := range w.s.outages {
		w.at(o.from, func() {
			w.s.outage = max(w.s.outage, o.to)
			w.note(nil, "the store is away for %v", o.to-o.from)
		})
	}
	for _, j := range w.s.jumps {
		w.at(j.at, func() {
			w.fired(ClockJump)
			w.store.skew += j.by
			w.note(nil, "the store's clock jumps by %v", j.by)
		})
	}
	for _, at := range w.s.commits {
		w.at(at, w.git.change)
	}
	for _, at := range w.s.verbs {
		w.at(at, w.verb)
	}
	for _, at := range w.s.reopens {
		w.at(at, w.reopen)
	}
	for _, at := range w.s.demands {
		w.at(at, w.demand)
	}
	for _, at := range w.s.sweeps.at {
		w.at(at, w.sweep)
	}
	w.at(w.s.storm, w.heal)
	w.at(w.s.limit, func() {
		for _, work := range w.wanted() {
			if s := w.works[work]; s.state != witness.Finished {
				w.breaks("I7", "left alone for %v, work %.12s did not finish: its lease is %q at attempt %d; %s; last decision: %s", w.s.limit-w.s.storm, work, s.state, s.attempt, s.failed, s.said)
			}
		}
		w.stop = true
	})
}

// heal ends all faults: nobody dies any more, everybody wakes, one last commit is good.
func (w *World) heal() {
	w.healed, w.s.latency = true, min(w.s.latency, 20*time.Millisecond)
	w.note(nil, "all faults end here")
	for l := range w.lives {
		l.paused, l.denied = 0, 0
	}
	if w.rng.IntN(3) > 0 { // the others are taken away, as they came
		for _, d := range w.fleet[1:] {
			d.stop()
		}
	}
	w.git.settle()
	if w.s.sweeps.at != nil {
		w.after(w.jitter(w.s.lease), w.sweep)
	}
	w.settled(0)
	w.callOut()
}

// callOut is the person who is called when a platform answers nonsense, looks, and opens it again.
func (w *World) callOut() {
	for _, d := range w.s.places {
		key := record.PlatformKey(d.name)
		b, err := w.read(key)
		var park struct {
			Fatal bool `json:"fatal"`
		}
		if err != nil || json.Unmarshal(b, &park) != nil || !park.Fatal {
			continue
		}
		w.stats.Reached["a platform was closed and opened again"]++
		if err := w.store.mem.Delete(w.ctx, key); err != nil {
			w.breaks("harness", "delete %s: %v", key, err)
		}
		w.take(history.Entry{At: w.now(), Actor: "person on call", Op: history.Delete, Key: key})
	}
	w.byHand()
	w.endOrphans()
	w.after(10*time.Minute, w.callOut)
}

// wanted lists the works of the last commit that can finish: a person has deleted neither their witness nor that of
// what they need, and no policy of theirs stops them.
func (w *World) wanted() []string {
	var out []string
	jobs := w.git.head.plan().Jobs
	lost := map[plan.Digest]bool{}
	for range jobs { // needs are not in order
		for i := range jobs {
			j := &jobs[i]
			if s := w.works[string(j.Work)]; s.deleted || s.barredEverywhere(j.On) || slices.ContainsFunc(j.Inputs, func(in plan.Input) bool { return lost[in.Work] }) {
				lost[j.Work] = true
			}
		}
	}
	for i := range jobs {
		if !lost[jobs[i].Work] {
			out = append(out, string(jobs[i].Work))
		}
	}
	slices.Sort(out)
	return out
}

// settled looks again and again whether everything is over: all that is wanted finished, and what was launched gone.
func (w *World) settled(since time.Duration) {
	over := true
	for _, work := range w.wanted() {
		over = over && w.works[work].state == witness.Finished
	}
	if over {
		if since == 0 {
			since = w.now()
			if w.s.sweeps.last {
				w.after(w.s.sweeps.ended+w.s.lease, w.lastSweep)
			}
		}
		live := 0
		for _, p := range w.places {
			live += p.sim.Meter().Live
		}
		if live == 0 && w.sweeping == 0 && (w.lastSwept || !w.s.sweeps.last) || w.now()-since > 45*time.Minute+4*w.s.lease {
			w.stop = true
			return
		}
	}
	w.after(max(w.s.interval, 10*time.Second), func() { w.settled(since) })
}

// judgeEnd says what can only be said at the end.
func (w *World) judgeEnd() {
	for _, work := range slices.Sorted(maps.Keys(w.works)) {
		s := w.works[work]
		if s.state == witness.Finished && !s.deleted {
			w.result(work, s)
		}
	}
	w.left()
	w.judge.End()
	w.judged()
	if w.follow == nil {
		return
	}
	if err := w.follow.Err(); err != nil {
		w.breaks("model", "%v", err)
	}
	rep, err := audit.Check(w.ctx, w.store.mem, audit.Options{Deep: true})
	if err != nil {
		w.breaks("harness", "audit: %v", err)
	}
	for _, f := range rep.Findings {
		if s := w.works[workOf(f.Key)]; s != nil && s.deleted {
			continue
		}
		w.breaks("audit "+string(f.Invariant), "%s: %s", f.Key, f.Text)
	}
}

func workOf(key string) string {
	if p, ok := record.Parse(key); ok {
		return p.Work
	}
	return strings.TrimPrefix(key, record.WitnessPrefix)
}

// result holds a result against what the work computes, however often it was killed on the way.
func (w *World) result(work string, s *workState) {
	b, err := w.read(record.ResultPrefix(work, s.attempt) + sim.StateFile)
	var got sim.State
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if want := sim.Expect(work, s.steps); err != nil || got != want {
		w.breaks("chimera", "the result of work %.12s is %+v (%v), expected %+v", work, got, err, want)
	}
}

// lists asks a platform what it runs until its script has nothing more to say of lists: those who ask after that get
// the truth.
func (p *place) lists(ctx context.Context) error {
	for range mostLists {
		if p.listed(ctx) == nil && p.listsTruly() {
			return nil
		}
	}
	return fmt.Errorf("%s still does not list after %d calls", p.d.name, mostLists)
}

// mostLists is how many calls a script can spoil at most, with some to spare.
const mostLists = 64

// listsTruly: no line of the script concerns a list from now on.
func (p *place) listsTruly() bool {
	n := p.sim.Meter().Calls[sim.OpList]
	return !slices.ContainsFunc(p.d.script, func(f sim.Fault) bool { return f.Op == sim.OpList && max(f.From, f.To) > n })
}

func (p *place) listed(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the platform broke: %v", broken)
		}
	}()
	_, err = p.sim.Running(ctx)
	return err
}

// left holds what still runs against what is known of it: a machine holds the lease, has a receipt that is still being
// released, or is named as an orphan by whoever asks the platforms. On a platform that can't list nobody can know of a
// twin, nor of a launch whose answer was lost.
func (w *World) left() {
	c := reconcile.Config{Bucket: w.mutant.As(w.store.mem), ID: "auditor", Runners: map[string]runners.Runner{}}
	for _, p := range w.places {
		if !p.d.can {
			continue
		}
		if err := p.lists(w.ctx); err != nil {
			w.breaks("harness", "%v", err)
			return
		}
		c.Runners[p.d.name] = p.sim
	}
	rec, err := reconcile.New(c)
	if err != nil {
		w.breaks("harness", "%v", err)
		return
	}
	orphans, err := rec.Orphans(w.ctx, w.git.head.plan().Config.Platforms)
	if err != nil {
		w.breaks("harness", "who asks healthy platforms what they run got: %v", err)
		return
	}
	w.stats.Reached["what still runs was asked at the end"]++
	named := map[string]bool{}
	for _, o := range orphans {
		named[fmt.Sprintf("%s %s/%d", o.Platform, o.Work, o.Dispatch)] = true
	}
	for _, p := range w.places {
		for _, in := range p.sim.Truth() {
			if in.Live && p.d.can {
				w.explained(p, in, named[fmt.Sprintf("%s %s/%d", p.d.name, in.Work, in.Dispatch)])
			}
		}
	}
}

// explained says why a machine may still run.
func (w *World) explained(p *place, in sim.Instance, named bool) {
	switch s := w.works[in.Work]; {
	case s.deleted:
	case named:
		w.stats.Reached["left running: an orphan that is named"]++
		w.stats.Reached["an orphan was named"]++
	case s.state == witness.Held && s.dispatch == in.Dispatch:
		w.stats.Reached["left running: it holds the lease"]++
	case w.openReceipt(in.Work, in.Dispatch):
		w.stats.Reached["left running: its receipt is open"]++
	default:
		w.breaks("left running", "instance %d of %s (work %.12s dispatch %d, %q) is paid for, and nobody knows of it", in.ID, p.d.name, in.Work, in.Dispatch, in.End)
	}
}

// openReceipt: the platform said that it runs, and has not said that it is over.
func (w *World) openReceipt(work string, n int64) bool {
	d := runners.Dispatcher{Bucket: w.mutant.As(w.store.mem)}
	list, err := d.ReadClaims(w.ctx, work, n-1, 1)
	return err == nil && len(list) == 1 && list[0].N == n && list[0].Receipt != nil && list[0].Receipt.OK &&
		(list[0].Release == nil || list[0].Release.Settlement != runners.Closed.String())
}

// read reads the store itself.
func (w *World) read(key string) ([]byte, error) {
	o, err := w.mutant.As(w.store.mem).Get(w.ctx, key, bucket.Range{})
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	return io.ReadAll(o.Body)
}

// makeSinks makes those that judge.
func (w *World) makeSinks() {
	o := judge.Options{}
	if w.s.sweeps.at != nil {
		o.Ancestors, o.FinishedMilestones, o.FinishedRecords = w.s.sweeps.keep+1, true, true
	}
	if w.s.deletes {
		o.HandDeletes = 1
	}
	w.judge, w.mutant = judge.New(o), mutant.New(w.cfg.Mutant, w.s.lease/8)
	w.view = w.mutant.View(w.judge)
	if w.cfg.Mutant == mutant.None {
		w.follow = model.FollowAll()
	}
}

// judged ends the run at the first violation; a mutant's at the first broken invariant: that a condition was ignored or a
// version skipped says what was left out, and is no harm yet.
func (w *World) judged() {
	all := w.judge.Broken()
	for _, v := range all[w.heard:] {
		w.breaks(v.Invariant, "%s", v)
	}
	w.heard = len(all)
}

// isInvariant tells I1 to I9 from the rules that hold them up, and from what the world itself says.
func isInvariant(name string) bool {
	return len(name) > 1 && name[0] == 'I' && name[1] >= '1' && name[1] <= '9'
}
