package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// longestChain bounds how many ancestors are followed.
const longestChain = 1_000_000

// checkChain follows the resume pointer back to the snapshot that grew from nothing.
func (c *check) checkChain(ctx context.Context, w *work, p *record.Pointer) error {
	named := "the witness"
	for range longestChain {
		if p == nil {
			c.checkHeirs(w)
			return nil
		}
		m, err := c.snapshot(ctx, w, p.Manifest, p.SHA256, named)
		if err != nil || m == nil {
			return err
		}
		if m.Attempt != p.Attempt || m.Milestone != p.Milestone || m.Step != p.Step {
			c.find(p.Manifest, Complete, doSnapshot, "is attempt %d, milestone %d, step %d; %s names it as attempt %d, milestone %d, step %d",
				m.Attempt, m.Milestone, m.Step, named, p.Attempt, p.Milestone, p.Step)
			return nil
		}
		w.chain[*p] = true
		if a := w.attempts[p.Attempt]; a != nil {
			a.heir, a.root = m.Parent, m.Parent == nil
		}
		if q := m.Parent; q != nil {
			if why := backward(p, q, w.id); why != "" {
				c.find(p.Manifest, Forward, doLook, "grew from a snapshot that is not before it: %s", why)
				return nil
			}
		}
		named, p = p.Manifest, m.Parent
	}
	c.find(record.WitnessKey(w.id), OneChain, doLook, "has a chain of more than %d snapshots", longestChain)
	return nil
}

// backward says why q is no ancestor of p; empty: it is one. Each step back is to a smaller attempt or milestone, so
// every chain ends.
func backward(p, q *record.Pointer, work string) string {
	switch {
	case q.Attempt < 1 || q.Milestone < 1 || q.Manifest != record.MilestoneManifestKey(work, q.Attempt, q.Milestone):
		return fmt.Sprintf("%s is not the key of attempt %d, milestone %d", q.Manifest, q.Attempt, q.Milestone)
	case q.Attempt > p.Attempt:
		return fmt.Sprintf("attempt %d is later than %d", q.Attempt, p.Attempt)
	case q.Attempt == p.Attempt && q.Milestone >= p.Milestone:
		return fmt.Sprintf("milestone %d is not before %d", q.Milestone, p.Milestone)
	case q.Step > p.Step:
		return fmt.Sprintf("step %d is later than %d", q.Step, p.Step)
	}
	return ""
}

// checkHeirs: every attempt began from a pointer of this chain, each no earlier than the attempt before it, and its
// first snapshot on the chain grew from exactly that.
func (c *check) checkHeirs(w *work) {
	var before *record.Pointer
	for _, n := range slices.Sorted(maps.Keys(w.attempts)) {
		a, key := w.attempts[n], record.OpenKey(w.id, n)
		if a.by == nil {
			continue
		}
		from := a.by.Resume
		switch {
		case from != nil && !w.chain[*from]:
			c.find(key, Forward, doPointer, "attempt %d began from %s, which is not on the chain of the pointer", n, place(from))
		case before != nil && (from == nil || from.Attempt < before.Attempt || from.Attempt == before.Attempt && from.Milestone < before.Milestone):
			c.find(key, Forward, doPointer, "attempt %d began from %s, an earlier one from %s", n, place(from), place(before))
		case (a.heir != nil || a.root) && ((from == nil) != (a.heir == nil) || from != nil && *from != *a.heir):
			c.find(key, OneChain, doLook, "attempt %d began from %s, but its first snapshot on the chain grew from %s", n, place(from), place(a.heir))
		}
		before = from
	}
}

// doPointer is what to do about a pointer that went back.
const doPointer = "a repair by hand to an older milestone does this; otherwise the witness was rolled back: restore it from a backup of the bucket"

func place(p *record.Pointer) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("attempt %d, milestone %d, step %d", p.Attempt, p.Milestone, p.Step)
}

// checkResult: finished names a complete result that grew from the pointer.
func (c *check) checkResult(ctx context.Context, w *work, r *witness.Record) error {
	f := r.Finished
	m, err := c.snapshot(ctx, w, f.Manifest, f.SHA256, "the witness")
	if err != nil || m == nil {
		return err
	}
	if m.Attempt != f.Attempt || m.Milestone != 0 {
		c.find(f.Manifest, Complete, doSnapshot, "is attempt %d, milestone %d, not the result of attempt %d", m.Attempt, m.Milestone, f.Attempt)
	}
	if m.Parent != nil && (r.Resume == nil || *m.Parent != *r.Resume) {
		c.find(f.Manifest, OneChain, doLook, "grew from %s, but the pointer is at %s", place(m.Parent), place(r.Resume))
	}
	gone, err := c.missing(ctx, record.OpenKey(w.id, f.Attempt))
	if gone {
		c.find(record.OpenKey(w.id, f.Attempt), OneWriter, doLook, "attempt %d finished the work and never reserved its prefix", f.Attempt)
	}
	return err
}

// snapshot reads a named manifest and checks its hash and its files; nil: it was reported and can't be followed.
func (c *check) snapshot(ctx context.Context, w *work, key, sum, named string) (*record.Manifest, error) {
	b, big, err := c.get(ctx, key, record.MaxManifest)
	switch {
	case err != nil:
		return nil, err
	case b == nil:
		c.find(key, Complete, doSnapshot, "is named by %s and does not exist", named)
		return nil, nil
	case big:
		c.find(key, Complete, doSnapshot, "is too big for a manifest")
		return nil, nil
	}
	if got := record.Hash(b); got != sum {
		c.find(key, OneWriter, doSnapshot, "was changed after it was named: sha256 %s, %s says %s", got, named, sum)
		return nil, nil
	}
	c.r.Snapshots++
	var m record.Manifest
	if err := record.Decode(b, record.MaxManifest, &m); err != nil {
		c.find(key, Format, doSnapshot, "is no manifest: %v", err)
		return nil, nil
	}
	if m.Work != w.id || m.Protocol > record.Protocol {
		c.find(key, Format, doLook, "names another work, or a newer protocol")
		return nil, nil
	}
	return &m, c.files(ctx, strings.TrimSuffix(key, "manifest.json"), &m)
}

// files compares the files of a manifest with what lies beside it.
func (c *check) files(ctx context.Context, folder string, m *record.Manifest) error {
	if len(m.Files) > record.MaxFiles {
		c.find(folder+"manifest.json", Format, doLook, "lists %d files, at most %d are accepted", len(m.Files), record.MaxFiles)
		return nil
	}
	there := c.list(folder)
	last := ""
	for _, f := range m.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Path == "manifest.json" || f.Path <= last {
			c.find(folder+"manifest.json", Format, doLook, "lists %q, which is no clean path or out of order", f.Path)
			return nil
		}
		last = f.Path
		c.r.Files++
		c.r.Bytes += max(f.Size, 0)
		size, err := there.seek(ctx, folder+f.Path)
		switch {
		case err != nil:
			return err
		case size < 0:
			c.find(folder+f.Path, Complete, doSnapshot, "is listed by its manifest and does not exist")
		case size != f.Size:
			c.find(folder+f.Path, Complete, doSnapshot, "has %d bytes, its manifest says %d", size, f.Size)
		case c.o.Deep:
			if err := c.content(ctx, folder+f.Path, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// seek moves forward to key and gives its size; -1: it is not there. Keys are asked for in order.
func (l *listing) seek(ctx context.Context, key string) (int64, error) {
	for {
		it, err := l.peek(ctx)
		if err != nil {
			return 0, err
		}
		if it == nil || it.Key > key {
			return -1, nil
		}
		l.next()
		if it.Key == key {
			return it.Size, nil
		}
	}
}

// content hashes one file, in a stream.
func (c *check) content(ctx context.Context, key string, f record.File) error {
	c.r.Requests++
	o, err := c.s.Get(ctx, key, bucket.Range{})
	if err != nil {
		return err
	}
	defer func() { _ = o.Body.Close() }()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(o.Body, f.Size+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	if n != o.Size {
		return fmt.Errorf("read %s: %d of %d bytes arrived", key, n, o.Size)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		c.find(key, Complete, doSnapshot, "has sha256 %s, its manifest says %s", got, f.SHA256)
	}
	return nil
}
