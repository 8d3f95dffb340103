// Package journal writes what happened to the store while it happens: the program's output and the agent's own
// events, as immutable segments named by their byte offset, each created once. Writing never waits for the store: what
// a slow or absent store cannot take in time is dropped, and the stream says how much, where it is missing.
//
// Guaranteed: offsets are contiguous, the end of one segment is the name of the next; bytes are in order; a segment that holds
// the end of a line ends with one, but for the last one of a stream that was closed. Not
// guaranteed: that the last seconds before a crash of the machine are there.
package journal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
	dropped lost
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

// Write takes p, or as many of its lines as there is room for, and drops the rest; it never blocks and never fails. What is
// dropped is counted and not copied. Once something was dropped nothing is taken before there is room for a whole segment, and
// then from the beginning of a line on: a flood leaves readable pieces and few marks.
func (j *Stream) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, room := len(p), j.room()
	if j.dropped.bytes > 0 && (room < segment || j.closed) {
		j.drop(p)
		return n, nil
	}
	if j.dropped.within {
		rest := bytes.IndexByte(p, '\n') + 1
		j.drop(p[:rest])
		p = p[rest:]
	}
	keep := len(p)
	if keep > room {
		keep = bytes.LastIndexByte(p[:room], '\n') + 1
	}
	if keep > 0 {
		j.mark()
		j.pending = append(j.pending, p[:keep]...)
		j.total, j.tokens = j.total+int64(keep), j.tokens-float64(keep)
		poke(j.some)
		if len(j.pending) >= segment {
			poke(j.full)
		}
	}
	j.drop(p[keep:])
	return n, nil
}

// room is how many more bytes are within the rate, the memory and the whole.
func (j *Stream) room() int {
	if j.closed {
		return 0
	}
	now := time.Now()
	j.tokens = min(burst, j.tokens+now.Sub(j.filled).Seconds()*perSecond)
	j.filled = now
	return max(0, min(int(j.tokens), longest-len(j.pending), int(most-j.total)))
}

// lost is what was dropped since the last mark.
type lost struct {
	bytes, lines int64
	within       bool // the last byte was no line's end: the rest of that line is dropped too
}

func (j *Stream) drop(p []byte) {
	if len(p) == 0 {
		return
	}
	j.dropped.bytes += int64(len(p))
	j.dropped.lines += int64(bytes.Count(p, []byte{'\n'}))
	j.dropped.within = p[len(p)-1] != '\n'
}

// mark says in the stream itself what is missing before the next byte.
func (j *Stream) mark() {
	if j.dropped.bytes == 0 {
		return
	}
	m := fmt.Sprintf("[headway: dropped %d bytes, %d lines here: too much output for the store]\n", j.dropped.bytes, j.dropped.lines)
	if n := len(j.pending); n > 0 && j.pending[n-1] != '\n' {
		m = "\n" + m
	}
	j.pending, j.dropped = append(j.pending, m...), lost{}
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

// take takes what is pending, up to the end of its last line: what a machine that vanishes leaves ends with a whole line. A line
// that has not ended by the next segment goes out as far as it is.
func (j *Stream) take() (part []byte, closed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	part, j.pending = j.pending, nil
	if end := bytes.LastIndexByte(part, '\n') + 1; !j.closed && 0 < end && end < len(part) {
		j.pending = slices.Clone(part[end:])
		part = part[:end]
		poke(j.some)
	}
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
