package reconcile_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// wild is a runner that panics whatever it is asked.
type wild struct{}

func (wild) JobKinds() []string { panic("no kinds") }
func (wild) Capacity() int      { panic("no capacity") }
func (wild) Launch(context.Context, []runners.Launch) ([]runners.Receipt, error) {
	panic("no launch")
}
func (wild) Release(context.Context, json.RawMessage) (runners.Release, error) {
	panic("no release")
}

// TestARunnerThatPanicsAtEveryQuestion: its platform takes nothing and says why; the pass goes on.
func TestARunnerThatPanicsAtEveryQuestion(t *testing.T) {
	r, err := reconcile.New(reconcile.Config{Bucket: mem.New(), ID: "d", Runners: map[string]runners.Runner{"odd": wild{}}})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"headway.yaml": "headway: v1\nplatforms: {odd: {runner: local}}\ndefaults: {on: [odd]}\n", "plans/a.yaml": "jobs:\n  a: {run: x}\n"}
	pl, problems := plan.Load(plan.NewMemTree(files))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	report, err := r.Pass(t.Context(), &reconcile.Desired{Plan: pl, Commit: strings.Repeat("a", 40), Fresh: true, Complete: true, AllowStops: -1})
	r.Wait()
	if err != nil || len(report.Actions) != 1 || !strings.Contains(report.Actions[0].Reason, "the runner panicked: no kinds") {
		t.Errorf("%v: %+v", err, report)
	}
}
