package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/record"
)

// A measured step that is more than twice off W/(P·MFU) is worth a warning, one within it is not; and none where a number is
// not known.
func TestAStepThatDoesNotFitItsCardIsSaid(t *testing.T) {
	const mfu, step = .25, 2.0
	pl := &platform{conf: plan.Platform{Name: "p", GPU: []string{"T4"}}}
	j := plan.Job{Group: "f", GPU: plan.GPU{Any: []string{"T4"}, Count: 1, DType: "fp16"}}
	card, peak, ok := plan.Card(pl.conf, j.GPU)
	if !ok {
		t.Fatal("no card")
	}
	r := &Reconciler{book: &goodput.Book{}}
	for i := range 4 {
		o := record.Observation{Protocol: record.Protocol, Platform: "p", GPU: card, Mode: "fp16", GPUs: 1, Peak: peak, Family: "f", Work: strings.Repeat("a", 64), Dispatch: int64(i) + 1, Attempt: 1,
			Class: "finished", Runner: "sim", Captured: true, CaptureS: 2, StartS: 2, PaidS: 1000, StepKeptS: 900, WorkKept: peak * mfu * 900, Time: "2026-01-02T03:04:05Z"}
		if !r.book.Add(o) {
			t.Fatal("the observation was not taken")
		}
	}
	j.FLOPs = flops.Work{PerStep: peak * mfu * step}
	for _, c := range []struct {
		step float64
		odd  bool
	}{{step, false}, {1.9 * step, false}, {.55 * step, false}, {2.1 * step, true}, {.45 * step, true}, {0, false}} {
		got := r.oddStep(&j, pl, c.step)
		want := ""
		if c.odd {
			want = fmt.Sprintf("a step takes %.3g s, and its work on a %s at the usual MFU of 0.25 would take 2 s: "+
				"another card than that, a work: that is wrong, or a card that is slowed down", c.step, card)
		}
		if got != want {
			t.Errorf("a step of %v s: %q, want %q", c.step, got, want)
		}
	}
	whole := j
	whole.FLOPs = flops.Work{Total: peak * mfu * step * 100, Steps: 100}
	if r.oddStep(&whole, pl, 5) == "" {
		t.Error("the work of a step is that of the whole, through its steps")
	}
	if unknown := (plan.Job{Group: "f", GPU: j.GPU}); r.oddStep(&unknown, pl, 5) != "" {
		t.Error("a job that does not say what it computes")
	}
	tm := Timers{Odd: "x"}
	if !slices.Contains(tm.Lines(), "  warning: x") {
		t.Errorf("%q", tm.Lines())
	}
}
