package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// TestAForgedLeaseEndsNoPass: a worker may write its lease, and writes numbers that nobody can count to, or up to. A pass over it
// ends, and nothing is launched of a work whose lease cannot be read; another job goes on.
func TestAForgedLeaseEndsNoPass(t *testing.T) {
	for number, state := range map[string]string{"9223372036854775807": plan.StateUnknown, "9007199254740992": plan.StateFailed} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 2})
			forged, good := job("forged"), job("good")
			body := `{"protocol":1,"work":"` + string(forged.Work) + `","rev":3,"write":"` + strings.Repeat("0", 32) + `","attempt":` + number +
				`,"dispatch":1,"floor":0,"state":"revoked","holder":"","lease":{"seconds":30,"k":5,"step_s":1},"progress":{"step":1,"work":0}}`
			if _, err := r.store.Put(t.Context(), record.WitnessKey(string(forged.Work)), strings.NewReader(body), bucket.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			rec := r.reconciler(func(c *reconcile.Config) { c.Dry = state == plan.StateFailed })
			rep := r.pass(rec, r.desired("c1", forged, good))
			if got := rep.States[forged.Work]; got.State != state {
				t.Errorf("%s: %+v", number, got)
			}
			if n := r.claims(forged.Work); n != 0 {
				t.Errorf("%d claims of it", n)
			}
		})
	}
}
