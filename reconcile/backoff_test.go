package reconcile

import (
	"testing"

	"github.com/headway-run/headway/runners"
)

// A full platform between two failures doesn't let a work that fails again and again begin its pauses anew.
func TestNoSlotsInBetweenEndsNoSeriesOfBackoffs(t *testing.T) {
	var plain, mixed []Charge
	for n := int64(1); n <= 6; n++ {
		plain = append(plain, Charge{Dispatch: 2 * n, Attempt: n, Class: "store"})
		mixed = append(mixed, Charge{Dispatch: 2 * n, Attempt: n, Class: "store"}, Charge{Dispatch: 2*n + 1, Class: string(runners.NoSlots)})
	}
	if got, want := workDelay("w", mixed), workDelay("w", plain); got != want || want == 0 {
		t.Errorf("waits %v, %v without the launches that began nothing", got, want)
	}
	if d := workDelay("w", []Charge{{Dispatch: 1, Class: string(runners.NoSlots)}}); d != 0 {
		t.Errorf("waits %v though nothing was begun", d)
	}
}
