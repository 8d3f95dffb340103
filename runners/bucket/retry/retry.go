// Package retry is the store port that asks again when a read got no answer or was told to slow down. Writes pass
// through untouched: whoever writes under a condition must see every answer, and resolves an unknown one by reading.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Options of New. The zero value is right for use.
type Options struct {
	Attempts int           // calls in all; 0: 5
	First    time.Duration // wait before the second, doubled each time, with jitter; 0: 100 ms
	Longest  time.Duration // cap of a wait; 0: 5 s
}

// Bucket is the decorator. Make one with New.
type Bucket struct {
	bucket.Bucket
	o Options
}

var _ bucket.Bucket = (*Bucket)(nil)

// New wraps a store.
func New(inner bucket.Bucket, o Options) *Bucket {
	if o.Attempts < 1 {
		o.Attempts = 5
	}
	if o.First <= 0 {
		o.First = 100 * time.Millisecond
	}
	if o.Longest <= 0 {
		o.Longest = 5 * time.Second
	}
	return &Bucket{Bucket: inner, o: o}
}

// Get implements bucket.Bucket. Only the opening is repeated: a body that is cut short is the caller's to notice.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	return again(ctx, b.o, func() (*bucket.Object, error) { return b.Bucket.Get(ctx, key, r) })
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	return again(ctx, b.o, func() (*bucket.Page, error) { return b.Bucket.List(ctx, prefix, after, limit) })
}

func again[T any](ctx context.Context, o Options, call func() (T, error)) (T, error) {
	wait := o.First
	for n := 1; ; n++ {
		v, err := call()
		if code := bucket.CodeOf(err); err == nil || n == o.Attempts || ctx.Err() != nil || code != bucket.Unknown && code != bucket.Throttled {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, o.Longest)
	}
}
