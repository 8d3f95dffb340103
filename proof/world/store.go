package world

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// store is the store itself. The scheduler's goroutine alone calls it.
type store struct {
	w     *World
	mem   bucket.Bucket            // without the protection that a mutant takes away
	skew  time.Duration            // what its clock is off by now
	off   map[string]time.Duration // what it was off by when a key was written
	pages map[listing]*bucket.Page // what was listed last, for those that get an old page
	was   map[string]old           // what a lease was before its last write, for those that get an old version
}

// listing is one question for a list.
type listing struct {
	prefix, after string
	limit         int
}

// oldest is how old a stale page may be.
const oldest = 2 * time.Minute

func newStore(w *World) *store {
	return &store{w: w, mem: w.mutant.Store(mem.New()), off: map[string]time.Duration{}, pages: map[listing]*bucket.Page{}, was: map[string]old{}}
}

// put carries out one put, however often it arrives.
func (s *store) put(r *request) {
	was := s.before(r.key)
	v, err := s.mem.Put(s.w.ctx, r.key, bytes.NewReader(r.body), r.cond)
	e := history.Entry{At: s.w.now(), Actor: r.by.name, Op: history.Put, Key: r.key, Cond: r.cond, Body: r.body, Version: v}
	if err != nil {
		e.Refused, e.Code = true, bucket.CodeOf(err)
		s.met(r, e.Code)
	} else if r.unheard {
		if r.by.unheard == nil {
			r.by.unheard = map[string]bool{}
		}
		r.by.unheard[r.key] = true
	}
	if r.landed > 1 {
		e.Text = "arrived again"
	} else if r.by.dead {
		e.Text = "landed after its sender died"
	} else if r.done {
		e.Text = "landed late"
	}
	if err == nil {
		s.off[r.key] = s.skew
		s.was[r.key] = was
	}
	if !r.done {
		r.version, r.err = v, err
	}
	s.w.take(e)
	if err == nil && strings.HasPrefix(r.key, record.WitnessPrefix) {
		s.w.saw(strings.TrimPrefix(r.key, record.WitnessPrefix), r.body, r.by)
	}
	if p, ok := record.Parse(r.key); ok && err == nil && p.Attempt > 0 && p.Rest == "end.json" {
		s.w.ruled(p.Work, r.body)
	}
	if k, ok := record.ParseStats(r.key); ok && err == nil {
		s.w.stats.Reached[map[bool]string{true: "statistics were folded", false: "an observation was written"}[k.Day == ""]]++
	}
}

// met counts the refusals that meet somebody who has been at it before, and does not know.
func (s *store) met(r *request, code bucket.Code) {
	switch {
	case code != bucket.Condition:
	case r.landed > 1:
		s.w.fired(MetItsTwin)
	case r.by.unheard[r.key]:
		s.w.fired(MetItself)
	}
}

func (s *store) get(r *request, rg bucket.Range) {
	o, err := s.mem.Get(s.w.ctx, r.key, rg)
	if r.done {
		return
	}
	if s.stale(r.key) {
		o, err = s.past(r.key, o)
	}
	if err != nil {
		r.err = err
		return
	}
	o.Date, o.Modified = o.Date.Add(s.skew), o.Modified.Add(s.off[r.key])
	if r.half && o.Size > 1 {
		o.Body = &halfBody{io.LimitReader(o.Body, o.Size/2), s.w.rng.IntN(2) == 0}
	}
	r.object = o
}

func (s *store) list(r *request, q listing) {
	p, err := s.mem.List(s.w.ctx, q.prefix, q.after, q.limit)
	if r.done {
		return
	}
	if err != nil {
		r.err = err
		return
	}
	for i := range p.Items {
		p.Items[i].Modified = p.Items[i].Modified.Add(s.off[p.Items[i].Key])
	}
	fresh := p.Date.Add(s.skew)
	p.Date = fresh
	r.page = p
	if s.w.healed || s.w.s.storeFaults == 0 {
		return
	}
	old := s.pages[q]
	if r.stale && old != nil && fresh.Sub(old.Date) < oldest {
		again := *old
		if s.w.rng.IntN(2) == 0 {
			again.Date = fresh
		}
		r.page = &again
		return
	}
	kept := *p
	s.pages[q] = &kept
}

func (s *store) remove(r *request) {
	err := s.mem.Delete(s.w.ctx, r.key)
	if !r.done {
		r.err = err
	}
	if err == nil {
		s.w.take(history.Entry{At: s.w.now(), Actor: r.by.name, Op: history.Delete, Key: r.key})
	}
}

// halfBody is a body that was cut: with an error, or as if it had been whole.
type halfBody struct {
	io.Reader
	silent bool
}

func (h *halfBody) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if err == io.EOF && !h.silent {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (h *halfBody) Close() error { return nil }

// The port of one process.

var _ bucket.Bucket = (*life)(nil)

// Get implements bucket.Bucket.
func (l *life) Get(ctx context.Context, key string, rg bucket.Range) (*bucket.Object, error) {
	r := &request{op: "get", key: key, apply: func(r *request) { l.w.store.get(r, rg) }}
	if err := l.ask(ctx, r); err != nil {
		return nil, err
	}
	return r.object, nil
}

// Put implements bucket.Bucket.
func (l *life) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	raw := make([]byte, body.Size())
	if n, err := body.ReadAt(raw, 0); n < len(raw) {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: err}
	}
	r := &request{op: "put", key: key, body: raw, cond: c, apply: l.w.store.put}
	if err := l.ask(ctx, r); err != nil {
		return "", err
	}
	return r.version, nil
}

// List implements bucket.Bucket.
func (l *life) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	q := listing{prefix, after, limit}
	r := &request{op: "list", key: prefix + " " + after, apply: func(r *request) { l.w.store.list(r, q) }}
	if err := l.ask(ctx, r); err != nil {
		return nil, err
	}
	return r.page, nil
}

// Delete implements bucket.Bucket.
func (l *life) Delete(ctx context.Context, key string) error {
	return l.ask(ctx, &request{op: "delete", key: key, apply: l.w.store.remove})
}

// Presign implements bucket.Bucket: there is no URL that leads here.
func (l *life) Presign(_ context.Context, _ bucket.Method, key string, _ time.Duration) (string, error) {
	return "", &bucket.Error{Op: "presign", Key: key, Code: bucket.Unsupported, Err: errors.New("a simulated store has no URLs")}
}

// halfUpload notes a worker that dies between the parts of a snapshot.
func (w *World) halfUpload(r *request) {
	p, ok := record.Parse(r.key)
	if ok && r.op == "put" && p.Attempt > 0 && strings.HasSuffix(p.Rest, "/manifest.json") {
		w.fired(HalfUpload)
	}
}
