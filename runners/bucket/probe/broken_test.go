package probe_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// A broken store is a real one behind a Put that goes wrong in the way of some store that existed.
type brokenStore struct {
	bucket.Bucket
	put func(ctx context.Context, inner bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error)
}

func (b brokenStore) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	return b.put(ctx, b.Bucket, key, body, c)
}

func ignoresAbsent(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if c.Absent() {
		c = bucket.Always()
	}
	return in.Put(ctx, key, body, c)
}

func ignoresMatch(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if _, ok := c.Is(); !ok {
		return in.Put(ctx, key, body, c)
	}
	if o, err := in.Get(ctx, key, bucket.Range{}); err == nil { // it does look whether the key is there
		_ = o.Body.Close()
		return in.Put(ctx, key, body, bucket.Always())
	}
	return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Gone}
}

func ignoresBoth(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, _ bucket.Cond) (bucket.Version, error) {
	return in.Put(ctx, key, body, bucket.Always())
}

func notImplemented(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if c != bucket.Always() {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unsupported, Err: errors.New("501 NotImplemented")}
	}
	return in.Put(ctx, key, body, c)
}

func createsOnMatch(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	v, err := in.Put(ctx, key, body, c)
	if bucket.Is(err, bucket.Gone) {
		return in.Put(ctx, key, body, bucket.Always())
	}
	return v, err
}

// writesAnyway says 412 and writes nevertheless.
func writesAnyway(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	v, err := in.Put(ctx, key, body, c)
	if bucket.Is(err, bucket.Condition) {
		_, _ = in.Put(ctx, key, body, bucket.Always())
	}
	return v, err
}

func inverted(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if !c.Absent() {
		return in.Put(ctx, key, body, c)
	}
	v, err := in.Put(ctx, key, body, c)
	if err == nil {
		_ = in.Delete(ctx, key)
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
	}
	return v, nil
}

// racy checks first and writes then, with a little time in between.
func racy(window time.Duration) func(context.Context, bucket.Bucket, string, bucket.Body, bucket.Cond) (bucket.Version, error) {
	return func(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
		is, swap := c.Is()
		o, err := in.Get(ctx, key, bucket.Range{})
		if err == nil {
			_ = o.Body.Close()
		}
		switch {
		case c.Absent() && err == nil, swap && err == nil && o.Version != is:
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
		case swap && err != nil:
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Gone}
		}
		<-time.After(window)
		return in.Put(ctx, key, body, bucket.Always())
	}
}

// racySwaps is racy for If-Match alone.
func racySwaps(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if _, swap := c.Is(); swap {
		return racy(time.Millisecond)(ctx, in, key, body, c)
	}
	return in.Put(ctx, key, body, c)
}

// unquoted honours If-Match only without quotes: a good store with a quirk.
func unquoted(ctx context.Context, in bucket.Bucket, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if is, ok := c.Is(); ok {
		if strings.HasPrefix(string(is), `"`) {
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
		}
		c = bucket.IfIs(bucket.Version(`"` + string(is) + `"`))
	}
	return in.Put(ctx, key, body, c)
}

// conflicting answers 409 to all but one of those that meet: correct, and rude.
type conflicting struct {
	bucket.Bucket
	mu   sync.Mutex
	busy map[string]bool
}

func (b *conflicting) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	b.mu.Lock()
	if b.busy[key] {
		b.mu.Unlock()
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Raced}
	}
	b.busy[key] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy[key] = false
	}()
	<-time.After(time.Millisecond)
	return b.Bucket.Put(ctx, key, body, c)
}
