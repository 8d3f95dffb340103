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
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// bench is a bucket with a few works that were made by the protocol itself.
type bench struct {
	bucket.Bucket
	t       *testing.T
	touched map[string]bool // keys written since mended; nil: not noted
}

func (b *bench) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if b.touched != nil {
		b.touched[key] = true
	}
	return b.Bucket.Put(ctx, key, body, c)
}

func newBench(t *testing.T, b bucket.Bucket) *bench { return &bench{Bucket: b, t: t} }

// onMem and onDir are the stores that every test can have.
func onMem(*testing.T) bucket.Bucket { return mem.New() }

func onDir(t *testing.T) bucket.Bucket {
	b, err := dir.Open(t.TempDir(), dir.Options{Create: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
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
	if b.touched != nil {
		b.touched[key] = true
	}
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
	claim := record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()}
	b.put(record.ClaimKey(work, n), claim)
	b.put(record.ReceiptKey(work, n), record.Receipt{Protocol: 1, Work: work, Dispatch: n, Nonce: claim.Nonce})
	b.put(record.ReleaseKey(work, n, 1), record.Release{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce(), Settlement: "closed"})
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
	b.put(record.EndKey(r.Work, r.Attempt), record.End{Protocol: 1, Work: r.Work, Attempt: r.Attempt, Class: "finished"})
}

// late is what a deposed worker's courier brings after the take-over: a milestone of attempt 1, whole, that grew from the
// pointer of that moment.
func (b *bench) late(work string, milestone int64) {
	seen, err := witness.Read(b.t.Context(), b, work)
	if err != nil {
		b.t.Fatal(err)
	}
	folder := record.MilestonePrefix(work, 1, milestone)
	b.put(folder+"manifest.json", record.Manifest{Protocol: 1, Work: work, Attempt: 1, Milestone: milestone, Step: 25, Parent: seen.Record.Resume, Files: b.files(folder, 25)})
}

// around adds what is of no work.
func (b *bench) around() {
	b.put("platform/local", []byte(`{"protocol":1,"platform":"local","write":"`+record.Nonce()+`","series":1,"park_s":60}`))
	b.put(record.CodeKey(strings.Repeat("a1", 20)), []byte("x"))
	b.put(record.CodeKey(strings.Repeat("a1", 32)), []byte("x"))
	b.put("accepted/-", []byte("{}"))
	b.put("board/-", []byte("{}"))
	o := observed()
	b.put(record.ObservationKey(o, observedAt()), o)
	b.put(record.CompactKey(o.Platform, o.GPU, o.Mode), []byte(`{"protocol":1,"rev":1,"write":"`+record.Nonce()+`","platform":"local","gpu":"cpu","mode":"none"}`))
	b.put(sinceKey, []byte(`{"protocol":1,"to":"HOOK","on":["failed"],"marks":[]}`))
	b.put("notify/0011/"+record.Nonce(), []byte(`{"protocol":1}`))
	if err := probe.Write(b.t.Context(), b, probe.Report{Protocol: 1, Pass: true, Time: time.Now().Format(time.RFC3339)}); err != nil {
		b.t.Fatal(err)
	}
	b.put(probe.Prefix+"left/over", []byte("x"))
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
	b.late(work, 3)
	h = b.capture(work, 2)
	b.put(record.RefusalKey(work, 2), record.Refusal{Protocol: 1, Work: work, Dispatch: 2, Text: "a twin found another card"})
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
	b := newBench(t, onMem(t))
	for i := range 6 {
		b.history(i, i%2 == 0)
	}
	claimedOnly := b.spec(100)
	b.put(record.ClaimKey(claimedOnly, 1), record.Claim{Protocol: 1, Work: claimedOnly, Dispatch: 1, Nonce: record.Nonce()})
	stopped := b.spec(101)
	if r, _, err := witness.Stop(t.Context(), b, stopped, 1, "never"); r != witness.Ended {
		t.Fatal(r, err)
	}
	b.around()
	for _, deep := range []bool{false, true} {
		got, err := Check(t.Context(), b, Options{Deep: deep})
		if err != nil || !got.OK() {
			t.Fatal(err, got.Findings)
		}
		want := Report{Works: 8, Witnesses: 7, Finished: 3, Dispatches: 19, Attempts: 18, Snapshots: 21, Files: 42, Code: 2, Platforms: 1, Deep: deep,
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

func allSpoiled() []spoiled {
	return slices.Concat(spoiledRecords(), spoiledWitnesses(), spoiledPointers(), spoiledSnapshots(), spoiledFiles(), spoiledAround(), spoiledLearnt())
}

// template is a sound bucket: a work that runs and one that is finished, to be spoiled, and a neighbour of each sort.
type template struct {
	*bench
	running, finished string
}

func newTemplate(t *testing.T) template {
	b := newBench(t, onMem(t))
	b.around()
	b.history(1, true)
	b.history(2, false)
	out := template{b, b.history(3, false), b.history(4, true)}
	if got, err := Check(t.Context(), b, Options{Deep: true}); err != nil || !got.OK() {
		t.Fatal("before anything was spoiled:", err, got.Findings)
	}
	return out
}

// into copies everything into another store.
func (m template) into(t *testing.T, b bucket.Bucket) *bench {
	t.Helper()
	p, err := m.List(t.Context(), "", "", 0)
	if err != nil || p.More {
		t.Fatal(p.More, err)
	}
	out := newBench(t, b)
	for _, it := range p.Items {
		out.put(it.Key, m.raw(it.Key))
	}
	return out
}

// mend puts everything back that was touched.
func (m template) mend(b *bench) {
	b.t.Helper()
	for key := range b.touched {
		o, err := m.Get(b.t.Context(), key, bucket.Range{})
		if bucket.Is(err, bucket.NotFound) {
			b.remove(key)
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		_ = o.Body.Close()
		b.put(key, m.raw(key))
	}
	clear(b.touched)
}

func TestSpoiledBuckets(t *testing.T) {
	for name, store := range map[string]bucket.Bucket{"mem": onMem(t), "dir": onDir(t)} {
		t.Run(name, func(t *testing.T) { spoilAll(t, store) })
	}
}

// spoilAll goes through every way to spoil a bucket, on one store that is mended in between.
func spoilAll(t *testing.T, store bucket.Bucket) {
	sound, help := newTemplate(t), advices()
	b := sound.into(t, store)
	b.touched = map[string]bool{}
	for _, c := range allSpoiled() {
		t.Run(c.name, func(t *testing.T) {
			if help[c.name] == "" {
				t.Error("no advice is expected")
			}
			b.t = t
			work := sound.running
			if c.finish {
				work = sound.finished
			}
			c.check(b, work, help[c.name])
			sound.mend(b)
		})
	}
	if got, err := Check(t.Context(), b, Options{Deep: true}); err != nil || !got.OK() {
		t.Fatal("after everything was mended:", err, got.Findings)
	}
}

// check spoils one work between a finished and a running neighbour: it is named, with what helps, and they are not.
func (c spoiled) check(b *bench, work, help string) {
	t := b.t
	t.Helper()
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
		if f.Text == "" || f.Do == "" || strings.HasSuffix(f.Do, "...") || !strings.Contains(f.Key, work) && !strings.Contains(c.name, "stray") {
			t.Errorf("a finding at a sound work or without a sentence: %+v", f)
		}
		hit = hit || f.Invariant == c.want && f.Key == c.at(work) && strings.Contains(strings.ReplaceAll(f.Do, work, "WORK"), help)
	}
	if !hit {
		t.Fatalf("want %s at %s and %q, found %+v", c.want, c.at(work), help, got.Findings)
	}
}

// TestStoreErrors: a store that fails is an error and never a finding.
func TestStoreErrors(t *testing.T) {
	b := newBench(t, onMem(t))
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
	b := newBench(t, onMem(t))
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
