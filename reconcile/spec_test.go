package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// TestSpecsAreBoundToTheirDigests: what is written for a worker passes the check that the worker makes, field by field.
func TestSpecsAreBoundToTheirDigests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2})
		up := job("up", func(j *plan.Job) { j.Kind = "dataset" })
		down := job("down", func(j *plan.Job) {
			j.Argv = []string{"train", "--data=${needs.up}/x", "quote \" é <&>"}
			j.Inputs = []plan.Input{{Job: "up", Work: up.Work}}
			j.CodeTree = strings.Repeat("ab", 20)
			j.Params, j.Env, j.Requires = map[string]string{"lr": "0.10"}, map[string]string{"A": "1"}, map[string]string{"os": "linux"}
			j.Seed, j.Replica, j.Result, j.Generation, j.Parent = -7, 3, "out", 2, plan.Digest(strings.Repeat("c", 64))
		})
		r.until(r.reconciler(nil), r.desired("c1", up, down), time.Hour, allFinished)
		for _, j := range []plan.Job{up, down} {
			var s record.Spec
			if err := record.Decode([]byte(r.read(record.SpecKey(string(j.Work)))), record.MaxRecord, &s); err != nil {
				t.Fatal(err)
			}
			if err := record.CheckIdentity(s); err != nil || s.Work != string(j.Work) {
				t.Errorf("%s: %v", j.Name, err)
			}
		}
	})
}
