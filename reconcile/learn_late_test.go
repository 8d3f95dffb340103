package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// TestAFalseWriteOffThatTellsLate: a worker that was written off wakes after hours and writes down how far its step had come.
// The platform's leases survive half as much again from then on, for every dispatcher of the store and after a restart; one
// that says it was stopped on purpose, or says nothing of its steps, changes nothing.
func TestAFalseWriteOffThatTellsLate(t *testing.T) {
	for name, c := range map[string]struct {
		class  string
		cut    bool
		raised bool
	}{"alive": {"deposed", true, true}, "its lease was lost": {"lease_lost", true, true}, "no steps": {"deposed", false, false}, "its program failed": {"user_code", true, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 25", model: sim.Model{Step: 2 * time.Second}})
				j := job("a")
				rec, d := r.reconciler(nil), r.desired("c1", j)
				r.until(rec, d, 2*time.Hour, allFinished)
				if r.acts(reconcile.WriteOff) != 1 {
					t.Fatal("it was not written off")
				}
				r.passFor(rec, d, 3*time.Hour, nil)
				end := record.End{Protocol: record.Protocol, Work: string(j.Work), Attempt: 1, Class: c.class, Step: 25, Time: "-"}
				end.Sums = &record.Sums{Steps: 25, StepS: 50, Median: 2}
				if c.cut {
					end.Sums.Ratios.Add(60, true)
				}
				r.raw(record.EndKey(string(j.Work), 1), end)
				r.passFor(rec, d, 3*time.Hour, nil)
				next := job("b", func(j *plan.Job) { j.FLOPs.Steps = 200 })
				for who, at := range map[string]*reconcile.Reconciler{"the same": rec, "another": r.reconciler(nil)} {
					x := r.explain(at, next).Timers
					if raised := x.K.Rule == patience.RuleFalse; raised != c.raised || c.raised && (x.K.Value*2/3 < 90 || !strings.Contains(x.K.Why, "written off alive")) {
						t.Errorf("%s dispatcher: %+v, want it raised: %v", who, x.K, c.raised)
					}
				}
			})
		})
	}
}
