package gc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/agent/fetch"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// world is a store whose works were made by the protocol itself.
type world struct {
	bucket.Bucket
	pass  func(time.Duration) // moves the store's clock
	t     rapid.TB
	ctx   context.Context
	works []*job
}

// job is one work and whoever ever held it.
type job struct {
	id      string
	tree    string
	claims  int64
	holders []*holder
}

// holder is a captured lease and what its worker has uploaded.
type holder struct {
	*witness.Holder
	work    string
	attempt int64
	last    int64           // milestone
	waits   *record.Pointer // uploaded, and not named yet
	over    bool
}

// now is the one that holds the lease as far as this world knows, or nil.
func (j *job) now() *holder {
	if n := len(j.holders); n > 0 && !j.holders[n-1].over {
		return j.holders[n-1]
	}
	return nil
}

func (w *world) put(key string, v any) []byte {
	w.t.Helper()
	raw, is := v.([]byte)
	if !is {
		var err error
		if raw, err = record.Encode(v); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.Put(w.ctx, key, bytes.NewReader(raw), bucket.Always()); err != nil {
		w.t.Fatal(err)
	}
	return raw
}

func (w *world) has(key string) bool {
	w.t.Helper()
	o, err := w.Get(w.ctx, key, bucket.Range{})
	if err != nil {
		return false
	}
	if err := o.Body.Close(); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// specOf is the spec of the i-th work.
func specOf(i int, tree string) record.Spec {
	s := record.Spec{Protocol: 1, Kind: "train", Argv: []string{"train"}, Seed: int64(i), CodeTree: tree}
	s.Identity = record.Identity(s)
	s.Work = record.Hash(s.Identity)
	return s
}

// add begins a work: its code, then its spec.
func (w *world) add(i int) *job {
	tree := fmt.Sprintf("%040x", 0xc0de+i%2) // works 0 and 2 share their code
	s := specOf(i, tree)
	w.put(record.CodeKey(tree), []byte("code"))
	w.put(record.SpecKey(s.Work), s)
	j := &job{id: s.Work, tree: tree}
	w.works = append(w.works, j)
	return j
}

// capture claims the next dispatch and takes the lease, which must be free. It reads what a worker reads.
func (w *world) capture(j *job) *holder {
	w.t.Helper()
	j.claims++
	c := record.Claim{Protocol: 1, Work: j.id, Dispatch: j.claims, Nonce: record.Nonce()}
	w.put(record.ClaimKey(j.id, j.claims), c)
	w.put(record.ReceiptKey(j.id, j.claims), record.Receipt{Protocol: 1, Work: j.id, Dispatch: j.claims, Nonce: c.Nonce, OK: true})
	h, err := witness.Capture(w.ctx, w, witness.CaptureRequest{Work: j.id, Dispatch: j.claims, Lease: witness.LeaseFor(0, time.Second, 0)})
	if err != nil {
		w.t.Fatal(err)
	}
	if v := h.Open(w.ctx, record.Open{Platform: "here"}); v.Outcome != witness.Won {
		w.t.Fatal(v)
	}
	if p := h.Seen().Record.Resume; p != nil {
		w.fetch(j.id, *p)
	}
	if !w.has(record.CodeKey(j.tree)) {
		w.t.Fatalf("the code of work %.12s is gone", j.id)
	}
	now := &holder{Holder: h, work: j.id, attempt: h.Seen().Record.Attempt}
	j.holders = append(j.holders, now)
	return now
}

// fetch downloads a snapshot as a worker does that goes on from it.
func (w *world) fetch(work string, p record.Pointer) {
	w.t.Helper()
	dir := w.temp()
	defer os.RemoveAll(dir)
	if _, err := fetch.Snapshot(w.ctx, w, work, p, dir, func(int64) {}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) temp() string {
	dir, err := os.MkdirTemp("", "headway-gc-")
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// files uploads the two files of a snapshot.
func (w *world) files(folder string) (out []record.File) {
	for _, path := range []string{"deep/weights.bin", "state.json"} {
		raw := w.put(folder+path, []byte(folder+path))
		out = append(out, record.File{Path: path, Size: int64(len(raw)), SHA256: record.Hash(raw)})
	}
	return out
}

// upload brings the next milestone of an attempt, whole or without its manifest, whoever holds the lease.
func (w *world) upload(h *holder, complete bool) record.Pointer {
	h.last++
	folder, step := record.MilestonePrefix(h.work, h.attempt, h.last), 10*h.last
	parent := h.Seen().Record.Resume
	if parent != nil {
		step += parent.Step
	}
	m := record.Manifest{Protocol: 1, Work: h.work, Attempt: h.attempt, Milestone: h.last, Step: step, Parent: parent, Files: w.files(folder)}
	p := record.Pointer{Attempt: h.attempt, Milestone: h.last, Step: step, Manifest: folder + "manifest.json"}
	if complete {
		p.SHA256 = record.Hash(w.put(p.Manifest, m))
	}
	return p
}

func (w *world) advance(h *holder) {
	w.t.Helper()
	p := w.upload(h, true)
	w.move(h, p)
}

// move moves the pointer to an uploaded milestone.
func (w *world) move(h *holder, p record.Pointer) {
	w.t.Helper()
	h.waits = nil
	if v := h.Advance(w.ctx, p, witness.Progress{Step: p.Step}, h.Seen().Record.Lease); v.Outcome != witness.Won {
		w.t.Fatal(v)
	}
}

func (w *world) finish(h *holder, really bool) {
	w.t.Helper()
	folder := record.ResultPrefix(h.work, h.attempt)
	m := record.Manifest{Protocol: 1, Work: h.work, Attempt: h.attempt, Parent: h.Seen().Record.Resume, Files: w.files(folder)}
	sum := record.Hash(w.put(folder+"manifest.json", m))
	if !really {
		return
	}
	v := h.Finish(w.ctx, witness.FinishedPointer{Attempt: h.attempt, Manifest: folder + "manifest.json", SHA256: sum}, witness.Progress{})
	if v.Outcome != witness.Won {
		w.t.Fatal(v)
	}
	w.end(h, "finished")
}

func (w *world) end(h *holder, class string) {
	h.over = true
	w.put(record.EndKey(h.work, h.attempt), record.End{Protocol: 1, Work: h.work, Attempt: h.attempt, Class: class})
}

func (w *world) yield(h *holder) {
	w.t.Helper()
	if v := h.Yield(w.ctx, "asked to leave"); v.Outcome != witness.Won {
		w.t.Fatal(v)
	}
	w.end(h, "yielded")
}

func (w *world) revoke(h *holder) {
	w.t.Helper()
	if r, _, err := witness.Revoke(w.ctx, w, h.Seen(), "silent"); r != witness.Ended {
		w.t.Fatal(r, err)
	}
	h.over = true
}

func (w *world) log(h *holder, offset int64) {
	w.put(record.SegmentKey(record.LogPrefix(h.work, h.attempt), offset), []byte("step\n"))
	w.put(record.SegmentKey(record.EventPrefix(h.work, h.attempt), offset), []byte("{}\n"))
}

// clean fails the test when a deep check of the store finds anything.
func (w *world) clean(when string) {
	w.t.Helper()
	got, err := audit.Check(w.ctx, w, audit.Options{Deep: true})
	if err != nil || !got.OK() {
		w.t.Fatalf("%s: %v %+v", when, err, got.Findings)
	}
}

// keys lists the whole store with the age of each object.
func (w *world) keys() map[string]time.Duration {
	return keysOf(w.t, w.ctx, w.Bucket)
}

func keysOf(t rapid.TB, ctx context.Context, b bucket.Bucket) map[string]time.Duration {
	out, after := map[string]time.Duration{}, ""
	for {
		p, err := b.List(ctx, "", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range p.Items {
			after = it.Key
			out[it.Key] = p.Date.Sub(it.Modified)
		}
		if !p.More {
			return out
		}
	}
}

func bytesOf(t rapid.TB, ctx context.Context, b bucket.Bucket, key string) string {
	o, err := b.Get(ctx, key, bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	raw, err := io.ReadAll(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// usable shows that what must be there is there: results can be fetched, every holder goes on, every free work is
// resumed from where it was.
func (w *world) usable() {
	w.t.Helper()
	for _, j := range w.works {
		seen, err := witness.Read(w.ctx, w, j.id)
		switch {
		case len(j.holders) == 0:
			w.capture(j)
		case err != nil:
			w.t.Fatal(err)
		case seen.Record.State == witness.Finished:
			dir, f := w.temp(), seen.Record.Finished
			if _, err := fetch.Result(w.ctx, w, j.id, f.Attempt, f.Manifest, f.SHA256, dir, func(int64) {}); err != nil {
				w.t.Fatal(err)
			}
			os.RemoveAll(dir)
		case seen.Record.State == witness.Held:
			if h := j.now(); h.waits != nil {
				w.move(h, *h.waits)
			}
			w.advance(j.now())
		default:
			w.advance(w.capture(j))
		}
	}
	w.clean("after everybody went on")
}

// line follows the pointer of an unfinished work back through whole snapshots, and says how many there are.
func (w *world) line(work string) (n int) {
	seen, err := witness.Read(w.ctx, w, work)
	if err != nil {
		w.t.Fatal(err)
	}
	for p := seen.Record.Resume; p != nil && w.has(p.Manifest); n++ {
		var m record.Manifest
		if err := record.Decode([]byte(bytesOf(w.t, w.ctx, w, p.Manifest)), record.MaxManifest, &m); err != nil {
			w.t.Fatal(err)
		}
		for _, f := range m.Files {
			if !w.has(strings.TrimSuffix(p.Manifest, "manifest.json") + f.Path) {
				w.t.Fatalf("%s is there, and its %s is not", p.Manifest, f.Path)
			}
		}
		p = m.Parent
	}
	return n
}
