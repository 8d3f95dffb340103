package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// bench is a bucket with a few works that were made by the protocol itself.
type bench struct {
	*mem.Bucket
	t *testing.T
}

func (b *bench) put(key string, v any) []byte {
	b.t.Helper()
	raw, is := v.([]byte)
	if !is {
		var err error
		if raw, err = record.Encode(v); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := b.Put(b.t.Context(), key, bytes.NewReader(raw), bucket.Always()); err != nil {
		b.t.Fatal(err)
	}
	return raw
}

func (b *bench) raw(key string) []byte {
	b.t.Helper()
	o, err := b.Get(b.t.Context(), key, bucket.Range{})
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := io.ReadAll(o.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

// change reads a record, lets it be changed, and writes it back past every rule.
func change[T any](b *bench, key string, f func(*T)) {
	b.t.Helper()
	var v T
	if err := json.Unmarshal(b.raw(key), &v); err != nil {
		b.t.Fatal(err)
	}
	f(&v)
	b.put(key, v)
}

func (b *bench) remove(key string) {
	b.t.Helper()
	if err := b.Delete(b.t.Context(), key); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) won(v witness.Verdict) {
	b.t.Helper()
	if v.Outcome != witness.Won {
		b.t.Fatal(v)
	}
}

// spec writes the spec of the i-th work and returns the work.
func (b *bench) spec(i int) string {
	s := record.Spec{Protocol: 1, Kind: "train", Argv: []string{"a < b"}, Seed: int64(i)}
	s.Identity = record.Identity(s)
	s.Work = record.Hash(s.Identity)
	b.put(record.SpecKey(s.Work), s)
	return s.Work
}

func (b *bench) capture(work string, n int64) *witness.Holder {
	b.t.Helper()
	b.put(record.ClaimKey(work, n), record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()})
	b.put(record.ReceiptKey(work, n), record.Receipt{Protocol: 1, Work: work, Dispatch: n})
	h, err := witness.Capture(b.t.Context(), b, witness.CaptureRequest{Work: work, Dispatch: n, Lease: witness.LeaseFor(0, time.Second, 0)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.won(h.Open(b.t.Context(), record.Open{Platform: "local"}))
	b.put(record.SegmentKey(record.LogPrefix(work, h.Seen().Record.Attempt), 0), []byte("hello\n"))
	return h
}

// files puts two files into a folder and returns their entries.
func (b *bench) files(folder string, step int64) []record.File {
	var out []record.File
	for _, path := range []string{"deep/weights.bin", "state.json"} {
		raw := b.put(folder+path, fmt.Appendf(nil, "%s at %d", path, step))
		out = append(out, record.File{Path: path, Size: int64(len(raw)), SHA256: record.Hash(raw)})
	}
	return out
}

func (b *bench) advance(h *witness.Holder, milestone, step int64) record.Pointer {
	b.t.Helper()
	r := h.Seen().Record
	folder := record.MilestonePrefix(r.Work, r.Attempt, milestone)
	m := record.Manifest{Protocol: 1, Work: r.Work, Attempt: r.Attempt, Milestone: milestone, Step: step, Parent: r.Resume, Files: b.files(folder, step)}
	raw := b.put(folder+"manifest.json", m)
	p := record.Pointer{Attempt: r.Attempt, Milestone: milestone, Step: step, Manifest: folder + "manifest.json", SHA256: record.Hash(raw)}
	b.won(h.Advance(b.t.Context(), p, witness.Progress{Step: step}, r.Lease))
	return p
}

func (b *bench) finish(h *witness.Holder) {
	b.t.Helper()
	r := h.Seen().Record
	folder := record.ResultPrefix(r.Work, r.Attempt)
	m := record.Manifest{Protocol: 1, Work: r.Work, Attempt: r.Attempt, Step: 40, Parent: r.Resume, Files: b.files(folder, 40)}
	raw := b.put(folder+"manifest.json", m)
	b.won(h.Finish(b.t.Context(), witness.FinishedPointer{Attempt: r.Attempt, Manifest: folder + "manifest.json", SHA256: record.Hash(raw)}, witness.Progress{Step: 40}))
}

// history makes the work that most tests spoil: attempt 1 advanced twice and was revoked, attempt 2 yielded at once,
// attempt 3 advanced, and finished when asked.
func (b *bench) history(i int, finish bool) string {
	b.t.Helper()
	ctx, work := b.t.Context(), b.spec(i)
	h := b.capture(work, 1)
	b.advance(h, 1, 10)
	b.advance(h, 2, 20)
	if r, _, err := witness.Revoke(ctx, b, h.Seen(), "silent"); r != witness.Ended {
		b.t.Fatal(r, err)
	}
	b.put(record.MilestonePrefix(work, 1, 3)+"state.json", []byte("late upload of a deposed worker"))
	h = b.capture(work, 2)
	b.put(record.EndKey(work, 2), record.End{Protocol: 1, Work: work, Attempt: 2, Class: "yielded"})
	b.won(h.Yield(ctx, "spot notice"))
	h = b.capture(work, 3)
	b.advance(h, 1, 30)
	if finish {
		b.finish(h)
	}
	return work
}

func TestSoundBucket(t *testing.T) {
	b := &bench{mem.New(), t}
	for i := range 6 {
		b.history(i, i%2 == 0)
	}
	claimedOnly := b.spec(100)
	b.put(record.ClaimKey(claimedOnly, 1), record.Claim{Protocol: 1, Work: claimedOnly, Dispatch: 1, Nonce: record.Nonce()})
	stopped := b.spec(101)
	if r, _, err := witness.Stop(t.Context(), b, stopped, 1, "never"); r != witness.Ended {
		t.Fatal(r, err)
	}
	b.put("platform/local", []byte("{}"))
	b.put("code/abc.tar.zst", []byte("x"))
	for _, deep := range []bool{false, true} {
		got, err := Check(t.Context(), b, Options{Deep: deep})
		if err != nil || !got.OK() {
			t.Fatal(err, got.Findings)
		}
		want := Report{Works: 8, Witnesses: 7, Finished: 3, Dispatches: 19, Attempts: 18, Snapshots: 21, Files: 42, Deep: deep,
			Bytes: got.Bytes, Requests: got.Requests, Findings: []Finding{}}
		if diff := cmp.Diff(want, got); diff != "" || got.Bytes == 0 {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// spoiled is one way to corrupt a bucket by hand.
type spoiled struct {
	name   string
	finish bool // of a finished work
	deep   bool // only a deep check can see it
	spoil  func(b *bench, work string)
	want   Invariant
	at     func(work string) string // key of the finding
}

func TestSpoiledBuckets(t *testing.T) {
	for _, c := range slices.Concat(spoiledRecords(), spoiledSnapshots(), spoiledFiles()) {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{mem.New(), t}
			b.history(1, true) // a sound neighbour
			work := b.history(2, c.finish)
			b.history(3, false)
			c.spoil(b, work)
			if c.deep {
				if got, err := Check(t.Context(), b, Options{}); err != nil || !got.OK() {
					t.Fatal("seen without reading the files:", err, got.Findings)
				}
			}
			got, err := Check(t.Context(), b, Options{Deep: true})
			if err != nil {
				t.Fatal(err)
			}
			hit := false
			for _, f := range got.Findings {
				if f.Text == "" || f.Do == "" || !strings.Contains(f.Key, work) && !strings.Contains(c.name, "stray") {
					t.Errorf("a finding at a sound work or without a sentence: %+v", f)
				}
				hit = hit || f.Invariant == c.want && f.Key == c.at(work)
			}
			if !hit {
				t.Fatalf("want %s at %s, found %+v", c.want, c.at(work), got.Findings)
			}
		})
	}
}

// TestStoreErrors: a store that fails is an error and never a finding.
func TestStoreErrors(t *testing.T) {
	b := &bench{mem.New(), t}
	b.history(1, true)
	total, err := Check(t.Context(), b, Options{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= total.Requests; n++ {
		for _, cut := range []bool{false, true} {
			f := &failing{Store: b, at: n, cut: cut}
			got, err := Check(t.Context(), f, Options{Deep: true})
			if !got.OK() || err == nil && f.fired {
				t.Fatalf("request %d failed (cut %v): error %v, findings %v", n, cut, err, got.Findings)
			}
		}
	}
}

// failing lets the at-th request fail, or cuts its body.
type failing struct {
	Store
	at, n int
	cut   bool
	fired bool
}

func (f *failing) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if f.n++; f.n != f.at {
		return f.Store.Get(ctx, key, r)
	}
	if !f.cut {
		f.fired = true
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.Unknown}
	}
	o, err := f.Store.Get(ctx, key, r)
	if err == nil && o.Size > 0 {
		f.fired = true
		o.Body = io.NopCloser(io.LimitReader(o.Body, o.Size-1))
	}
	return o, err
}

func (f *failing) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if f.n++; f.n != f.at || f.cut {
		return f.Store.List(ctx, prefix, after, limit)
	}
	f.fired = true
	return nil, &bucket.Error{Op: "list", Key: prefix, Code: bucket.Throttled}
}

func TestFindingsAreBounded(t *testing.T) {
	b := &bench{mem.New(), t}
	for i := range 30 {
		b.put(fmt.Sprintf("witness/%02d", i), []byte("x"))
	}
	got, err := Check(t.Context(), b, Options{Max: 10})
	if err != nil || len(got.Findings) != 10 || got.Dropped != 20 || got.OK() {
		t.Fatal(err, len(got.Findings), got.Dropped)
	}
	if s := printable("a\x1b[31m" + strings.Repeat("é", 500)); len(s) > 3000 || strings.ContainsAny(s, "\x1bé") {
		t.Error(s)
	}
}
