package history

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Recorder tells a sink of every put and delete that passes it, in the order in which the store took them: one mutex is
// held around the inner request. All actors of a store go through one recorder, and it sits right at the store: faults
// that eat an answer belong above it. Make one with Record.
type Recorder struct {
	b     bucket.Bucket
	since time.Time
	mu    sync.Mutex
	sink  Sink
}

// Record returns a recorder of b that counts time from since.
func Record(b bucket.Bucket, sink Sink, since time.Time) *Recorder {
	return &Recorder{b: b, sink: sink, since: since}
}

// As is the store as one actor sees it.
func (r *Recorder) As(actor string) bucket.Bucket { return &recorded{Bucket: r.b, r: r, actor: actor} }

// Note puts a remark into the history.
func (r *Recorder) Note(actor, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sink.Take(Entry{At: time.Since(r.since), Actor: actor, Op: Note, Text: fmt.Sprintf(format, args...)})
}

type recorded struct {
	bucket.Bucket
	r     *Recorder
	actor string
}

// Put implements bucket.Bucket. An unknown outcome is settled by reading: the same bytes there mean that it was applied,
// anything else makes a remark of it, since it may still land.
func (b *recorded) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	raw := make([]byte, body.Size())
	if n, err := body.ReadAt(raw, 0); n < len(raw) {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Hint: "the body could not be read", Err: err}
	}
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	v, err := b.Bucket.Put(ctx, key, bytes.NewReader(raw), c)
	e := Entry{At: time.Since(b.r.since), Actor: b.actor, Op: Put, Key: key, Cond: c, Body: raw, Version: v}
	switch code := bucket.CodeOf(err); {
	case err == nil:
	case code != bucket.Unknown:
		e.Refused, e.Code = true, code
	default:
		there, found := b.there(context.WithoutCancel(ctx), key, raw)
		if !found {
			e = Entry{At: e.At, Actor: b.actor, Op: Note, Text: "put of " + Name(key) + " got no answer and is not there (yet)"}
			break
		}
		e.Version, e.Text = there, "answer lost"
	}
	b.r.sink.Take(e)
	return v, err
}

// there reads whether these bytes are what the key holds.
func (b *recorded) there(ctx context.Context, key string, want []byte) (bucket.Version, bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	o, err := b.Bucket.Get(ctx, key, bucket.Range{})
	if err != nil {
		return "", false
	}
	defer func() { _ = o.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(o.Body, int64(len(want))+1))
	return o.Version, err == nil && bytes.Equal(got, want)
}

// Delete implements bucket.Bucket.
func (b *recorded) Delete(ctx context.Context, key string) error {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	err := b.Bucket.Delete(ctx, key)
	e := Entry{At: time.Since(b.r.since), Actor: b.actor, Op: Delete, Key: key}
	switch code := bucket.CodeOf(err); {
	case err == nil:
	case code != bucket.Unknown:
		e.Refused, e.Code = true, code
	default:
		e.Text = "no answer: taken as done" // a delete has no condition, so an actor that wants it asks again
	}
	b.r.sink.Take(e)
	return err
}

// Log is a sink that keeps everything.
type Log []Entry

// Take implements Sink.
func (l *Log) Take(e Entry) { *l = append(*l, e) }

// Tee is a sink that passes every entry to all of these, in their order.
func Tee(sinks ...Sink) Sink { return tee(sinks) }

type tee []Sink

func (t tee) Take(e Entry) {
	for _, s := range t {
		s.Take(e)
	}
}
