package witness

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// The simulation: workers, twins, dispatchers and an operator run the production code, each in a goroutine of one
// bubble, and every request of theirs waits until the scheduler picks it, in an order and with a fate that a seed
// decides. One actor runs at a time, so a seed repeats its run. The judge looks at every write that lands.

// simConfig is one kind of run.
type simConfig struct {
	mutant  string // a protection that the workers leave out; empty: none
	deletes bool   // somebody deletes the witness by hand once
	steps   int    // scheduled requests before the store is healed
	heal    bool   // then let one worker alone and demand that it finishes
}

type fate string

const (
	fine      fate = "fine"
	lostFirst fate = "request lost"
	lostLast  fate = "answer lost"
	lands     fate = "answer lost, lands later"
	twice     fate = "arrives twice"
	raced     fate = "409"
	slow      fate = "503"
)

// request is one call of an actor that waits to be scheduled.
type request struct {
	actor  *actor
	op     string
	key    string
	run    func() error
	answer chan error
	gone   bool // the caller has given up
}

type world struct {
	cfg     simConfig
	t       testing.TB
	rng     *rand.Rand
	s       *memory
	work    string
	mu      sync.Mutex
	waiting []*request
	late    []*request // may land at any time, or never
	actors  []*actor
	alive   int
	fates   map[fate]int
	trace   uint64 // hash of the schedule: equal seeds have equal traces
	healed  bool
	judge   *judge
}

// actor is one process. Its port is its only way to the store.
type actor struct {
	w    *world
	id   int
	name string
	rng  *rand.Rand
	dead bool
}

func (w *world) start(name string, run func(ctx context.Context, a *actor)) {
	w.mu.Lock()
	a := &actor{w: w, id: len(w.actors), name: name}
	a.rng = rand.New(rand.NewPCG(uint64(a.id)+1, w.judge.seed))
	w.actors = append(w.actors, a)
	w.alive++
	w.mu.Unlock()
	go func() {
		defer func() {
			w.mu.Lock()
			w.alive--
			a.dead = true
			w.mu.Unlock()
		}()
		run(context.Background(), a)
	}()
}

func (a *actor) ask(ctx context.Context, op, key string, run func() error) error {
	r := &request{actor: a, op: op, key: key, run: run, answer: make(chan error, 1)}
	a.w.mu.Lock()
	a.w.waiting = append(a.w.waiting, r)
	a.w.mu.Unlock()
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		a.w.mu.Lock()
		r.gone = true
		a.w.mu.Unlock()
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: ctx.Err()}
	}
}

func (a *actor) Get(ctx context.Context, key string, r bucket.Range) (o *bucket.Object, err error) {
	var got *bucket.Object
	err = a.ask(ctx, "get", key, func() (err error) { got, err = a.w.s.Get(context.Background(), key, r); return err })
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (a *actor) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (v bucket.Version, err error) {
	raw := make([]byte, b.Size())
	_, _ = b.ReadAt(raw, 0)
	err = a.ask(ctx, "put", key, func() error {
		got, err := a.w.s.Put(context.Background(), key, body(raw), c)
		if err == nil {
			v = got
			a.w.judge.landed(a, key, raw)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return versionOf(raw), nil
}

func (a *actor) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	var got *bucket.Page
	err := a.ask(ctx, "list", prefix, func() (err error) { got, err = a.w.s.List(context.Background(), prefix, after, limit); return err })
	if err != nil {
		return nil, err
	}
	return got, nil
}

// rest lets the bubble's time pass for one actor.
func (a *actor) rest(d time.Duration) { time.Sleep(d) }

// pick takes the next request, or a late one; nil: nobody waits.
func (w *world) pick() *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.late) > 0 && w.rng.IntN(12) == 0 {
		i := w.rng.IntN(len(w.late))
		r := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		return r
	}
	if len(w.waiting) == 0 {
		return nil
	}
	slices.SortStableFunc(w.waiting, func(a, b *request) int { return a.actor.id - b.actor.id })
	i := w.rng.IntN(len(w.waiting))
	r := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return r
}

// fateOf draws what happens to a request.
func (w *world) fateOf(r *request) fate {
	if w.healed {
		return fine
	}
	n := w.rng.IntN(100)
	switch {
	case n < 70:
		return fine
	case n < 76:
		return lostFirst
	case n < 88:
		return lostLast
	case n < 92 && r.op == "put":
		return lands
	case n < 95 && r.op == "put":
		return twice
	case n < 98:
		return raced
	}
	return slow
}

// serve schedules one request.
func (w *world) serve(r *request) {
	w.mu.Lock()
	gone := r.gone
	w.mu.Unlock()
	f := w.fateOf(r)
	if gone {
		f = lostLast // it was on its way when its caller gave up
	}
	w.fates[f]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %s %s %s", w.trace, r.actor.id, r.op, r.key, f)
	w.trace = h.Sum64()
	unknown := func() error { return fault(r.op, r.key, bucket.Unknown) }
	var err error
	switch f {
	case fine:
		err = r.run()
	case lostFirst:
		err = unknown()
	case lostLast:
		_ = r.run()
		err = unknown()
	case lands:
		w.mu.Lock()
		w.late = append(w.late, &request{actor: r.actor, op: r.op, key: r.key, run: r.run, answer: make(chan error, 1), gone: true})
		w.mu.Unlock()
		err = unknown()
	case twice:
		_ = r.run()
		err = r.run() // the caller hears of the second arrival alone
	case raced:
		err = fault(r.op, r.key, bucket.Raced)
	case slow:
		err = fault(r.op, r.key, bucket.Throttled)
	}
	if !gone {
		r.answer <- err
	}
}

// simulate runs one seed; what its judge found is the verdict (nil: nothing).
func simulate(t *testing.T, seed uint64, cfg simConfig) (w *world) {
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		w = &world{cfg: cfg, t: t, rng: rand.New(rand.NewPCG(seed, 0)), s: newMemory(), work: workNamed(int(seed % 1000)), fates: map[fate]int{}}
		w.judge = newJudge(w, seed)
		w.start("dispatcher", dispatcher)
		w.start("dispatcher", dispatcher)
		w.start("operator", operator)
		w.loop(cfg.steps)
		if w.judge.found() == nil && cfg.heal {
			w.finishAlone()
		}
		w.drain()
	})
	return w
}

// loop serves at most n requests, or until everybody is done or the judge has found something.
func (w *world) loop(n int) {
	deleted := false
	for i := 0; i < n && w.judge.found() == nil; i++ {
		synctest.Wait()
		if w.rng.IntN(25) == 0 {
			time.Sleep(time.Duration(w.rng.IntN(4000)) * time.Millisecond) // requests hang, deadlines pass
			synctest.Wait()
		}
		if w.cfg.deletes && !deleted && i > n/6 && w.rng.IntN(30) == 0 {
			deleted = true
			w.s.remove(record.WitnessKey(w.work))
			w.judge.deleted()
		}
		r := w.pick()
		if r == nil {
			if w.living() == 0 {
				return
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		w.serve(r)
	}
}

func (w *world) living() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alive
}

// drain lets every actor come to its end: the world answers nothing but "down" from here on.
func (w *world) drain() {
	w.judge.stop()
	for w.living() > 0 {
		synctest.Wait()
		w.mu.Lock()
		list := w.waiting
		w.waiting = nil
		w.mu.Unlock()
		for _, r := range list {
			if !r.gone {
				r.answer <- &bucket.Error{Op: r.op, Key: r.key, Code: bucket.Denied, Err: io.ErrClosedPipe}
			}
		}
		time.Sleep(time.Second)
	}
}

// finishAlone is I7: faults stop, the others are left to themselves, and the work must finish.
func (w *world) finishAlone() {
	w.healed = true
	w.loop(4000)
	for range 6 {
		if w.judge.found() != nil || w.judge.state() == Finished {
			return
		}
		w.start("last dispatcher", lastDispatcher)
		w.loop(4000)
	}
	if w.judge.found() == nil {
		w.judge.fail("I7", "left alone, the work did not finish, it is %s", w.judge.state())
	}
}
