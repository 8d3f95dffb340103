package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/sim"
)

// setup is everything that a seed draws before the run begins: how large the world is, how fast, and how rough.
type setup struct {
	large       bool // most worlds are small: what breaks shows in a small one sooner, and more of them fit into an hour
	dispatchers int
	interval    time.Duration // between two looks of a dispatcher
	latency     time.Duration // of one request at most; after the storm 20 ms at most
	restart     time.Duration // of a dispatcher that died, at most
	storm       time.Duration // how long faults go on
	limit       time.Duration // of the whole, before it counts as never ending

	jobs   []job
	step   time.Duration
	k      float64
	floor  time.Duration
	lease  time.Duration // what follows from the three
	places []placeDraw

	storeFaults float64 // share of requests that something befalls
	gitFaults   float64
	callFaults  float64
	focus       Fault // befalls as often as all others together; "": none
	odds        [roles]odds
	sweeps      sweepDraw
	stakes
	outages []window
	jumps   []jump
	commits []time.Duration // when somebody commits
	verbs   []time.Duration // when the operator does something
	deletes bool            // one of the verbs may remove a witness
	agents  bool            // the workers are real agents

	staleReads float64    // share of reads of leases that get the version before the newest one
	stales     *rand.Rand // who gets one

	outage time.Duration // the store is away until then; the scheduler's
}

// odds are those of one request of a process.
type odds struct{ crash, pause, deny float64 }

type window struct{ from, to time.Duration }

type jump struct{ at, by time.Duration }

// placeDraw is one platform.
type placeDraw struct {
	name          string
	slots         int
	capacity      int
	capture       time.Duration
	model         sim.Model
	script        []sim.Fault
	untilReleased bool
	can           bool          // it can list
	price         float64       // USD per hour of a launch
	card          string        // that it says it has; "": none
	share, renews time.Duration // of machine time it gives that much, then again; 0: any
}

// draw makes a setup out of a seed.
func draw(cfg Config) setup {
	r := rand.New(rand.NewPCG(cfg.Seed, 2))
	s := setup{large: r.IntN(16) == 0 || cfg.Large}
	s.dispatchers = 1 + r.IntN(2)
	if s.large {
		s.dispatchers = 1 + r.IntN(3)
	}
	s.step = pickOf(r, 200*time.Millisecond, time.Second, 5*time.Second, 20*time.Second, time.Minute, time.Minute, 3*time.Minute, 5*time.Minute)
	s.k = pickOf(r, 1.5, 2, 3, 3, 5, 10)
	s.floor = pickOf(r, 5*time.Second, 15*time.Second, 15*time.Second, time.Minute)
	s.lease = max(time.Duration(s.k*float64(s.step)), s.floor)
	s.interval = min(max(pickOf(r, s.lease/3, s.lease, 2*s.lease), 10*time.Second), 10*time.Minute)
	s.latency = pickOf(r, 2*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, min(s.lease/40, 2*time.Second))
	s.restart = s.lease/4 + time.Duration(r.Int64N(int64(2*s.lease)))
	many := pickOf(r, 1, 1, 1, 2)
	if s.large {
		many = pickOf(r, 2, 3, 4)
	}
	names := []string{"a", "b", "c", "d"}[:many]
	ideal := time.Duration(0)
	for i := range 1 + r.IntN(3) {
		s.places = append(s.places, drawPlace(r, &s, i))
	}
	for i, name := range names {
		j := drawJob(r, &s, name, names[:i])
		s.jobs = append(s.jobs, j)
	}
	stakes := rand.New(rand.NewPCG(cfg.Seed, 4)) // apart: what was there before draws as before
	s.drawStakes(stakes)
	s.unlike()
	for _, j := range s.jobs {
		ideal += time.Duration(j.steps) * s.step
	}
	s.storm = min(max(time.Duration(float64(ideal)*(0.2+0.8*r.Float64())), 3*s.lease), 8*time.Hour)
	s.limit = s.storm + 6*time.Hour + 20*ideal
	s.rough(r)
	s.drawPersons(stakes)
	s.drawSweeps(r)
	s.drawStale(cfg.Seed)
	s.drawTwists(cfg.Seed)
	s.agents = cfg.Scratch != "" && (r.IntN(5) == 0 || cfg.Agents)
	return s
}

// unlike leaves one failure of a program at each step: the same one twice rightly ends a job, and what needs it.
func (s *setup) unlike() {
	seen := map[int64]bool{}
	for i := range s.places {
		p := &s.places[len(s.places)-1-i]
		for n := len(p.script) - 1; n >= 0; n-- {
			if f := p.script[n]; f.Effect == sim.Fail && seen[f.Step] {
				p.script = slices.Delete(p.script, n, n+1)
			} else if f.Effect == sim.Fail {
				seen[f.Step] = true
			}
		}
	}
}

// rough draws how much goes wrong.
func (s *setup) rough(r *rand.Rand) {
	level := pickOf(r, 0, 0.02, 0.05, 0.1, 0.2)
	s.storeFaults = level
	s.gitFaults = pickOf(r, 0, 0.1, 0.3)
	s.callFaults = pickOf(r, 0, 0.05, 0.3)
	if r.IntN(3) == 0 {
		s.focus = pickOf(r, LostBefore, LostAfter, LandsLater, Twice, HeldLong, Raced, Broke, SlowDown, StaleList, HalfBody)
	}
	for i := range s.odds {
		s.odds[i] = odds{crash: pickOf(r, 0, 0.001, 0.004, 0.02), pause: pickOf(r, 0, 0.001, 0.004), deny: pickOf(r, 0, 0, 0.002)}
	}
	if level == 0 && r.IntN(2) == 0 {
		s.odds = [roles]odds{} // a calm day: nothing but what people and platforms do
	}
	some := func(most int) (out []time.Duration) {
		for range r.IntN(most + 1) {
			out = append(out, time.Duration(r.Int64N(int64(s.storm))))
		}
		return out
	}
	for _, at := range some(2) {
		if r.IntN(2) == 0 {
			s.outages = append(s.outages, window{at, at + s.lease/4 + time.Duration(r.Int64N(int64(4*s.lease)))})
		}
	}
	for _, at := range some(2) {
		s.jumps = append(s.jumps, jump{at, time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour})
	}
	s.commits, s.verbs = some(2), some(2)
	if s.large {
		s.commits, s.verbs = some(6), some(4)
	}
	s.deletes = r.IntN(12) == 0
}

// drawSweeps draws when somebody collects, and what retention lets go. Stamps that lie are outside of what the collector
// promises: where the store's clock jumps, what is finished is kept for longer than all jumps.
func (s *setup) drawSweeps(r *rand.Rand) {
	if r.IntN(3) > 0 {
		return
	}
	for range 1 + r.IntN(4) {
		at := time.Duration(r.Int64N(int64(s.storm)))
		s.sweeps.at = append(s.sweeps.at, at)
		if r.IntN(4) == 0 {
			s.sweeps.at = append(s.sweeps.at, at+time.Duration(r.Int64N(int64(s.lease)))) // while the first one is still at it, perhaps
		}
	}
	s.sweeps.keep, s.sweeps.grace = pickOf(r, 0, 0, 1, 3), pickOf(r, 0, 0, s.lease)
	s.sweeps.ended = s.mostDelay()
	for _, j := range s.jumps {
		s.sweeps.ended += j.by.Abs()
	}
	s.sweeps.last = len(s.jumps) == 0 && r.IntN(3) == 0
}

// drawJob is one job of the first commit.
func drawJob(r *rand.Rand, s *setup, name string, earlier []string) job {
	steps := 3 + r.IntN(4)
	if s.large {
		steps = 4 + r.IntN(13)
	}
	j := job{name: name, steps: int64(steps), k: s.k, onDelete: pickOf(r, "drain", "revoke", "orphan"), retries: 500}
	j.every = pickOf[int64](r, 1, 2, int64(2+r.IntN(5)), j.steps)
	if len(earlier) > 0 && r.IntN(3) == 0 {
		j.needs = earlier[r.IntN(len(earlier))]
	}
	for _, p := range s.places {
		if r.IntN(3) > 0 {
			j.on = append(j.on, p.name)
		}
	}
	if len(j.on) == 0 {
		j.on = []string{s.places[0].name}
	}
	if len(j.on) > 1 && r.IntN(2) == 0 {
		j.on[0], j.on[1] = j.on[1], j.on[0]
	}
	return j
}

// drawPlace is one platform and its lies.
func drawPlace(r *rand.Rand, s *setup, i int) placeDraw {
	p := placeDraw{name: fmt.Sprintf("p%d", i), slots: 1 + r.IntN(4), untilReleased: r.IntN(3) == 0, can: r.IntN(4) > 0}
	// A machine that is paid for until somebody ends it ends itself where its platform can't list (providers' facts §4).
	p.untilReleased = p.untilReleased && p.can
	p.capacity = pickOf(r, 1, 2, 2, 4)
	p.model = sim.Model{Start: pickOf(r, time.Second, 5*time.Second, 30*time.Second), Step: s.step,
		Notice: pickOf(r, 0, time.Second, s.lease/2), Upload: pickOf(r, 0, 0, s.step/4, s.lease/4), LeaseFloor: s.floor}
	if r.IntN(4) == 0 {
		p.model.Step = s.step * 5 / 4
	}
	// A worker uploads between two steps: what it has promised must be long enough for a step and an upload.
	p.model.Upload = min(p.model.Upload, max(s.lease-p.model.Step-s.lease/8-4*s.latency, 0))
	p.capture = p.model.Start*2 + time.Duration(15+r.IntN(60))*time.Second
	if r.IntN(3) == 0 {
		return p // an honest one
	}
	for range 1 + r.IntN(5) {
		p.script = append(p.script, drawFault(r, s))
	}
	return p
}

// drawFault is one line of a platform's script.
func drawFault(r *rand.Rand, s *setup) sim.Fault {
	f := sim.Fault{From: 1 + r.IntN(6)}
	long := s.lease/2 + time.Duration(r.Int64N(int64(6*s.lease)))
	switch r.IntN(6) {
	case 0, 1:
		f.Op = sim.OpLaunch
		f.Effect = pickOf(r, sim.Delay, sim.Hang, sim.Drop, sim.Lost, sim.Lost, sim.Twice, sim.Twice, sim.Late, sim.Late, sim.NoStart, sim.NoSlots,
			sim.Quota, sim.Reject, sim.Foreign, sim.Garbage, sim.NilHandle, sim.Panic)
		if f.Effect == sim.Delay {
			long = min(long, time.Minute)
		}
	case 2:
		f.Op = sim.OpRelease
		f.Effect = pickOf(r, sim.Delay, sim.Hang, sim.Drop, sim.Lost, sim.Reject, sim.Foreign, sim.Garbage, sim.Panic, sim.NotYet, sim.Bound)
		f.To = f.From + r.IntN(3)
	case 3:
		f.Op = sim.OpList
		f.Effect = pickOf(r, sim.Delay, sim.Hang, sim.Drop, sim.Foreign, sim.Panic, sim.Hide)
		f.To = f.From + r.IntN(4)
	default:
		f.Op = sim.OpWorker
		f.Effect = pickOf(r, sim.Die, sim.Die, sim.Hang, sim.Hang, sim.Mute, sim.Fail, sim.Slow)
		f.Step = int64(r.IntN(10))
		long = s.lease/2 + time.Duration(r.Int64N(int64(2*s.lease)))
	}
	if f.Effect == sim.Delay || f.Effect == sim.Late || f.Effect == sim.Quota || f.Effect == sim.Bound || f.Effect == sim.Slow {
		f.For = max(long, time.Second)
	}
	return f
}

// drawTwists adds to a platform's script what platforms do beside: they refuse a launch and start it, or run the command of
// a worker that died once more (S3 and S11 of the platforms' facts). From a source of its own, as drawStale.
func (s *setup) drawTwists(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 8))
	if r.IntN(6) > 0 {
		return
	}
	p := &s.places[r.IntN(len(s.places))]
	p.script = append(p.script, pickOf(r,
		sim.Fault{Op: sim.OpLaunch, From: 1 + r.IntN(3), Effect: sim.Kept},
		sim.Fault{Op: sim.OpWorker, From: 1 + r.IntN(3), Effect: sim.Restart, Step: int64(r.IntN(8))}))
}

func pickOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// String says what was drawn.
func (s *setup) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d dispatchers, a look every %v; requests take up to %v; steps of %v, leases of %v (k %v, floor %v); faults until %v\n",
		map[bool]string{true: "real agents", false: "simple workers"}[s.agents], s.dispatchers, s.interval, s.latency, s.step, s.lease, s.k, s.floor, s.storm)
	fmt.Fprintf(&b, "of the store's requests %.0f %% go wrong%s; Git %.0f %%, platforms' answers %.0f %%; crash, pause, 403 of a dispatcher %v, of a worker %v\n",
		100*s.storeFaults, map[bool]string{true: ", above all: " + string(s.focus)}[s.focus != ""], 100*s.gitFaults, 100*s.callFaults, s.odds[aDispatcher], s.odds[aWorker])
	for _, j := range s.jobs {
		fmt.Fprintf(&b, "job %s: %d steps, a milestone every %d, on %v, needs %q, on_delete %s, wall %v, paid %.4f USD, then %q, in the team %v, on a card %v\n", j.name, j.steps, j.every, j.on, j.needs, j.onDelete, j.wall, j.paid, j.then, j.team, j.card)
	}
	for _, p := range s.places {
		fmt.Fprintf(&b, "platform %s: %d slots of %d places, capture %v, start %v, step %v, upload %v, notice %v, lists %v, paid until released %v, %g USD/h, card %q, %v of machine time each %v; %v\n", p.name, p.slots, p.capacity, p.capture, p.model.Start, p.model.Step, p.model.Upload, p.model.Notice, p.can, p.untilReleased, p.price, p.card, p.share, p.renews, p.script)
	}
	fmt.Fprintf(&b, "gc at %v keeps %d behind the pointer, and what is finished for %v; crash, pause, 403 %v\n", s.sweeps.at, s.sweeps.keep, s.sweeps.ended, s.odds[aCollector])
	if s.staleReads > 0 {
		fmt.Fprintf(&b, "of the reads of a lease %.0f %% are stale\n", 100*s.staleReads)
	}
	fmt.Fprintf(&b, "outages %v; clock jumps %v; commits %v; operator %v (deletes a witness: %v), reopens %v, launches %v; of the team %d at once, %d observations each\n",
		s.outages, s.jumps, s.commits, s.verbs, s.deletes, s.reopens, s.demands, s.team, s.taught)
	return b.String()
}
