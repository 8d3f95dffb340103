package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// long is a model of 19 hours.
func long() sim.Model { return sim.Model{Step: time.Minute, Steps: 19 * 60, Milestone: 30} }

func slow(j *plan.Job) {
	j.FLOPs.Steps, j.Milestones.Steps = 19*60, 30
}

// 25 polls that fail at random over 19 hours relaunched one healthy job 24 times elsewhere; here: never.
func TestPollsThatFailRelaunchNothing(t *testing.T) {
	for _, shape := range []struct {
		name string
		rule faulty.Rule
	}{
		{"listing and reading fail", faulty.Rule{Effect: faulty.Refuse, Code: bucket.Unknown, Probability: 0.01, Times: 25}},
		{"answers are slow to come", faulty.Rule{Effect: faulty.Slow, Delay: 45 * time.Second, Probability: 0.01, Times: 25}},
		{"answers are cut short", faulty.Rule{Op: "get", Effect: faulty.Truncate, Probability: 0.02, Times: 25}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{model: long()})
				shaky := faulty.New(r.store, 7, shape.rule)
				rec, j := r.reconciler(func(c *reconcile.Config) { c.Bucket = shaky }), job("a", slow)
				d := r.desired("c1", j)
				for start := time.Now(); time.Since(start) < 20*time.Hour; {
					next := 5 * time.Second
					if rep, err := rec.Pass(t.Context(), d); err == nil {
						next = rep.Next
					}
					<-time.After(next)
				}
				r.wholeResult(j.Work, 19*60)
				if n := r.sim.Meter().Started; n != 1 {
					t.Errorf("%d launches, want 1", n)
				}
				if rules := shaky.Unfired(); len(rules) > 0 {
					t.Fatalf("faults that never struck: %v", rules)
				}
			})
		})
	}
}

// An outage of the store looks exactly like the death of all workers.
func TestAnOutageOfTheStoreWritesNothingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newRig(t, rigConfig{})
		shaky := faulty.New(base.store, 1)
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second, Steps: 3000, Milestone: 50}, store: shaky})
		r.store = base.store
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = shaky })
		d := r.desired("c1", numbered(20, func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps = 3000, 50 })...)
		r.until(rec, d, time.Minute, func(rep *reconcile.Report) bool {
			for _, s := range rep.States {
				if s.State != plan.StateHeld {
					return false
				}
			}
			return true
		})
		shaky.Add(faulty.Rule{Name: "outage", Effect: faulty.Refuse, Code: bucket.Unknown})
		for range 120 {
			if _, err := rec.Pass(t.Context(), d); err == nil {
				t.Fatal("a pass decided something without a store")
			}
			<-time.After(5 * time.Second)
		}
		shaky.Clear()
		r.until(rec, d, 2*time.Hour, allFinished)
		if n := r.acts(reconcile.WriteOff); n != 0 || r.sim.Meter().Started != 20 {
			t.Errorf("%d write-offs and %d launches after an outage, want 0 and 20", n, r.sim.Meter().Started)
		}
	})
}

func TestLostAnswersOfLaunchesMakeNoTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var script strings.Builder
		for i := 1; i < 60; i++ {
			if i%10 < 3 {
				fmt.Fprintf(&script, "launch %d lost\n", i)
			}
		}
		r := newRig(t, rigConfig{slots: 40, script: script.String()})
		rec, jobs := r.reconciler(nil), numbered(30)
		r.until(rec, r.desired("c1", jobs...), 3*time.Hour, allFinished)
		for _, j := range jobs {
			r.wholeResult(j.Work, 100)
			if got := r.lease(j.Work).Attempt; got != 1 {
				t.Errorf("%s finished by attempt %d, want 1: a lost answer is no lost launch", j.Name, got)
			}
		}
		m := r.sim.Meter()
		if m.Fired[sim.Lost] == 0 {
			t.Fatal("no answer was lost")
		}
		if m.Started != 30 || m.Live != 0 {
			t.Errorf("the platform started %d and still runs %d, want 30 and 0", m.Started, m.Live)
		}
	})
}

func TestFinishedWhileAwayIsNotLaunchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		j := job("a")
		d := r.desired("c1", j)
		r.pass(r.reconciler(nil), d)
		<-time.After(3 * time.Hour)
		rep := r.pass(r.reconciler(nil), d) // another process: it knows nothing but the store
		if rep.States[j.Work].State != plan.StateFinished || r.sim.Meter().Started != 1 {
			t.Errorf("state %v after %d launches", rep.States[j.Work], r.sim.Meter().Started)
		}
	})
}

// gated is a runner or a bucket that stops the world at one call, as a paused process does.
type gated struct {
	bucket.Bucket
	mu     sync.Mutex
	match  func(op, key string) bool
	pause  time.Duration
	paused int
}

func (g *gated) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	g.mu.Lock()
	hit := g.match("put", key)
	if hit {
		g.paused++
	}
	g.mu.Unlock()
	if hit {
		<-time.After(g.pause)
	}
	return g.Bucket.Put(ctx, key, body, c)
}

// A reconciler that sleeps for an hour between its decision and its claim has lost that claim when it wakes: it asks
// no platform, and spends nothing.
func TestAReconcilerThatWakesLateStandsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Steps: 1000, Milestone: 100}})
		j := job("a", func(j *plan.Job) { j.FLOPs.Steps = 20000 })
		d := r.desired("c1", j)
		once := true
		g := &gated{Bucket: r.store, pause: time.Hour, match: func(_, key string) bool {
			hit := once && key == record.ClaimKey(string(j.Work), 1)
			once = once && !hit
			return hit
		}}
		late := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.ID = g, "late" })
		done := make(chan *reconcile.Report)
		go func() {
			rep, err := late.Pass(t.Context(), d)
			if err != nil {
				t.Error(err)
			}
			done <- rep
		}()
		<-time.After(time.Second)
		r.until(r.reconciler(nil), d, 50*time.Minute, allFinished)
		first := <-done
		late.Wait()
		rep := r.pass(late, d)
		if g.paused != 1 {
			t.Fatal("it was not paused")
		}
		if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 1 {
			t.Errorf("the platform was called %d times, want 1", n)
		}
		for _, a := range append(first.Actions, rep.Actions...) {
			if a.Kind == reconcile.Launch && a.Done {
				t.Errorf("it launched: %+v", a)
			}
		}
		if rep.States[j.Work].State != plan.StateFinished || r.claims(j.Work) != 1 {
			t.Errorf("state %v, %d claims", rep.States[j.Work], r.claims(j.Work))
		}
	})
}

func TestTwoReconcilersShareOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 100, script: "worker 3 die 30\nworker 9 die 0\nworker 20..25 die 55"})
		jobs := numbered(40)
		d := r.desired("c1", jobs...)
		var wg sync.WaitGroup
		for _, id := range []string{"one", "two"} {
			rec := r.reconciler(func(c *reconcile.Config) { c.ID = id })
			wg.Go(func() {
				for start := time.Now(); time.Since(start) < 3*time.Hour; {
					rep, err := rec.Pass(t.Context(), d)
					if err != nil {
						t.Error(err)
						return
					}
					if allFinished(rep) {
						return
					}
					<-time.After(rep.Next)
				}
				t.Errorf("%s is not done", id)
			})
		}
		wg.Wait()
		spent := 0
		rec := r.reconciler(nil)
		for _, j := range jobs {
			r.wholeResult(j.Work, 100)
			spent += r.explain(rec, j).Spent
		}
		m := r.sim.Meter()
		if want := len(jobs) + m.Fired[sim.Die]; m.Started != want {
			t.Errorf("%d launches for %d jobs and %d deaths, want %d", m.Started, len(jobs), m.Fired[sim.Die], want)
		}
		if spent != 0 {
			t.Errorf("%d retries spent; every attempt that captured came further, and a lost claim costs nothing", spent)
		}
		if m.Live != 0 {
			t.Errorf("%d instances still run", m.Live)
		}
	})
}

// Half of all machines die in one second, as when a spot market turns: the brake holds, looks again, and lets go.
func TestAMassDeathIsWrittenOffAfterASecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40, script: "worker 1..10 die 47", model: sim.Model{Step: time.Second}})
		jobs := numbered(20)
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		braked := false
		start := time.Now()
		r.until(rec, d, time.Hour, func(rep *reconcile.Report) bool {
			for _, s := range rep.States {
				braked = braked || strings.Contains(s.Reason, "an outage of the store looks like this")
			}
			return allFinished(rep)
		})
		if !braked {
			t.Error("ten of twenty went silent at once, and the brake did not hold")
		}
		if n := r.acts(reconcile.WriteOff); n != 10 {
			t.Errorf("%d write-offs, want 10", n)
		}
		if took := time.Since(start); took > 10*time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// Two reconcilers, a store that loses, refuses and delays, workers that die: whatever happens, every work finishes,
// no attempt has two holders, and no dispatch number goes to a platform twice.
func TestShakyStoreAndTwoReconcilers(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shaky(t, seed) })
		})
	}
}

func shaky(t *testing.T, seed uint64) {
	r := newRig(t, rigConfig{slots: 60, script: "worker 2 die 33\nworker 7 hang 18\nlaunch 5 lost\nlaunch 9 twice\nlaunch 11 no_start"})
	jobs := numbered(15, func(j *plan.Job) { j.Limits.Retries = 20 })
	d := r.desired("c1", jobs...)
	var wg sync.WaitGroup
	for _, id := range []string{"one", "two"} {
		store := faulty.New(r.store, seed,
			faulty.Rule{Op: "put", Effect: faulty.Lose, Probability: 0.05},
			faulty.Rule{Op: "put", Effect: faulty.Refuse, Code: bucket.Unknown, Probability: 0.03},
			faulty.Rule{Op: "put", Effect: faulty.Refuse, Code: bucket.Raced, Probability: 0.03},
			faulty.Rule{Op: "get", Effect: faulty.Refuse, Code: bucket.Throttled, Probability: 0.01},
			faulty.Rule{Effect: faulty.Slow, Delay: 3 * time.Second, Probability: 0.02})
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.ID = store, id })
		wg.Go(func() {
			for start := time.Now(); time.Since(start) < 12*time.Hour; {
				next := 5 * time.Second
				rep, err := rec.Pass(t.Context(), d)
				if err == nil {
					next = rep.Next
				}
				if err == nil && allFinished(rep) {
					return
				}
				<-time.After(next)
			}
			t.Errorf("%s is not done", id)
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, in := range r.sim.Truth() {
		if in.Attempt > 0 {
			seen[fmt.Sprintf("%s attempt %d", in.Work[:12], in.Attempt)]++
		}
	}
	for what, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d instances", what, n)
		}
	}
	for _, j := range jobs {
		r.wholeResult(j.Work, 100)
	}
}

// renewing renews a lease just before it is read for the n-th time.
type renewing struct {
	bucket.Bucket
	key   string
	n     int
	renew func()
}

func (r *renewing) Get(ctx context.Context, key string, rg bucket.Range) (*bucket.Object, error) {
	if key == r.key {
		if r.n--; r.n == 0 {
			r.renew()
		}
	}
	return r.Bucket.Get(ctx, key, rg)
}

// A lease that is renewed between the judgement and the write-off is not written off.
func TestARenewalInTheLastMomentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1 no_start"})
		j := job("a")
		d := r.desired("c1", j)
		key := record.WitnessKey(string(j.Work))
		re := &renewing{Bucket: r.store, key: key}
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = re })
		r.pass(rec, d)
		lease := witness.LeaseFor(0, time.Second, 0)
		h, err := witness.Capture(t.Context(), r.store, witness.CaptureRequest{Work: string(j.Work), Dispatch: 1, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		if v := h.Open(t.Context(), record.Open{Platform: "here"}); v.Outcome != witness.Won {
			t.Fatal(v)
		}
		for range 30 {
			r.pass(rec, d)
			<-time.After(5 * time.Second)
			re.n, re.renew = 2, func() { h.Renew(t.Context(), witness.Progress{Step: 1}, lease) }
		}
		if n := r.acts(reconcile.WriteOff); n != 0 || r.lease(j.Work).State != witness.Held {
			t.Errorf("%d write-offs; lease %+v", n, r.lease(j.Work))
		}
		tried := 0
		for _, a := range r.seen {
			if a.Kind == reconcile.WriteOff && strings.Contains(a.Result, "changed since") {
				tried++
			}
		}
		if tried == 0 {
			t.Error("it was never judged silent")
		}
	})
}
