package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// touched is a store whose stamps of the leases are two hours old from the start: files restored with their dates, or a
// clock that was set.
type touched struct{ bucket.Bucket }

func (s touched) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, key, r)
	if err == nil && strings.HasPrefix(key, record.WitnessPrefix) {
		o.Modified = o.Modified.Add(-2 * time.Hour)
	}
	return o, err
}

func (s touched) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := s.Bucket.List(ctx, prefix, after, limit)
	if err == nil && strings.HasPrefix(prefix, record.WitnessPrefix) {
		for i := range p.Items {
			p.Items[i].Modified = p.Items[i].Modified.Add(-2 * time.Hour)
		}
	}
	return p, err
}

// Stamps that are wrong make nobody suspect who captured under the dispatcher's eyes: only the machine that dies is
// written off, and spends a retry.
func TestWrongStampsWriteNobodyOff(t *testing.T) {
	for name, count := range map[string]int{"one": 1, "a listing": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 4, script: "worker 1 die 47"})
				jobs := numbered(count)
				rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = touched{r.store} })
				r.until(rec, r.desired("c1", jobs...), 2*time.Hour, allFinished)
				launches := 0
				for _, j := range jobs {
					launches += r.claims(j.Work)
					if e := r.explain(r.reconciler(nil), j); e.State != plan.StateFinished {
						t.Errorf("%s: %+v", j.Name, e)
					}
				}
				if launches != count+1 {
					t.Errorf("%d launches of %d jobs, one of whose machines died", launches, count)
				}
			})
		})
	}
}
