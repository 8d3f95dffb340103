package reconcile

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
)

// science.md §4.3, L5: W 2.162688e13, P 130e12 (two T4 in fp16). Before any data MFU is 0.05, so that a step is taken to last 3.33 s
// and the first lease 166 s; where 0.277268 is usual it is 0.6000 s, and 50 of them are 30 s.
func TestL5TheFirstLeaseOfAJobWithoutHistory(t *testing.T) {
	const work, peak = 2.162688e13, 130e12
	j := plan.Job{Group: "f", GPU: plan.GPU{Any: []string{"T4x2"}, Count: 1, DType: "fp16"}, FLOPs: flops.Work{PerStep: work}}
	conf := plan.Platform{GPU: []string{"T4x2"}}
	card, rated, ok := plan.Card(plan.Platform{Name: "p", GPU: conf.GPU}, j.GPU)
	if !ok || rated != peak {
		t.Fatalf("two T4 are rated at %v", rated)
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-4*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	r := taught()
	got := r.timersOn(conf, nil, j, past{})
	var terms record.Terms
	got.apply(&terms)
	near("a step before any data", r.guessed(&j, &platform{conf: conf}).seconds(), 3.32721)
	near("the first lease before any data", got.Warm.Value, 50*3.32721)
	near("as the claim has it", terms.WarmS, 50*3.32721)
	if got.Warm.Rule != patience.RuleWork || !strings.Contains(got.Warm.Why, "50 steps of 3.33 s at an MFU of 0.05, which is assumed") {
		t.Errorf("%+v", got.Warm)
	}
	measured := r.timersOn(conf, nil, j, past{stepS: .6})
	if measured.Warm.Rule == patience.RuleWork || measured.Lease.Value != 30 {
		t.Errorf("once a step was measured: %+v, lease %v s", measured.Warm, measured.Lease.Value)
	}
	for i := range 4 {
		o := record.Observation{Protocol: record.Protocol, Platform: "p", GPU: card, Mode: "fp16", GPUs: 2, Peak: peak / 2, Family: "f", Work: strings.Repeat("a", 64), Dispatch: int64(i) + 1, Attempt: 1,
			Class: "finished", Runner: "sim", Captured: true, CaptureS: 2, StartS: 2, PaidS: 1000, StepKeptS: 900, WorkKept: peak * .277268 * 900, Time: "2026-01-02T03:04:05Z"}
		if !r.book.Add(o) {
			t.Fatal("the observation was not taken")
		}
	}
	g := r.guessed(&j, &platform{conf: plan.Platform{Name: "p", GPU: conf.GPU}})
	near("a step at the usual MFU", g.seconds(), .6)
	if first := g.first(patience.Derived{Value: 12}, 50, 12); math.Abs(first.Value-30) > 1e-3 || first.N == 0 {
		t.Errorf("the first lease at the usual MFU: %+v", first)
	}
	slow := j
	slow.FLOPs = flops.Work{Total: 1e18 * 100, Steps: 100}
	if w := r.timersOn(conf, nil, slow, past{}).Warm; w.Value != warmMost || !strings.Contains(w.Why, "an hour at most") {
		t.Errorf("steps of an hour: %+v", w)
	}
	for _, unknown := range []plan.Job{{GPU: j.GPU}, {FLOPs: j.FLOPs}} {
		if w := r.timersOn(conf, nil, unknown, past{}).Warm; w.Rule == patience.RuleWork {
			t.Errorf("a job that does not say its work or its card: %+v", w)
		}
	}
}
