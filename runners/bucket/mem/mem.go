// Package mem is a store in memory: a faithful fake for tests and simulations, with the habits of S3 that matter.
// The version is the quoted MD5 of the bytes (so equal bytes have equal versions, and A→B→A passes a stale swap),
// stamps have a resolution of one second, a listing is strongly consistent. It uses package time, so that inside a
// synctest bubble its clock is the bubble's.
package mem

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Bucket holds objects in memory. Make one with New.
type Bucket struct {
	mu      sync.Mutex
	objects map[string]object
	keys    []string // sorted
}

type object struct {
	data     []byte // never changed in place
	version  bucket.Version
	modified time.Time
}

var _ bucket.Bucket = (*Bucket)(nil)

// New returns an empty store.
func New() *Bucket { return &Bucket{objects: map[string]object{}} }

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if err := enter(ctx, "get", key); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.NotFound}
	}
	off, n, ok := r.Bounds(int64(len(o.data)))
	if !ok {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("range starts at byte %d of %d", r.Offset, len(o.data))}
	}
	return &bucket.Object{Info: o.info(key), Body: io.NopCloser(bytes.NewReader(o.data[off : off+n])), Date: now()}, nil
}

// Put implements bucket.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if err := enter(ctx, "put", key); err != nil {
		return "", err
	}
	data := make([]byte, body.Size())
	if n, err := body.ReadAt(data, 0); n < len(data) {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("the body ended after %d of %d bytes: %w", n, len(data), err)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, exists := b.objects[key]
	is, swap := c.Is()
	switch {
	case c.Absent() && exists, swap && exists && old.version != is:
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
	case swap && !exists:
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Gone}
	case !exists && b.folderClash(key):
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: errors.New("the key is a folder of another, or below one")}
	}
	sum := md5.Sum(data)
	o := object{data: data, version: bucket.Version(`"` + hex.EncodeToString(sum[:]) + `"`), modified: now()}
	b.objects[key] = o
	if !exists {
		i := sort.SearchStrings(b.keys, key)
		b.keys = append(b.keys, "")
		copy(b.keys[i+1:], b.keys[i:])
		b.keys[i] = key
	}
	return o.version, nil
}

// folderClash reports whether a new key would be a folder of a present one or lie below one.
func (b *Bucket) folderClash(key string) bool {
	if i := sort.SearchStrings(b.keys, key+"/"); i < len(b.keys) && strings.HasPrefix(b.keys[i], key+"/") {
		return true
	}
	for i := strings.LastIndexByte(key, '/'); i > 0; i = strings.LastIndexByte(key[:i], '/') {
		if _, ok := b.objects[key[:i]]; ok {
			return true
		}
	}
	return false
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := ctx.Err(); err != nil {
		return nil, &bucket.Error{Op: "list", Key: prefix, Code: bucket.Unknown, Err: err}
	}
	if err := bucket.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	limit = bucket.PageLimit(limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &bucket.Page{Date: now()}
	start := sort.SearchStrings(b.keys, max(prefix, after))
	for _, k := range b.keys[start:] {
		if !strings.HasPrefix(k, prefix) {
			break
		}
		if k == after {
			continue
		}
		if len(p.Items) == limit {
			p.More = true
			break
		}
		p.Items = append(p.Items, b.objects[k].info(k))
	}
	return p, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := enter(ctx, "delete", key); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[key]; ok {
		delete(b.objects, key)
		i := sort.SearchStrings(b.keys, key)
		b.keys = append(b.keys[:i], b.keys[i+1:]...)
	}
	return nil
}

// Presign implements bucket.Bucket: there is no URL that leads here.
func (b *Bucket) Presign(_ context.Context, _ bucket.Method, key string, _ time.Duration) (string, error) {
	return "", &bucket.Error{Op: "presign", Key: key, Code: bucket.Unsupported, Err: errors.New("a store in memory has no URLs")}
}

func enter(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: err}
	}
	return bucket.CheckKey(op, key)
}

func now() time.Time { return time.Now().Truncate(time.Second) }

func (o object) info(key string) bucket.Info {
	return bucket.Info{Key: key, Size: int64(len(o.data)), Version: o.version, Modified: o.modified}
}
