package faulty

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, rule, err := do(ctx, b, "get", key, bucket.Always(), func(ctx context.Context, _ bucket.Cond) (*bucket.Object, error) {
		return b.inner.Get(ctx, key, r)
	})
	switch {
	case rule.Effect == Stale:
		return b.stale(key, r, o, err)
	case err != nil:
		return nil, err
	case rule.Effect == Truncate:
		o.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(o.Body, o.Size/2), o.Body}
	}
	return o, nil
}

// stale answers with the remembered content; the date is today's, as a lagging replica would say.
func (b *Bucket) stale(key string, r bucket.Range, now *bucket.Object, err error) (*bucket.Object, error) {
	date := time.Time{}
	if err == nil {
		date = now.Date
		_ = now.Body.Close()
	}
	b.mu.Lock()
	s := b.before[key]
	b.mu.Unlock()
	if s.data == nil {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.NotFound}
	}
	off, n, ok := r.Bounds(int64(len(s.data)))
	if !ok {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.BadKey}
	}
	return &bucket.Object{Info: s.info, Body: io.NopCloser(bytes.NewReader(s.data[off : off+n])), Date: date}, nil
}

// remember keeps what a key holds, when a rule will ask for it.
func (b *Bucket) remember(ctx context.Context, key string) {
	b.mu.Lock()
	wanted := false
	for _, s := range b.rules {
		wanted = wanted || s.Effect == Stale && (s.Key == "" || match(s.Key, key))
	}
	b.mu.Unlock()
	if !wanted {
		return
	}
	s := &saved{}
	if o, err := b.inner.Get(ctx, key, bucket.Range{}); err == nil {
		s.data, err = io.ReadAll(o.Body)
		_ = o.Body.Close()
		s.info = o.Info
		if err != nil {
			return
		}
	}
	b.mu.Lock()
	b.before[key] = s
	b.mu.Unlock()
}

// Put implements bucket.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	b.remember(ctx, key)
	v, _, err := do(ctx, b, "put", key, c, func(ctx context.Context, c bucket.Cond) (bucket.Version, error) {
		return b.inner.Put(ctx, key, body, c)
	})
	return v, err
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, rule, err := do(ctx, b, "list", prefix, bucket.Always(), func(ctx context.Context, _ bucket.Cond) (*bucket.Page, error) {
		return b.inner.List(ctx, prefix, after, limit)
	})
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%q %q %d", prefix, after, limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.pages[id]; ok && rule.Effect == Lag {
		old.Date = p.Date
		return &old, nil
	}
	b.pages[id] = *p
	return p, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	b.remember(ctx, key)
	_, _, err := do(ctx, b, "delete", key, bucket.Always(), func(ctx context.Context, _ bucket.Cond) (struct{}, error) {
		return struct{}{}, b.inner.Delete(ctx, key)
	})
	return err
}

// Presign implements bucket.Bucket: requests through the URL do not pass here, so only Refuse and Slow mean anything.
func (b *Bucket) Presign(ctx context.Context, m bucket.Method, key string, ttl time.Duration) (string, error) {
	u, _, err := do(ctx, b, "presign", key, bucket.Always(), func(ctx context.Context, _ bucket.Cond) (string, error) {
		return b.inner.Presign(ctx, m, key, ttl)
	})
	return u, err
}
