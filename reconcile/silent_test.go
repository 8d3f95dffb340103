package reconcile_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

const neverSaid = "the program never said that a step ended: call run.step from its loop, set watch:, or promise a longer silence with lease: {floor: 30m}"

// ends writes the account of an attempt that was written off, as its worker does a little later.
func (r *rig) ends(w plan.Digest, class string) {
	seen, err := witness.Read(r.t.Context(), r.store, string(w))
	if err != nil || seen.Record.State != witness.Revoked {
		return
	}
	b, err := record.Encode(record.End{Protocol: record.Protocol, Work: string(w), Attempt: seen.Record.Attempt, Class: class})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.store.Put(r.t.Context(), record.EndKey(string(w), seen.Record.Attempt), bytes.NewReader(b), bucket.IfAbsent()); err != nil && !bucket.Is(err, bucket.Condition) {
		r.t.Fatal(err)
	}
}

// A program that is never heard of is written off; twice in a row, by the word of a worker that was there, and the job
// fails with the one sentence that helps. It says "yielded" where the dispatcher's release came before it looked.
func TestAProgramThatIsNeverHeardOfFails(t *testing.T) {
	for _, class := range []string{"no_step", "yielded"} {
		t.Run(class, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{script: "worker * hang 1"})
				j := job("a")
				start := time.Now()
				rep := r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
					r.ends(j.Work, class)
					return rep.States[j.Work].State == plan.StateFailed
				})
				if took := time.Since(start); took > 10*time.Minute {
					t.Errorf("took %v", took)
				}
				if s := rep.States[j.Work]; !strings.HasPrefix(s.Reason, neverSaid) {
					t.Errorf("reason %q", s.Reason)
				}
				e := r.explain(r.reconciler(nil), j)
				if len(e.Lines) < 2 || len(e.Lines) > 3 || e.Spent != len(e.Lines) || e.State != plan.StateFailed {
					t.Errorf("explain: %+v", e)
				}
				for _, l := range e.Lines {
					if l.Class != "no_step" || l.Why != neverSaid || !l.Spent {
						t.Errorf("line %+v", l)
					}
				}
				if l := e.Lines[1]; !strings.Contains(l.Reason, "never said that a step ended") {
					t.Errorf("launched since %q", l.Reason)
				}
			})
		})
	}
}

// Machines that die before the first step leave no word: nothing proves that the program is at fault, so the budget
// decides, and the reason names both.
func TestSilenceBeforeTheFirstStepSpendsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker * hang 1"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 3 })
		rep := r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, stateIs(j.Work, plan.StateFailed))
		if s := rep.States[j.Work]; !strings.Contains(s.Reason, "limits.retries is 3") || !strings.Contains(s.Reason, "machine is gone, or "+neverSaid) {
			t.Errorf("reason %q", s.Reason)
		}
		if e := r.explain(r.reconciler(nil), j); e.Spent != 4 || len(e.Lines) != 4 {
			t.Errorf("explain %+v", e)
		}
	})
}

// An attempt that came further and is written off costs nothing, even where it says that it left.
func TestAWrittenOffAttemptThatGainedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 hang 55; worker 2 hang 56"})
		j := job("a")
		r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			r.ends(j.Work, "yielded")
			return rep.States[j.Work].State == plan.StateFinished
		})
		e := r.explain(r.reconciler(nil), j)
		if e.Spent != 1 || len(e.Lines) != 3 || e.Lines[0].Spent || !e.Lines[1].Spent || e.Lines[1].Class != "silent" {
			t.Errorf("explain %+v", e)
		}
	})
}

// A worker dies between its capture and its first record: the lease named its dispatch, so the work alone is charged.
func TestAnAttemptWithoutARecordIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 hang 1"})
		j := job("a")
		rec := r.reconciler(nil)
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
		if err := r.store.Delete(t.Context(), record.OpenKey(string(j.Work), 1)); err != nil {
			t.Fatal(err)
		}
		r.until(r.reconciler(nil), d, time.Hour, stateIs(j.Work, plan.StateFinished))
		e := r.explain(r.reconciler(nil), j)
		if e.Spent != 1 || len(e.Lines) != 2 || e.Lines[0].Dispatch != 1 || e.Lines[0].Attempt != 1 || !e.Lines[0].Spent {
			t.Errorf("explain %+v", e)
		}
	})
}

// The account of a worker that was written off comes late: the same reconciler still takes it in.
func TestALateAccountIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker * hang 1"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 0 })
		rec, d := r.reconciler(nil), r.desired("c1", j)
		rep := r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateFailed))
		if s := rep.States[j.Work]; !strings.Contains(s.Reason, "its machine is gone, or") {
			t.Errorf("reason %q", s.Reason)
		}
		r.ends(j.Work, "no_step")
		if s := r.pass(rec, d).States[j.Work]; !strings.Contains(s.Reason, neverSaid) || strings.Contains(s.Reason, "machine is gone") {
			t.Errorf("with its account: reason %q", s.Reason)
		}
	})
}
