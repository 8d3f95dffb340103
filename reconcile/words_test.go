package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// D4 of the cases: a platform refuses in words that nobody knows. Each refusal spends a retry and is followed by a longer pause,
// so that it is asked six times and then no more; the words are there to be read, and who can go elsewhere does.
func TestWordsThatNobodyKnowsMakeNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4})
		r.sim.Says("E-4711: the flux manifold is out of phase")
		j := job("a")
		rec, d := r.reconciler(nil), r.desired("c1", j)
		var asked []time.Time
		rep := r.until(rec, d, 24*time.Hour, func(rep *reconcile.Report) bool {
			if n := r.sim.Meter().Calls[sim.OpLaunch]; n > len(asked) {
				asked = append(asked, time.Now())
			}
			return rep.States[j.Work].State == plan.StateFailed
		})
		for range 100 {
			<-time.After(10 * time.Minute)
			r.pass(rec, d)
		}
		if n := r.sim.Meter().Calls[sim.OpLaunch]; n != 6 || n != len(asked) {
			t.Errorf("asked %d times, seen %d; want the first and five retries", n, len(asked))
		}
		if n := len(asked); n == 6 && asked[5].Sub(asked[4]) < 2*asked[2].Sub(asked[1]) {
			t.Errorf("the pauses do not grow: %v", asked)
		}
		for i := 2; i < len(asked); i++ {
			if gap := asked[i].Sub(asked[i-1]); gap < 5*time.Second {
				t.Errorf("asked again after %v", gap)
			}
		}
		if why := rep.States[j.Work].Reason; !strings.Contains(why, "the platform refused this launch") {
			t.Errorf("the reason: %s", why)
		}
		if l := r.explain(rec, j).Lines; len(l) != 6 || !strings.Contains(fmt.Sprintf("%+v", l[5]), "flux manifold") {
			t.Errorf("explain does not quote the platform: %+v", l)
		}
		for _, l := range r.dispatches(j.Work) {
			if l.Receipt == nil || l.Receipt.Class != string(runners.Rejected) || !strings.Contains(l.Receipt.Text, `"E-4711: the flux manifold is out of phase"`) {
				t.Errorf("%+v", l.Receipt)
			}
		}
	})
}
