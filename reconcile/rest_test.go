package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// What a job still takes is behind its last step while it runs, and behind its resume pointer when it does not; steps that no
// milestone has kept would be lost by leaving. A step that lies behind the last one leaves nothing, and no less.
func TestWhatAJobStillTakes(t *testing.T) {
	at := func(n int64) *record.Pointer { return &record.Pointer{Step: n} }
	for name, c := range map[string]struct {
		lease Lease
		job   plan.Job
		want  Rest
	}{
		"nothing is known":         {Lease{}, plan.Job{}, Rest{Milestone: untold(patience.OwnProcess)}},
		"it has not begun":         {Lease{}, plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 1000}}, Rest{FLOPs: 1e15, Milestone: untold(patience.OwnProcess)}},
		"it was taken away":        {Lease{State: witness.Yielded, Step: 700, Resume: at(600)}, plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 1000}}, Rest{FLOPs: 4e14, Milestone: untold(patience.OwnProcess)}},
		"it runs":                  {Lease{State: witness.Held, Step: 700, Resume: at(600)}, plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 1000}}, Rest{FLOPs: 3e14, Milestone: untold(patience.OwnProcess), Lost: 200 * time.Second}},
		"it has just begun":        {Lease{State: witness.Held, Step: 10, Resume: at(600)}, plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 1000}}, Rest{FLOPs: 4e14, Milestone: untold(patience.OwnProcess)}},
		"more than it takes":       {Lease{State: witness.Held, Step: 2000}, plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 1000}}, Rest{Milestone: untold(patience.OwnProcess), Lost: 4000 * time.Second}},
		"steps between milestones": {Lease{State: witness.Held, Step: 5, Resume: at(5)}, plan.Job{Milestones: plan.Milestones{Steps: 50}}, Rest{Milestone: 100 * time.Second}},
		"time between milestones":  {Lease{}, plan.Job{Milestones: plan.Milestones{Every: time.Hour}}, Rest{Milestone: time.Hour}},
	} {
		p := &pass{world: &World{works: map[plan.Digest]*sight{"w": {record: &witness.Record{Lease: witness.Lease{StepS: 2}}}}}}
		if diff := cmp.Diff(c.want, p.rest(&Facts{Work: "w", Job: &c.job, Lease: c.lease})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A job of ten hours that has nine of them behind it does not wait half an hour for a rung that costs nothing; one that begins
// does. The other way round it would wait for longer than it takes.
func TestTheLadderWeighsWhatIsLeft(t *testing.T) {
	const rate = 1e12
	for kept, want := range map[int64]ladder.Kind{0: ladder.Wait, 9800: ladder.Launch} {
		f := Facts{Work: "w", Job: &plan.Job{Name: "a", On: []string{"free", "paid"}, FLOPs: flops.Work{Total: rate * 36000, Steps: 10_000}},
			Lease: Lease{State: witness.Yielded, Resume: &record.Pointer{Step: kept}},
			Rungs: []Rung{{Platform: "free", Parked: time.Hour, Price: &record.Price{}, Rate: rate, Start: time.Minute},
				{Platform: "paid", Price: &record.Price{PerHour: 1, Unit: "USD"}, Rate: rate, Start: time.Minute}}}
		p := &pass{world: &World{works: map[plan.Digest]*sight{}}}
		f.Rest = p.rest(&f)
		if c := rung(f, nil); c.Kind != want {
			t.Errorf("%d of 10000 steps kept: %s (%s), want %s", kept, c.Kind, c.Reason, want)
		}
	}
}

// Order and packing go by what is left: half of a long job is shorter than a whole one that is less long.
func TestAPlaceIsWhatIsLeft(t *testing.T) {
	known, unknown := &plan.Job{FLOPs: flops.Work{Total: 1e15, Steps: 100}}, &plan.Job{FLOPs: flops.Work{Steps: 100}}
	for step, want := range map[int64]place{0: {15, 10}, 60: {9, 4}, 100: {5, 0}, 900: {5, 0}, -5: {15, 10}} {
		s := &sight{lease: Lease{Resume: &record.Pointer{Step: step}}}
		if got := (place{15, 10}).rest(known, s); got != want {
			t.Errorf("step %d of 100: %+v, want %+v", step, got, want)
		}
		if got := (place{15, 10}).rest(unknown, s); got != (place{15, 10}) {
			t.Errorf("a job that does not say what it computes: %+v", got)
		}
	}
	if got := (place{15, 10}).rest(known, nil); got != (place{15, 10}) {
		t.Errorf("nothing was seen of it: %+v", got)
	}
}
