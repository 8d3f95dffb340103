// Package audit holds what lies in a bucket against the invariants of the lease: what can still be seen of them once
// the writes are over. It only reads, streams the listing, and needs memory for one work at a time; it may run beside
// live workers and beside whoever tidies up: within a work it reads the witness last, so that every byte it has listed
// was allowed by that version or an earlier one, and it accuses only of what a second look at the work finds again.
//
// Without a finding nothing is wrong that can be seen from the objects alone: the order of past witness versions (see
// History), budgets and what a deleted object held are not among them.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	Code       int       `json:"code"`      // code bundles, by name; what is in them is not looked at here
	Platforms  int       `json:"platforms"` // records of platforms
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
	var err error
	for _, part := range []func(context.Context) error{c.around, c.walk} {
		if err = part(ctx); err != nil {
			break
		}
	}
	for _, f := range c.odd {
		c.keep(f)
	}
	return c.r, err
}

// check is one run.
type check struct {
	s Store
	o Options
	r Report

	// What the look that is under way has found: it counts when it is confirmed.
	now  []Finding
	more int // beyond Options.Max

	odd []Finding // keys that no store of headway's takes: at most Options.Max + 1
}

// oddKey reports whether a key is one that no request may name, and notes it: what is there cannot be read, and all else
// is looked at. Nobody was just writing it, so that one look is enough.
func (c *check) oddKey(key string) bool {
	err := bucket.CheckKey("list", key)
	if err == nil {
		return false
	}
	shown := key
	if len(shown) > mostShown {
		shown = shown[:mostShown] + "..."
	}
	f := Finding{Key: strconv.QuoteToASCII(shown), Invariant: Format, Do: doStrange, Text: "no key of headway, and none that it could read"}
	if e, ok := errors.AsType[*bucket.Error](err); ok && e.Err != nil {
		f.Text += ": " + printable(e.Err.Error())
	}
	if len(c.odd) <= c.o.Max && !slices.Contains(c.odd, f) {
		c.odd = append(c.odd, f)
	}
	return true
}

// mostShown is how much of a foreign key is shown.
const mostShown = 400

// find notes what is wrong with an object, to be confirmed.
func (c *check) find(key string, i Invariant, do, format string, args ...any) {
	if len(c.now) >= c.o.Max {
		c.more++
		return
	}
	c.now = append(c.now, Finding{Key: printable(key), Invariant: i, Text: printable(fmt.Sprintf(format, args...)), Do: printable(do)})
}

// twice looks at something, and once more, afresh, when it found anything: only what both looks found is wrong. What
// somebody was writing or tidying away during the first look has another text, or none, in the second. The counts of
// the report are the second look's.
func (c *check) twice(first, again func() error) error {
	counts := c.r
	if err := first(); err != nil {
		return err
	}
	found, more := c.now, c.more
	c.now, c.more = nil, 0
	if len(found)+more == 0 {
		return nil
	}
	counts.Requests = c.r.Requests
	c.r = counts
	if err := again(); err != nil {
		return err
	}
	seen := map[Finding]bool{}
	for _, f := range found {
		seen[f] = true
	}
	for _, f := range c.now {
		if seen[f] || more > 0 {
			c.keep(f)
		}
	}
	c.r.Dropped += min(more, c.more)
	c.now, c.more = nil, 0
	return nil
}

func (c *check) keep(f Finding) {
	if len(c.r.Findings) >= c.o.Max {
		c.r.Dropped++
		return
	}
	c.r.Findings = append(c.r.Findings, f)
}

// printable makes foreign text safe to show: bounded, and quoted when anything in it is not plain ASCII.
func printable(s string) string {
	const most = 600
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
		l.done = !p.More || len(p.Items) == 0
		if n := len(p.Items); n > 0 {
			l.after = p.Items[n-1].Key
		}
		l.items = slices.DeleteFunc(p.Items, func(it bucket.Info) bool { return l.c.oddKey(it.Key) })
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
