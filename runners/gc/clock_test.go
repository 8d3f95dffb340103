package gc

import (
	"context"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// clocked is a store with a clock that tests move by hand: both stamps of every answer come from it.
type clocked struct {
	bucket.Bucket
	mu      sync.Mutex
	now     time.Time
	written map[string]time.Time
}

func newClocked(b bucket.Bucket) *clocked {
	return &clocked{Bucket: b, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), written: map[string]time.Time{}}
}

func (c *clocked) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clocked) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := c.Bucket.Get(ctx, key, r)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Modified, o.Date = c.written[key], c.now
	}
	return o, err
}

func (c *clocked) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (bucket.Version, error) {
	v, err := c.Bucket.Put(ctx, key, body, cond)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written[key] = c.now
	}
	return v, err
}

func (c *clocked) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := c.Bucket.List(ctx, prefix, after, limit)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.Date = c.now
		for i := range p.Items {
			p.Items[i].Modified = c.written[p.Items[i].Key]
		}
	}
	return p, err
}

func (h *hooked) Delete(ctx context.Context, key string) error {
	h.before()
	return h.Bucket.Delete(ctx, key)
}

func (o *overtaken) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o.step()
	return o.Bucket.Get(ctx, key, r)
}

func (o *overtaken) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	o.step()
	return o.Bucket.List(ctx, prefix, after, limit)
}
