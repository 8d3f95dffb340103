package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// What each class of failure does, one test for a class; DESIGN.md says which row of the cases each of them shows.

// standing is how a pass found a platform.
func standing(rep *reconcile.Report, name string) (out reconcile.PlatformState) {
	for _, s := range rep.Platforms {
		if s.Name == name {
			out = s
		}
	}
	return out
}

// Given a platform that says 500 times in a row that it has no room. Then nothing is spent, one line says that it is parked,
// and the job runs with the 501st launch.
func TestNoSlotsFiveHundredTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1..500 no_slots"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 0 })
		rec, parked, done := r.reconciler(nil), 0, false
		for start := time.Now(); !done && time.Since(start) < 30*24*time.Hour; {
			rep := r.pass(rec, r.desired("c1", j))
			next := rep.Next
			if s := standing(rep, "here"); s.Parked > 0 {
				parked, next = parked+1, s.Parked // what lies between says the same
				if len(rep.Platforms) != 1 || s.Closed || s.Parked > 23*time.Minute || !strings.Contains(s.Why, "no_slots") {
					t.Fatalf("%+v", rep.Platforms)
				}
				if w := rep.States[j.Work]; w.State != plan.StateFailed && !strings.Contains(w.Reason, "parked") && !strings.Contains(w.Reason, "no_slots") {
					t.Fatalf("%v", w)
				}
			}
			<-time.After(next)
			done = allFinished(rep)
		}
		r.wholeResult(j.Work, 100)
		if e := r.explain(rec, j); e.Spent != 0 || parked < 500 {
			t.Errorf("%d spent; parked in %d passes, want 500 at least", e.Spent, parked)
		}
		if m := r.sim.Meter(); m.Calls[sim.OpLaunch] != 501 || m.Started != 1 {
			t.Errorf("%d launches, %d started", m.Calls[sim.OpLaunch], m.Started)
		}
	})
}

// A quota that says when it resets is parked until then: nothing is asked before, whichever process looks.
func TestAQuotaIsParkedToItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "launch 1 quota 71h"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 0 })
		began := time.Now()
		rep := r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool { return standing(rep, "here").Parked > 0 })
		if s := standing(rep, "here"); s.Parked < 70*time.Hour || s.Parked > 72*time.Hour {
			t.Errorf("parked for %v, want 71 h", s.Parked)
		}
		for time.Since(began) < 70*time.Hour {
			r.pass(r.reconciler(nil), r.desired("c1", j)) // every pass another process
			<-time.After(time.Hour)
		}
		if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 1 {
			t.Fatalf("%d launches before the reset, want 1", n)
		}
		rec := r.reconciler(nil)
		r.until(rec, r.desired("c1", j), 3*time.Hour, allFinished)
		if e := r.explain(rec, j); e.Spent != 0 {
			t.Errorf("%d spent", e.Spent)
		}
	})
}

// answering is a platform whose first answers are these.
type answering struct {
	runners.Runner
	answers []error
	calls   atomic.Int64
}

func (a *answering) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	if n := int(a.calls.Add(1)); n <= len(a.answers) {
		return nil, a.answers[n-1]
	}
	return a.Runner.Launch(ctx, jobs)
}

// SpawnedElsewhere: nothing is spent, nobody is parked, and the work is looked at again.
func TestSpawnedElsewhereIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		elsewhere := &runners.Failure{Class: runners.SpawnedElsewhere, Platform: "here", Op: "launch"}
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 0 })
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Runners = map[string]runners.Runner{"here": &answering{Runner: r.sim, answers: []error{elsewhere, elsewhere, elsewhere}}}
		})
		r.until(rec, r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			if s := standing(rep, "here"); s.Parked > 0 || s.Series > 0 {
				t.Fatalf("%+v", s)
			}
			return allFinished(rep)
		})
		if e := r.explain(rec, j); e.Spent != 0 || len(e.Lines) < 4 {
			t.Errorf("%+v", e)
		}
	})
}

// Unreachable: one series for the platform, however many jobs wait and however often the process is another one; each park
// is longer than the one before, with jitter; nothing is spent, and the next success ends the series.
func TestUnreachableIsOneSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fails = 9
		r := newRig(t, rigConfig{slots: 9, script: fmt.Sprintf("launch 1..%d drop", fails)})
		jobs := numbered(5)
		var series []int
		var jitter []float64
		rec := r.reconciler(nil)
		for start := time.Now(); ; {
			rep := r.pass(rec, r.desired("c1", jobs...))
			s, park := r.parked()
			if len(series) == 0 || series[len(series)-1] != s {
				series = append(series, s)
				if nominal := min(15*time.Second<<max(s-1, 0), 15*time.Minute); s > 0 {
					jitter = append(jitter, float64(park)/float64(nominal))
				}
			}
			if allFinished(rep) {
				break
			}
			if time.Since(start) > 6*time.Hour {
				t.Fatalf("not done: %v", rep.States)
			}
			<-time.After(rep.Next)
			rec = r.reconciler(nil)
		}
		if d := cmp.Diff([]int{1, 2, 3, 4, 5, 0}, series); d != "" { // the first five failed at once: that is one failure
			t.Error(d)
		}
		same := 0
		for i, f := range jitter {
			if f < 0.5 || f >= 1.5 {
				t.Errorf("park %d is %.2f of its nominal length", i, f)
			}
			if i > 0 && f == jitter[i-1] {
				same++
			}
		}
		if same > 1 || r.sim.Meter().Fired[sim.Drop] != fails {
			t.Errorf("jitter %v after %d failures", jitter, r.sim.Meter().Fired[sim.Drop])
		}
		for _, j := range jobs {
			if e := r.explain(rec, j); e.Spent != 0 {
				t.Errorf("%s: %d spent", j.Name, e.Spent)
			}
		}
	})
}

const htmlPage = "<!DOCTYPE html>\n<html><title>503</title>\x1b[2J" + "<script>alert(1)</script></html>"

// An answer that makes no sense closes that platform and no other: jobs that can run elsewhere do, and the reason says what
// it answered.
func TestNonsenseClosesThatPlatformOnly(t *testing.T) {
	html := &runners.Failure{Class: runners.ProtocolError, Platform: "here", Op: "launch", Raw: htmlPage, Err: errors.New("invalid character '<' looking for beginning of value")}
	for name, c := range map[string]struct {
		script string
		answer error
	}{
		"garbage":     {"launch * garbage", nil},
		"no handle":   {"launch * nil_handle", nil},
		"not ours":    {"launch * foreign", nil},
		"panic":       {"launch * panic", nil},
		"html":        {"", html},
		"bare error":  {"", errors.New("invalid character '<' looking for beginning of value")},
		"its own nil": {"", (*runners.Failure)(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 4, script: c.script})
				there := r.second("", 4)
				var here runners.Runner = r.sim
				if c.answer != nil {
					here = &answering{Runner: r.sim, answers: []error{c.answer, c.answer}}
				}
				jobs := []plan.Job{job("a", ladder("here")), job("b", ladder("there")), job("c", ladder("here", "there"))}
				rec := r.reconciler(func(c *reconcile.Config) {
					c.Runners = map[string]runners.Runner{"here": here, "there": there}
				})
				rep := r.until(rec, r.desired("c1", jobs...), 6*time.Hour, func(rep *reconcile.Report) bool {
					return rep.States[jobs[1].Work].State == plan.StateFinished && rep.States[jobs[2].Work].State == plan.StateFinished
				})
				if s := standing(rep, "here"); !s.Closed || s.Why == "" || strings.ContainsAny(s.Why, "\x1b\n") {
					t.Errorf("%+v", s)
				}
				if s := standing(rep, "there"); s.Closed || s.Parked > 0 {
					t.Errorf("%+v", s)
				}
				if s := rep.States[jobs[0].Work]; s.State != plan.StateFinished && !strings.Contains(s.Reason, "made no sense") && s.State != plan.StateHeld && s.State != plan.StateClaimed {
					t.Errorf("a is %v", s)
				}
				if e := r.explain(rec, jobs[2]); e.Spent != 0 {
					t.Errorf("%d spent", e.Spent)
				}
			})
		})
	}
}

// CUDA out of memory at the first step on every platform: two attempts, ended, said so, although no two of these errors are
// the same text.
func TestOutOfMemoryOnEveryPlatform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker * oom 1"})
		there := r.second("worker * oom 1", 2)
		j := job("a", ladder("here", "there"))
		rec := r.reconciler(both(there, r))
		rep := r.until(rec, r.desired("c1", j), 6*time.Hour, stateIs(j.Work, plan.StateFailed))
		if s := rep.States[j.Work].Reason; !strings.Contains(s, "attempts 1 and 2 failed at step 0 in the same way") || !strings.Contains(s, "CUDA out of memory") {
			t.Errorf("reason %q", s)
		}
		r.passFor(rec, r.desired("c1", j), 24*time.Hour, nil)
		if n := r.sim.Meter().Started + there.Meter().Started; n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
	})
}

// What a job's policies and exit codes make of the same failures.
func TestPolicies(t *testing.T) {
	policy := func(log, then string) func(*plan.Job) {
		return func(j *plan.Job) { j.Policy = append(j.Policy, plan.Policy{Log: log, Then: then}) }
	}
	retry := func(codes ...int) func(*plan.Job) { return func(j *plan.Job) { j.ExitCodes.Retry = codes } }
	retries := func(n int) func(*plan.Job) { return func(j *plan.Job) { j.Limits.Retries = n } }
	for _, c := range []struct {
		name        string
		here, there string
		change      []func(*plan.Job)
		state       string
		n, m        int // launches here and there
		spent       int
		reason      string
	}{
		{"stop", "worker * oom 1", "", []func(*plan.Job){policy("CUDA out of memory", "stop")}, plan.StateFailed, 1, 0, 1, `attempt 1 failed and printed "torch.OutOfMemoryError: CUDA out of memory.`},
		{"a line that no attempt has", "worker * oom 1", "", []func(*plan.Job){policy("ECC error", "stop")}, plan.StateFailed, 2, 0, 2, "in the same way"},
		{"exclude", "worker * oom 1", "", []func(*plan.Job){policy("CUDA out of memory", "exclude")}, plan.StateFinished, 1, 1, 1, ""},
		{"exclude, everywhere", "worker * oom 1", "worker * oom 1", []func(*plan.Job){policy("CUDA .* memory", "exclude")}, plan.StateFailed, 1, 1, 2, "no platform of its ladder is left: here: attempt 1 failed there and printed"},
		{"a code that is named", "worker 1..3 exit 75", "", []func(*plan.Job){ladder("here"), retry(75)}, plan.StateFinished, 4, 0, 3, ""},
		{"a code that is named, for ever", "worker * exit 75", "", []func(*plan.Job){ladder("here"), retry(75), retries(3)}, plan.StateFailed, 4, 0, 4, "limits.retries is 3"},
		{"another code", "worker * exit 76", "", []func(*plan.Job){ladder("here"), retry(75)}, plan.StateFailed, 2, 0, 2, "in the same way"},
		{"a named code and a line to stop at", "worker * exit 75", "", []func(*plan.Job){retry(75), policy("gave no reason", "stop")}, plan.StateFailed, 1, 0, 1, "at which the job stops"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 2, script: c.here})
				there := r.second(c.there, 2)
				j := job("a", append([]func(*plan.Job){ladder("here", "there")}, c.change...)...)
				rec := r.reconciler(both(there, r))
				rep := r.until(rec, r.desired("c1", j), 24*time.Hour, stateIs(j.Work, c.state))
				if s := rep.States[j.Work].Reason; !strings.Contains(s, c.reason) {
					t.Errorf("reason %q, want %q in it", s, c.reason)
				}
				if n, m := r.sim.Meter().Started, there.Meter().Started; n != c.n || m != c.m {
					t.Errorf("%d launches here and %d there, want %d and %d", n, m, c.n, c.m)
				}
				if e := r.explain(rec, j); e.Spent != c.spent {
					t.Errorf("%d spent, want %d: %+v", e.Spent, c.spent, e.Lines)
				}
			})
		})
	}
}

// Given retries: 0, a launch whose answer was lost, and a platform that is unreachable for three days while the worker
// computes. Then there is no second launch.
func TestWithoutRetriesUnreachableIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1 lost", model: sim.Model{Start: 100 * time.Second, Step: time.Minute, Steps: 4 * 24 * 60, Milestone: 60}})
		j := job("a", func(j *plan.Job) { j.Limits.Retries, j.FLOPs.Steps, j.Milestones.Steps = 0, 4*24*60, 60 })
		rec := r.reconciler(nil)
		claimed := 0
		r.until(rec, r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			s := rep.States[j.Work]
			if claimed++; s.State == plan.StateFailed || strings.Contains(s.Reason, "retries") {
				t.Fatalf("while its worker may still come: %+v", s)
			}
			return s.State == plan.StateHeld
		})
		if claimed < 3 {
			t.Fatalf("looked at %d times before its worker came", claimed)
		}
		r.sim.Cut(true)
		r.passFor(rec, r.desired("c1", j), 72*time.Hour, func(rep *reconcile.Report) {
			if s := rep.States[j.Work]; s.State != plan.StateHeld {
				t.Fatalf("%v", s)
			}
		})
		if m := r.sim.Meter(); m.Calls[sim.OpLaunch] != 1 || r.claims(j.Work) != 1 {
			t.Errorf("%d launches, %d claims", m.Calls[sim.OpLaunch], r.claims(j.Work))
		}
	})
}

// A program that ends with a code again and again: attempts and dispatches only grow, and no number is used twice.
func TestNumbersOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1..9 exit 75; launch 3 twice"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries, j.ExitCodes.Retry = 20, []int{75} })
		r.until(r.reconciler(nil), r.desired("c1", j), 24*time.Hour, allFinished)
		seen := map[int64]int64{} // attempt → dispatch
		for n := range r.lease(j.Work).Attempt {
			var o record.Open
			if err := record.Decode([]byte(r.read(record.OpenKey(string(j.Work), n+1))), record.MaxRecord, &o); err != nil {
				t.Fatal(err)
			}
			if o.Attempt != n+1 || o.Dispatch < seen[n] {
				t.Errorf("attempt %d is of dispatch %d, behind attempt %d of dispatch %d", o.Attempt, o.Dispatch, n, seen[n])
			}
			seen[o.Attempt] = o.Dispatch
		}
		if len(seen) < 9 {
			t.Errorf("%d attempts, want 9 at least", len(seen))
		}
	})
}
