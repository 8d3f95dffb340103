package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// A lease of a running attempt is held against what the plan states of it, and against nothing that was derived or is the store's.
func TestALeaseThatThePlanStatesIsHeldAgainstTheTerms(t *testing.T) {
	for name, c := range map[string]struct {
		lease plan.Lease
		k, s  float64 // of the attempt
		floor time.Duration
		want  []string
	}{
		"nothing is stated":                    {plan.Lease{}, 50, 15, 30 * time.Second, nil},
		"as stated":                            {plan.Lease{K: 80, Floor: time.Minute}, 80, 60, 15 * time.Second, nil},
		"another k":                            {plan.Lease{K: 80}, 50, 15, 0, []string{"lease.k 50, now 80"}},
		"a higher floor":                       {plan.Lease{Floor: time.Minute}, 50, 15, 0, []string{"lease.floor 15s, now 1m0s"}},
		"a lower floor":                        {plan.Lease{Floor: time.Minute}, 50, 90, 15 * time.Second, []string{"lease.floor 1m30s, now 1m0s"}},
		"a lower floor, perhaps":               {plan.Lease{Floor: time.Minute}, 50, 90, 0, nil},
		"raised by the store":                  {plan.Lease{Floor: time.Minute}, 50, 90, 90 * time.Second, nil},
		"raised by the store after the launch": {plan.Lease{Floor: time.Minute}, 50, 60, 90 * time.Second, []string{"lease.floor 1m0s, now 1m30s"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := olderTerms(&plan.Job{Lease: c.lease}, &record.Terms{LeaseK: c.k, LeaseFloorS: c.s}, c.floor)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
