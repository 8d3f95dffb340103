package runners

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Cursor is a place in a work's log or events: a byte offset in one attempt. The zero value is the beginning.
type Cursor struct {
	Attempt int64
	Offset  int64
	// Segment is where the segment that holds (or will hold) Offset starts: a hint that saves a search, 0 when not
	// known. It is no part of the text form.
	Segment int64
}

// String returns the text form, "2:12345".
func (c Cursor) String() string {
	return strconv.FormatInt(c.Attempt, 10) + ":" + strconv.FormatInt(c.Offset, 10)
}

// ParseCursor reads the text form back. "2" stands for the beginning of attempt 2, the empty text for the beginning.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	a, o, colon := strings.Cut(s, ":")
	if !colon {
		o = "0"
	}
	var c Cursor
	var errA, errO error
	c.Attempt, errA = strconv.ParseInt(a, 10, 64)
	c.Offset, errO = strconv.ParseInt(o, 10, 64)
	if errA != nil || errO != nil || c.Attempt < 0 || c.Offset < 0 {
		return Cursor{}, fmt.Errorf("cursor %q: expected <attempt>:<offset>, for example 2:12345", Bound(s, 60))
	}
	return c, nil
}

// Line is one line of a log, raw: hostile bytes of a stranger's machine. Print it through [Sanitize] only.
type Line struct {
	Attempt int64
	Offset  int64  // of its first byte in the attempt's log
	Data    []byte // with its newline; without one it is the end of what is there, and the next line continues it
	Missing int64  // > 0: no line, but so many bytes that are lost (a segment that never arrived)
}

// Whole reports whether the line ends here. The next line continues one that does not: print no newline behind it.
func (l Line) Whole() bool { return bytes.HasSuffix(l.Data, []byte("\n")) }

// Chunk is one answer of Log or Events.
type Chunk struct {
	Lines []Line
	Next  Cursor // ask from here the next time
	More  bool   // there is more now
	Over  bool   // the work is finished and Next is behind its last byte: nothing will ever come
}

// Bounds of one Chunk.
const (
	chunkBytes    = 1 << 20
	chunkAttempts = 50 // attempts without a byte that one call passes over
)

// Log returns what a work's program printed, from a cursor on: at most about 1 MiB, whole lines where there are whole
// ones, attempt after attempt. Nothing is left out between two calls that hand Next on: an attempt is left only
// after the witness was seen with a later one (or finished) and a listing made after that had nothing more. What a
// deposed worker uploads later than that is not shown.
func (d Dispatcher) Log(ctx context.Context, work string, from Cursor) (Chunk, error) {
	return d.follow(ctx, work, from, record.LogPrefix)
}

// Events is Log for the worker's own account of what it did: JSON, one object a line.
func (d Dispatcher) Events(ctx context.Context, work string, from Cursor) (Chunk, error) {
	return d.follow(ctx, work, from, record.EventPrefix)
}

func (d Dispatcher) follow(ctx context.Context, work string, from Cursor, prefix func(string, int64) string) (Chunk, error) {
	f := follower{b: d.Bucket, chunk: Chunk{Next: from}}
	// The witness is read first: what an attempt uploaded before it gave the lease up is then in the listing below.
	seen, found, err := readWitness(ctx, d.Bucket, work)
	if err != nil {
		return f.chunk, err
	}
	if !found {
		return f.chunk, nil
	}
	if f.chunk.Next.Attempt < 1 {
		f.chunk.Next = Cursor{Attempt: 1}
	}
	for range chunkAttempts {
		at := f.chunk.Next.Attempt
		if at > seen.Record.Attempt {
			return f.chunk, nil
		}
		whole, err := f.attempt(ctx, prefix(work, at))
		f.split()
		switch {
		case err != nil && len(f.chunk.Lines) > 0:
			f.chunk.More = true // what was read is handed over; the error comes back at the next call if it stays
			return f.chunk, nil
		case err != nil:
			return f.chunk, fmt.Errorf("log of work %s attempt %d: %w", short(work), at, err)
		case !whole:
			f.chunk.More = true
			return f.chunk, nil
		case at == seen.Record.Attempt:
			f.chunk.Over = seen.Record.State == witness.Finished
			return f.chunk, nil
		}
		f.chunk.Next = Cursor{Attempt: at + 1}
	}
	f.chunk.More = true
	return f.chunk, nil
}

// follower gathers one chunk.
type follower struct {
	b     bucket.Bucket
	chunk Chunk
	bytes int    // gathered so far
	raw   []byte // of the current attempt, not split yet
	start Cursor // where raw begins
}

// attempt gathers the segments of one attempt from f.chunk.Next on. whole: up to the last one that is listed.
func (f *follower) attempt(ctx context.Context, prefix string) (whole bool, err error) {
	f.raw, f.start = nil, f.chunk.Next
	after, err := f.before(ctx, prefix, f.chunk.Next)
	if err != nil {
		return false, err
	}
	for {
		page, err := f.b.List(ctx, prefix, after, 100)
		if err != nil {
			return false, err
		}
		for _, it := range page.Items {
			after = it.Key
			off, ok := record.SegmentOffset(it.Key)
			if !ok || record.SegmentKey(prefix, off) != it.Key || off+it.Size <= f.chunk.Next.Offset {
				continue // foreign, or read already
			}
			if f.bytes >= chunkBytes {
				return false, nil
			}
			if err := f.segment(ctx, it, off); err != nil {
				return false, err
			}
			if f.chunk.Next.Offset < off+it.Size {
				return false, nil
			}
		}
		if !page.More || len(page.Items) == 0 {
			return true, nil
		}
	}
}

// segment reads one segment, or as much of it as the chunk still takes.
func (f *follower) segment(ctx context.Context, it bucket.Info, off int64) error {
	if gap := off - f.chunk.Next.Offset; gap > 0 {
		f.split()
		f.chunk.Lines = append(f.chunk.Lines, Line{Attempt: f.chunk.Next.Attempt, Offset: f.chunk.Next.Offset, Missing: gap})
		f.chunk.Next.Offset, f.chunk.Next.Segment = off, off
		f.start = f.chunk.Next
	}
	skip := f.chunk.Next.Offset - off
	want := min(it.Size-skip, int64(chunkBytes-f.bytes))
	o, err := f.b.Get(ctx, it.Key, bucket.Range{Offset: skip, Length: want})
	if err != nil {
		return err
	}
	defer o.Body.Close()
	part := make([]byte, want)
	n, err := io.ReadFull(o.Body, part)
	f.raw = append(f.raw, part[:n]...)
	f.bytes += n
	f.chunk.Next.Offset += int64(n)
	f.chunk.Next.Segment = off
	if skip+int64(n) == it.Size {
		f.chunk.Next.Segment = f.chunk.Next.Offset
	}
	if err != nil {
		return &bucket.Error{Op: "get", Key: it.Key, Code: bucket.Unknown, Hint: "try again", Err: err}
	}
	return nil
}

// before returns the key to list after, so that the first key listed is the segment that holds the byte at offset.
// In the common case offset is where a segment starts (or will start) and one request finds it; within a segment
// the start is searched with about log2(offset) requests.
func (f *follower) before(ctx context.Context, prefix string, at Cursor) (string, error) {
	offset := at.Offset
	switch {
	case offset == 0:
		return prefix, nil
	case at.Segment > 0 && at.Segment <= offset:
		return record.SegmentKey(prefix, at.Segment-1), nil
	}
	// from is the lowest segment that starts at x or later; -1: none.
	from := func(x int64) (start, size int64, err error) {
		after := prefix
		if x > 0 {
			after = record.SegmentKey(prefix, x-1)
		}
		page, err := f.b.List(ctx, prefix, after, 1)
		if err != nil || len(page.Items) == 0 {
			return -1, 0, err
		}
		start, ok := record.SegmentOffset(page.Items[0].Key)
		if !ok || start < x {
			return -1, 0, nil
		}
		return start, page.Items[0].Size, nil
	}
	found, _, err := from(offset)
	if err != nil {
		return "", err
	}
	if found == offset {
		return f.at(prefix, offset), nil
	}
	low, high := int64(0), offset-1 // the highest start below offset is searched
	best, end := int64(-1), int64(0)
	for low <= high {
		mid := low + (high-low)/2
		start, size, err := from(mid)
		switch {
		case err != nil:
			return "", err
		case start >= 0 && start < offset:
			best, end = start, start+size
			if end == offset {
				return f.at(prefix, offset), nil
			}
			low = start + 1
		default:
			high = mid - 1
		}
	}
	if best < 0 || end <= offset {
		return record.SegmentKey(prefix, offset-1), nil // nothing holds it: what comes next is looked for anew
	}
	return f.at(prefix, best), nil
}

// at notes where the wanted segment starts, for the next time, and returns the key before it.
func (f *follower) at(prefix string, start int64) string {
	f.chunk.Next.Segment = start
	if start == 0 {
		return prefix
	}
	return record.SegmentKey(prefix, start-1)
}

// split turns the gathered bytes into lines.
func (f *follower) split() {
	off := f.start.Offset
	for rest := f.raw; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		f.chunk.Lines = append(f.chunk.Lines, Line{Attempt: f.start.Attempt, Offset: off, Data: rest[:n:n]})
		off += int64(n)
		rest = rest[n:]
	}
	f.raw = nil
	f.start = f.chunk.Next
}
