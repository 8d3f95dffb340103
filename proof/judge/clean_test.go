package judge

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func workNo(n int) string { return record.Hash(fmt.Append(nil, n)) }

// stage is a store whose every write is judged, and the product's own lease code at it.
type stage struct {
	t    testing.TB
	j    *Judge
	log  history.Log
	rec  *history.Recorder
	work string
	last map[string]int64 // claims of a work
}

func newStage(t testing.TB, o Options) *stage {
	s := &stage{t: t, j: New(o), work: workNo(1), last: map[string]int64{}}
	s.rec = history.Record(mem.New(), history.Tee(s.j, &s.log), time.Now())
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) put(actor, key string, body []byte, c bucket.Cond) {
	s.t.Helper()
	_, err := s.rec.As(actor).Put(s.t.Context(), key, bytes.NewReader(body), c)
	s.must(err)
}

// upload is a put that may not be refused for anything but its condition.
func (s *stage) upload(actor, key string, body []byte) {
	s.t.Helper()
	s.put(actor, key, body, bucket.Always())
}

func encoded(v any) []byte {
	b, err := record.Encode(v)
	if err != nil {
		return nil
	}
	return b
}

// claim makes the next claim of the stage's work, and its receipt.
func (s *stage) claim(actor string) int64 {
	s.t.Helper()
	s.last[s.work]++
	n := s.last[s.work]
	nonce := record.Nonce()
	s.put(actor, record.ClaimKey(s.work, n), encoded(record.Claim{Protocol: 1, Work: s.work, Dispatch: n, Nonce: nonce}), bucket.IfAbsent())
	s.put(actor, record.ReceiptKey(s.work, n), encoded(record.Receipt{Protocol: 1, Work: s.work, Dispatch: n, Nonce: nonce, OK: true}), bucket.IfAbsent())
	return n
}

func lease() witness.Lease { return witness.LeaseFor(1, time.Second, 15*time.Second) }

// capture captures and reserves for a dispatch.
func (s *stage) capture(actor string, dispatch int64) *witness.Holder {
	s.t.Helper()
	h, err := witness.Capture(s.t.Context(), s.rec.As(actor), witness.CaptureRequest{Work: s.work, Dispatch: dispatch, Lease: lease()})
	s.must(err)
	if v := h.Open(s.t.Context(), record.Open{}); v.Outcome != witness.Won {
		s.t.Fatal(v)
	}
	return h
}

// milestone uploads the next snapshot of a holder and returns the pointer to it.
func (s *stage) milestone(actor string, h *witness.Holder) record.Pointer {
	s.t.Helper()
	r := h.Seen().Record
	p := record.Pointer{Attempt: r.Attempt, Milestone: 1, Step: 10}
	if r.Resume != nil {
		p.Step = r.Resume.Step + 10
		if r.Resume.Attempt == r.Attempt {
			p.Milestone = r.Resume.Milestone + 1
		}
	}
	p.Manifest = record.MilestoneManifestKey(s.work, p.Attempt, p.Milestone)
	model := fmt.Appendf(nil, "model of %s at step %d", actor, p.Step)
	s.put(actor, record.MilestonePrefix(s.work, p.Attempt, p.Milestone)+"model.bin", model, bucket.Always())
	m := encoded(record.Manifest{Protocol: 1, Work: s.work, Attempt: p.Attempt, Milestone: p.Milestone, Step: p.Step, Parent: r.Resume,
		Files: []record.File{{Path: "model.bin", Size: int64(len(model)), SHA256: record.Hash(model)}}})
	p.SHA256 = record.Hash(m)
	s.put(actor, p.Manifest, m, bucket.Always())
	return p
}

func (s *stage) advance(actor string, h *witness.Holder) record.Pointer {
	s.t.Helper()
	p := s.milestone(actor, h)
	if v := h.Advance(s.t.Context(), p, witness.Progress{Step: p.Step}, lease()); v.Outcome != witness.Won {
		s.t.Fatal(v)
	}
	return p
}

// finish uploads a result and finishes.
func (s *stage) finish(actor string, h *witness.Holder) {
	s.t.Helper()
	r := h.Seen().Record
	m := encoded(record.Manifest{Protocol: 1, Work: s.work, Attempt: r.Attempt, Step: 100, Parent: r.Resume})
	key := record.ResultManifestKey(s.work, r.Attempt)
	s.put(actor, key, m, bucket.Always())
	f := witness.FinishedPointer{Attempt: r.Attempt, Manifest: key, SHA256: record.Hash(m)}
	if v := h.Finish(s.t.Context(), f, witness.Progress{Step: 100}); v.Outcome != witness.Won {
		s.t.Fatal(v)
	}
}

func (s *stage) revoke(actor string) {
	s.t.Helper()
	seen, err := witness.Read(s.t.Context(), s.rec.As(actor), s.work)
	s.must(err)
	_, _, err = witness.Revoke(s.t.Context(), s.rec.As(actor), seen, "silent")
	s.must(err)
}

func (s *stage) clean() {
	s.t.Helper()
	for _, v := range s.j.Broken() {
		s.t.Error(v)
	}
	if s.t.Failed() {
		s.t.Log("\n" + told(s.log))
	}
}

// TestCleanHistory: what the product does by itself breaks nothing: two attempts, one of them deposed while it uploads,
// a stop before any capture, and a finish.
func TestCleanHistory(t *testing.T) {
	s := newStage(t, Options{AllFinish: true})
	n := s.claim("d1")
	a := s.capture("w1", n)
	s.advance("w1", a)
	s.milestone("w1", a)
	s.revoke("d1")
	b := s.capture("w2", s.claim("d2"))
	s.put("w1", record.SegmentKey(record.LogPrefix(s.work, 1), 0), []byte("late"), bucket.IfAbsent())
	if v := a.Renew(context.WithoutCancel(t.Context()), witness.Progress{}, lease()); v.Outcome != witness.Lost {
		t.Fatal(v)
	}
	s.advance("w2", b)
	s.advance("w2", b)
	s.finish("w2", b)
	s.j.End()
	s.clean()
}
