package world

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/proof/mutant"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/sim"
)

// place is one platform: ground truth.
type place struct {
	w   *World
	d   placeDraw
	sim *sim.Runner

	mu      sync.Mutex
	ran     map[int]int   // instance → times that its command was run
	before  time.Duration // machine time that was paid when its quota was last renewed
	renewed time.Time
}

func (w *World) makePlaces() {
	for _, d := range w.s.places {
		p := &place{w: w, d: d, ran: map[int]int{}}
		var work sim.Work
		if w.s.agents {
			work = fleet.Config{Scratch: w.cfg.Scratch, SideThread: w.cfg.Mutant == mutant.SideThread}.Work()
		}
		var err error
		p.sim, err = sim.New(sim.Config{Work: work, Platform: d.name, Slots: d.slots, Capacity: d.capacity, Bucket: w.store.mem, Model: d.model, Script: d.script,
			Price: d.price, UntilReleased: d.untilReleased, Port: p.port})
		if err != nil {
			w.t.Fatal(err)
		}
		w.places = append(w.places, p)
	}
}

// port is the way to the store of one instance's worker.
func (p *place) port(instance int) bucket.Bucket {
	in := p.sim.Truth()[instance-1]
	again := ""
	p.mu.Lock()
	if p.ran[instance]++; p.ran[instance] > 1 { // another process, and so another name
		again = " again"
	}
	p.mu.Unlock()
	l := p.w.newLife(aWorker, fmt.Sprintf("worker %s/%d%s of %.6s dispatch %d", p.d.name, instance, again, in.Work, in.Dispatch), nil)
	l.work = in.Work
	l.dies = func() { p.sim.Kill(instance) }
	return p.w.mutant.As(l)
}

// line is a platform as one dispatcher reaches it.
type line struct {
	l *life
	p *place
}

// listing line is one whose platform can list.
type listingLine struct{ line }

var (
	_ runners.Runner = line{}
	_ runners.Lister = listingLine{}
)

func (p *place) reach(l *life) runners.Runner {
	at := line{l, p}
	switch {
	case p.d.can && p.d.share > 0:
		return listingQuotaLine{listingLine{at}, quota{at}}
	case p.d.can:
		return listingLine{at}
	case p.d.share > 0:
		return quotaLine{at, quota{at}}
	}
	return at
}

// through lets a call out, and its answer back in: at both ends the caller may die, freeze, or lose the line.
func through[T any](ctx context.Context, c line, op, key string, apply func(*request), call func() (T, error)) (T, error) {
	var none T
	if err := c.l.ask(ctx, &request{op: op, key: c.p.d.name + " " + key, call: true, apply: apply}); err != nil {
		return none, c.unreachable(op, err)
	}
	got, err := call()
	if back := c.l.ask(ctx, &request{op: "answer", key: c.p.d.name + " " + op + " " + key, call: true}); back != nil {
		return none, c.unreachable(op, back)
	}
	return got, err
}

func (c line) unreachable(op string, err error) error {
	return &runners.Failure{Class: runners.Unreachable, Platform: c.p.d.name, Op: op, Err: err}
}

// Launch implements runners.Runner.
func (c line) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	key := ""
	for _, j := range jobs {
		key += fmt.Sprintf("%.12s/%d ", j.Work, j.Dispatch)
	}
	count := func(*request) {
		for _, j := range jobs {
			c.p.w.launched(c.l, j)
		}
		if len(jobs) > 1 {
			c.p.w.stats.Reached["a launch of several jobs"]++
		}
	}
	return through(ctx, c, "launch", key, count, func() ([]runners.Receipt, error) {
		if err := c.p.usedUp(); err != nil {
			return nil, err
		}
		return c.p.sim.Launch(ctx, jobs)
	})
}

// launched counts a call that reached a platform: one number, one call.
func (w *World) launched(l *life, j runners.Launch) {
	at := fmt.Sprintf("%s/%d", j.Work, j.Dispatch)
	if w.calls[at]++; w.calls[at] > 1 {
		w.breaks("one number, one call", "dispatch %d of work %.12s was launched twice, the second time by %s", j.Dispatch, j.Work, l.name)
	}
	w.note(l, "launches %.12s dispatch %d on %s", j.Work, j.Dispatch, j.Claim.Platform)
}

// Release implements runners.Runner.
func (c line) Release(ctx context.Context, handle json.RawMessage) (runners.Release, error) {
	return through(ctx, c, "release", string(handle), nil, func() (runners.Release, error) { return c.p.sim.Release(ctx, handle) })
}

// JobKinds implements runners.Runner.
func (c line) JobKinds() []string { return nil }

// Capacity implements runners.Runner.
func (c line) Capacity() int { return c.p.d.capacity }

// Running implements runners.Lister.
func (c listingLine) Running(ctx context.Context) ([]runners.Running, error) {
	return through(ctx, c.line, "running", "", nil, func() ([]runners.Running, error) { return c.p.sim.Running(ctx) })
}
