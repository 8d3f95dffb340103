package mutant

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// unconditional is a store that ignores conditions on witnesses.
type unconditional struct {
	bucket.Bucket
	w *World
}

// Put implements bucket.Bucket.
func (u *unconditional) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if !strings.HasPrefix(key, record.WitnessPrefix) {
		return u.Bucket.Put(ctx, key, body, c)
	}
	v, err := u.Bucket.Put(ctx, key, body, c)
	switch bucket.CodeOf(err) {
	case bucket.Condition, bucket.Gone, bucket.NotFound:
		if err != nil {
			u.w.fired.Add(1)
			return u.Bucket.Put(ctx, key, body, bucket.Always())
		}
	case bucket.Unknown, bucket.Raced, bucket.Throttled, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
	}
	return v, err
}

// shared lays what all attempts upload under the first one's prefix.
type shared struct {
	bucket.Bucket
	w *World
}

func (s *shared) key(key string) string {
	p, ok := upload(key)
	if !ok || p.Attempt == 1 {
		return key
	}
	s.w.fired.Add(1)
	return record.AttemptPrefix(p.Work, 1) + p.Rest
}

// Get implements bucket.Bucket.
func (s *shared) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, s.key(key), r)
	if o != nil {
		o.Key = key
	}
	return o, err
}

// Put implements bucket.Bucket.
func (s *shared) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	return s.Bucket.Put(ctx, s.key(key), body, c)
}

// Delete implements bucket.Bucket.
func (s *shared) Delete(ctx context.Context, key string) error {
	return s.Bucket.Delete(ctx, s.key(key))
}

// rereading takes a version that it has read as the base of another try.
type rereading struct {
	bucket.Bucket
	w *World
}

// Put implements bucket.Bucket.
func (r *rereading) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	v, err := r.Bucket.Put(ctx, key, body, c)
	if err == nil || c == bucket.Always() || !strings.HasPrefix(key, record.WitnessPrefix) {
		return v, err
	}
	switch bucket.CodeOf(err) {
	case bucket.Condition, bucket.Unknown, bucket.Raced:
		o, getErr := r.Bucket.Get(ctx, key, bucket.Range{})
		if getErr != nil {
			return v, err
		}
		_ = o.Body.Close()
		r.w.fired.Add(1)
		return r.Bucket.Put(ctx, key, body, bucket.IfIs(o.Version))
	case bucket.Gone, bucket.NotFound, bucket.Throttled, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
	}
	return v, err
}

// hasty says yes to an upload before it has gone out. Its sender alone sees it until then.
type hasty struct {
	bucket.Bucket
	w *World

	mu    sync.Mutex
	early map[string][]byte // not landed yet
}

// Get implements bucket.Bucket.
func (h *hasty) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	h.mu.Lock()
	b, ok := h.early[key]
	h.mu.Unlock()
	if !ok {
		return h.Bucket.Get(ctx, key, r)
	}
	if b = b[min(r.Offset, int64(len(b))):]; r.Length > 0 {
		b = b[:min(r.Length, int64(len(b)))]
	}
	return &bucket.Object{Info: bucket.Info{Key: key, Size: int64(len(b)), Version: "early", Modified: time.Now()},
		Body: io.NopCloser(bytes.NewReader(b)), Date: time.Now()}, nil
}

// landTries is how often an upload that was acknowledged is sent before it is given up.
const landTries = 20

// Put implements bucket.Bucket. The real write has as long as it needs, but not longer than its sender lives: the store
// of a dead one takes nothing.
func (h *hasty) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if _, ok := upload(key); !ok || ctx.Err() != nil {
		return h.Bucket.Put(ctx, key, body, c)
	}
	b, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: err}
	}
	h.mu.Lock()
	h.early[key] = b
	h.mu.Unlock()
	h.w.fired.Add(1)
	go h.land(context.WithoutCancel(ctx), key, b, c)
	return "early", nil
}

func (h *hasty) land(ctx context.Context, key string, b []byte, c bucket.Cond) {
	for range landTries {
		time.Sleep(h.w.lag)
		_, err := h.Bucket.Put(ctx, key, bytes.NewReader(b), c)
		if err == nil {
			h.mu.Lock()
			delete(h.early, key)
			h.mu.Unlock()
			return
		}
		switch bucket.CodeOf(err) {
		case bucket.Unknown, bucket.Raced, bucket.Throttled:
		case bucket.Condition, bucket.Gone, bucket.NotFound, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
			return
		}
	}
}
