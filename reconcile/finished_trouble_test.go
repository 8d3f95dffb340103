package reconcile_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// tongueTied is a store that answers once that a lease is finished, and not the next time that it is asked for it.
type tongueTied struct {
	bucket.Bucket
	key      string
	finished bool
	lost     int
}

func (f *tongueTied) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if key != f.key {
		return f.Bucket.Get(ctx, key, r)
	}
	if f.finished && f.lost == 0 {
		f.lost++
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.Unknown, Err: fmt.Errorf("connection reset by peer")}
	}
	o, err := f.Bucket.Get(ctx, key, r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(o.Body)
	_ = o.Body.Close()
	f.finished = f.finished || bytes.Contains(body, []byte(`"finished"`))
	o.Body = io.NopCloser(bytes.NewReader(body))
	return o, err
}

// Put takes its time over receipts: a short work has finished before its launch is over, and then it is looked at once more.
func (f *tongueTied) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.HasSuffix(key, ".receipt.json") {
		<-time.After(5 * time.Minute)
	}
	return f.Bucket.Put(ctx, key, b, c)
}

// What is finished is not asked about again, unless the last answer about it was none: else whatever needs it would wait for
// ever (found by seed 5661 of the simulation).
func TestTroubleWithAFinishedLeasePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, model: sim.Model{Step: time.Second}})
		first := job("first")
		second := job("second", func(j *plan.Job) { j.Inputs = []plan.Input{{Job: "first", Work: first.Work}} })
		f := &tongueTied{Bucket: r.store, key: record.WitnessKey(string(first.Work))}
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = f })
		r.until(rec, r.desired("c1", first, second), time.Hour, func(rep *reconcile.Report) bool { return f.lost == 1 && allFinished(rep) })
		rec.Wait()
	})
}
