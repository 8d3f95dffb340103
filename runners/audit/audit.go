// Package audit holds what lies in a bucket against the invariants of the lease: what can still be seen of them once
// the writes are over. It only reads, streams the listing, and needs memory for one work at a time; it may run beside
// live workers: within a work it reads the witness last, so that every byte it has listed was allowed by that version or
// an earlier one, and what a listing does not show is asked for once more before it counts as missing.
//
// Without a finding nothing is wrong that can be seen from the objects alone: the order of past witness versions,
// budgets and what a deleted object held are not among them.
package audit

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Store is the read side of bucket.Bucket.
type Store interface {
	Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error)
	List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error)
}

// Options of a check.
type Options struct {
	Deep bool // read every file of every named snapshot and compare its sha256; otherwise only sizes are compared
	Max  int  // findings that are kept; the others are counted; 0 means 1,000
}

// Invariant names what a finding breaks.
type Invariant string

const (
	OneWriter Invariant = "I1" // no two writers address one key; a named snapshot never changes
	Forward   Invariant = "I2" // the pointer moves forward, by its holder
	Complete  Invariant = "I3" // what is named is complete
	OneChain  Invariant = "I4" // the ancestry of a snapshot is one chain of attempts
	Terminal  Invariant = "I5" // finished is terminal
	OneHolder Invariant = "I6" // one holder per attempt
	Claimed   Invariant = "I8" // every attempt has its claim, every claim its number
	Identity  Invariant = "identity"
	Format    Invariant = "format"
)

// Finding is one broken promise.
type Finding struct {
	Key       string    `json:"key"` // printable; quoted when it was not
	Invariant Invariant `json:"invariant"`
	Text      string    `json:"text"` // one sentence
	Do        string    `json:"do"`   // what to do about it
}

// Report is what a check saw. The counts say how much was looked at: a check of nothing finds nothing.
type Report struct {
	Works      int       `json:"works"`
	Witnesses  int       `json:"witnesses"`
	Finished   int       `json:"finished"`
	Dispatches int       `json:"dispatches"`
	Attempts   int       `json:"attempts"`
	Snapshots  int       `json:"snapshots"` // named by a pointer or by an ancestor's chain, results included
	Files      int       `json:"files"`     // of these snapshots
	Bytes      int64     `json:"bytes"`     // of these files; read when Deep
	Requests   int       `json:"requests"`
	Deep       bool      `json:"deep"`
	Findings   []Finding `json:"findings"`
	Dropped    int       `json:"dropped,omitempty"` // findings beyond Options.Max
}

// OK reports whether nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 && r.Dropped == 0 }

// Check walks the bucket. An error is one of the store (or of the context): the report then covers only what came
// before it, and its silence on the rest means nothing.
func Check(ctx context.Context, s Store, o Options) (Report, error) {
	if o.Max <= 0 {
		o.Max = 1000
	}
	c := &check{s: s, o: o, r: Report{Deep: o.Deep, Findings: []Finding{}}}
	err := c.walk(ctx)
	return c.r, err
}

// check is one run.
type check struct {
	s Store
	o Options
	r Report
}

func (c *check) find(key string, i Invariant, do, format string, args ...any) {
	if len(c.r.Findings) >= c.o.Max {
		c.r.Dropped++
		return
	}
	c.r.Findings = append(c.r.Findings, Finding{Key: printable(key), Invariant: i, Text: printable(fmt.Sprintf(format, args...)), Do: do})
}

// printable makes foreign text safe to show: bounded, and quoted when anything in it is not plain ASCII.
func printable(s string) string {
	const most = 400
	if len(s) > most {
		s = s[:most] + "..."
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// walk goes through work/ and witness/ side by side, in the order of works.
func (c *check) walk(ctx context.Context) error {
	works, leases := c.list("work/"), c.list(record.WitnessPrefix)
	for {
		w, err := works.peek(ctx)
		if err != nil {
			return err
		}
		l, err := leases.peek(ctx)
		if err != nil {
			return err
		}
		if w == nil && l == nil {
			return nil
		}
		name, under := "", ""
		if w != nil {
			under, _, _ = strings.Cut(strings.TrimPrefix(w.Key, "work/"), "/")
			name = under
		}
		if l != nil {
			if lease := strings.TrimPrefix(l.Key, record.WitnessPrefix); w == nil || lease <= under {
				name = lease
				leases.next()
			}
		}
		if err := c.work(ctx, name, works); err != nil {
			return err
		}
	}
}

// listing is a stream of keys with one page in memory.
type listing struct {
	c      *check
	prefix string
	after  string
	items  []bucket.Info
	done   bool
}

func (c *check) list(prefix string) *listing { return &listing{c: c, prefix: prefix} }

// peek is the next object without taking it; nil at the end.
func (l *listing) peek(ctx context.Context) (*bucket.Info, error) {
	for len(l.items) == 0 && !l.done {
		l.c.r.Requests++
		p, err := l.c.s.List(ctx, l.prefix, l.after, 0)
		if err != nil {
			return nil, err
		}
		l.items, l.done = p.Items, !p.More || len(p.Items) == 0
		if n := len(p.Items); n > 0 {
			l.after = p.Items[n-1].Key
		}
	}
	if len(l.items) == 0 {
		return nil, nil
	}
	return &l.items[0], nil
}

func (l *listing) next() { l.items = l.items[1:] }

// get reads a whole object of at most max bytes; nil: absent; tooBig: it has more. A body that is cut short is an
// error of the store, never a finding.
func (c *check) get(ctx context.Context, key string, max int64) (b []byte, tooBig bool, err error) {
	c.r.Requests++
	o, err := c.s.Get(ctx, key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = o.Body.Close() }()
	if o.Size > max {
		return []byte{}, true, nil
	}
	b, err = io.ReadAll(io.LimitReader(o.Body, max+1))
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", key, err)
	}
	if int64(len(b)) != o.Size {
		return nil, false, fmt.Errorf("read %s: %d of %d bytes arrived", key, len(b), o.Size)
	}
	return b, false, nil
}
