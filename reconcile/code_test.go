package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

// While a newer commit is refused, the code of what goes on comes from the commit that was accepted: the newer one may
// hold other files under the same name. A restart in between changes nothing.
func TestCodeComesFromTheAcceptedCommit(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a restart: %v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{script: "worker 1 die 47"})
				j := job("a")
				good, empty := r.desired("c1", j), r.desired("c2")
				var commits []string
				change := func(c *reconcile.Config) {
					c.Bundle = func(_ context.Context, _ *plan.Job, commit string) error {
						commits = append(commits, commit)
						return nil
					}
					c.Load = func(context.Context, string) (*plan.Plan, error) { return good.Plan, nil }
				}
				rec := r.reconciler(change)
				r.pass(rec, good)
				<-time.After(time.Minute)
				if restart {
					rec = r.reconciler(change)
				}
				r.until(rec, empty, time.Hour, allFinished)
				if diff := cmp.Diff([]string{"c1", "c1"}, commits); diff != "" {
					t.Errorf("bundled from (-want +got):\n%s", diff)
				}
			})
		})
	}
}
