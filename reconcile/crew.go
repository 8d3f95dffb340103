package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/pack"
	"github.com/headway-run/headway/runners"
)

// gatherFor is how long the jobs of one launch wait for the code of the others to be in the store. Who is not ready by
// then starts in a launch of its own.
const gatherFor = 5 * time.Second

// crew is the jobs that go out in one launch call, its leader first.
type crew []*order

// crews puts the launches of a round together: those that share a platform's machine, and as many as it has room for. It
// returns todo without those that found no place, which are decided anew in the next round.
func (p *pass) crews(todo []*order) []*order {
	by := map[string][]*order{}
	for _, o := range todo {
		if o.a.Kind == Launch && p.platforms[o.a.Platform].capacity > 1 {
			by[o.a.Platform] = append(by[o.a.Platform], o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		orders, pl := by[name], p.platforms[name]
		jobs := make([]pack.Job, len(orders))
		for i, o := range orders {
			jobs[i] = pack.Job{Class: classOf(o.t.job), T: o.t.length, Rank: o.t.rank, Size: cards(o.t.job)}
			if o.alone() {
				jobs[i].Class = "alone: " + string(o.t.work)
			}
		}
		for _, who := range pack.Launches(jobs, pl.capacity, pl.room()) {
			var c crew
			for _, i := range who {
				c = append(c, orders[i])
			}
			for _, o := range c {
				o.crew = c
			}
		}
	}
	return slices.DeleteFunc(todo, func(o *order) bool {
		if o.a.Kind != Launch || o.crew != nil || p.platforms[o.a.Platform].capacity <= 1 {
			return false
		}
		p.unlaunch(o)
		return true
	})
}

// unlaunch takes a decision to launch back: the launches that go out before it have taken the last place.
func (p *pass) unlaunch(o *order) {
	t := o.t
	t.acts--
	p.vacates(t.job)
	t.last = Action{Work: t.work, Job: t.name, Rungs: o.a.Rungs}.wait(nextSoon, "no launch on "+o.a.Platform+" has a place for it now: "+paceText)
}

// alone: its newest launch was shared, and refused. Whose fault that was shows when each goes by itself.
func (o *order) alone() bool {
	d, ok := o.history.newest()
	return ok && d.Launch != "" && d.Answered && !d.OK && ruleOf(d.Class).Spend == SpendAlways
}

// classOf is what the jobs of one launch have to have in common, since they share its machine: the card and its math mode,
// the pinned fingerprint, the environment, the trust in the host and the secrets that it sees. How many cards each of them
// computes on may differ: a launch has one place for each card.
func classOf(j *plan.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %q %q", j.GPU.Any, j.GPU.DType, j.Trust, slices.Sorted(slices.Values(j.Secrets)))
	for _, m := range []map[string]string{j.Requires, j.Env} {
		b.WriteByte('\n')
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, " %q=%q", k, m[k])
		}
	}
	return b.String()
}

// cards is how many cards one worker of a job computes on.
func cards(j *plan.Job) int {
	n := max(j.GPU.Count, 1)
	if len(j.GPU.Any) > 0 {
		if m, err := flops.Lookup(j.GPU.Any[0]); err == nil {
			n = max(n, m.Count)
		}
	}
	return n
}

// room is how many more launches may go out now.
func (pl *platform) room() int {
	n := batchSize
	if pl.park.Series > 0 {
		n = 1
	}
	n -= pl.batch
	if pl.unpaced {
		n = 1 << 20 // a dry pass has but one round
	}
	if pl.conf.Slots > 0 {
		n = min(n, pl.conf.Slots-pl.live)
	}
	return max(n, 0)
}

// askedFor is what a platform's places are counted by in a round, and how many of them a job takes: where a launch carries
// several jobs, each class for itself, since it is not known yet which of them will share. crews sorts out the rest.
func (pl *platform) askedFor(j *plan.Job) (class string, places int) {
	if pl.capacity <= 1 {
		return "", 1
	}
	s, ok := pl.sorts[j]
	if !ok {
		if s = (sorted{classOf(j), cards(j)}); pl.sorts != nil {
			pl.sorts[j] = s
		}
	}
	return s.class, min(s.cards, pl.capacity)
}

// sorted is what launches are put together by, of one job: it is asked for whenever that waits.
type sorted struct {
	class string
	cards int
}

// ask takes the places of a job that is to start there.
func (pl *platform) ask(j *plan.Job) {
	class, places := pl.askedFor(j)
	pl.asked[class] += places
}

// launchAll starts the launches of a round.
func (p *pass) launchAll(ctx context.Context, orders []*order) (out []*flight) {
	for _, o := range orders {
		c := o.crew
		if c == nil {
			c = crew{o}
		}
		if c[0] != o {
			continue // it goes out with its leader
		}
		var fs []*flight
		for _, o := range c {
			fs = append(fs, p.takeOff(o))
		}
		for _, f := range fs {
			if len(fs) > 1 {
				f.crew = fs[0].o.launch.Claim.Nonce
				f.o.launch.Claim.Launch = f.crew
			}
		}
		go p.r.board(ctx, fs)
		out = append(out, fs...)
	}
	return out
}

// board brings the code of the jobs of one launch into the store, then launches those whose code is there. One whose code
// can't be bundled, or takes its time, holds up nobody for longer than gatherFor.
func (r *Reconciler) board(ctx context.Context, fs []*flight) {
	if len(fs) == 1 {
		if fs[0].o.a.Err = r.bundle(ctx, fs[0].o.t.asked); fs[0].o.a.Err != nil {
			close(fs[0].done)
			return
		}
		r.call(ctx, fs)
		return
	}
	ready := make(chan int)
	for i, f := range fs {
		go func() {
			f.o.a.Err = r.bundle(ctx, f.o.t.asked)
			ready <- i
		}()
	}
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	var there []int
	left := len(fs)
	for late := false; left > 0 && (!late || len(there) == 0); {
		select {
		case i := <-ready:
			left--
			if fs[i].o.a.Err != nil {
				close(fs[i].done)
				continue
			}
			there = append(there, i)
		case <-timer.C:
			late = true
		}
	}
	for range left {
		go func() {
			if f := fs[<-ready]; f.o.a.Err != nil {
				close(f.done)
			} else {
				r.call(ctx, []*flight{f})
			}
		}()
	}
	slices.Sort(there)
	var crew []*flight
	for _, i := range there {
		crew = append(crew, fs[i])
	}
	r.call(ctx, crew)
}

// call claims the next dispatch number of each work and asks the platform once for all of them. The claims decide between
// dispatchers: whoever loses one has asked nobody for it and spends nothing.
func (r *Reconciler) call(ctx context.Context, fs []*flight) {
	defer func() {
		for _, f := range fs {
			close(f.done)
		}
	}()
	if len(fs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	within := groundsFor
	for _, f := range fs {
		within = min(within, callWithin(time.Duration(f.o.launch.Claim.CaptureS*float64(time.Second))))
	}
	until := time.Now().Add(within)
	stands := make([]bool, len(fs))
	parallel(len(fs), func(i int) { stands[i] = r.stands(ctx, fs[i]) })
	var orders []*order
	var launches []runners.Launch
	for i, f := range fs {
		if stands[i] {
			orders, launches = append(orders, f.o), append(launches, f.o.launch)
		}
	}
	if len(launches) == 0 {
		return
	}
	if len(launches) == 1 {
		launches[0].Claim.Launch = ""
	}
	got := runners.Dispatcher{Bucket: r.b, Until: until}.Launch(ctx, orders[0].runner, launches)
	for i, o := range orders {
		o.launch = launches[i]
		r.answer(o, got[i])
	}
}

// stands looks once more at what the decision to launch one job rests on.
func (r *Reconciler) stands(ctx context.Context, f *flight) bool {
	o := f.o
	if ok, err := o.grounds.hold(ctx, r.b); err != nil || !ok {
		o.a.Err, o.a.Result = err, textPlanChanged
		return false
	}
	if ok, err := r.unchanged(ctx, o); err != nil || !ok {
		o.a.Err, o.a.Result = err, textLeaseChanged
		return false
	}
	if f.abandoned.Load() {
		o.a.Result = "the plan does not want it any more: nothing was claimed"
		return false
	}
	return true
}

// answer notes what became of one job of a launch call.
func (r *Reconciler) answer(o *order, got runners.Launched) {
	o.called, o.receipt, o.heard = got.Receipt != nil, got.Receipt, time.Now()
	o.known = got.Claimed && o.called
	if o.called {
		r.c.Log.Debug("answered", "job", o.t.name, "dispatch", o.a.Dispatch, "platform", o.a.Platform)
	}
	o.a.Err, o.a.Done = got.Err, got.Err == nil
	o.late()
	if got.Err == nil && got.Receipt != nil {
		o.a.Result = shown(got.Receipt.Text, 200)
	}
	if got.Noted != nil {
		r.c.Log.Warn("the receipt could not be written", "work", o.t.work.Short(), "dispatch", o.a.Dispatch, "error", shown(got.Noted.Error(), 300))
	}
}
