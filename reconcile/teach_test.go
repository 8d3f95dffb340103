package reconcile

import (
	"bytes"
	"context"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Teach lays observations into a reconciler's store and its book, as reading them would. It is for tests alone.
func (r *Reconciler) Teach(list ...record.Observation) {
	for _, o := range list {
		at, err := time.Parse(time.RFC3339, o.Time)
		body, bad := record.Encode(o)
		key := record.ObservationKey(o, at)
		if err == nil && bad == nil {
			_, err = r.c.Bucket.Put(context.Background(), key, bytes.NewReader(body), bucket.Always())
		}
		if err != nil || bad != nil || !r.book.Add(o) {
			panic("the book takes no such observation") // a test's own mistake
		}
		r.learner.raw[key] = o
	}
}
