package mutant

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// pointerPrefix holds the pointers that are objects of their own.
const pointerPrefix = "pointer/"

// pointer is what an actor knows of one.
type pointer struct {
	to      *record.Pointer
	version bucket.Version // "": absent
}

// apart makes two objects of one: a witness is read with the pointer put in, and a write of a holder that moves the
// pointer becomes three requests: a look at the lease, the pointer, the rest.
type apart struct {
	bucket.Bucket
	w *World

	mu   sync.Mutex
	last map[string]pointer // by work, as this actor has seen it last
}

// work is the work of a witness's key.
func work(key string) (string, bool) { return strings.CutPrefix(key, record.WitnessPrefix) }

// Get implements bucket.Bucket.
func (a *apart) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := a.Bucket.Get(ctx, key, r)
	id, is := work(key)
	if err != nil || !is {
		return o, err
	}
	defer o.Body.Close()
	raw, err := io.ReadAll(o.Body)
	if err != nil || int64(len(raw)) != o.Size {
		return cut(o, raw, err), nil
	}
	p, err := a.pointer(ctx, id)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.last[id] = p
	a.mu.Unlock()
	whole := with(raw, p.to)
	o.Size, o.Body = int64(len(whole)), io.NopCloser(bytes.NewReader(whole))
	return o, nil
}

// cut is a body that ended early, as its reader would have seen it.
func cut(o *bucket.Object, raw []byte, err error) *bucket.Object {
	var rest io.Reader = strings.NewReader("")
	if err != nil {
		rest = failing{err}
	}
	o.Body = io.NopCloser(io.MultiReader(bytes.NewReader(raw), rest))
	return o
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// pointer reads the pointer's object.
func (a *apart) pointer(ctx context.Context, id string) (p pointer, err error) {
	o, err := a.Bucket.Get(ctx, pointerPrefix+id, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	defer o.Body.Close()
	raw, err := io.ReadAll(o.Body)
	if err == nil && int64(len(raw)) != o.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = json.Unmarshal(raw, &p.to)
	}
	if err != nil {
		return p, &bucket.Error{Op: "get", Key: pointerPrefix + id, Code: bucket.Unknown, Err: err}
	}
	p.version = o.Version
	return p, nil
}

// with is a witness with its pointer put in; what cannot be read is left as it is.
func with(raw []byte, to *record.Pointer) []byte {
	var r witness.Record
	if json.Unmarshal(raw, &r) != nil {
		return raw
	}
	r.Resume = to
	b, err := record.Encode(r)
	if err != nil {
		return raw
	}
	return b
}

// Put implements bucket.Bucket.
func (a *apart) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	id, is := work(key)
	base, swap := c.Is()
	if !is || !swap {
		return a.Bucket.Put(ctx, key, body, c)
	}
	raw, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: err}
	}
	var r witness.Record
	a.mu.Lock()
	last := a.last[id]
	a.mu.Unlock()
	moves := json.Unmarshal(raw, &r) == nil && r.State == witness.Held && r.Resume != nil && r.Resume.Attempt == r.Attempt &&
		(last.to == nil || *last.to != *r.Resume)
	if moves {
		if err := a.move(ctx, key, id, base, last.version, r.Resume); err != nil {
			return "", err
		}
	}
	return a.Bucket.Put(ctx, key, bytes.NewReader(raw), c)
}

// move looks whether the lease is what it was, and then moves the pointer.
func (a *apart) move(ctx context.Context, key, id string, base, was bucket.Version, to *record.Pointer) error {
	o, err := a.Bucket.Get(ctx, key, bucket.Range{})
	if err != nil {
		return err
	}
	_ = o.Body.Close()
	if o.Version != base {
		return &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
	}
	b, err := json.Marshal(to)
	if err != nil {
		return err
	}
	c := bucket.IfIs(was)
	if was == "" {
		c = bucket.IfAbsent()
	}
	a.w.fired.Add(1)
	v, err := a.Bucket.Put(ctx, pointerPrefix+id, bytes.NewReader(b), c)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.last[id] = pointer{to, v}
	a.mu.Unlock()
	return nil
}

// merged shows a history of two objects as that of the one that readers see: a pointer that moves is a new version of
// its witness, by whoever moved it. Revisions are counted anew.
type merged struct {
	s    history.Sink
	last map[string]*version
}

// version is the last one of a witness.
type version struct {
	r       witness.Record
	to      *record.Pointer
	version bucket.Version
	n       int64 // versions so far
}

// Take implements history.Sink.
func (m *merged) Take(e history.Entry) {
	id, lease := work(e.Key)
	to, moved := strings.CutPrefix(e.Key, pointerPrefix)
	switch {
	case moved && e.Applied():
		m.moved(e, to)
	case moved:
		e.Op, e.Text = history.Note, "the pointer of "+history.Short(to)+" was not moved"
		m.s.Take(e)
	case lease && e.Applied() && e.Op == history.Put:
		m.wrote(e, id)
	case lease && e.Applied():
		delete(m.last, id)
		m.s.Take(e)
	default:
		m.s.Take(e)
	}
}

func (m *merged) wrote(e history.Entry, id string) {
	v := m.last[id]
	if v == nil {
		v = &version{}
		m.last[id] = v
	}
	var r witness.Record
	if json.Unmarshal(e.Body, &r) != nil {
		m.s.Take(e)
		return
	}
	m.show(e, v, r)
}

func (m *merged) moved(e history.Entry, id string) {
	v := m.last[id]
	var to *record.Pointer
	if v == nil || json.Unmarshal(e.Body, &to) != nil {
		return
	}
	v.to = to
	r := v.r
	sum := sha256.Sum256([]byte(id + " " + strconv.FormatInt(v.n, 10) + " " + string(e.Body)))
	r.Write = hex.EncodeToString(sum[:16])
	e.Key, e.Version = record.WitnessKey(id), "pointer "+e.Version
	m.show(e, v, r)
}

// show passes a version on as the next one of its witness.
func (m *merged) show(e history.Entry, v *version, r witness.Record) {
	if v.n > 0 {
		e.Cond = bucket.IfIs(v.version)
	}
	v.n++
	r.Rev, r.Resume = v.n, v.to
	b, err := record.Encode(r)
	if err != nil {
		return
	}
	v.r, v.version, e.Body = r, e.Version, b
	m.s.Take(e)
}
