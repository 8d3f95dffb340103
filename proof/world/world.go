// Package world runs everything at once, from one seed, over one store, in virtual time, with the faults of
// reliability.md §2; and says whether an invariant broke, or whether a work that could finish did not. Shipped code are
// the reconciler, the operator's verbs, gc, the lease, plan.Load, the trailers, and in every fifth seed the agent. Modelled
// are Git's history, the loop of headway watch around a pass, the platforms' ground truth (runners/sim), and in the other
// seeds the workers: runners/sim's own, over the real witness.Holder. A pause holds a process's requests while its timers
// go on; SIGSTOP is proof/chaos's. Job hours are, summed over works, the virtual time from the first commit that names one
// to its end, whether machines worked or it waited for one.
//
// Time is testing/synctest's and not an injected clock: production code keeps package time, so what runs here is what
// ships, goroutines and timers included, and no package carries a clock for tests. The price: nothing inside a bubble
// may wait on a real socket or a process, and since the source of random numbers is one for the whole process, seeds run
// one at a time, one process for each core.
//
// Every request of every actor waits until the scheduler has drawn its fate (schedule.go, fate.go), at a point where
// nobody else can move, so that a seed repeats its run.
package world

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/proof/judge"
	"github.com/headway-run/headway/proof/model"
	"github.com/headway-run/headway/proof/mutant"
)

// Config is one kind of run.
type Config struct {
	Seed uint64
	// Scratch is a folder for the files of real agents, best in memory; "": the platform's own simple workers do.
	Scratch string
	Agents  bool // all workers are real agents, not only those of every fifth seed
	Large   bool // the world is one of the large ones, not only every sixteenth
	// Mutant is a protection that is left out; nothing is promised then but that somebody notices.
	Mutant mutant.Kind

	// Careless is a collector that leaves its rule aside; likewise.
	Careless Careless

	Trace bool // keep remarks for a timeline; the run is the same without
	Trail bool // keep every line of the schedule, to see where two runs part
}

// Outcome is what became of one run.
type Outcome struct {
	Broken  error  // the first broken invariant; nil: none
	Trace   uint64 // hash of the schedule, of all bodies and fates: equal runs have equal ones
	Stats   Stats
	History []history.Entry // every request that changed the store or could have; with Config.Trace, remarks as well
	Setup   string          // what the seed drew, for people
	Trail   []string        // with Config.Trail
}

// World is one run.
type World struct {
	cfg   Config
	t     *testing.T
	s     setup
	rng   *rand.Rand // the scheduler's
	begin time.Time
	ctx   context.Context

	mu      sync.Mutex
	arrived []*request // since the last admission
	posted  []func()   // to be done by the scheduler
	over    bool       // the run comes down: nobody gets an answer any more

	// The scheduler's alone.
	wake     chan struct{}
	events   events
	seq      uint64
	trace    uint64
	trail    []string
	broken   error
	stop     bool
	healed   bool
	stats    Stats
	hist     []history.Entry
	judge    *judge.Judge
	follow   *model.Followers // nil: the run is a mutant's
	mutant   *mutant.World
	cancel   context.CancelFunc
	heard    int          // violations of the judge's so far
	view     history.Sink // the judge, as it has to see a mutant's history
	store    *store
	git      *git
	places   []*place
	fleet    []*dispatcher
	lives    map[*life]bool
	calls    map[string]int // launches that reached a platform, by work and number
	running  sync.WaitGroup // dispatchers and operators
	works    map[string]*workState
	operator int
	sweeper  int // collectors so far
	sweeping int // of them, at it

	lastSwept bool // the collector came once more after all had finished
}

// Run runs one seed. It makes a subtest of t, since the source of random numbers belongs to a test.
func Run(t *testing.T, cfg Config) *Outcome {
	w := &World{cfg: cfg, s: draw(cfg), rng: rand.New(rand.NewPCG(cfg.Seed, 1)), lives: map[*life]bool{}, calls: map[string]int{}, works: map[string]*workState{}, stats: newStats()}
	t.Run("", func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, cfg.Seed)
		synctest.Test(t, func(t *testing.T) {
			w.t = t
			w.live()
		})
	})
	return &Outcome{Broken: w.broken, Trace: w.trace, Stats: w.stats, History: w.hist, Setup: w.s.String(), Trail: w.trail}
}

// live is the run: the storm, the healing, the end, and the way down.
func (w *World) live() {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.begin, w.ctx, w.cancel, w.wake = time.Now(), ctx, cancel, make(chan struct{}, 1)
	w.makeSinks()
	w.store = newStore(w)
	w.git = newGit(w)
	w.makePlaces()
	w.schedule()
	w.teach()
	for i := range w.s.dispatchers {
		w.fleet = append(w.fleet, &dispatcher{w: w, id: i})
		w.at(w.jitter(w.s.interval), w.fleet[i].start)
	}
	w.loop()
	if w.broken == nil {
		w.judgeEnd()
	}
	w.down()
	w.count()
}

// down brings every actor to its end: from here on no request is answered.
func (w *World) down() {
	w.mu.Lock()
	w.over = true
	all := maps.Clone(w.lives)
	w.mu.Unlock()
	for l := range all {
		w.end(l)
	}
	w.cancel() // whoever waits for a platform's answer waits no longer
	for _, p := range w.places {
		p.sim.Close()
	}
	w.running.Wait()
	if w.cfg.Mutant == mutant.AckFirst {
		time.Sleep(w.s.lease) // what was acknowledged and has not landed learns that its sender is dead
	}
}

// breaks notes the first broken invariant and ends the run.
func (w *World) breaks(invariant, format string, args ...any) {
	if w.cfg.Mutant != mutant.None && !isInvariant(invariant) && invariant != "harness" {
		w.stats.Reached["masked: "+invariant]++
		return
	}
	if w.broken == nil {
		w.broken = fmt.Errorf("%s: %s", invariant, fmt.Sprintf(format, args...))
	}
	w.stop = true
}

// now is the virtual time since the begin.
func (w *World) now() time.Duration { return time.Since(w.begin) }

// jitter is a random time up to most, to the nanosecond: so two actors are hardly ever woken at the same instant, whose
// order nobody could repeat.
func (w *World) jitter(most time.Duration) time.Duration {
	return 1 + time.Duration(w.rng.Int64N(int64(max(most, time.Millisecond))))
}

// mix adds to the trace.
func (w *World) mix(now time.Duration, what string, l *life, r *request) {
	h := fnv.New64a()
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(w.trace>>(8*i)), byte(int64(now)>>(8*i))
	}
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(what))
	if l != nil {
		_, _ = h.Write([]byte(l.name))
	}
	if r != nil {
		_, _ = h.Write([]byte(r.op))
		_, _ = h.Write([]byte(r.key))
		body, _, _ := bytes.Cut(r.body, []byte("goroutine ")) // a stack in the words of a runner that panicked
		_, _ = h.Write(body)
	}
	w.trace = h.Sum64()
	if w.cfg.Trail {
		line := fmt.Sprintf("%v %s", now, what)
		if l != nil {
			line += " " + l.name
		}
		if r != nil {
			line += fmt.Sprintf(" %s %s %q", r.op, r.key, r.body)
		}
		w.trail = append(w.trail, line)
	}
}

// note adds a remark to the history, when anybody wants to read it.
func (w *World) note(l *life, format string, args ...any) {
	if !w.cfg.Trace {
		return
	}
	e := history.Entry{At: w.now(), Op: history.Note, Text: fmt.Sprintf(format, args...)}
	if l != nil {
		e.Actor = l.name
	}
	w.take(e)
}

// take adds to the history and hands it to whoever judges.
func (w *World) take(e history.Entry) {
	w.hist = append(w.hist, e)
	w.view.Take(e)
	if w.follow != nil {
		w.follow.Take(e)
	}
	w.judged()
}
