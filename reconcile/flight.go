package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/witness"
)

// How long a pass waits for the platforms: what has not answered by then goes on by itself, and a later pass hears it.
const (
	roundPatience = 5 * time.Second  // for the calls of one round
	passPatience  = 20 * time.Second // for all of a pass
	heardFor      = 2 * time.Minute  // how long the answer of a platform to a launch says how it is
)

// flight is one launch or release under way. It may outlast the pass that ordered it, so that a platform that hangs
// delays nobody else. Its goroutine alone touches the order until done is closed; then whoever has the gate does.
type flight struct {
	a         Action // as it was ordered; read by anybody
	o         *order
	crew      string // what the launches of one call have in common; "": it goes alone
	done      chan struct{}
	abandoned atomic.Bool // nobody wants this launch any more: nothing is claimed if it is not claimed yet
}

// flightKey names one: a work has at most one launch under way, and one release for each dispatch.
type flightKey struct {
	kind Kind
	work plan.Digest
	n    int64 // Release: the dispatch
}

func keyOf(a Action) flightKey {
	if a.Kind == Launch {
		return flightKey{Launch, a.Work, 0}
	}
	return flightKey{a.Kind, a.Work, a.Dispatch}
}

// takeOff makes a launch or a release ready to go. Everything that it needs of the pass is put into the order first.
func (p *pass) takeOff(o *order) *flight {
	f := &flight{a: o.a, o: o, done: make(chan struct{})}
	p.r.flights[keyOf(o.a)] = f
	o.runner = p.r.c.Runners[o.a.Platform]
	o.grounds, o.looked = p.grounds, p.looked
	s := p.world.works[o.t.work]
	if s != nil {
		o.seen = s.seen
	}
	if o.a.Kind == Launch {
		o.t.launched = true
		o.launch = p.r.launchOf(o, p.platforms[o.a.Platform], s.record)
	}
	return f
}

// await waits for calls as long as the pass can. When ctx has ended they all end soon, and are waited for.
func (p *pass) await(ctx context.Context, calls []*flight) {
	patience := min(cmp.Or(p.r.c.Patience, roundPatience), p.patience)
	start := time.Now()
	defer func() { p.patience -= time.Since(start) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, f := range calls {
		select {
		case <-f.done:
			continue
		default:
		}
		select {
		case <-f.done:
		case <-timer.C:
			return
		case <-ctx.Done():
			<-f.done
		}
	}
}

// collect takes over what has landed into the records at hand, so that whoever looks next knows of it. Of what is
// still under way the store may say something new at any moment.
func (r *Reconciler) collect() {
	for k, f := range r.flights {
		select {
		case <-f.done:
			delete(r.flights, k)
			r.landed = append(r.landed, f.o)
			if o := f.o; o.known {
				r.records.note(o.t.work, o.launch.Claim, *o.receipt)
			} else {
				r.records.spoil(o.t.work)
			}
		default:
			r.records.spoil(k.work)
		}
	}
}

// file notes what has landed in the report and the log, and what it says of its platform. It returns those orders.
func (p *pass) file(ctx context.Context) []*order {
	p.r.collect()
	out := p.r.landed
	p.r.landed = nil
	slices.SortFunc(out, func(a, b *order) int {
		return cmp.Or(cmp.Compare(a.t.name, b.t.name), cmp.Compare(a.a.Dispatch, b.a.Dispatch))
	})
	launched := map[string][]*order{}
	for _, o := range out {
		p.filed(o)
		if o.a.Kind == Release {
			p.r.answered(askKey{o.t.work, o.a.Dispatch}, o.settled, o.bound)
		}
		// What was heard long ago says nothing of the platform now; what it left in the store counts all the same.
		if o.called && p.platforms[o.a.Platform] != nil && !runners.Passed(o.heard.Add(heardFor)) {
			launched[o.a.Platform] = append(launched[o.a.Platform], o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(launched)) {
		p.judgeLaunches(ctx, p.platforms[name], launched[name])
	}
	return out
}

// underWay answers for a work whose launch is under way: it waits, unless its lease is held already. A launch that the
// plan does not want any more claims nothing, if it is not too late.
func (p *pass) underWay(t *target) bool {
	f := p.r.flights[flightKey{Launch, t.work, 0}]
	if f == nil {
		return false
	}
	s := p.world.works[t.work]
	held := s != nil && s.lease.State == witness.Held
	if held || t.wish != Wanted || t.job == nil || t.job.Suspend {
		f.abandoned.Store(true)
	}
	if held {
		return false // there is nothing to launch; silence and stops are judged as ever
	}
	a := f.a
	t.last = Action{Work: t.work, Job: t.name, Platform: a.Platform, Dispatch: a.Dispatch}.
		wait(nextBusy, fmt.Sprintf("dispatch %d is on its way to %s, and has no answer yet", a.Dispatch, a.Platform))
	return true
}

// Wait returns when no launch and no release is under way; it takes two minutes and a half at most (a launch that has
// to bundle its code first: ten more), or as long as the runners need to obey once the context of their pass has ended.
// Call it before the process ends.
func (r *Reconciler) Wait() {
	r.gate <- struct{}{}
	defer r.leave()
	r.drain()
}

func (r *Reconciler) drain() {
	for _, f := range r.flights {
		<-f.done
	}
	r.patrol.wait()
	r.learner.wait()
	r.posted.wait()
	r.asksOver()
}
