package reconcile

import (
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func TestDrainFor(t *testing.T) {
	held := &witness.Record{Attempt: 2, Lease: witness.Lease{StepS: 2}}
	young := &witness.Record{Attempt: 2, Lease: witness.Lease{StepS: 2}, Progress: witness.Progress{Step: 1000}, Resume: &record.Pointer{Attempt: 1, Step: 400}}
	old := &witness.Record{Attempt: 2, Lease: witness.Lease{StepS: 2}, Progress: witness.Progress{Step: 4000}, Resume: &record.Pointer{Attempt: 1, Step: 400}}
	kept := &witness.Record{Attempt: 2, Resume: &record.Pointer{Attempt: 2}}
	for name, c := range map[string]struct {
		terms record.Terms
		rec   *witness.Record
		want  time.Duration
	}{
		"steps":                      {record.Terms{MilestoneSteps: 900}, held, 90 * time.Minute},
		"time":                       {record.Terms{MilestoneS: 1800}, held, 90 * time.Minute},
		"often":                      {record.Terms{MilestoneS: 60}, held, 10 * time.Minute},
		"watched files":              {record.Terms{MilestoneS: 600, WatchIntervalS: 3600}, held, 3 * time.Hour},
		"none stated, none was made": {record.Terms{MilestoneS: 2700, MilestoneAssumed: true}, held, 10 * time.Minute},
		"none stated, not due yet":   {record.Terms{MilestoneS: 2700, MilestoneAssumed: true}, young, 67*time.Minute + 30*time.Second},
		"none stated, long due":      {record.Terms{MilestoneS: 2700, MilestoneAssumed: true}, old, 10 * time.Minute},
		"none stated, absurd":        {record.Terms{MilestoneS: 1e300, MilestoneAssumed: true}, old, 9 * time.Hour},
		"none stated, one was made":  {record.Terms{MilestoneS: 1200, MilestoneAssumed: true}, kept, time.Hour},
		"absurd":                     {record.Terms{MilestoneS: 1e300}, held, 7 * 24 * time.Hour},
	} {
		if got := drainFor(&record.Claim{Terms: c.terms}, c.rec); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := drainFor(nil, nil); got != 10*time.Minute {
		t.Errorf("nothing known: %v", got)
	}
}
