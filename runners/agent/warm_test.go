package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/record"
)

// TestTheFirstStepsGetTheWarmUpBound: until they are steady, whatever their median says; then the lease is the steps', at
// once and not only when a third of the long one has passed.
func TestTheFirstStepsGetTheWarmUpBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(record.Terms{LeaseK: 50, LeaseFloorS: 15, WarmS: 400}, func(string, int64, string) {})
		d.lease = promise(d.terms, &d.pace, d.phase)
		if got := d.lease.Seconds; got != 400+45 {
			t.Errorf("before the first step: %v s, want the bound and what a start takes", got)
		}
		var got []float64
		for n := range int64(warmUp + 3) {
			time.Sleep(time.Second)
			d.stepped(n)
			l := promise(d.terms, &d.pace, phase{})
			if n == 1 || n == 20 || n == warmUp-1 || n == warmUp+1 {
				got = append(got, l.Seconds)
			}
			if n == 1 {
				d.lease, d.forced = l, d.force // acknowledged
			}
			if asked := d.force > d.forced; asked != (n >= warmUp) && n > 1 {
				t.Errorf("step %d: a shorter lease is asked for: %v", n, asked)
			}
		}
		if diff := cmp.Diff([]float64{400, 400, 400, 50}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSnapshotsAreMeasured: how many arrived, and for how long they were on their way; what failed is none.
func TestSnapshotsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(record.Terms{LeaseK: 50, LeaseFloorS: 15}, func(string, int64, string) {})
		d.reported(courier.Report{Took: 3 * time.Second})
		d.reported(courier.Report{Err: courier.ErrSkipped, Took: time.Hour})
		d.reported(courier.Report{Took: 5 * time.Second})
		if s := d.sums(); s.Snapshots != 2 || s.UploadS != 8 {
			t.Errorf("%+v", s)
		}
	})
}
