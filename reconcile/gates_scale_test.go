package reconcile_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// aged fills the store with a work that was launched n times. captured: each launch led to an attempt that came further
// and gave its place back; else each was refused.
func (r *rig) aged(j plan.Job, n int64, captured bool) {
	r.t.Helper()
	work := string(j.Work)
	for a := int64(1); a <= n; a++ {
		r.raw(record.ClaimKey(work, a), record.Claim{Protocol: 1, Work: work, Dispatch: a, Nonce: "n", Platform: "here", CaptureS: 1, Time: "-"})
		if !captured {
			r.raw(record.ReceiptKey(work, a), record.Receipt{Protocol: 1, Work: work, Dispatch: a, Class: "no_slots", Time: "-"})
			continue
		}
		r.raw(record.ReceiptKey(work, a), record.Receipt{Protocol: 1, Work: work, Dispatch: a, OK: true, Handle: json.RawMessage(`{}`), Time: "-"})
		r.raw(record.OpenKey(work, a), record.Open{Protocol: 1, Work: work, Attempt: a, Dispatch: a, Platform: "here", Resume: step(work, a-1), Time: "-"})
		r.raw(record.EndKey(work, a), record.End{Protocol: 1, Work: work, Attempt: a, Class: "yielded", Step: a, Time: "-"})
	}
}

func (r *rig) raw(key string, v any) {
	r.t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		_, err = r.store.Put(r.t.Context(), key, bytes.NewReader(b), bucket.Always())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// step is where a work was kept at one step.
func step(work string, a int64) *record.Pointer {
	if a < 1 {
		return nil
	}
	return &record.Pointer{Attempt: a, Milestone: 1, Step: a, Manifest: record.MilestoneManifestKey(work, a, 1), SHA256: record.Hash(nil)}
}

// leased writes the lease of such a work.
func (r *rig) leased(j plan.Job, n int64, state witness.State) {
	work := string(j.Work)
	lease := witness.Record{Protocol: 1, Work: work, Rev: 3 * n, Write: record.Nonce(), Attempt: n, Dispatch: n, State: state,
		Lease: witness.LeaseFor(0, time.Second, 0), Progress: witness.Progress{Step: n}, Resume: step(work, n)}
	switch state {
	case witness.Held:
		lease.Holder = record.Nonce()
	case witness.Finished:
		m := record.Manifest{Protocol: 1, Work: work, Attempt: n}
		r.raw(record.ResultManifestKey(work, n), m)
		b, err := json.Marshal(m)
		if err != nil {
			r.t.Fatal(err)
		}
		lease.Finished = &witness.FinishedPointer{Attempt: n, Manifest: record.ResultManifestKey(work, n), SHA256: record.Hash(b)}
	case witness.Yielded, witness.Revoked:
	}
	r.raw(record.WitnessKey(work), lease)
}

// cost is the store requests of a pass over one work, by a reconciler that has just started and by one that knows it.
type cost struct{ Cold, Warm int64 }

func (r *rig) cost(d *reconcile.Desired, state string) cost {
	r.t.Helper()
	rec := r.reconciler(nil)
	cold := r.pass(rec, d)
	if got := cold.States[d.Plan.Jobs[0].Work]; got.State != state {
		r.t.Fatalf("state %v, want %s", got, state)
	}
	return cost{cold.Requests, r.pass(rec, d).Requests}
}

// Given one work with 10, 100, 1,000 and 10,000 attempts, in each state that its lease can be in.
// Then a pass over it costs the same number of store requests, for a reconciler that has just started and for one that
// knows it: nothing is spent on what is older than the 64 dispatches and attempts that a decision rests on. Only where
// no launch was ever captured is the newest one searched for, by halving.
func TestGateTenThousandAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costs := map[string]map[int64]cost{}
		for _, n := range []int64{10, 100, 1_000, 10_000} {
			note := func(state string, c cost) {
				if costs[state] == nil {
					costs[state] = map[int64]cost{}
				}
				costs[state][n] = c
			}
			r := newRig(t, rigConfig{})
			j := job("a", ladder("moon"))
			d := r.desired("c1", j)
			r.aged(j, n, true)
			<-time.After(3 * time.Second) // the windows of all launches are over
			for state, want := range map[witness.State]string{witness.Yielded: plan.StateYielded, witness.Revoked: plan.StateRevoked,
				witness.Held: plan.StateHeld, witness.Finished: plan.StateFinished} {
				r.leased(j, n, state)
				r.pass(r.reconciler(nil), d) // accepted: that cost is not the work's
				note(want, r.cost(d, want))
			}
			r = newRig(t, rigConfig{})
			r.aged(j, n, false)
			<-time.After(3 * time.Second)
			r.pass(r.reconciler(nil), d)
			note(plan.StateAbsent, r.cost(d, plan.StateAbsent))
		}
		for state, by := range costs {
			t.Logf("%s: %v", state, by)
			if by[10].Warm != by[10_000].Warm || by[100].Warm != by[10_000].Warm || by[10_000].Warm > 6 {
				t.Errorf("%s: what is known costs %v", state, by)
			}
			if most := int64(4*64 + 10); by[10_000].Cold > most || by[10].Cold > by[100].Cold {
				t.Errorf("%s: a first look costs %v, want at most %d", state, by, most)
			}
			if state != plan.StateAbsent && (by[100].Cold != by[10_000].Cold || by[1_000].Cold != by[10_000].Cold) {
				t.Errorf("%s: a first look costs more, the more attempts there are: %v", state, by)
			}
			if grown := by[10_000].Cold - by[1_000].Cold; state == plan.StateAbsent && grown > 12 {
				t.Errorf("the search for the newest launch costs %v", by)
			}
		}
	})
}
