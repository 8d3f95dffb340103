package reconcile_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// priced is a platform that says what its instances cost.
type priced struct{ *sim.Runner }

func (p priced) Running(ctx context.Context) ([]runners.Running, error) {
	list, err := p.Runner.Running(ctx)
	for i := range list {
		list[i].Price = "0.45 USD"
	}
	return list, err
}

// The lease of a machine that hangs is deleted by hand, or overwritten. Nothing may be decided then, so nobody releases it:
// it is named as an orphan, with its age and price and how to end it, and left alone.
func TestAMachineWithoutItsLeaseIsAnOrphan(t *testing.T) {
	for name, spoil := range map[string]func(b bucket.Bucket, key string) error{
		"deleted": func(b bucket.Bucket, key string) error { return b.Delete(t.Context(), key) },
		"damaged": func(b bucket.Bucket, key string) error {
			_, err := b.Put(t.Context(), key, strings.NewReader("{"), bucket.Always())
			return err
		},
	} {
		for _, fresh := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 3"})
				with := func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": priced{r.sim}} }
				rec := r.reconciler(with)
				j := job("a")
				d := r.desired("c1", j)
				r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
				<-time.After(10 * time.Second)
				if err := spoil(r.store, record.WitnessKey(string(j.Work))); err != nil {
					t.Fatal(err)
				}
				if fresh {
					rec = r.reconciler(with)
				}
				var last *reconcile.Report
				r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) { last = rep })
				m := r.sim.Meter()
				if m.Started != 1 || m.Calls[sim.OpRelease] != 0 || last.States[j.Work].State != plan.StateUnknown {
					t.Errorf("%s: %d launches, %d releases, %v", name, m.Started, m.Calls[sim.OpRelease], last.States[j.Work])
				}
				if len(last.Orphans) != 1 {
					t.Fatalf("%s: orphans %+v", name, last.Orphans)
				}
				o := last.Orphans[0]
				if o.Ours || o.Age < 50*time.Minute || o.Price != "0.45 USD per hour" || !strings.Contains(o.Why, "lease") || !strings.Contains(o.End, "headway release "+j.Work.Short()+" --dispatch 1") {
					t.Errorf("%s: %+v", name, o)
				}
			})
		}
	}
}

// unpriced is a platform that does not say what anything costs.
type unpriced struct{ r *sim.Runner }

func (u unpriced) JobKinds() []string { return u.r.JobKinds() }
func (u unpriced) Capacity() int      { return u.r.Capacity() }
func (u unpriced) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	return u.r.Release(ctx, h)
}
func (u unpriced) Running(ctx context.Context) ([]runners.Running, error) { return u.r.Running(ctx) }
func (u unpriced) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	out, err := u.r.Launch(ctx, jobs)
	for i := range out {
		out[i].Price = nil
	}
	return out, err
}

// Where a platform does not say what a machine costs, the plan bounds it. That its claim was removed, and its receipt not,
// explains it no better.
func TestAnOrphansPriceIsBoundedByThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 3"})
		c := r.conf.Platforms["here"]
		c.MaxPrice = plan.Money{Amount: 1.5, Unit: "USD"}
		r.conf.Platforms["here"] = c
		mute := func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": unpriced{r.sim}} }
		rec, j := r.reconciler(mute), job("a")
		r.until(rec, r.desired("c1", j), time.Hour, stateIs(j.Work, plan.StateHeld))
		<-time.After(10 * time.Second)
		orphans := func(want int) {
			list, err := r.reconciler(mute).Orphans(t.Context(), r.conf.Platforms)
			if err != nil || len(list) != want || want == 1 && (list[0].Price != "at most 1.50 USD per hour" || list[0].Ours) {
				t.Errorf("%+v, %v, want %d", list, err, want)
			}
		}
		for i, key := range []string{record.ClaimKey(string(j.Work), 1), record.WitnessKey(string(j.Work)), record.ReceiptKey(string(j.Work), 1)} {
			orphans(max(i-1, 0)) // while it holds the lease, that explains it
			if err := r.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		orphans(1)
	})
}
