package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// second adds a platform "there" to a rig.
func (r *rig) second(script string, slots int) *sim.Runner {
	r.t.Helper()
	faults, err := sim.ParseScript(script)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Platform: "there", Slots: slots, Bucket: r.store, Script: faults})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: slots}
	return s
}

func both(s *sim.Runner, r *rig) func(*reconcile.Config) {
	return func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": r.sim, "there": s} }
}

func ladder(names ...string) func(*plan.Job) { return func(j *plan.Job) { j.On = names } }

func TestOutcomesOfAJob(t *testing.T) {
	for _, c := range []struct {
		name     string
		script   string
		retries  int
		state    string
		launches int // calls of the platform
		spent    int
		reason   string
	}{
		{"no slots costs nothing", "launch 1..4 no_slots", 0, plan.StateFinished, 5, 0, ""},
		{"a quota is waited for", "launch 1 quota 2h", 0, plan.StateFinished, 2, 0, ""},
		{"unreachable, and nothing started", "launch 1..3 drop", 1, plan.StateFinished, 4, 0, ""},
		{"says yes and starts nothing", "launch 1 no_start", 1, plan.StateFinished, 2, 0, ""},
		{"says yes and starts nothing, for ever", "launch * no_start", 1, plan.StateFailed, 6, 2, "limits.retries is 1"},
		{"refused", "launch 1..2 reject", 5, plan.StateFinished, 3, 2, ""},
		{"refused for ever", "launch * reject", 2, plan.StateFailed, 3, 3, "limits.retries is 2"},
		// With retries: 0 nothing follows a launch that may have happened; with one left these spend none of it.
		{"refused, and retries: 0", "launch 1 reject", 0, plan.StateFailed, 1, 1, "limits.retries is 0"},
		{"the program fails, and retries: 0", "worker 1 fail 35", 0, plan.StateFailed, 1, 0, "limits.retries is 0"},
		{"the program fails twice in one way", "worker * fail 35", 5, plan.StateFailed, 2, 1, "in the same way"},
		{"the program fails here and there", "worker 1 fail 35; worker 2 fail 65", 5, plan.StateFinished, 3, 0, ""},
		// The first death is too short to be judged; from the second in a row on each costs one (science.md §3.2).
		{"dies without coming further", "worker 1..3 die 5", 5, plan.StateFinished, 4, 2, ""},
		{"dies without coming further, for ever", "worker * die 5", 2, plan.StateFailed, 4, 3, "limits.retries is 2"},
		// Each keeps one second's work of 17 paid ones: little enough to cost a retry, once enough was paid to judge (it was free before).
		{"comes further each time, by too little", "worker 1 die 15; worker 2 die 25; worker 3 die 35; worker 4 die 45", 5, plan.StateFinished, 5, 1, ""},
		{"comes further twice", "worker 1 die 15; worker 2 die 25", 1, plan.StateFinished, 3, 0, ""},
		{"hangs", "worker 1 hang 55", 1, plan.StateFinished, 2, 0, ""},
		{"starts twice", "launch 1 twice", 0, plan.StateFinished, 1, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 4, script: c.script})
				j := job("a", func(j *plan.Job) { j.Limits.Retries = c.retries })
				rec := r.reconciler(nil)
				rep := r.until(rec, r.desired("c1", j), 6*time.Hour, stateIs(j.Work, c.state))
				if s := rep.States[j.Work]; !strings.Contains(s.Reason, c.reason) {
					t.Errorf("reason %q, want %q in it", s.Reason, c.reason)
				}
				e := r.explain(r.reconciler(nil), j)
				if e.Spent != c.spent || e.State != c.state {
					t.Errorf("explain: %d spent, state %s, want %d and %s; %+v", e.Spent, e.State, c.spent, c.state, e.Lines)
				}
				if n := r.sim.Meter().Calls[sim.OpLaunch]; n != c.launches {
					t.Errorf("%d launches, want %d", n, c.launches)
				}
				if c.state == plan.StateFinished {
					r.wholeResult(j.Work, 100)
				}
			})
		})
	}
}

// A hung worker keeps its slot until it is released; the successor needs that slot.
func TestAHungWorkerIsReleasedBeforeItsSuccessorStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 hang 55\nrelease 1 not_yet"})
		r.conf.Platforms["here"] = plan.Platform{Name: "here", Runner: "sim"} // slots are the platform's own affair
		j := job("a")
		r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
		m := r.sim.Meter()
		if m.Fired[sim.NotYet] != 1 || m.Calls[sim.OpRelease] != 2 || m.Live != 0 {
			t.Errorf("meter %+v: want a release that is asked again, and nothing left", m)
		}
	})
}

func TestTheLadder(t *testing.T) {
	for _, c := range []struct {
		name, here string
		here1      int // launches there and here
		there      int
	}{
		{"the first rung, when it has room", "", 1, 0},
		{"the next one, when the first is full", "launch 1 no_slots", 1, 1},
		{"the next one, when the first refuses", "launch 1 reject", 1, 1},
		{"the next one, when the first makes no sense", "launch 1 panic", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{script: c.here})
				s := r.second("", 2)
				j := job("a", ladder("here", "there"))
				r.until(r.reconciler(both(s, r)), r.desired("c1", j), time.Hour, allFinished)
				if h, th := r.sim.Meter().Calls[sim.OpLaunch], s.Meter().Calls[sim.OpLaunch]; h != c.here1 || th != c.there {
					t.Errorf("%d launches here and %d there, want %d and %d", h, th, c.here1, c.there)
				}
			})
		})
	}
}

// Nonsense closes a platform for all works and all processes, until a person has changed its configuration.
func TestAPlatformThatMakesNoSenseIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, script: "launch 1 garbage"})
		a, b := job("a"), job("b")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		r.until(r.reconciler(nil), r.desired("c1", a, b), time.Hour, stateIs(a.Work, plan.StateFinished)) // it did start
		for range 50 {
			rep := r.pass(rec, r.desired("c1", a, b))
			if s := rep.States[b.Work]; s.State != plan.StateAbsent || !strings.Contains(s.Reason, "made no sense") {
				t.Fatalf("b is %v", s)
			}
			<-time.After(rep.Next)
		}
		p := r.conf.Platforms["here"]
		p.Options = map[string]string{"account": "another"}
		r.conf.Platforms = map[string]plan.Platform{"here": p}
		r.until(rec, r.desired("c2", a, b), time.Hour, allFinished)
	})
}

func TestNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 9, script: "worker 3 fail 5\nworker 5..9 fail 5"})
		needs := func(of ...plan.Job) func(*plan.Job) {
			return func(j *plan.Job) {
				for _, o := range of {
					j.Inputs = append(j.Inputs, plan.Input{Job: o.Name, Work: o.Work})
				}
			}
		}
		a, b := job("a"), job("b")
		bad := job("bad", func(j *plan.Job) { j.Limits.Retries = 0 })
		c := job("c", needs(a, b))
		d := job("d", needs(bad, a))
		e := job("e", needs(d))
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a, b))
		<-time.After(time.Millisecond)
		r.pass(rec, r.desired("c2", a, b, bad, c, d, e)) // bad gets the third worker
		if n := r.sim.Meter().Started; n != 3 {
			t.Fatalf("%d launches before any input has finished, want 3", n)
		}
		rep := r.until(rec, r.desired("c2", a, b, bad, c, d, e), time.Hour, func(rep *reconcile.Report) bool {
			return rep.States[c.Work].State == plan.StateFinished && rep.States[bad.Work].State == plan.StateFailed
		})
		for _, j := range []plan.Job{d, e} {
			if s := rep.States[j.Work]; s.State != plan.StateAbsent || !strings.Contains(s.Reason, "which failed") {
				t.Errorf("%s is %v", j.Name, s)
			}
		}
		if n := r.sim.Meter().Started; n != 4 {
			t.Errorf("%d launches, want 4", n)
		}
	})
}

func TestSuspendLaunchesNothingAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, script: "worker 1 die 47"})
		a, b := job("a"), job("b")
		rec := r.reconciler(nil)
		r.pass(rec, r.desired("c1", a))
		a.Suspend, b.Suspend = true, true
		for start := time.Now(); time.Since(start) < time.Hour; {
			rep := r.pass(rec, r.desired("c2", a, b))
			<-time.After(rep.Next)
		}
		if n := r.sim.Meter().Started; n != 1 || r.lease(a.Work).Resume.Step != 40 {
			t.Errorf("%d launches; %+v", n, r.lease(a.Work))
		}
		a.Suspend, b.Suspend = false, false
		r.until(rec, r.desired("c3", a, b), time.Hour, allFinished)
	})
}

func TestLimitsOnWhatRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 6})
		group := func(j *plan.Job) { j.Group, j.Limits.Parallel = "g", 2 }
		jobs := append(numbered(6, group), job("other"))
		most := 0
		r.until(r.reconciler(nil), r.desired("c1", jobs...), time.Hour, func(rep *reconcile.Report) bool {
			live := 0
			for _, in := range r.sim.Truth() {
				if in.Live && in.Work != string(jobs[6].Work) {
					live++
				}
			}
			most = max(most, live)
			return allFinished(rep)
		})
		if most != 2 {
			t.Errorf("%d of the group ran at once, want 2", most)
		}
		if n := r.sim.Meter().Fired[sim.NoSlots] + r.sim.Meter().Calls[sim.OpLaunch]; n != 7 {
			t.Errorf("%d launches, want 7", n)
		}
	})
}

// Slots are counted from the store: a fresh process asks for no more than there are, and no claim is wasted.
func TestSlotsAreCountedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3})
		jobs := numbered(12)
		d := r.desired("c1", jobs...)
		for {
			rep := r.pass(r.reconciler(nil), d) // every pass another process
			if allFinished(rep) {
				break
			}
			<-time.After(rep.Next + time.Millisecond) // a machine is gone a moment after its lease has ended
		}
		if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 12 {
			t.Errorf("%d launches, want 12", n)
		}
	})
}

func TestSecretsTravelAndAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		spy := &spyRunner{Runner: r.sim}
		j := job("a", func(j *plan.Job) { j.Secrets = []string{"API_KEY"} })
		blind := r.reconciler(nil)
		if s := r.pass(blind, r.desired("c1", j)).States[j.Work]; !strings.Contains(s.Reason, "API_KEY is not known here") {
			t.Errorf("without the secret: %v", s)
		}
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Runners = map[string]runners.Runner{"here": spy}
			c.Secrets = func(name string) (string, bool) { return "s3cr3t-value", name == "API_KEY" }
		})
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
		if spy.env["API_KEY"] != "s3cr3t-value" {
			t.Errorf("the launch got %v", spy.env)
		}
		page, err := r.store.List(t.Context(), "", "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			if strings.Contains(r.read(it.Key), "s3cr3t-value") {
				t.Errorf("%s holds the secret", it.Key)
			}
		}
	})
}

// spyRunner keeps what it was given.
type spyRunner struct {
	runners.Runner
	mu  sync.Mutex
	env map[string]string
}

func (s *spyRunner) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	s.mu.Lock()
	s.env = jobs[0].Env
	s.mu.Unlock()
	return s.Runner.Launch(ctx, jobs)
}

func (s *spyRunner) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	return s.Runner.Release(ctx, h)
}

func TestWhatIsBundledComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		j, calls := job("a"), 0
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bundle = func(context.Context, *plan.Job, string) error {
				if calls++; calls == 1 {
					return errors.New("no space left")
				}
				return nil
			}
		})
		rep := r.pass(rec, r.desired("c1", j))
		if r.claims(j.Work) != 0 || len(rep.Errors) != 1 || !strings.Contains(rep.Errors[0].Error(), "no space left") {
			t.Errorf("%d claims, errors %v", r.claims(j.Work), rep.Errors)
		}
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
	})
}

// A lease that can't be read, went back or vanished is Unknown: nothing is launched, stopped or written over it.
func TestADamagedLeaseIsLeftAlone(t *testing.T) {
	for name, damage := range map[string]func(r *rig, w plan.Digest) error{
		"garbage": func(r *rig, w plan.Digest) error {
			_, err := r.store.Put(r.t.Context(), record.WitnessKey(string(w)), strings.NewReader("{"), bucket.Always())
			return err
		},
		"deleted": func(r *rig, w plan.Digest) error { return r.store.Delete(r.t.Context(), record.WitnessKey(string(w))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: "worker 1 die 30"})
				j := job("a")
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", j))
				<-time.After(8 * time.Second)
				r.pass(rec, r.desired("c1", j))
				if err := damage(r, j.Work); err != nil {
					t.Fatal(err)
				}
				for _, again := range []*reconcile.Reconciler{rec, r.reconciler(nil)} {
					for range 20 {
						rep := r.pass(again, r.desired("c1", j))
						if rep.States[j.Work].State != plan.StateUnknown {
							t.Fatalf("state %v", rep.States[j.Work])
						}
						<-time.After(rep.Next)
					}
				}
				if n := r.sim.Meter().Started; n != 1 {
					t.Errorf("%d launches, want 1", n)
				}
				if _, err := witness.Read(t.Context(), r.store, string(j.Work)); err == nil {
					t.Error("the damaged lease was mended by itself")
				}
			})
		})
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1})
		low, high := job("a"), job("b", func(j *plan.Job) { j.Priority = 5 })
		r.until(r.reconciler(nil), r.desired("c1", low, high), time.Hour, allFinished)
		if first := r.sim.Truth()[0].Work; first != string(high.Work) {
			t.Error("the job of lower priority went first")
		}
	})
}

// What a bucket writer puts into records is text of strangers: it reaches no reason, no log and no report unescaped.
func TestHostileRecordsAreEscaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 3 })
		evil := "\x1b[2J\r\n\u202eevil"
		for key, v := range map[string]any{
			record.ClaimKey(string(j.Work), 1):      record.Claim{Protocol: 1, Work: string(j.Work), Dispatch: 1, Nonce: evil, Platform: evil, Reason: evil, Job: evil, CaptureS: -1},
			record.ReceiptKey(string(j.Work), 1):    record.Receipt{Protocol: 1, Work: string(j.Work), Dispatch: 1, Class: evil, Text: evil},
			record.ClaimKey(string(j.Work), 2):      "no claim at all",
			record.ReleaseKey(string(j.Work), 2, 7): []string{evil},
		} {
			b, err := record.Encode(v)
			if err == nil {
				_, err = r.store.Put(t.Context(), key, strings.NewReader(string(b)), bucket.IfAbsent())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rec := r.reconciler(nil)
		rep := r.pass(rec, r.desired("c1", j))
		out, err := json.Marshal([]any{rep.Actions, rep.States, r.explain(rec, j)})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), `\u001b`) || strings.Contains(string(out), "\u202e") {
			t.Errorf("hostile text got through: %s", out)
		}
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
	})
}
