// Package journal writes what happened to the store while it happens: the program's output and the agent's own
// events, as immutable segments named by their byte offset, each created once. Writing never waits for the store: what
// a slow or absent store cannot take in time is dropped, and the stream says how much, where it is missing.
//
// Guaranteed: offsets are contiguous, the end of one segment is the name of the next; bytes are in order. Not
// guaranteed: that the last seconds before a crash of the machine are there.
package journal

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Store is the one verb that a stream needs.
type Store interface {
	Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error)
}

// Bounds of a stream.
const (
	segment   = 256 << 10       // a segment this long goes out at once
	longest   = 4 << 20         // and none is longer; also the most that waits in memory
	patience  = 5 * time.Second // pending bytes go out after this long
	breath    = time.Second     // between two segments, however much there is
	perSecond = 256 << 10       // sustained bytes a second; the bucket holds burst
	burst     = 8 << 20
	most      = 256 << 20        // bytes of one attempt's stream
	slowest   = 30 * time.Second // the longest pause between two tries of one segment
)

// Stream is one sequence of segments. Make one with New and end it with Close.
type Stream struct {
	s      Store
	prefix string
	cancel context.CancelFunc
	done   chan struct{}
	full   chan struct{} // a segment is full
	some   chan struct{} // there is something to write
	ending chan struct{} // closed by Close

	mu      sync.Mutex
	pending []byte
	dropped int64
	total   int64 // accepted so far
	tokens  float64
	filled  time.Time
	closed  bool
}

// New starts a stream under prefix (record.LogPrefix or EventPrefix of this attempt). ctx ends its writes at once.
func New(ctx context.Context, s Store, prefix string) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	j := &Stream{s: s, prefix: prefix, cancel: cancel, done: make(chan struct{}), full: make(chan struct{}, 1),
		some: make(chan struct{}, 1), ending: make(chan struct{}), tokens: burst, filled: time.Now()}
	go j.run(ctx)
	return j
}

// Write takes p or drops it, whole; it never blocks and never fails.
func (j *Stream) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || !j.admit(len(p)) {
		j.dropped += int64(len(p))
		return len(p), nil
	}
	j.mark()
	j.pending = append(j.pending, p...)
	j.total += int64(len(p))
	poke(j.some)
	if len(j.pending) >= segment {
		poke(j.full)
	}
	return len(p), nil
}

// admit says whether n more bytes are within the rate, the memory and the whole.
func (j *Stream) admit(n int) bool {
	now := time.Now()
	j.tokens = min(burst, j.tokens+now.Sub(j.filled).Seconds()*perSecond)
	j.filled = now
	if float64(n) > j.tokens || len(j.pending)+n > longest || j.total+int64(n) > most {
		return false
	}
	j.tokens -= float64(n)
	return true
}

// mark says in the stream itself what is missing before the next byte.
func (j *Stream) mark() {
	if j.dropped == 0 {
		return
	}
	m := fmt.Sprintf("[headway: dropped %d bytes here: too much output for the store]\n", j.dropped)
	if n := len(j.pending); n > 0 && j.pending[n-1] != '\n' {
		m = "\n" + m
	}
	j.pending, j.dropped = append(j.pending, m...), 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what is pending, as long as ctx lasts, and ends the stream. What is written later is dropped. It may
// be called twice.
func (j *Stream) Close(ctx context.Context) {
	j.mu.Lock()
	if !j.closed {
		j.mark()
		j.closed = true
		close(j.ending)
	}
	j.mu.Unlock()
	select {
	case <-j.done:
	case <-ctx.Done():
	}
	j.cancel()
	<-j.done
}

// run turns pending bytes into segments.
func (j *Stream) run(ctx context.Context) {
	defer close(j.done)
	for offset := int64(0); ; {
		select {
		case <-j.some: // the first byte; now wait for company
			j.wait(ctx, j.full, patience)
		case <-j.ending:
		case <-ctx.Done():
			return
		}
		part, closed := j.take()
		if len(part) > 0 && !j.store(ctx, offset, part) {
			return
		}
		offset += int64(len(part))
		if closed {
			return
		}
		j.wait(ctx, nil, breath)
	}
}

// wait ends with a signal, the time, the stream or ctx, whatever comes first.
func (j *Stream) wait(ctx context.Context, c <-chan struct{}, d time.Duration) {
	select {
	case <-c:
	case <-time.After(d):
	case <-j.ending:
	case <-ctx.Done():
	}
}

func (j *Stream) take() (part []byte, closed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	part, j.pending = j.pending, nil
	return part, j.closed
}

// store creates one segment. The key has one writer, so one that exists already is an earlier try of ours that landed.
func (j *Stream) store(ctx context.Context, offset int64, part []byte) bool {
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, slowest) {
		_, err := j.s.Put(ctx, record.SegmentKey(j.prefix, offset), bytes.NewReader(part), bucket.IfAbsent())
		if err == nil || bucket.Is(err, bucket.Condition) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}
