package fleet

import (
	"context"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// port is a machine's way to the store: once the machine is lost nothing goes out any more, and no answer comes in.
// What was on its way then has its context ended, and may land or not, as the store behind it pleases.
type port struct {
	b        bucket.Bucket
	life     context.Context
	captured func(attempt int64)
}

var _ bucket.Bucket = (*port)(nil)

// lost is the answer on a machine that is no more.
func (p *port) lost(op, key string) error {
	if p.life.Err() == nil {
		return nil
	}
	return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: context.Canceled}
}

// Get implements bucket.Bucket.
func (p *port) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if err := p.lost("get", key); err != nil {
		return nil, err
	}
	o, err := p.b.Get(ctx, key, r)
	if gone := p.lost("get", key); gone != nil {
		if err == nil {
			_ = o.Body.Close()
		}
		return nil, gone
	}
	return o, err
}

// Put implements bucket.Bucket.
func (p *port) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if err := p.lost("put", key); err != nil {
		return "", err
	}
	if p.captured != nil && strings.HasSuffix(key, "/open.json") { // the first thing that a captured attempt writes
		if k, ok := record.Parse(key); ok {
			p.captured(k.Attempt)
		}
	}
	v, err := p.b.Put(ctx, key, body, c)
	if gone := p.lost("put", key); gone != nil {
		return "", gone
	}
	return v, err
}

// List implements bucket.Bucket.
func (p *port) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := p.lost("list", prefix); err != nil {
		return nil, err
	}
	page, err := p.b.List(ctx, prefix, after, limit)
	if gone := p.lost("list", prefix); gone != nil {
		return nil, gone
	}
	return page, err
}

// Delete implements bucket.Bucket.
func (p *port) Delete(ctx context.Context, key string) error {
	if err := p.lost("delete", key); err != nil {
		return err
	}
	err := p.b.Delete(ctx, key)
	if gone := p.lost("delete", key); gone != nil {
		return gone
	}
	return err
}

// Presign implements bucket.Bucket.
func (p *port) Presign(ctx context.Context, m bucket.Method, key string, ttl time.Duration) (string, error) {
	if err := p.lost("presign", key); err != nil {
		return "", err
	}
	return p.b.Presign(ctx, m, key, ttl)
}
