package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/timeline"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// losses are the events of a work's timeline that tell how leases were lost.
func (r *rig) losses(w plan.Digest) (out []timeline.Event) {
	r.t.Helper()
	tl, err := timeline.New(readonly.New(r.store), string(w)).Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range tl.Events {
		if e.What == timeline.Revoked || e.What == timeline.Yielded {
			out = append(out, e)
		}
	}
	return out
}

// How a lease was lost is told once: what the timeline says while the lease stands so, it says after the next capture too, with
// the same reason and the same time. One goes silent, one is revoked and one is stopped by hand.
func TestATimelineTellsALossOnce(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		act    func(r *rig, w string) error
		reason string
	}{
		"silent":  {"worker 1 die 25", nil, "silent for longer than it promised"},
		"revoked": {"", func(r *rig, w string) error { return revoke(r, w, false) }, "by ann"},
		"stopped": {"", func(r *rig, w string) error { return revoke(r, w, true) }, "by ann"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 4, script: c.script, model: sim.Model{Step: 10 * time.Second}})
				j := job("a")
				rec, d := r.reconciler(nil), r.desired("c1", j)
				defer rec.Wait()
				r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
				if c.act != nil {
					if err := c.act(r, string(j.Work)); err != nil {
						t.Fatal(err)
					}
				}
				var before []timeline.Event
				r.until(rec, d, 6*time.Hour, func(rep *reconcile.Report) bool {
					if rec := r.lease(j.Work); rec.Attempt == 1 && rec.State != witness.Held {
						before = r.losses(j.Work)
					}
					return allFinished(rep)
				})
				if len(before) != 1 || !strings.Contains(before[0].Reason, c.reason) {
					t.Fatalf("while its lease says so: %v", before)
				}
				if diff := cmp.Diff(before, r.losses(j.Work)); diff != "" {
					t.Errorf("told otherwise after the next capture:\n%s", diff)
				}
			})
		})
	}
}

func revoke(r *rig, w string, stop bool) error {
	_, err := runners.Dispatcher{Bucket: r.store}.Revoke(r.t.Context(), w, "by ann", runners.RevokeOptions{Stop: stop})
	return err
}
