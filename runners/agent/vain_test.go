package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func isVain(d *desk) bool {
	select {
	case <-d.vain:
		return true
	default:
		return false
	}
}

// TestMilestonesInVain: C15. Steps alone renew for one interval after a milestone that failed, or until the third.
func TestMilestonesInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := courier.Report{Err: &bucket.Error{Op: "put", Key: "k", Code: bucket.Unknown}}
		quiet := func(string, int64, string) {}
		tm := record.Terms{LeaseK: 50, LeaseFloorS: 15, MilestoneS: 600}

		d := newDesk(tm, quiet) // one that failed
		d.reported(away)
		n := int64(0)
		for ; !isVain(d) && n < 700; n++ {
			time.Sleep(time.Second)
			d.stepped(n)
		}
		if n != 600 {
			t.Fatalf("given up after %d s, the interval is 600 s", n)
		}
		if e := d.reason(); e.Class != "store" || !strings.Contains(e.Text, "no milestone reached the store for 10m0s (1 in a row failed)") {
			t.Errorf("%+v", e)
		}

		d = newDesk(tm, quiet) // three in a row, whatever the time; what was skipped or arrived is no failure
		for range 10 {
			d.reported(away)
			d.reported(courier.Report{Err: courier.ErrSkipped})
			d.reported(courier.Report{Err: errors.Join(&bucket.Error{Code: bucket.Denied, Hint: "look at the keys"})})
			d.reported(courier.Report{})
		}
		time.Sleep(time.Hour)
		d.stepped(1)
		if isVain(d) {
			t.Error("given up though milestones arrive")
		}
		for range 2 {
			d.reported(away)
		}
		if isVain(d) {
			t.Error("given up after two")
		}
		d.reported(courier.Report{Err: &bucket.Error{Code: bucket.Denied, Hint: "look at the keys"}})
		if !isVain(d) || d.reason().Class != "store_refused" || !strings.Contains(d.reason().Text, "look at the keys") {
			t.Errorf("%v %+v", isVain(d), d.reason())
		}
	})
}

// TestARefusedCourierYields: a store that takes leases and no milestones does not keep a machine busy for nothing.
func TestARefusedCourierYields(t *testing.T) {
	t.Parallel()
	w := newMemWorld(t, map[string]string{"TOTAL": "100000"})
	f := faulty.New(w.b, 1, faulty.Rule{Name: "full", Op: "put", Key: "*/milestone/*", Effect: faulty.Refuse, Code: bucket.Full})
	exit := w.here(t.Context(), f, 1)
	if exit.Code != CodeStore || exit.Class != "store_refused" || !strings.Contains(exit.Text, "3 in a row failed") || f.Fired("full") < 3 {
		t.Errorf("%+v", exit)
	}
	seen := w.witness().Record
	if e := w.end(1); seen.State != witness.Yielded || e.Class != "store_refused" || e.Step > 10_000 || !strings.Contains(seen.Reason, "3 in a row failed") {
		t.Errorf("witness %+v, end %+v", seen, e)
	}
}
