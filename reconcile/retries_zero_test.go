package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// zero is a job that is never launched a second time by itself.
func zero(j *plan.Job) { j.Limits.Retries = 0 }

// A10: with retries: 0 nothing follows a launch that may have happened, whatever came of it: the platform is not reached for
// days, the worker came further before it died, was asked to leave, fell silent, or was never heard of.
func TestRetriesZeroNeverLaunchesTwice(t *testing.T) {
	for name, c := range map[string]struct {
		script, want string
		cut, yield   bool
	}{
		"not reached for days while it runs":    {cut: true, want: plan.StateHeld},
		"its answer was lost, and it runs":      {script: "launch 1 lost", want: plan.StateHeld},
		"the call failed, and nothing is known": {script: "launch 1 drop", want: plan.StateFailed},
		"the answer was nonsense":               {script: "launch 1 garbage; worker 1 die 0", want: plan.StateFailed},
		"it was refused":                        {script: "launch 1 reject", want: plan.StateFailed},
		"it came further, and died":             {script: "worker 1 die 950", want: plan.StateFailed},
		"it fell silent":                        {script: "worker 1 hang 5", want: plan.StateFailed},
		"it was asked to leave":                 {yield: true, want: plan.StateFailed},
		"no worker took the lease":              {script: "launch 1 no_start", want: plan.StateFailed},
		"it died before it took the lease":      {script: "worker 1 die 0", want: plan.StateFailed},
		"the program failed":                    {script: "worker 1 fail 250", want: plan.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 2, script: c.script, model: sim.Model{Step: time.Minute}})
				j := job("a", steps(100000, 100), zero)
				rec, d := r.reconciler(nil), r.desired("c1", j)
				var last *reconcile.Report
				for start := time.Now(); time.Since(start) < 3*24*time.Hour; <-time.After(max(last.Next, time.Minute)) {
					last = r.pass(rec, d)
					r.sim.Cut(c.cut)
					if c.yield && time.Since(start) > 5*time.Hour {
						_, _ = r.sim.Release(t.Context(), r.dispatches(j.Work)[0].Receipt.Handle) // as a spot market does
					}
				}
				r.sim.Cut(false)
				s := last.States[j.Work]
				if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 1 || s.State != c.want {
					t.Errorf("%d calls, %+v: want one, and %s", n, s, c.want)
				}
				if s.State == plan.StateFailed && !strings.HasSuffix(s.Reason, "limits.retries is 0; headway launch a launches it once more") {
					t.Errorf("reason %q", s.Reason)
				}
			})
		})
	}
}

// What surely started nothing is tried again, also with retries: 0.
func TestRetriesZeroTriesAgainWhatNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "launch 1..3 no_slots; launch 4 quota 1h"})
		j := job("a", zero)
		elsewhere := &runners.Failure{Class: runners.SpawnedElsewhere, Platform: "here", Op: "launch"}
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Runners = map[string]runners.Runner{"here": &answering{Runner: r.sim, answers: []error{elsewhere}}}
		})
		r.until(rec, r.desired("c1", j), 24*time.Hour, allFinished)
		if m := r.sim.Meter(); m.Started != 1 || m.Calls[sim.OpLaunch] != 5 {
			t.Errorf("%+v", m)
		}
	})
}

// A person may launch it again, each time once: what came before is said, and the loop does not go on from there.
func TestAPersonLaunchesBeyondTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1..2 die 25"})
		j := job("a", zero)
		rec, d := r.reconciler(nil), r.desired("c1", j)
		for n := int64(1); n <= 3; n++ {
			if n > 1 {
				by := r.desired("c1", j)
				by.Demand = &reconcile.Demand{Works: []plan.Digest{j.Work}}
				r.seen = nil
				r.pass(r.reconciler(nil), by)
				if r.acts(reconcile.Launch) != 1 || !strings.HasSuffix(r.seen[0].Reason, "a person asked for it, beyond its limits.retries") {
					t.Fatalf("%+v", r.seen)
				}
				if rep := r.pass(r.reconciler(nil), d); rep.States[j.Work].State == plan.StateFailed {
					t.Fatalf("while it is waited for: %+v", rep.States[j.Work])
				}
			}
			want := plan.StateFailed
			if n == 3 {
				want = plan.StateFinished
			}
			r.until(rec, d, time.Hour, func(rep *reconcile.Report) bool {
				s := rep.States[j.Work]
				return s.State == want && s.Attempt == n
			})
			if m := r.sim.Meter(); int64(m.Calls[sim.OpLaunch]) != n {
				t.Errorf("%d launches, want %d", m.Calls[sim.OpLaunch], n)
			}
		}
		r.wholeResult(j.Work, 100)
	})
}
