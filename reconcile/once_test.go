package reconcile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
)

// bothFirst holds writes of the accepted plan back until both have come.
type bothFirst struct {
	bucket.Bucket
	both *sync.WaitGroup
}

func (m *bothFirst) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.HasPrefix(key, "accepted/") {
		m.both.Done()
		m.both.Wait()
	}
	return m.Bucket.Put(ctx, key, body, c)
}

// TestOneOfTwoAppliesHasItsWay: two reconcilers that have read the same store write the same plan down once; the one that
// comes second follows nothing of it, whether it comes at the same moment or later.
func TestOneOfTwoAppliesHasItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		var both sync.WaitGroup
		both.Add(2)
		none := ""
		reports := make([]*reconcile.Report, 2)
		var done sync.WaitGroup
		for i := range reports {
			rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = &bothFirst{r.store, &both} })
			d := r.desired("c1", job("a"))
			d.Over, d.Once = &none, true
			done.Go(func() {
				var err error
				if reports[i], err = rec.Pass(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		won, lost := reports[0], reports[1]
		if lost.Accepted {
			won, lost = lost, won
		}
		if !won.Accepted || len(won.Refusals) > 0 || lost.Accepted || len(lost.Refusals) != 1 || lost.Refusals[0].Code != reconcile.CodeOvertaken || lost.Commit != "c1" {
			t.Errorf("%+v\n%+v", won, lost)
		}
		late := r.desired("c1", job("a"))
		late.Over, late.Once = &none, true
		if rep := r.pass(r.reconciler(nil), late); rep.Accepted || len(rep.Refusals) != 1 || rep.Refusals[0].Code != reconcile.CodeOvertaken {
			t.Errorf("%+v", rep)
		}
		late.Once = false
		r.until(r.reconciler(nil), late, time.Hour, allFinished)
	})
}

// TestWhatLeavesSaysWhatItLoses: of a work that no job of the plan names any more, what was paid since its milestone is
// counted on the GPUs of the job that was accepted.
func TestWhatLeavesSaysWhatItLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		rec := r.reconciler(nil)
		j := job("a", func(j *plan.Job) { j.GPU.Count = 2; j.Milestones.Steps, j.FLOPs.Steps = 500, 20000 })
		r.until(rec, r.desired("c1", j), time.Hour, stateIs(j.Work, plan.StateHeld))
		for range 600 {
			w, err := rec.Observe(t.Context(), []plan.Digest{j.Work}, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := w.Observed()[j.Work]
			if lost := float64(o.Step-o.MilestoneStep) * r.lease(j.Work).Lease.StepS * 2 / 3600; o.State == plan.StateHeld && o.Step > o.MilestoneStep && lost > 0 {
				if o.LostGPUHours < lost*0.99 || o.LostGPUHours > lost*1.01 {
					t.Errorf("%+v, want %g", o, lost)
				}
				return
			}
			<-time.After(time.Second)
		}
		t.Fatal("it was never seen between two milestones")
	})
}
