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
	named, do := "the witness", ""
	for range longestChain {
		if p == nil {
			c.checkHeirs(w)
			return nil
		}
		if do == "" {
			do = doBackup + w.otherwise(p.Manifest)
			if w.held {
				do = doHeld + w.repair(p.Manifest)
			}
		}
		found, more := len(c.now), c.more
		m, err := c.snapshot(ctx, w, p.Manifest, p.SHA256, named, do)
		if err == nil && (m == nil || len(c.now) > found) {
			if err = c.letGo(ctx, w, p, c.now[found:]); w.gone != nil {
				c.now, c.more, p = c.now[:found], more, nil
				continue
			}
		}
		if err != nil || m == nil {
			return err
		}
		if m.Attempt != p.Attempt || m.Milestone != p.Milestone || m.Step != p.Step {
			c.find(p.Manifest, Complete, do, "is attempt %d, milestone %d, step %d; %s names it as attempt %d, milestone %d, step %d",
				m.Attempt, m.Milestone, m.Step, named, p.Attempt, p.Milestone, p.Step)
			return nil
		}
		w.chain = append(w.chain, *p)
		if q := m.Parent; q != nil {
			if why := backward(p, q, w.id); why != "" {
				c.find(p.Manifest, Forward, do, "grew from a snapshot that is not before it: %s", why)
				return nil
			}
		}
		named, p, do = p.Manifest, m.Parent, doAncestor
	}
	c.find(record.WitnessKey(w.id), OneChain, doLook, "has a chain of more than %d snapshots", longestChain)
	return nil
}

// What to do about the parts of a snapshot that is named.
const (
	doBackup   = "restore the object from a backup of the bucket; without one "
	doHeld     = "leave it while its attempt runs: the next milestone takes its place and does not read it; should the attempt end before that, " + doBackup
	doAncestor = "restore the object from a backup of the bucket; without one leave it: no attempt reads it again while the snapshot is whole that the witness names"
	doGrown    = "restore the witness from a backup of the bucket; without one believe this result only if you know that somebody edited the pointer, else give the job another seed or replica"
	doResult   = doBackup + "the result is lost: give the job another seed or replica, and headway apply computes it anew"
)

// letGo notes that retention let a snapshot of the line go, and all before it: gc says so before it deletes the first. An
// upload that arrived twice can bring its manifest back after that, so the files count as well.
// What a work that goes on starts from is never let go.
func (c *check) letGo(ctx context.Context, w *work, p *record.Pointer, found []Finding) error {
	if len(w.chain) == 0 && !w.finished {
		return nil
	}
	gone, err := c.missing(ctx, p.Manifest)
	for i := 0; i < len(found) && err == nil && !gone; i++ {
		gone, err = c.missing(ctx, found[i].Key)
	}
	if err != nil || !gone {
		return err
	}
	t, _, err := c.trim(ctx, w.id)
	if t != nil && t.Line(*p) {
		w.gone = t
	}
	return err
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

// checkHeirs: every attempt began from exactly the newest snapshot on the chain that attempts before it left. An older
// one: the pointer went back. A newer one, or one beside the line: it was completed by an attempt after the lease was
// taken from it, and no pointer may ever name it.
func (c *check) checkHeirs(w *work) {
	var before *record.Pointer
	at := len(w.chain) // chain[at:] was left by attempts before the one that is looked at
	for _, n := range slices.Sorted(maps.Keys(w.attempts)) {
		a, key := w.attempts[n], record.OpenKey(w.id, n)
		for at > 0 && w.chain[at-1].Attempt < n {
			at--
		}
		if a.by == nil {
			continue
		}
		from := a.by.Resume
		var left *record.Pointer
		if at < len(w.chain) {
			left = &w.chain[at]
		}
		gone := from != nil && w.gone != nil && w.gone.Line(*from)
		switch {
		case from != nil && !gone && !slices.Contains(w.chain, *from):
			c.find(key, Forward, doPointer, "attempt %d began from %s, which is not on the chain of the pointer", n, place(from))
		case before != nil && (from == nil || from.Attempt < before.Attempt || from.Attempt == before.Attempt && from.Milestone < before.Milestone):
			c.find(key, Forward, doPointer, "attempt %d began from %s, an earlier one from %s", n, place(from), place(before))
		case from != nil && !gone && (left == nil || *from != *left && slices.Index(w.chain, *from) < at):
			c.find(key, OneChain, doLook, "attempt %d began from %s, which no attempt before it left", n, place(from))
		case left != nil && (from == nil || *from != *left):
			c.find(left.Manifest, OneChain, doLine+w.otherwise(left.Manifest), "is on the chain of the pointer, but attempt %d began from %s: attempt %d completed it after the lease was taken from it",
				n, place(from), left.Attempt)
		}
		before = from
	}
}

// doPointer is what to do about a pointer that went back.
const doPointer = "nothing, if somebody repaired the witness and named an older milestone; otherwise it was rolled back: restore it from a backup of the bucket"

// doLine is what to do about a pointer beside the line.
const doLine = "launch nothing for this work until the witness is restored from a backup of the bucket; without one "

func place(p *record.Pointer) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("attempt %d, milestone %d, step %d", p.Attempt, p.Milestone, p.Step)
}

// checkResult: finished names a complete result that grew from the pointer.
func (c *check) checkResult(ctx context.Context, w *work, r *witness.Record) error {
	f := r.Finished
	m, err := c.snapshot(ctx, w, f.Manifest, f.SHA256, "the witness", doResult)
	if err != nil || m == nil {
		return err
	}
	if m.Attempt != f.Attempt || m.Milestone != 0 {
		c.find(f.Manifest, Complete, doResult, "is attempt %d, milestone %d, not the result of attempt %d", m.Attempt, m.Milestone, f.Attempt)
	}
	if m.Parent != nil && (r.Resume == nil || *m.Parent != *r.Resume) {
		c.find(f.Manifest, OneChain, doGrown, "grew from %s, but the pointer is at %s", place(m.Parent), place(r.Resume))
	}
	return nil
}

// snapshot reads a named manifest and checks its hash and its files; nil: it was reported and can't be followed.
func (c *check) snapshot(ctx context.Context, w *work, key, sum, named, do string) (*record.Manifest, error) {
	b, big, err := c.get(ctx, key, record.MaxManifest)
	switch {
	case err != nil:
		return nil, err
	case b == nil:
		c.find(key, Complete, do, "is named by %s and does not exist", named)
		return nil, nil
	case big:
		c.find(key, Complete, do, "has more than %d bytes, which no manifest has", record.MaxManifest)
		return nil, nil
	}
	if got := record.Hash(b); got != sum {
		c.find(key, OneWriter, do, "is not the manifest that %s names: its sha256 is %s, %s is expected; it was cut short or changed, or the pointer was", named, got, sum)
		return nil, nil
	}
	c.r.Snapshots++
	var m record.Manifest
	if err := record.Decode(b, record.MaxManifest, &m); err != nil {
		c.find(key, Format, do, "is no manifest: %v", err)
		return nil, nil
	}
	if m.Protocol > record.Protocol {
		c.find(key, Format, doNewer, "is written in protocol %d, this program knows %d", m.Protocol, record.Protocol)
		return nil, nil
	}
	if m.Work != w.id {
		c.find(key, Format, do, "is of another work (copied from elsewhere?)")
		return nil, nil
	}
	return &m, c.files(ctx, strings.TrimSuffix(key, "manifest.json"), &m, do)
}

// files compares the files of a manifest with what lies beside it.
func (c *check) files(ctx context.Context, folder string, m *record.Manifest, do string) error {
	if len(m.Files) > record.MaxFiles {
		c.find(folder+"manifest.json", Format, do, "lists %d files, at most %d are accepted", len(m.Files), record.MaxFiles)
		return nil
	}
	there := c.list(folder)
	last := ""
	for _, f := range m.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Path == "manifest.json" || f.Path <= last {
			c.find(folder+"manifest.json", Format, do, "lists %q, which is no clean path or out of order", f.Path)
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
			c.find(folder+f.Path, Complete, do, "is listed by its manifest and does not exist")
		case size != f.Size:
			c.find(folder+f.Path, Complete, do, "has %d bytes, its manifest says %d", size, f.Size)
		case c.o.Deep:
			if err := c.content(ctx, folder+f.Path, f, do); err != nil {
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
func (c *check) content(ctx context.Context, key string, f record.File, do string) error {
	c.r.Requests++
	o, err := c.s.Get(ctx, key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) { // it was listed: somebody tidies up, and the second look says whether it may
		c.find(key, Complete, do, "is listed by its manifest and does not exist")
		return nil
	}
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
		c.find(key, Complete, do, "has sha256 %s, its manifest says %s", got, f.SHA256)
	}
	return nil
}
