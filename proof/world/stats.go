package world

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/proof/model"
	"github.com/headway-run/headway/runners/sim"
)

// Stats is what one run or many amounted to.
type Stats struct {
	Seeds    int64
	Virtual  time.Duration // of the bubbles' clocks
	Wanted   time.Duration // sum over works: from the commit that first named one to its end, or to the run's
	Worked   time.Duration // sum over machines: from their start to their worker's end
	Requests int64         // of every actor, to the store, to platforms, to Git
	Entries  int64         // of the histories
	Faults   map[Fault]int64
	Reached  map[string]int64

	// What the model's followers saw: its actions, and writes that are in none of them.
	Taken   map[string]int64
	Outside map[string]int64
}

func newStats() Stats {
	return Stats{Faults: map[Fault]int64{}, Reached: map[string]int64{}, Taken: map[string]int64{}, Outside: map[string]int64{}}
}

// Add sums up.
func (s *Stats) Add(o Stats) {
	s.Seeds += o.Seeds
	s.Virtual += o.Virtual
	s.Wanted += o.Wanted
	s.Worked += o.Worked
	s.Requests += o.Requests
	s.Entries += o.Entries
	for k, v := range o.Faults {
		s.Faults[k] += v
	}
	for k, v := range o.Reached {
		s.Reached[k] += v
	}
	for k, v := range o.Taken {
		s.Taken[k] += v
	}
	for k, v := range o.Outside {
		s.Outside[k] += v
	}
}

// count fills in what is known at the end of a run.
func (w *World) count() {
	s := &w.stats
	s.Seeds, s.Virtual, s.Entries = 1, w.now(), int64(len(w.hist))
	for _, ws := range w.works {
		end := ws.done
		if end == 0 {
			end = s.Virtual
		}
		s.Wanted += max(end-ws.first, 0)
	}
	w.covered()
	for _, p := range w.places {
		m := p.sim.Meter()
		for e, n := range m.Fired {
			n -= m.Workers[e]
			s.Faults[Fault("platform: "+string(e))] += int64(n)
		}
		for e, n := range m.Workers {
			s.Faults[Fault("worker: "+string(e))] += int64(n)
		}
		for _, n := range p.ran {
			s.Reached["a command was run once more"] += int64(n - 1)
		}
		dispatches, machines := map[string]int{}, map[int]int{}
		for _, in := range p.sim.Truth() {
			s.Worked += in.Worked
			if in.Attempt > 0 && w.s.agents {
				s.Reached["a real agent captured"]++
			}
			if in.Attempt > 0 {
				dispatches[fmt.Sprint(in.Work, in.Dispatch)]++
				machines[in.Machine]++
			}
		}
		for _, n := range machines {
			if n > 1 {
				s.Reached["jobs of one launch captured"]++
			}
		}
		for _, n := range dispatches {
			if n > 1 {
				s.Reached["two workers of one dispatch captured"]++
			}
		}
	}
}

// covered adds what the model's followers saw.
func (w *World) covered() {
	if w.follow == nil {
		return
	}
	c := w.follow.Coverage()
	for k, n := range c.Taken {
		w.stats.Taken[k.String()] += int64(n)
	}
	for k, n := range c.Outside {
		w.stats.Outside[k] += int64(n)
	}
}

// Print writes the figures for people.
func (s *Stats) Print(out io.Writer) {
	fmt.Fprintf(out, "seeds %d · job hours %.0f (machines worked %.0f) · virtual hours %.0f · requests %d · history entries %d\n",
		s.Seeds, s.Wanted.Hours(), s.Worked.Hours(), s.Virtual.Hours(), s.Requests, s.Entries)
	fmt.Fprintf(out, "faults %d (people's commits among them)\n", s.Struck())
	for _, k := range model.Kinds() {
		fmt.Fprintf(out, "  the model's %-39s %d\n", k, s.Taken[k.String()])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Outside)) {
		fmt.Fprintf(out, "  outside the model: %-32s %d\n", k, s.Outside[k])
	}
	for _, f := range slices.Sorted(maps.Keys(s.Faults)) {
		fmt.Fprintf(out, "  fault    %-40s %d\n", f, s.Faults[f])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Reached)) {
		fmt.Fprintf(out, "  reached  %-40s %d\n", k, s.Reached[k])
	}
}

// Struck is the sum of all faults.
func (s *Stats) Struck() (n int64) {
	for _, k := range s.Faults {
		n += k
	}
	return n
}

// Untaken lists the model's actions that no write took. A repair is a person's with tools of his own, after a witness was
// lost: nobody in these worlds makes one (proof/model's own tests do).
func (s *Stats) Untaken() (out []string) {
	for _, k := range model.Kinds() {
		if s.Taken[k.String()] == 0 && k != model.Repair {
			out = append(out, k.String())
		}
	}
	return out
}

// Missing lists what a large number of seeds must have met, and has not.
func (s *Stats) Missing() []string {
	var out []string
	for _, f := range mustStrike() {
		if s.Faults[f] == 0 {
			out = append(out, "the fault "+string(f))
		}
	}
	for _, k := range mustReach() {
		if s.Reached[k] == 0 {
			out = append(out, k)
		}
	}
	return out
}

func mustStrike() []Fault {
	list := []Fault{LostBefore, LostAfter, LandsLater, LandsAfterDeath, Twice, HeldLong, Raced, Broke, SlowDown, Forbidden, StaleList, StaleRead, HalfBody,
		HalfUpload, Outage, ClockJump, CrashDispatcher, CrashWorker, CrashOperator, CrashCollector, PauseDispatcher, PauseWorker, PauseOperator, PauseCollector, MetItself, MetItsTwin, Restart, CallLost,
		GitAway, GitOld, GitHangs, PersonDel, CrashDraining, CrashHalting, CrashLeaving, CrashMoving}
	for _, e := range []sim.Effect{sim.Delay, sim.Hang, sim.Drop, sim.Lost, sim.Twice, sim.Late, sim.NoStart, sim.NoSlots, sim.Kept, sim.Quota, sim.Reject,
		sim.Foreign, sim.Garbage, sim.NilHandle, sim.Panic, sim.NotYet, sim.Bound, sim.Hide} {
		list = append(list, Fault("platform: "+string(e)))
	}
	for _, e := range []sim.Effect{sim.Die, sim.Restart, sim.Hang, sim.Mute, sim.Fail, sim.Slow} {
		list = append(list, Fault("worker: "+string(e)))
	}
	for _, c := range []string{"another program", "a job less", "a job more", "as it was before", "another placement", "a job is suspended, or not any more",
		"a plan file is broken", "headway.yaml is broken", "no jobs at all", "history is rewritten", "the branch goes back", "another on_delete"} {
		list = append(list, Fault("commit: "+c))
	}
	return list
}

func mustReach() []string {
	return []string{"a launch of several jobs", "jobs of one launch captured", "lease held", "lease yielded", "lease revoked", "lease finished", "lease stopped", "captured again", "resumed", "attempt 4 and more",
		"did launch", "did write_off", "did stop", "did release", "operator: revoke", "operator: stop", "operator: release",
		"failure no_slots", "failure quota_exhausted", "failure spawned_elsewhere", "failure unreachable", "failure rejected", "failure protocol_error",
		"refused NotFresh", "refused PlanErrors", "refused EmptyPlan", "refused HistoryRewritten", "refused WentBack",
		"a platform was closed and opened again", "a real agent captured", "a command was run once more", "an orphan was named", "did move", "captured after a move", "halted: limits.wall", "halted: limits.paid", "a limit drains", "a work leaves for a better rung", "waits for limits.parallel",
		"a policy matched: stop", "a policy matched: exclude", "a quota was used up", "an observation was written", "statistics were folded",
		"operator: reopen", "operator: launch", "what still runs was asked at the end",
		"gc went through", "gc: two at once", "gc deleted unnamed", "gc deleted behind", "gc deleted partial", "gc deleted finished", "gc deleted launches"}
}
