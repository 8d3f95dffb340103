package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile"
	rung "github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// usual teaches a book what a platform gives a family on a T4: so many hours for the whole of worth FLOPs, and a start of
// two seconds.
func usual(rec *reconcile.Reconciler, platform, family string, worth, hours float64) {
	for i := range 4 {
		rec.Teach(record.Observation{Protocol: 1, Platform: platform, GPU: "nvidia-t4", Mode: "fp16", GPUs: 1, Peak: 65e12, Family: family,
			Work: record.Hash(fmt.Append(nil, family, i)), Dispatch: 1, Attempt: 1, Class: "finished", Runner: "sim", Captured: true, CaptureS: 2, StartS: 2, FirstStepS: 1,
			PaidS: hours * 3600, StepKeptS: hours*3600 - 4, WorkKept: worth, Time: "2000-01-01T00:00:00Z"})
	}
}

const worth = 1e15 // FLOPs of onT4's job

// onT4 is a job of many steps of a second on a ladder of two rungs.
func onT4(steps int64) func(*plan.Job) {
	return func(j *plan.Job) {
		j.On, j.GPU = []string{"here", "there"}, plan.GPU{Any: []string{"T4"}, Count: 1, DType: "fp16"}
		j.FLOPs = flops.Work{Total: worth, PerStep: worth / float64(steps), Steps: steps}
		j.Milestones = plan.Milestones{Steps: 20}
	}
}

// cards gives both platforms of a rig the same card.
func (r *rig) cards() {
	for name, p := range r.conf.Platforms {
		p.GPU = []string{"T4"}
		r.conf.Platforms[name] = p
	}
}

// climbRig is a rig whose first platform is used up for so long, and a second one.
func climbRig(t *testing.T, script string, steps int64) (*rig, *sim.Runner) {
	r := newRig(t, rigConfig{slots: 1, script: script, model: sim.Model{Step: time.Second, Steps: steps}})
	faults, err := sim.ParseScript("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Platform: "there", Slots: 2, Price: 1, Bucket: r.store, Script: faults, Model: sim.Model{Step: time.Second, Steps: steps}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: 2}
	r.cards()
	return r, s
}

func TestItMovesBackUpWhenABetterRungFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "launch 1 quota 20m", 2000)
		j := job("a", onT4(2000))
		rec := r.reconciler(both(there, r))
		usual(rec, "here", "a", worth, 0.1)
		usual(rec, "there", "a", worth, 0.2)
		said := false
		r.until(rec, r.desired("c1", j), 2*time.Hour, func(rep *reconcile.Report) bool {
			said = said || strings.Contains(rep.States[j.Work].Reason, "it leaves for here behind its next milestone")
			return allFinished(rep)
		})
		r.wholeResult(j.Work, 2000)
		if h, th := r.sim.Meter().Started, there.Meter().Started; h != 1 || th != 1 || r.acts(reconcile.Move) != 1 || !said {
			t.Errorf("%d workers here, %d there, %d moves, told before: %v; want one of each", h, th, r.acts(reconcile.Move), said)
		}
		e := r.explain(r.reconciler(both(there, r)), j)
		if e.Spent != 0 || len(e.Lines) < 3 {
			t.Fatalf("%d retries spent; %+v", e.Spent, e.Lines)
		}
		for _, l := range e.Lines {
			// It left right behind a milestone: what it lost is less than the twenty steps to the next.
			if l.Platform == "there" && (l.Class != "moved" || l.Spent || l.Lost >= 20 || l.Kept == 0) {
				t.Errorf("the attempt that left: %+v", l)
			}
		}
	})
}

// The same without a gain: a rung that is no faster is not worth a restart, and near its end no job is.
func TestItStaysWhereAMoveGainsTooLittle(t *testing.T) {
	for name, c := range map[string]struct {
		park        string
		here, there float64 // hours
	}{
		"no faster":       {"10m", 0.2, 0.2},
		"near its end":    {"1995s", 0.1, 0.2},
		"nothing is told": {"10m", 0, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, there := climbRig(t, "launch 1 quota "+c.park, 2000)
				j := job("a", onT4(2000))
				rec := r.reconciler(both(there, r))
				for p, h := range map[string]float64{"here": c.here, "there": c.there} {
					if h > 0 {
						usual(rec, p, "a", worth, h)
					}
				}
				r.until(rec, r.desired("c1", j), 2*time.Hour, allFinished)
				if h, th := r.sim.Meter().Started, there.Meter().Started; h != 0 || th != 1 || r.acts(reconcile.Move) != 0 {
					t.Errorf("%d workers here, %d there, %d moves; want it to stay", h, th, r.acts(reconcile.Move))
				}
			})
		})
	}
}

// What drove a work down keeps it down: a rung where it spent a retry is no better one, however fast it is.
func TestASpentRungIsNotClimbedBackTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "worker 1..2 die 5", 600)
		j := job("a", onT4(600))
		rec := r.reconciler(both(there, r))
		usual(rec, "here", "a", worth, 0.01)
		usual(rec, "there", "a", worth, 0.2)
		r.until(rec, r.desired("c1", j), 2*time.Hour, allFinished)
		if h, th := r.sim.Meter().Started, there.Meter().Started; h != 2 || th != 1 || r.acts(reconcile.Move) != 0 {
			t.Errorf("%d workers here, %d there, %d moves; want 2, 1 and none", h, th, r.acts(reconcile.Move))
		}
	})
}

// One place frees and three would have it: one moves, the others stay where they run.
func TestOnlyAsManyMoveAsThereArePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "launch 1 quota 20m", 2000)
		r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: 2, GPU: []string{"T4"}}
		a, b := job("a", onT4(2000)), job("b", onT4(2000))
		rec := r.reconciler(both(there, r))
		for _, family := range []string{"a", "b"} {
			usual(rec, "here", family, worth, 0.1)
			usual(rec, "there", family, worth, 0.2)
		}
		both := 0
		r.until(rec, r.desired("c1", a, b), 2*time.Hour, func(rep *reconcile.Report) bool {
			wish := func(j plan.Job) bool {
				return strings.Contains(rep.States[j.Work].Reason, "it leaves for here")
			}
			if wish(a) && wish(b) {
				both++
			}
			return allFinished(rep)
		})
		if both > 0 {
			t.Errorf("in %d passes both would leave for one place", both)
		}
		for _, j := range []plan.Job{a, b} {
			r.wholeResult(j.Work, 2000)
		}
		if h, th := r.sim.Meter().Started, there.Meter().Started; h != 1 || th != 2 {
			t.Errorf("%d workers here and %d there, want 1 and 2", h, th)
		}
	})
}

// The weekly quota is used up on a Wednesday and resets on Saturday, 84 hours later: it is parked until then, and what a
// job does meanwhile goes by cost.
func TestAQuotaUsedUpOnWednesday(t *testing.T) {
	for name, c := range map[string]struct {
		here, there float64 // hours that the job takes
		to          string
	}{
		"a job of a day moves on":                 {20, 24, "there"},
		"one that takes a month elsewhere waits":  {300, 800, "here"},
		"not for a rung that is as slow as there": {800, 800, "there"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, there := climbRig(t, "launch 1 quota 84h", 100)
				j := job("a", onT4(100))
				rec := r.reconciler(both(there, r))
				usual(rec, "here", "a", worth, c.here)
				usual(rec, "there", "a", worth, c.there)
				start := time.Now()
				d := r.desired("c1", j)
				r.pass(rec, d)
				var park struct {
					ParkS float64 `json:"park_s"`
				}
				if err := record.Decode([]byte(r.read(record.PlatformKey("here"))), record.MaxRecord, &park); err != nil || park.ParkS < 83.9*3600 || park.ParkS > 84.1*3600 {
					t.Errorf("parked for %v s: %v, want 84 h", park.ParkS, err)
				}
				rep := r.pass(rec, d)
				if s := rep.States[j.Work]; c.to == "here" && !strings.Contains(s.Reason, "waits for here (parked: ") {
					t.Errorf("state %v, want the wait", s)
				}
				r.until(rec, d, 100*time.Hour, allFinished)
				h, th := r.sim.Meter().Started, there.Meter().Started
				if c.to == "there" && (h != 0 || th != 1) || c.to == "here" && (h != 1 || th != 0 || time.Since(start) < 84*time.Hour) {
					t.Errorf("%d workers here and %d there after %s, want it on %s", h, th, time.Since(start), c.to)
				}
				if e := r.explain(r.reconciler(both(there, r)), j); e.Spent != 0 {
					t.Errorf("%d retries spent on a quota", e.Spent)
				}
			})
		})
	}
}

// Where all places are taken, a work that comes counts the steps that those who run still have to do.
func TestAFullRungIsWaitedForByWhatItsWorksStillTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "", 600)
		first, second := job("a", onT4(600)), job("b", onT4(600))
		first.Priority = 5
		rec := r.reconciler(both(there, r))
		usual(rec, "here", "b", worth, 1)
		usual(rec, "there", "b", worth, 8)
		r.pass(rec, r.desired("c1", first))
		<-time.After(30 * time.Second)
		r.pass(rec, r.desired("c1", first))
		rep := r.pass(rec, r.desired("c2", first, second))
		for _, a := range rep.Actions {
			if a.Work == second.Work && (a.Kind != reconcile.Wait || !strings.Contains(rung.Text(a.Rungs), "all 1 slot is taken, one is expected in 9 min")) {
				t.Errorf("%s: %s; %s", a.Kind, a.Reason, rung.Text(a.Rungs))
			}
		}
		r.until(rec, r.desired("c2", first, second), time.Hour, allFinished)
		if h, th := r.sim.Meter().Started, there.Meter().Started; h != 2 || th != 0 {
			t.Errorf("%d workers here and %d there, want both here, one behind the other", h, th)
		}
	})
}

// What is wished is kept in memory alone: a process that sees one milestone lets nobody leave.
func TestAMoveIsForgottenByANewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, there := climbRig(t, "launch 1 quota 20m", 2000)
		j := job("a", onT4(2000))
		d := r.desired("c1", j)
		for start := time.Now(); ; {
			rec := r.reconciler(both(there, r)) // every pass another process
			usual(rec, "here", "a", worth, 0.1)
			usual(rec, "there", "a", worth, 0.2)
			rep := r.pass(rec, d)
			if allFinished(rep) {
				break
			}
			if time.Since(start) > 2*time.Hour {
				t.Fatalf("not done: %v", rep.States)
			}
			<-time.After(rep.Next)
		}
		if r.acts(reconcile.Move) != 0 || r.lease(j.Work).State != witness.Finished {
			t.Error("a process that saw one milestone alone let its work leave")
		}
	})
}
