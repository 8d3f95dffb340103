package witness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// captured returns an opened holder of attempt 1 by dispatch 1, or fails.
func captured(t *testing.T, s *memory, work string, dispatch int64) *Holder {
	t.Helper()
	s.claim(work, dispatch)
	h, err := Capture(t.Context(), s, CaptureRequest{Work: work, Dispatch: dispatch, Lease: quick})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Open(t.Context(), record.Open{}); v.Outcome != Won {
		t.Fatal(v)
	}
	return h
}

func mustRead(t *testing.T, s Store, work string) Seen {
	t.Helper()
	seen, err := Read(t.Context(), s, work)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestCaptureRefusals(t *testing.T) {
	work := workNamed(1)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, s *memory)
		want    Why
	}{
		"held, whatever its age": {func(t *testing.T, s *memory) {
			captured(t, s, work, 1)
			time.Sleep(1000 * time.Hour)
		}, SpawnedElsewhere},
		"finished": {func(t *testing.T, s *memory) {
			h := captured(t, s, work, 1)
			if v := h.Finish(t.Context(), s.result(work, 1, nil), Progress{}); v.Outcome != Won {
				t.Fatal(v)
			}
		}, AlreadyFinished},
		"below the floor": {func(t *testing.T, s *memory) {
			captured(t, s, work, 1)
			if r, _, err := Stop(t.Context(), s, work, 10, "enough"); r != Ended || err != nil {
				t.Fatal(r, err)
			}
		}, BelowFloor},
		"stopped before anybody captured": {func(t *testing.T, s *memory) {
			if r, seen, err := Stop(t.Context(), s, work, 3, "enough"); r != Ended || err != nil || seen.Record.Attempt != 0 {
				t.Fatal(r, err)
			}
		}, BelowFloor},
		"absent beside an attempt": {func(t *testing.T, s *memory) {
			captured(t, s, work, 1)
			s.remove(record.WitnessKey(work))
		}, UnknownHistory},
		"absent beside a later claim":   {func(_ *testing.T, s *memory) { s.claim(work, 3) }, UnknownHistory},
		"absent beside a later receipt": {func(_ *testing.T, s *memory) { s.set(record.ReceiptKey(work, 3), []byte("{}")) }, UnknownHistory},
		"no claim of its own":           {func(_ *testing.T, s *memory) { s.claim(work, 1) }, UnknownHistory},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory()
				c.prepare(t, s)
				if name != "no claim of its own" {
					s.claim(work, 2)
				}
				puts := s.puts
				h, err := Capture(t.Context(), s, CaptureRequest{Work: work, Dispatch: 2, Lease: quick})
				if h != nil || why(err) != c.want {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				if s.puts != puts {
					t.Error("a refused capture wrote something")
				}
			})
		})
	}
}

// TestCaptureAfterRefusedLaunches: claims whose launches never captured do not bar the work.
func TestCaptureAfterRefusedLaunches(t *testing.T) {
	s, work := newMemory(), workNamed(1)
	s.claim(work, 1)
	s.set(record.ReceiptKey(work, 1), []byte("{}"))
	s.set(record.ReleaseKey(work, 1, 1), []byte("{}"))
	s.claim(work, 2)
	s.set(record.ReceiptKey(work, 3), nil)
	s.remove(record.ReceiptKey(work, 3))
	h := captured(t, s, work, 3)
	if r := h.Seen().Record; r.Attempt != 1 || r.Dispatch != 3 {
		t.Fatal(r)
	}
}

// TestDeletedWitnessBeforeOpen is the hole that the absent rule can't see: the witness is deleted after a capture and
// before its open.json, so a later dispatch makes attempt 1 again. The reservation of the prefix lets one of the two
// write under it, and the other stops.
func TestDeletedWitnessBeforeOpen(t *testing.T) {
	for _, firstOpens := range []bool{true, false} {
		s, work, ctx := newMemory(), workNamed(1), t.Context()
		s.claim(work, 1)
		a, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick})
		if err != nil {
			t.Fatal(err)
		}
		s.remove(record.WitnessKey(work))
		s.claim(work, 2)
		b, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 2, Lease: quick})
		if err != nil {
			t.Fatal(err)
		}
		one, two := a, b
		if !firstOpens {
			one, two = b, a
		}
		if v := one.Open(ctx, record.Open{}); v.Outcome != Won {
			t.Fatal(v)
		}
		if v := two.Open(ctx, record.Open{}); v.Outcome != Refused || why(v.Err) != UnknownHistory || !v.Over() {
			t.Fatal(v)
		}
		if v := two.Renew(ctx, Progress{}, quick); !v.Over() {
			t.Fatal("went on after a foreign reservation:", v)
		}
		// The first life's lease is gone; what it wrote before it noticed lies under a prefix that it alone has.
		if v := a.Renew(ctx, Progress{}, quick); !v.Over() {
			t.Fatal("a holder of the earlier life renewed:", v)
		}
	}
}

func TestUnreadableIsNeverOverwritten(t *testing.T) {
	work := workNamed(1)
	h := Record{Protocol: 2, Work: work}
	newer, _ := record.Encode(h)
	for name, raw := range map[string][]byte{
		"empty": {}, "half": []byte(`{"protocol":1,"wo`), "newer": newer, "big": make([]byte, 10<<20), "other": []byte(`{"protocol":1,"work":"x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := newMemory(), t.Context()
			s.claim(work, 1)
			s.set(record.WitnessKey(work), raw)
			if _, err := Read(ctx, s, work); !isUnreadable(err) {
				t.Fatal(err)
			}
			if _, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick}); !isUnreadable(err) {
				t.Fatal(err)
			}
			if r, _, err := Stop(ctx, s, work, 5, "x"); r != Unwritten || !isUnreadable(err) {
				t.Fatal(r, err)
			}
			if _, err := Repair(ctx, s, work, nil, "x"); !isUnreadable(err) {
				t.Fatal(err)
			}
			if s.puts != 0 {
				t.Error("written over")
			}
		})
	}
}

func TestReadAbsentIsNotAnError(t *testing.T) {
	s := newMemory()
	if _, err := Read(t.Context(), s, workNamed(1)); !errors.Is(err, ErrAbsent) {
		t.Fatal(err)
	}
	s.before = func(op, key string) error { return fault(op, key, bucket.NoBucket) }
	if _, err := Read(t.Context(), s, workNamed(1)); errors.Is(err, ErrAbsent) || !bucket.Is(err, bucket.NoBucket) {
		t.Fatal("a missing bucket was taken for an absent witness:", err)
	}
}

// TestCaptureUnsettled: no verdict in time is an answer of its own, and the nonce is never used again.
func TestCaptureUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work := newMemory(), workNamed(1)
		s.claim(work, 1)
		cut := false
		s.after = func(op, key string) error {
			if op == "put" {
				cut = true
				return fault(op, key, bucket.Unknown)
			}
			return nil
		}
		s.before = func(op, key string) error {
			if cut {
				return fault(op, key, bucket.Unknown)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick}); why(err) != Unsettled {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 50*time.Second || d > time.Minute {
			t.Errorf("gave up after %s of 60 s", d)
		}
	})
}

func TestRepair(t *testing.T) {
	s, work, ctx := newMemory(), workNamed(1), t.Context()
	if _, err := Repair(ctx, s, work, nil, "x"); why(err) != BadMove {
		t.Fatal("repaired a work that never ran:", err)
	}
	h := captured(t, s, work, 1)
	p := s.milestone(work, 1, 1, 10, nil)
	if v := h.Advance(ctx, p, Progress{Step: 10}, quick); v.Outcome != Won {
		t.Fatal(v)
	}
	if _, err := Repair(ctx, s, work, &p, "x"); why(err) != BadMove {
		t.Fatal("repaired a witness that exists:", err)
	}
	s.remove(record.WitnessKey(work))
	wrong := p
	wrong.SHA256 = record.Hash(nil)
	if _, err := Repair(ctx, s, work, &wrong, "x"); why(err) != BadPointer {
		t.Fatal(err)
	}
	seen, err := Repair(ctx, s, work, &p, "by ann")
	if err != nil || seen.Record.Attempt != 1 || seen.Record.Dispatch != 1 || seen.Record.State != Revoked || *seen.Record.Resume != p {
		t.Fatal(seen, err)
	}
	s.remove(record.OpenKey(work, 1))
	s.remove(record.WitnessKey(work))
	if seen, err := Repair(ctx, s, work, &p, "by ann"); err != nil || seen.Record.Attempt != 1 || seen.Record.Dispatch != 0 {
		t.Fatal("without an open.json that names the dispatch:", seen, err)
	}
	if v := h.Renew(ctx, Progress{}, quick); !v.Over() {
		t.Fatal("a holder of the earlier life renewed:", v)
	}
	next := captured(t, s, work, 2)
	if r := next.Seen().Record; r.Attempt != 2 || *r.Resume != p {
		t.Fatal(r)
	}
}

// TestRepairBarsWhatWasClaimed: a stop goes with the witness that is deleted, and the repair bars what it barred: every
// claim so far, those included that captured nothing. Nobody waits for them either.
func TestRepairBarsWhatWasClaimed(t *testing.T) {
	s, work, ctx := newMemory(), workNamed(1), t.Context()
	captured(t, s, work, 1)
	for _, n := range []int64{2, 3, 11} {
		s.claim(work, n)
	}
	for _, key := range []string{record.ReceiptKey(work, 11), record.ReleaseKey(work, 11, 1), record.ReceiptKey(work, 40), record.DispatchPrefix(work) + "99.json",
		record.DispatchPrefix(work) + "9223372036854775807.json", record.DispatchPrefix(work) + "x"} {
		s.set(key, []byte("{}"))
	}
	if r, _, err := Stop(ctx, s, work, 12, "enough"); r != Ended {
		t.Fatal(r, err)
	}
	s.remove(record.WitnessKey(work))
	seen, err := Repair(ctx, s, work, nil, "by ann")
	if err != nil || seen.Record.Floor != 12 || seen.Record.Dispatch != 1 || seen.Record.Attempt != 1 {
		t.Fatalf("%+v %v", seen.Record, err)
	}
	for _, n := range []int64{1, 2, 3, 11} {
		if _, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: n, Lease: quick}); why(err) != BelowFloor {
			t.Errorf("dispatch %d, which was stopped: %v", n, err)
		}
	}
	if r := captured(t, s, work, 12).Seen().Record; r.Attempt != 2 {
		t.Error(r)
	}
}

// twinned runs something right before the first listing: a twin of the launch that captures just then.
type twinned struct {
	*memory
	before func()
}

func (s *twinned) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if do := s.before; do != nil {
		s.before = nil
		do()
	}
	return s.memory.List(ctx, prefix, after, limit)
}

// A platform that starts a launch twice: the second worker finds no witness and then the first one's traces. It is told
// that the work runs elsewhere, not that somebody deleted the witness.
func TestCaptureBesideATwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, s := workNamed(1), newMemory()
		s.claim(work, 1)
		_, err := Capture(t.Context(), &twinned{s, func() { captured(t, s, work, 1) }}, CaptureRequest{Work: work, Dispatch: 1, Lease: quick})
		if no, is := errors.AsType[*Refusal](err); !is || no.Why != SpawnedElsewhere || no.By == nil || no.By.Attempt != 1 {
			t.Errorf("%v", err)
		}
	})
}

// A stop that comes while a worker captures ends that worker's lease, and is no riddle.
func TestStopBesideACapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, s := workNamed(1), newMemory()
		r, seen, err := Stop(t.Context(), &twinned{s, func() { captured(t, s, work, 1) }}, work, 2, "enough")
		if r != Ended || err != nil || seen.Record.Attempt != 1 || !seen.Record.Stopped() || seen.Record.Floor != 2 {
			t.Errorf("%s, %+v, %v", r, seen.Record, err)
		}
	})
}
