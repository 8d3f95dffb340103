package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/sim"
)

// Jobs of a fraction of a second that wait for places: nothing tells that a place is free but a look, so the looks come as
// fast as places become free. Jobs of an hour that wait cost no more looks than the leases need anyway.
func TestLooksFollowThePlaces(t *testing.T) {
	for _, tc := range []struct {
		name        string
		jobs, slots int
		steps       int64
		step        time.Duration
		within      float64 // of the least time that these places need
		passes      int
	}{
		{"short", 60, 3, 3, 100 * time.Millisecond, 2, 100},
		{"long", 4, 2, 60, time.Minute, 1.05, 2*60*12 + 20}, // a look every five seconds
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: tc.slots, model: sim.Model{Start: 10 * time.Millisecond, Step: tc.step}})
				rec, d := r.reconciler(nil), r.desired("c1", numbered(tc.jobs, steps(tc.steps, 100), func(j *plan.Job) { j.Lease.Floor = 15 * time.Second })...)
				start, passes := time.Now(), 0
				r.until(rec, d, 100*time.Hour, func(rep *reconcile.Report) bool { passes++; return allFinished(rep) })
				least := time.Duration(tc.jobs/tc.slots) * (time.Duration(tc.steps)*tc.step + 10*time.Millisecond)
				took := time.Since(start)
				if most := time.Duration(tc.within * float64(least)); took > most+5*time.Second || passes > tc.passes {
					t.Errorf("took %v where %v is the least, with %d passes", took, least, passes)
				}
				t.Logf("%v, %.2f of the least, %d passes", took, took.Seconds()/least.Seconds(), passes)
			})
		})
	}
}

// lagging is a store each of whose answers takes its time.
type lagging struct {
	bucket.Bucket
	by time.Duration
}

func (l lagging) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	<-time.After(l.by)
	return l.Bucket.Get(ctx, key, r)
}

func (l lagging) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	<-time.After(l.by)
	return l.Bucket.List(ctx, prefix, after, limit)
}

func (l lagging) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	<-time.After(l.by)
	return l.Bucket.Put(ctx, key, body, c)
}

// F2 of the cases: a commit with 1,000 jobs, on a store that takes 30 ms for each answer. The platform is called for the first
// time within a second, and all are claimed within 30.
func TestAThousandPlansInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1200})
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = lagging{r.store, 30 * time.Millisecond} })
		start, called := time.Now(), time.Duration(0)
		stop := make(chan struct{})
		go func() {
			for called == 0 {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					if r.sim.Meter().Started > 0 {
						called = time.Since(start)
					}
				}
			}
		}()
		d := r.desired("c1", numbered(1000)...)
		for r.sim.Meter().Started < 1000 && time.Since(start) < time.Minute {
			<-time.After(r.pass(rec, d).Next)
		}
		close(stop)
		took := time.Since(start)
		if called == 0 || called > time.Second || took > 30*time.Second || r.sim.Meter().Started != 1000 {
			t.Errorf("the first call after %v, %d launches after %v", called, r.sim.Meter().Started, took)
		}
		t.Logf("the first call after %v, all after %v", called, took)
	})
}
