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

const neverSaid = "the program never said that a step ended: call run.step from its loop, declare a long first step with run.phase, set watch:, or promise a longer silence with lease: {floor: 30m}"

// ends writes the account of an attempt that was written off, as its worker does a little later.
func (r *rig) ends(w plan.Digest, class string) {
	seen, err := witness.Read(r.t.Context(), r.store, string(w))
	if err != nil || seen.Record.State != witness.Revoked {
		return
	}
	end := record.End{Protocol: record.Protocol, Work: string(w), Attempt: seen.Record.Attempt, Class: class}
	for _, in := range r.sim.Truth() {
		if in.Work == string(w) && in.Attempt == end.Attempt {
			end.Step = in.Step
		}
	}
	b, err := record.Encode(end)
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
		// One such death is too short to be judged; each that follows one costs a retry.
		if e := r.explain(r.reconciler(nil), j); e.Spent != 4 || len(e.Lines) != 5 || e.Lines[0].Spent {
			t.Errorf("explain %+v", e)
		}
	})
}

// A loop whose steps outlast the lease of the start, and that says so to nobody, fails as surely where an earlier attempt
// came further: two attempts in a row that begin at one step and say nothing of it, by their workers' word, end the job.
func TestAProgramThatIsNotHeardOfAgainFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 die 55; worker * hang 51"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 500 })
		rep := r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			if r.sim.Meter().Started > 1 {
				r.ends(j.Work, "yielded")
			}
			return rep.States[j.Work].State == plan.StateFailed
		})
		if s := rep.States[j.Work].Reason; s != neverSaid+" (attempts 2 and 3 ended so, having gone on from step 50)" {
			t.Errorf("reason %q", s)
		}
		if e := r.explain(r.reconciler(nil), j); len(e.Lines) < 3 || len(e.Lines) > 4 || e.Lines[0].Class != "silent" || e.Lines[1].Class != "no_step" || e.Lines[2].Class != "no_step" {
			t.Errorf("explain %+v", e)
		}
	})
}

// An attempt whose first step came, but too late, tells its author the same; the budget ends the job.
func TestAFirstStepThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker * hang 2"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 2 })
		rep := r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			r.ends(j.Work, "deposed")
			return rep.States[j.Work].State == plan.StateFailed
		})
		if s := rep.States[j.Work].Reason; !strings.HasPrefix(s, "3 retries spent") || !strings.Contains(s, "declare a long first step with run.phase") {
			t.Errorf("reason %q", s)
		}
	})
}

// An attempt that came further and is written off costs nothing, even where it says that it left; nor does a single short
// one after it that kept nothing.
func TestAWrittenOffAttemptThatGainedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1 hang 55; worker 2 hang 56"})
		j := job("a")
		r.until(r.reconciler(nil), r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			r.ends(j.Work, "yielded")
			return rep.States[j.Work].State == plan.StateFinished
		})
		e := r.explain(r.reconciler(nil), j)
		if e.Spent != 0 || len(e.Lines) != 3 || e.Lines[0].Spent || e.Lines[1].Spent || e.Lines[1].Class != "silent" {
			t.Errorf("explain %+v", e)
		}
	})
}

// A worker dies between its capture and its first record: the lease named its dispatch, so the work alone is charged. It is
// the first of two in a row that kept nothing: the second one costs the retry.
func TestAnAttemptWithoutARecordIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "worker 1..2 hang 1"})
		j := job("a")
		rec := r.reconciler(nil)
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
		if err := r.store.Delete(t.Context(), record.OpenKey(string(j.Work), 1)); err != nil {
			t.Fatal(err)
		}
		r.until(r.reconciler(nil), d, time.Hour, stateIs(j.Work, plan.StateFinished))
		e := r.explain(r.reconciler(nil), j)
		if e.Spent != 1 || len(e.Lines) != 3 || e.Lines[0].Dispatch != 1 || e.Lines[0].Attempt != 1 || e.Lines[0].Spent || !e.Lines[1].Spent {
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
