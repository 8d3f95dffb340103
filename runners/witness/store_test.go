package witness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// memory is a linearizable store whose version is a hash of the bytes, as on most stores, with a hook before and
// after each operation. It keeps the history of every witness.
type memory struct {
	mu      sync.Mutex
	objects map[string]object
	history map[string][]Record // every version of a witness, in order
	bodies  map[string]bool     // every body that a witness ever had
	repeats int                 // witness bodies that came twice

	// before may answer in the store's place (do: the operation is then not done); after may replace the answer of
	// an operation that was done.
	before func(op, key string) error
	after  func(op, key string) error
	puts   int
}

type object struct {
	body     []byte
	modified time.Time
}

func newMemory() *memory {
	return &memory{objects: map[string]object{}, history: map[string][]Record{}, bodies: map[string]bool{}}
}

func fault(op, key string, c bucket.Code) error { return &bucket.Error{Op: op, Key: key, Code: c} }

func (m *memory) hooked(ctx context.Context, op, key string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: err}
	}
	if m.before != nil {
		if err := m.before(op, key); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err := do()
	m.mu.Unlock()
	if err == nil && m.after != nil {
		err = m.after(op, key)
	}
	return err
}

func versionOf(b []byte) bucket.Version { return bucket.Version(`"` + record.Hash(b)[:16] + `"`) }

func (m *memory) Get(ctx context.Context, key string, _ bucket.Range) (o *bucket.Object, err error) {
	err = m.hooked(ctx, "get", key, func() error {
		got, has := m.objects[key]
		if !has {
			return fault("get", key, bucket.NotFound)
		}
		o = &bucket.Object{Info: bucket.Info{Key: key, Size: int64(len(got.body)), Version: versionOf(got.body), Modified: got.modified},
			Body: io.NopCloser(bytes.NewReader(got.body)), Date: time.Now()}
		return nil
	})
	return o, err
}

func (m *memory) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (v bucket.Version, err error) {
	raw := make([]byte, b.Size())
	if _, err := b.ReadAt(raw, 0); err != nil && err != io.EOF {
		return "", fault("put", key, bucket.BadKey)
	}
	err = m.hooked(ctx, "put", key, func() error {
		m.puts++
		return m.put(key, raw, c)
	})
	if err != nil {
		return "", err
	}
	return versionOf(raw), nil
}

func (m *memory) put(key string, raw []byte, c bucket.Cond) error {
	old, has := m.objects[key]
	if c.Absent() && has {
		return fault("put", key, bucket.Condition)
	}
	if want, is := c.Is(); is {
		if !has {
			return fault("put", key, bucket.Gone)
		}
		if versionOf(old.body) != want {
			return fault("put", key, bucket.Condition)
		}
	}
	m.objects[key] = object{body: raw, modified: time.Now()}
	if work, is := strings.CutPrefix(key, record.WitnessPrefix); is {
		if m.bodies[string(raw)] {
			m.repeats++
		}
		m.bodies[string(raw)] = true
		if r, err := Decode(work, raw); err == nil {
			m.history[work] = append(m.history[work], r)
		}
	}
	return nil
}

func (m *memory) List(ctx context.Context, prefix, after string, limit int) (p *bucket.Page, err error) {
	err = m.hooked(ctx, "list", prefix, func() error {
		var keys []string
		for k := range m.objects {
			if strings.HasPrefix(k, prefix) && k > after {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		p = &bucket.Page{Date: time.Now()}
		for _, k := range keys {
			if limit > 0 && len(p.Items) == limit {
				p.More = true
				break
			}
			p.Items = append(p.Items, bucket.Info{Key: k, Size: int64(len(m.objects[k].body)), Version: versionOf(m.objects[k].body), Modified: m.objects[k].modified})
		}
		return nil
	})
	return p, err
}

// remove is what a person does by hand; no code of ours deletes.
func (m *memory) remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// set writes an object past every rule.
func (m *memory) set(key string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key] = object{body: b, modified: time.Now()}
}

func (m *memory) claim(work string, n int64) {
	b, _ := record.Encode(record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()})
	m.set(record.ClaimKey(work, n), b)
}

// milestone puts a complete snapshot and returns its pointer.
func (m *memory) milestone(work string, attempt, n, step int64, parent *record.Pointer) record.Pointer {
	man := record.Manifest{Protocol: 1, Work: work, Attempt: attempt, Milestone: n, Step: step, Parent: parent}
	b, _ := record.Encode(man)
	key := record.MilestoneManifestKey(work, attempt, n)
	m.set(key, b)
	return record.Pointer{Attempt: attempt, Milestone: n, Step: step, Manifest: key, SHA256: record.Hash(b)}
}

// result puts a result and returns its pointer.
func (m *memory) result(work string, attempt int64, parent *record.Pointer) FinishedPointer {
	b, _ := record.Encode(record.Manifest{Protocol: 1, Work: work, Attempt: attempt, Parent: parent})
	key := record.ResultManifestKey(work, attempt)
	m.set(key, b)
	return FinishedPointer{Attempt: attempt, Manifest: key, SHA256: record.Hash(b)}
}

func workNamed(i int) string { return record.Hash(fmt.Appendf(nil, "work %d", i)) }
