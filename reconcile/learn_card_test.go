package reconcile_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// Given a job on two cards that a table rates, in a math mode, whose steps' work is stated. Its first worker is cut off and
// leaves an account, the second dies without one, the third finishes.
// Then each observation has the card, the mode, the rated peak of one card and the whole account, as its worker gave it or its
// last snapshot kept it; and explain holds the kept work against the peak of both cards.
func TestAnObservationOfARatedCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, capacity: 2, script: "worker 1 die 55\nworker 2 die 85", model: sim.Model{Step: 10 * time.Second, GPU: "Tesla T4"}})
		const perStep = 2.6e14 // 0.2 of what two cards of 65e12 FLOP/s could do in 10 s
		j := job("a", func(j *plan.Job) {
			j.Group, j.GPU = "family", plan.GPU{Count: 2, DType: "fp16"}
			j.FLOPs.PerStep, j.FLOPs.Steps = perStep, 120
		})
		rec, d := r.reconciler(nil), r.desired("c1", j)
		defer rec.Wait()
		r.until(rec, d, time.Hour, func(rep *reconcile.Report) bool {
			return rep.States[j.Work].State == plan.StateHeld && r.lease(j.Work).Resume != nil && r.lease(j.Work).Resume.Step == 50
		})
		own := record.Sums{Steps: 54, StepS: 540, WarmS: 33, SaveS: 4, Median: 10, Wait: record.WaitMerged, Snapshots: 5, UploadS: 2}
		for range 53 {
			own.Ratios.Add(1, false)
		}
		own.Ratios.Add(2, false)
		own.Ratios.Add(9, true)
		r.raw(record.EndKey(string(j.Work), 1), record.End{Protocol: record.Protocol, Work: string(j.Work), Attempt: 1, Class: "lease_lost", Step: 54, RanS: 577, Sums: &own, Time: "-"})
		r.until(rec, d, 12*time.Hour, allFinished)
		r.passFor(rec, d, 15*time.Minute, nil)
		rec.Wait()

		steps := func(n int64) record.Sums {
			return record.Sums{Steps: n, Work: perStep * float64(n), StepS: 10 * float64(n), Median: 10, Wait: record.WaitMerged,
				Ratios: record.Histogram{Done: map[int]int64{record.BinOf(1): n}}}
		}
		told := own
		told.Work = 54 * perStep // of an agent that counts no work: what the claim says a step costs
		want := map[int64]record.Observation{
			1: {Attempt: 1, Class: "silent", WorkKept: 50 * perStep, StepKeptS: 500, LostS: 40, FirstStepS: 33, All: told},
			2: {Attempt: 2, Class: "silent", WorkKept: 30 * perStep, StepKeptS: 300, All: steps(30)},
			3: {Attempt: 3, Class: "finished", WorkKept: 40 * perStep, StepKeptS: 400, All: steps(40)},
		}
		got := map[int64]record.Observation{}
		for _, o := range r.observations() {
			got[o.Dispatch] = o
		}
		for n, o := range want {
			o.Protocol, o.Platform, o.GPU, o.Mode, o.GPUs, o.Peak = record.Protocol, "here", "nvidia-t4", "fp16", 2, 65e12
			o.Family, o.Work, o.Dispatch, o.Runner, o.Captured, o.Env = "family", string(j.Work), n, "sim", true, record.Environment{Price: "USD"}
			want[n] = o
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record.Observation{}, "CaptureS", "StartS", "PaidS", "TailS", "Time", "Price")); diff != "" {
			t.Errorf("observations (-want +got):\n%s", diff)
		}
		for i, l := range r.explain(r.reconciler(nil), j).Lines {
			if g := l.Goodput; g == nil || g.GPU != "nvidia-t4" || g.Mode != "fp16" || g.MFU == nil || math.Abs(*g.MFU-0.2) > 1e-9 || g.Goodput == nil || g.Share == nil || math.Abs(*g.Goodput-0.2**g.Share) > 1e-9 {
				t.Errorf("line %d of explain: %v", i, l.Goodput)
			}
		}
	})
}
