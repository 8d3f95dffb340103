// Package counting is the store port that counts its requests by verb: what a reconciler's pass or an hour of a job
// costs is a number that a test or a benchmark can print.
package counting

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Counts are requests by verb, failed ones included.
type Counts struct {
	Get, Put, List, Delete, Presign int64
	Conditional                     int64 // of the Puts
	PutBytes                        int64 // offered to Put
	GetBytes                        int64 // announced by Get
}

// Requests is how many went to the store; signing a URL sends nothing.
func (c Counts) Requests() int64 { return c.Get + c.Put + c.List + c.Delete }

// String is one line for people.
func (c Counts) String() string {
	return fmt.Sprintf("%d store requests (%d get, %d list, %d put of which %d conditional, %d delete)", c.Requests(), c.Get, c.List, c.Put, c.Conditional, c.Delete)
}

// Minus is what was added since an earlier reading.
func (c Counts) Minus(e Counts) Counts {
	return Counts{Get: c.Get - e.Get, Put: c.Put - e.Put, List: c.List - e.List, Delete: c.Delete - e.Delete, Presign: c.Presign - e.Presign,
		Conditional: c.Conditional - e.Conditional, PutBytes: c.PutBytes - e.PutBytes, GetBytes: c.GetBytes - e.GetBytes}
}

// Bucket is the decorator. Make one with New.
type Bucket struct {
	inner                                                            bucket.Bucket
	get, put, list, remove, presign, conditional, putBytes, getBytes atomic.Int64
}

var _ bucket.Bucket = (*Bucket)(nil)

// New wraps a store.
func New(inner bucket.Bucket) *Bucket { return &Bucket{inner: inner} }

// Counts reads the counters.
func (b *Bucket) Counts() Counts {
	return Counts{Get: b.get.Load(), Put: b.put.Load(), List: b.list.Load(), Delete: b.remove.Load(), Presign: b.presign.Load(),
		Conditional: b.conditional.Load(), PutBytes: b.putBytes.Load(), GetBytes: b.getBytes.Load()}
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	b.get.Add(1)
	o, err := b.inner.Get(ctx, key, r)
	if err == nil {
		_, n, _ := r.Bounds(o.Size)
		b.getBytes.Add(n)
	}
	return o, err
}

// Put implements bucket.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	b.put.Add(1)
	b.putBytes.Add(body.Size())
	if c != bucket.Always() {
		b.conditional.Add(1)
	}
	return b.inner.Put(ctx, key, body, c)
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	b.list.Add(1)
	return b.inner.List(ctx, prefix, after, limit)
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	b.remove.Add(1)
	return b.inner.Delete(ctx, key)
}

// Presign implements bucket.Bucket.
func (b *Bucket) Presign(ctx context.Context, m bucket.Method, key string, ttl time.Duration) (string, error) {
	b.presign.Add(1)
	return b.inner.Presign(ctx, m, key, ttl)
}
