package witness

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// rewrite puts a changed record past every rule.
func (m *memory) rewrite(t *testing.T, work string, change func(r *Record)) {
	t.Helper()
	r := mustRead(t, m, work).Record
	r.Write = record.Nonce()
	change(&r)
	b, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	m.set(record.WitnessKey(work), b)
}

// TestTripwire: a record that went back, or was replaced without its rev growing, is a store that breaks its word.
func TestTripwire(t *testing.T) {
	for name, change := range map[string]func(r *Record){
		"attempt went back":     func(r *Record) { r.Attempt, r.Rev = 1, 100 },
		"rev stayed":            func(*Record) {},
		"rev went back":         func(r *Record) { r.Rev-- },
		"somebody else's nonce": func(r *Record) { r.Holder = record.Nonce() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, work, ctx := newMemory(), workNamed(1), t.Context()
				h := captured(t, s, work, 1)
				if v := h.Yield(ctx, "x"); v.Outcome != Won {
					t.Fatal(v)
				}
				h = captured(t, s, work, 2)
				s.rewrite(t, work, change)
				if v := h.Renew(ctx, Progress{}, quick); v.Outcome != Refused || why(v.Err) != StoreViolation || !v.Over() {
					t.Fatal(v)
				}
				puts := s.puts
				if v := h.Renew(ctx, Progress{}, quick); !v.Over() || s.puts != puts {
					t.Fatal("wrote on a store that broke its word:", v)
				}
			})
		})
	}
}

func TestGoneIsNeverFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work, ctx := newMemory(), workNamed(1), t.Context()
		h := captured(t, s, work, 1)
		seen := mustRead(t, s, work)
		s.remove(record.WitnessKey(work))
		if v := h.Renew(ctx, Progress{}, quick); v.Outcome != Gone || !v.Over() {
			t.Fatal(v)
		}
		if r, _, err := Revoke(ctx, s, seen, "silent"); r != Unwritten || why(err) != StoreViolation {
			t.Fatal(r, err)
		}
		if r, _, err := Stop(ctx, s, work, 3, "x"); r != Unwritten || why(err) != UnknownHistory {
			t.Fatal(r, err)
		}
		if _, has := s.objects[record.WitnessKey(work)]; has {
			t.Fatal("the witness was created again")
		}
	})
}

// TestStoreThatContradictsItself: "exists already" and "not found" in turn end in a sentence, not in a loop.
func TestStoreThatContradictsItself(t *testing.T) {
	for _, code := range []bucket.Code{bucket.Condition, bucket.Gone, bucket.NotFound} {
		synctest.Test(t, func(t *testing.T) {
			s, work := newMemory(), workNamed(1)
			s.claim(work, 1)
			puts := 0
			s.before = func(op, key string) error {
				if op == "put" {
					puts++
					return fault(op, key, code)
				}
				return nil
			}
			if _, err := Capture(t.Context(), s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick}); why(err) != StoreViolation || puts != 3 {
				t.Fatal(code, err, puts)
			}
		})
	}
}

// TestSettingsAreNotRetried: what trying again can't mend ends the call at once, and says so.
func TestSettingsAreNotRetried(t *testing.T) {
	for _, code := range []bucket.Code{bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported} {
		synctest.Test(t, func(t *testing.T) {
			s, work := newMemory(), workNamed(1)
			h := captured(t, s, work, 1)
			start, puts := time.Now(), 0
			s.before = func(op, key string) error { puts++; return fault(op, key, code) }
			if v := h.Renew(t.Context(), Progress{}, quick); v.Outcome != Unknown || !bucket.Is(v.Err, code) || v.Over() {
				t.Fatal(v)
			}
			if puts != 1 || time.Since(start) > 0 {
				t.Errorf("%s: %d requests in %s", code, puts, time.Since(start))
			}
		})
	}
}

// TestThrottled: "slow down" is not written; it is sent again with longer and longer pauses, and never deposes.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work := newMemory(), workNamed(1)
		h := captured(t, s, work, 1)
		var at []time.Time
		s.before = func(op, key string) error {
			if op == "get" {
				t.Error("a throttled write needs no look")
			}
			if at = append(at, time.Now()); len(at) <= 6 {
				return fault(op, key, bucket.Throttled)
			}
			return nil
		}
		if v := h.Renew(t.Context(), Progress{}, quick); v.Outcome != Won {
			t.Fatal(v)
		}
		for i := 1; i < len(at); i++ {
			full := firstPause << (i - 1)
			if d := at[i].Sub(at[i-1]); d < full/2 || d > full {
				t.Errorf("pause %d is %s, want %s to %s", i, d, full/2, full)
			}
		}
	})
}

// TestHangingRequest: a request that never answers leaves time for a look and another try.
func TestHangingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work := newMemory(), workNamed(1)
		h := captured(t, s, work, 1)
		h.s = &hanging{memory: s, puts: 1}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if v := h.Renew(ctx, Progress{Step: 3}, quick); v.Outcome != Won {
			t.Fatal(v)
		}
	})
}

// hanging never answers the first puts; they do not arrive.
type hanging struct {
	*memory
	puts int
}

func (h *hanging) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if h.puts > 0 {
		h.puts--
		<-ctx.Done()
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: ctx.Err()}
	}
	return h.memory.Put(ctx, key, b, c)
}

func TestRevokeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work, ctx := newMemory(), workNamed(1), t.Context()
		h := captured(t, s, work, 1)
		judged := mustRead(t, s, work)
		if v := h.Renew(ctx, Progress{Step: 1}, quick); v.Outcome != Won {
			t.Fatal(v)
		}
		r, now, err := Revoke(ctx, s, judged, "silent")
		if r != Renewed || err != nil || now.Record.Progress.Step != 1 {
			t.Fatal("a judgement on an old version counted:", r, err)
		}
		other := now
		if r, now, err = Revoke(ctx, s, now, "silent"); r != Ended || err != nil || now.Record.Stopped() {
			t.Fatal(r, err)
		}
		if r, _, err = Revoke(ctx, s, other, "silent"); r != AlreadyOver || err != nil {
			t.Fatal("two operators revoke:", r, err)
		}
		captured(t, s, work, 2)
		if r, now, err = Revoke(ctx, s, other, "silent"); r != AlreadyOver || err != nil || now.Record.Attempt != 2 {
			t.Fatal("another attempt has it:", r, err)
		}
		for i, want := range []Revocation{Ended, AlreadyOver} {
			if r, now, err = Stop(ctx, s, work, 1, "enough"); r != want || err != nil || now.Record.Floor != 3 || !now.Record.Stopped() {
				t.Fatal(i, r, now.Record, err)
			}
		}
		s.before = func(op, key string) error { return fault(op, key, bucket.Unknown) }
		if r, _, err = Stop(ctx, s, work, 9, "enough"); r != Unwritten || err == nil {
			t.Fatal(r, err)
		}
	})
}

// TestHostileText: what a worker puts into a record is bounded, and cut between characters.
func TestHostileText(t *testing.T) {
	s, work, ctx := newMemory(), workNamed(1), t.Context()
	h := captured(t, s, work, 1)
	if v := h.Yield(ctx, strings.Repeat("ü\x00<script>", 1000)); v.Outcome != Won {
		t.Fatal(v)
	}
	if r := mustRead(t, s, work).Record; len(r.Reason) > maxReason || !strings.HasPrefix(r.Reason, "ü") {
		t.Fatal(len(r.Reason))
	}
}

func TestNotOpened(t *testing.T) {
	s, work, ctx := newMemory(), workNamed(1), t.Context()
	s.claim(work, 1)
	h, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Advance(ctx, s.milestone(work, 1, 1, 1, nil), Progress{}, quick); why(v.Err) != NotOpened || v.Over() {
		t.Fatal(v)
	}
	if v := h.Finish(ctx, s.result(work, 1, nil), Progress{}); why(v.Err) != NotOpened || v.Over() {
		t.Fatal(v)
	}
	if v := h.Renew(ctx, Progress{}, Lease{}); v.Outcome != Refused || v.Over() {
		t.Fatal("a lease of nothing:", v)
	}
}

// cutting ends the bodies of the first gets early.
type cutting struct {
	*memory
	gets int
}

func (c *cutting) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := c.memory.Get(ctx, key, r)
	if err == nil && c.gets > 0 {
		c.gets--
		o.Body = io.NopCloser(io.LimitReader(o.Body, o.Size/2))
	}
	return o, err
}

// TestShortBody: half a record on the way is read again; it is neither corrupt nor somebody else's.
func TestShortBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work, n := newMemory(), workNamed(1), 0
		h := captured(t, s, work, 1)
		c := &cutting{memory: s, gets: 3}
		if _, err := Read(t.Context(), c, work); err == nil || isUnreadable(err) || errors.Is(err, ErrAbsent) {
			t.Fatal("half a record was taken for a corrupt one:", err)
		}
		h.s = c
		s.after = once(record.WitnessPrefix, bucket.Unknown, &n)
		if v := h.Renew(t.Context(), Progress{Step: 4}, quick); v.Outcome != Won || c.gets != 0 {
			t.Fatal(v, c.gets)
		}
	})
}
