package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/gc"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

func TestKilledWorkIsResumedAndFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 die 47"})
		rec, j := r.reconciler(nil), job("a")
		start := time.Now()
		r.until(rec, r.desired("c1", j), time.Hour, allFinished)
		r.wholeResult(j.Work, 100)
		if got := r.lease(j.Work).Attempt; got != 2 {
			t.Errorf("finished by attempt %d, want 2", got)
		}
		if n := r.acts(reconcile.WriteOff); n != 1 {
			t.Errorf("%d write-offs, want 1", n)
		}
		if n := r.acts(reconcile.Launch); n != 2 {
			t.Errorf("%d launches, want 2", n)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("took %v: the second attempt must start soon after the lease has run out", took)
		}
		e := r.explain(rec, j)
		if e.Spent != 0 || len(e.Lines) != 2 || e.Lines[0].Kept != 40 || e.Lines[0].Lost < 0 || e.Lines[1].From != 40 || e.State != plan.StateFinished {
			t.Errorf("explanation: %+v", e)
		}
		if f := r.sim.Meter().Fired[sim.Die]; f != 1 {
			t.Fatalf("the fault struck %d times", f)
		}
	})
}

// A finished work that was tidied up, and then loses its lease, is not taken for a new one.
func TestTidiedWorkWithoutItsLeaseIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 die 17\nworker 2 die 47\nworker 3 die 77"})
		j := job("a")
		d := r.desired("c1", j)
		r.until(r.reconciler(nil), d, time.Hour, allFinished)
		<-time.After(100 * 24 * time.Hour)
		rep, err := gc.Run(t.Context(), r.store, gc.Options{Finished: 24 * time.Hour, Apply: true})
		if err != nil || r.claims(j.Work) != 2 {
			t.Fatalf("%d claims left of 4, %v: %+v", r.claims(j.Work), err, rep)
		}
		if err := r.store.Delete(t.Context(), record.WitnessKey(string(j.Work))); err != nil {
			t.Fatal(err)
		}
		launched, rec := r.sim.Meter().Started, r.reconciler(nil)
		for range 3 {
			if rep := r.pass(rec, d); rep.States[j.Work].State != plan.StateUnknown {
				t.Errorf("the work is %+v, want unknown", rep.States[j.Work])
			}
			<-time.After(time.Hour)
		}
		if n := r.sim.Meter().Started; n != launched {
			t.Errorf("%d launches of a finished work", n-launched)
		}
	})
}

// Everything that happened is told from the store alone, by a process that saw none of it.
func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "launch 1 reject\nlaunch 2 no_start\nworker 1 hang 58\nworker 2 fail 70", model: sim.Model{Step: 2 * time.Second}})
		j := job("a", steps(100, 30))
		rec := r.reconciler(nil)
		r.until(rec, r.desired("c1", j), 2*time.Hour, allFinished)
		e := r.explain(r.reconciler(nil), j)
		type line struct {
			Dispatch, Attempt      int64
			Class                  string
			From, Step, Kept, Lost int64
			Spent                  bool
			Released               string
		}
		var got []line
		for _, l := range e.Lines {
			got = append(got, line{l.Dispatch, l.Attempt, l.Class, l.From, l.Step, l.Kept, l.Lost, l.Spent, l.Released})
			if l.Platform != "here" || l.Commit != "c1" || l.By != "test" || l.Reason == "" || l.Time == "" || l.Why == "" {
				t.Errorf("a line that leaves something out: %+v", l)
			}
		}
		want := []line{
			{Dispatch: 1, Class: "rejected", Spent: true},
			{Dispatch: 2, Class: "no_capture", Released: "closed"},
			{Dispatch: 3, Attempt: 1, Class: "silent", Step: 47, Kept: 30, Lost: 17, Released: "closed"},
			{Dispatch: 4, Attempt: 2, Class: "user_code", From: 30, Step: 69, Kept: 60, Lost: 9},
			{Dispatch: 5, Attempt: 3, Class: "finished", From: 60, Step: 100, Kept: 90},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		if e.State != plan.StateFinished || e.Spent != 1 || e.Limit != 5 || e.Now.Kind != reconcile.None {
			t.Errorf("explanation: %+v", e)
		}
	})
}
