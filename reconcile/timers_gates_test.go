package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// TestD13AGraceThatRestartsWithEveryLookEnds: "lost since" is read out of the store's stamps, so a dispatcher that is restarted
// before each of its passes writes a dead worker off as soon as one that ran all the time (cases/jobs.md, D13).
func TestD13AGraceThatRestartsWithEveryLookEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1 hang 20", model: sim.Model{Step: 2 * time.Second}})
		j := job("a")
		d := r.desired("c1", j)
		var version bucket.Version
		var last time.Time
		var lease witness.Lease
		passes := 0
		for start := time.Now(); r.acts(reconcile.WriteOff) == 0; passes++ {
			if time.Since(start) > time.Hour {
				t.Fatal("never written off")
			}
			if seen, err := witness.Read(t.Context(), r.store, string(j.Work)); err == nil && seen.Version != version && seen.Record.Dispatch == 1 && seen.Record.State == witness.Held {
				version, last, lease = seen.Version, seen.Modified, seen.Record.Lease
			}
			r.pass(r.reconciler(nil), d)
			<-time.After(5 * time.Second)
		}
		found := time.Since(last)
		if bound := lease.Length() + min(lease.Length()/3, time.Minute) + 7*time.Second; found < lease.Length() || found > bound {
			t.Errorf("found after %v by %d reconcilers, the lease was %v: want at most %v", found, passes, lease.Length(), bound)
		}
		if passes < 10 {
			t.Errorf("only %d restarts", passes)
		}
		r.until(r.reconciler(nil), d, time.Hour, allFinished)
	})
}

// TestD13AParkedPlatformStaysParkedAcrossRestarts: the series of failures and its pause lie in the store.
func TestD13AParkedPlatformStaysParkedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1..5 no_slots"})
		d := r.desired("c1", job("a"))
		start := time.Now()
		for r.sim.Meter().Calls[sim.OpLaunch] < 6 {
			if time.Since(start) > 2*time.Hour {
				t.Fatal("parked for ever")
			}
			r.pass(r.reconciler(nil), d)
			<-time.After(time.Second)
		}
		if n, took := r.sim.Meter().Calls[sim.OpLaunch], time.Since(start); n != 6 || took < 3*time.Minute {
			t.Errorf("%d launches in %v by a dispatcher that forgets everything each second, want 6 in more than three minutes", n, took)
		}
	})
}

// TestD13AClosedPlatformStaysClosedAcrossRestarts: that a platform waits for a person lies in the store too.
func TestD13AClosedPlatformStaysClosedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1 panic"})
		j := job("a")
		d := r.desired("c1", j)
		for range 60 {
			rec := r.reconciler(nil)
			rep := r.pass(rec, d)
			rec.Wait()
			<-time.After(time.Minute)
			if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 1 {
				t.Fatalf("%d launches by dispatchers that know nothing but the store, want 1: %+v", n, rep.States[j.Work])
			}
		}
		if rep := r.pass(r.reconciler(nil), d); !strings.Contains(rep.States[j.Work].Reason, "headway reopen here") {
			t.Errorf("%+v", rep.States[j.Work])
		}
	})
}

// taught writes down what a platform is to be known by before the first pass.
func (r *rig) taught(list ...record.Observation) {
	r.t.Helper()
	for i, o := range list {
		o.Protocol, o.Platform, o.GPU, o.Mode, o.Family, o.Runner = record.Protocol, "here", "cpu", "none", "f", "sim"
		o.Work, o.Dispatch, o.Attempt, o.Captured = record.Hash([]byte("earlier")), int64(i)+1, int64(i)+1, true
		at := time.Now().UTC().Add(-2*time.Hour + time.Duration(i)*time.Minute)
		o.Time = at.Format(time.RFC3339)
		r.raw(record.ObservationKey(o, at), o)
	}
}

// TestD7ASlowHostIsWaitedFor: a platform whose launches need five minutes is not given up after the two that own processes
// have, once its captures are known; and where they are not, those that were given up lengthen the window until one comes
// (cases/jobs.md, D7).
func TestD7ASlowHostIsWaitedFor(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 2, model: sim.Model{Start: 5 * time.Minute}})
			if known {
				var list []record.Observation
				for _, s := range []float64{290, 310, 300, 280, 330} {
					list = append(list, record.Observation{Class: "finished", CaptureS: s, StartS: s, PaidS: 1000, FirstStepS: 1})
				}
				r.taught(list...)
			}
			j := job("a")
			r.until(r.reconciler(nil), r.desired("c1", j), 3*time.Hour, allFinished)
			if n := r.claims(j.Work); (n == 1) != known {
				t.Errorf("%d claims where its captures are known: %v", n, known)
			}
		})
	}
}

// TestALearntLeaseFindsTheDeadSooner: and never later than the lease that the worker promised; a healthy one with the same
// slow steps is left alone.
func TestALearntLeaseFindsTheDeadSooner(t *testing.T) {
	found := map[bool]time.Duration{}
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 2, script: "worker 1 die 25; worker 2 hang 60", model: sim.Model{Step: time.Minute}})
			if known {
				var list []record.Observation
				for range 4 {
					o := record.Observation{Class: "finished", CaptureS: 1, StartS: 1, PaidS: 1000, FirstStepS: 1}
					o.All.Ratios.Done = map[int]int64{record.BinOf(1): 100_000}
					list = append(list, o)
				}
				r.taught(list...)
			}
			j := job("a")
			rec, d := r.reconciler(nil), r.desired("c1", j)
			var version bucket.Version
			var last time.Time
			var lease witness.Lease
			r.until(rec, d, 24*time.Hour, func(*reconcile.Report) bool {
				seen, err := witness.Read(t.Context(), r.store, string(j.Work))
				if err == nil && seen.Record.State == witness.Held && seen.Record.Dispatch == 2 && seen.Version != version {
					version, last, lease = seen.Version, seen.Modified, seen.Record.Lease
				}
				return r.acts(reconcile.WriteOff) == 2
			})
			found[known] = time.Since(last)
			if bound := lease.Length() + time.Minute + 2*time.Second; found[known] > bound || found[known] < lease.Length() {
				t.Errorf("found %v after its last renewal, its lease is %v", found[known], lease.Length())
			}
			r.until(rec, d, 24*time.Hour, allFinished)
			if n := r.acts(reconcile.WriteOff); n != 2 {
				t.Errorf("%d write-offs, want the two dead", n)
			}
		})
	}
	if found[true] > found[false]*3/4 {
		t.Errorf("found after %v with what is known, after %v without", found[true], found[false])
	}
}

// TestExplainShowsTheTimers with the samples behind them, and asks the store no more for it.
func TestExplainShowsTheTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2})
		var list []record.Observation
		for _, s := range []float64{290, 310, 300, 280, 330} {
			list = append(list, record.Observation{Class: "finished", CaptureS: s, StartS: s, PaidS: 1000, FirstStepS: 20})
		}
		r.taught(list...)
		j := job("a", func(j *plan.Job) { j.Lease.K = 20 })
		x := r.explain(r.reconciler(nil), j)
		if x.Timers == nil {
			t.Fatal("no timers")
		}
		if c, k := x.Timers.Capture, x.Timers.K; c.N != 5 || c.Value < 330 || k.Value != 20 || k.Why != "lease.k in the plan" {
			t.Errorf("%+v", x.Timers)
		}
		r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, allFinished)
		if x := r.explain(r.reconciler(nil), j); x.Timers != nil {
			t.Errorf("a finished work is not launched again: %+v", x.Timers)
		}
	})
}
