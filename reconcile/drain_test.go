package reconcile

import (
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func TestDrainFor(t *testing.T) {
	held := &witness.Record{Attempt: 2, Lease: witness.Lease{StepS: 2}}
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
		"none stated, none was made": {record.Terms{MilestoneS: 600}, held, 10 * time.Minute},
		"none stated, one was made":  {record.Terms{MilestoneS: 600}, kept, 30 * time.Minute},
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
