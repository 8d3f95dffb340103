package meter

import (
	"context"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// counted is a store whose requests are counted and timed.
type counted struct {
	bucket.Bucket
	m        *Meter
	answered func()
}

// Bucket counts and times the requests to a store. answered is called after each answer, whatever it says; nil: nobody asks.
func (m *Meter) Bucket(b bucket.Bucket, answered func()) bucket.Bucket {
	if answered == nil {
		answered = func() {}
	}
	return &counted{b, m, answered}
}

// did counts one request that began at start.
func (c *counted) did(op string, start time.Time, err error) {
	c.m.add("headway_store_requests_total", 1, "op", op)
	c.m.histogram("headway_store_seconds", "op", op).Update(time.Since(start).Seconds())
	odd := 0
	if err != nil && !bucket.Is(err, bucket.NotFound) && !bucket.Is(err, bucket.Condition) && !bucket.Is(err, bucket.Raced) && !bucket.Is(err, bucket.Gone) {
		odd = 1
	}
	c.m.add("headway_store_errors_total", odd, "op", op)
	c.answered()
}

// Get implements bucket.Bucket.
func (c *counted) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	start := time.Now()
	o, err := c.Bucket.Get(ctx, key, r)
	c.did("get", start, err)
	return o, err
}

// Put implements bucket.Bucket.
func (c *counted) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (bucket.Version, error) {
	start := time.Now()
	v, err := c.Bucket.Put(ctx, key, body, cond)
	c.did("put", start, err)
	return v, err
}

// List implements bucket.Bucket.
func (c *counted) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	start := time.Now()
	p, err := c.Bucket.List(ctx, prefix, after, limit)
	c.did("list", start, err)
	return p, err
}

// Delete implements bucket.Bucket.
func (c *counted) Delete(ctx context.Context, key string) error {
	start := time.Now()
	err := c.Bucket.Delete(ctx, key)
	c.did("delete", start, err)
	return err
}
