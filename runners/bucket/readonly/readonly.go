// Package readonly is the store port without writes: a Put, a Delete or a presigned PUT is refused before anything is
// sent. Read verbs run on it, so that "writes nothing" is proved by the type and not by reading the code.
package readonly

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Bucket is the decorator. Make one with New.
type Bucket struct {
	inner   bucket.Bucket
	refused atomic.Int64
}

var _ bucket.Bucket = (*Bucket)(nil)

// New wraps a store.
func New(inner bucket.Bucket) *Bucket { return &Bucket{inner: inner} }

// Refused is how many writes were asked for, and not done.
func (b *Bucket) Refused() int64 { return b.refused.Load() }

func (b *Bucket) refuse(op, key string) error {
	b.refused.Add(1)
	return &bucket.Error{Op: op, Key: key, Code: bucket.Denied, Err: errors.New("the store was opened for reading only"), Hint: "this is a defect of headway: please report it"}
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	return b.inner.Get(ctx, key, r)
}

// Put implements bucket.Bucket: it refuses.
func (b *Bucket) Put(_ context.Context, key string, _ bucket.Body, _ bucket.Cond) (bucket.Version, error) {
	return "", b.refuse("put", key)
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	return b.inner.List(ctx, prefix, after, limit)
}

// Delete implements bucket.Bucket: it refuses.
func (b *Bucket) Delete(_ context.Context, key string) error { return b.refuse("delete", key) }

// Presign implements bucket.Bucket: only GET.
func (b *Bucket) Presign(ctx context.Context, m bucket.Method, key string, ttl time.Duration) (string, error) {
	if m != bucket.MethodGet {
		return "", b.refuse("presign", key)
	}
	return b.inner.Presign(ctx, m, key, ttl)
}
