package reconcile_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// leavesWith lets the worker that holds a lease give it back at once and say that class of its end.
func (r *rig) leavesWith(w plan.Digest, class string) {
	r.t.Helper()
	seen, err := witness.Read(r.t.Context(), r.store, string(w))
	if err != nil || seen.Record.State != witness.Held || seen.Record.Progress.Step < 2 {
		return
	}
	next := seen.Record
	next.State, next.Holder, next.Reason, next.Write, next.Rev = witness.Yielded, "", "leaves", record.Nonce(), next.Rev+1
	end := record.End{Protocol: record.Protocol, Work: string(w), Attempt: next.Attempt, Class: class, Step: next.Progress.Step + next.Attempt}
	for _, o := range []struct {
		key  string
		v    any
		cond bucket.Cond
	}{{record.WitnessKey(string(w)), next, bucket.IfIs(seen.Version)}, {record.EndKey(string(w), next.Attempt), end, bucket.IfAbsent()}} {
		body, err := record.Encode(o.v)
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.store.Put(r.t.Context(), o.key, bytes.NewReader(body), o.cond); bucket.Is(err, bucket.Condition) {
			return // it has renewed meanwhile
		} else if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A machine that says of each end what costs nothing (it was stopped, it had finished, there was no slot) is paid for no
// more often than one that says the truth.
func TestAWorkerThatLiesAboutItsEndSpendsRetries(t *testing.T) {
	for _, class := range []string{"yielded", "revoked", "finished", "moved", "nothing_to_do", "no_slots", "spawned_elsewhere", "no_receipt", "made up"} {
		t.Run(class, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{model: sim.Model{Step: time.Second, Steps: 1000}})
				j := job("a")
				rec, d, start := r.reconciler(nil), r.desired("c1", job("a")), time.Now()
				for r.pass(rec, d).States[j.Work].State != plan.StateFailed {
					r.leavesWith(j.Work, class)
					if <-time.After(time.Second); time.Since(start) > 2*time.Hour {
						t.Fatalf("%d workers were started in two hours", r.sim.Meter().Started)
					}
				}
				if n := r.sim.Meter().Started; n > 2*j.Limits.Retries {
					t.Errorf("%d workers were started, with %d retries", n, j.Limits.Retries)
				}
			})
		})
	}
}
