package witness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// verb is one conditional write of a holder, and how to see that it took place.
type verb struct {
	name string
	do   func(ctx context.Context, s *memory, h *Holder) Verdict
	done func(r Record) bool
}

func verbs(work string) []verb {
	return []verb{
		{"renew", func(ctx context.Context, _ *memory, h *Holder) Verdict { return h.Renew(ctx, Progress{Step: 5}, quick) },
			func(r Record) bool { return r.Progress.Step == 5 }},
		{"advance", func(ctx context.Context, s *memory, h *Holder) Verdict {
			return h.Advance(ctx, s.milestone(work, 1, 1, 10, nil), Progress{Step: 10}, quick)
		}, func(r Record) bool { return r.Resume != nil && r.Resume.Step == 10 }},
		{"yield", func(ctx context.Context, _ *memory, h *Holder) Verdict { return h.Yield(ctx, "SIGTERM") },
			func(r Record) bool { return r.State == Yielded }},
		{"finish", func(ctx context.Context, s *memory, h *Holder) Verdict {
			return h.Finish(ctx, s.result(work, 1, nil), Progress{Step: 10})
		}, func(r Record) bool { return r.State == Finished }},
	}
}

// once makes a hook that answers code to the first put under prefix, and counts all of them.
func once(prefix string, code bucket.Code, n *int) func(op, key string) error {
	return func(op, key string) error {
		if op != "put" || !strings.HasPrefix(key, prefix) {
			return nil
		}
		*n++
		if *n == 1 {
			return fault(op, key, code)
		}
		return nil
	}
}

// TestLostAnswers: each verb whose write landed and whose answer was lost, or came back as a refusal after a retry on
// the way, settles as Won; and one whose first try did not arrive is sent again.
func TestLostAnswers(t *testing.T) {
	work := workNamed(1)
	for _, v := range verbs(work) {
		for _, code := range []bucket.Code{bucket.Unknown, bucket.Condition, bucket.Raced, bucket.Gone} {
			for _, landed := range []bool{true, false} {
				if !landed && code == bucket.Gone {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/landed=%v", v.name, code, landed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s, n := newMemory(), 0
						h := captured(t, s, work, 1)
						if landed {
							s.after = once(record.WitnessPrefix, code, &n)
						} else {
							s.before = once(record.WitnessPrefix, code, &n)
						}
						if got := v.do(t.Context(), s, h); got.Outcome != Won {
							t.Fatal(got)
						}
						if n == 0 {
							t.Fatal("the fault did not fire")
						}
						if r := mustRead(t, s, work).Record; !v.done(r) || r.Rev != 2 {
							t.Fatal(r)
						}
					})
				})
			}
		}
	}
}

// TestLostAnswersOfOthers does the same for capture, open, revoke and stop.
func TestLostAnswersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work, ctx, n := newMemory(), workNamed(1), t.Context(), 0
		s.claim(work, 1)
		s.after = once(record.WitnessPrefix, bucket.Unknown, &n)
		h, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick})
		if err != nil || h.Seen().Record.Attempt != 1 || n != 1 {
			t.Fatal(err, n)
		}
		n = 0
		s.after = once("work/", bucket.Unknown, &n)
		if v := h.Open(ctx, record.Open{}); v.Outcome != Won || n != 1 {
			t.Fatal(v, n)
		}
		if v := h.Open(ctx, record.Open{}); v.Outcome != Won {
			t.Fatal("opening twice is harmless:", v)
		}
		n = 0
		s.after = once(record.WitnessPrefix, bucket.Unknown, &n)
		if r, _, err := Revoke(ctx, s, mustRead(t, s, work), "silent"); r != Ended || err != nil || n != 1 {
			t.Fatal(r, err, n)
		}
		n = 0
		if r, seen, err := Stop(ctx, s, work, 9, "enough"); r != Ended || err != nil || seen.Record.Floor != 9 || n != 1 {
			t.Fatal(r, err, n)
		}
		if len(s.history[work]) != 3 {
			t.Fatalf("%d versions, want capture, revoke, stop", len(s.history[work]))
		}
	})
}

// TestConflictNeverDeposes: 409 says nothing about who holds the key, however often it comes.
func TestConflictNeverDeposes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work, n := newMemory(), workNamed(1), 0
		h := captured(t, s, work, 1)
		s.before = func(op, key string) error {
			if op == "put" {
				if n++; n < 8 {
					return fault(op, key, bucket.Raced)
				}
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v := h.Renew(ctx, Progress{Step: 1}, quick); v.Outcome != Unknown || v.Over() {
			t.Fatal(v)
		}
		if v := h.Renew(t.Context(), Progress{Step: 2}, quick); v.Outcome != Won {
			t.Fatal(v)
		}
		if r := mustRead(t, s, work).Record; r.Progress.Step != 2 || r.Rev != 3 {
			t.Fatal("both renewals, in order:", r)
		}
	})
}

// TestPendingIsSettledFirst: after Unknown the same bytes go out on the same base before anything new is built, and
// when they never landed at all, and when somebody else was faster.
func TestPendingIsSettledFirst(t *testing.T) {
	for _, v := range verbs(workNamed(1)) {
		for _, landed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/landed=%v", v.name, landed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, work := newMemory(), workNamed(1)
					h := captured(t, s, work, 1)
					out := func(op, key string) error {
						if strings.HasPrefix(key, record.WitnessPrefix) {
							return fault(op, key, bucket.Unknown)
						}
						return nil
					}
					if landed {
						s.after = out
					} else {
						s.before = out
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if got := v.do(ctx, s, h); got.Outcome != Unknown || got.Over() {
						t.Fatal(got)
					}
					s.before, s.after = nil, nil
					if got := v.do(t.Context(), s, h); got.Outcome != Won {
						t.Fatal("asked again:", got)
					}
					if r := mustRead(t, s, work).Record; !v.done(r) {
						t.Fatal(r)
					}
					if s.repeats != 0 {
						t.Fatal("the same bytes were applied twice")
					}
				})
			})
		}
	}
}

// TestPendingThenDeposed: what is pending dies with the lease, and no later call writes.
func TestPendingThenDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, work := newMemory(), workNamed(1)
		h := captured(t, s, work, 1)
		s.before = func(op, key string) error { return fault(op, key, bucket.Unknown) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := s.milestone(work, 1, 1, 10, nil)
		if v := h.Advance(ctx, p, Progress{}, quick); v.Outcome != Unknown {
			t.Fatal(v)
		}
		s.before = nil
		if r, _, err := Revoke(t.Context(), s, mustRead(t, s, work), "silent"); r != Ended {
			t.Fatal(r, err)
		}
		puts := s.puts
		for range 3 {
			if v := h.Advance(t.Context(), p, Progress{}, quick); v.Outcome != Unknown && !v.Over() {
				t.Fatal(v)
			}
		}
		if v := h.Yield(t.Context(), "x"); !v.Over() {
			t.Fatal(v)
		}
		if s.puts > puts+1 {
			t.Errorf("%d writes after the lease was lost", s.puts-puts)
		}
		if r := mustRead(t, s, work).Record; r.Resume != nil || r.State != Revoked {
			t.Fatal(r)
		}
	})
}

// TestAdvanceChecks: what can be checked of a milestone is, before the pointer moves.
func TestAdvanceChecks(t *testing.T) {
	work := workNamed(1)
	for name, spoil := range map[string]func(s *memory, p *record.Pointer){
		"no manifest":         func(s *memory, p *record.Pointer) { s.remove(p.Manifest) },
		"other bytes":         func(s *memory, p *record.Pointer) { s.set(p.Manifest, []byte("{}")) },
		"hash of other bytes": func(_ *memory, p *record.Pointer) { p.SHA256 = record.Hash(nil) },
		"another step":        func(_ *memory, p *record.Pointer) { p.Step++ },
		"another attempt":     func(s *memory, p *record.Pointer) { *p = s.milestone(work, 2, 2, 20, nil) },
		"no parent":           func(s *memory, p *record.Pointer) { *p = s.milestone(work, 1, 2, 20, nil) },
		"a foreign parent": func(s *memory, p *record.Pointer) {
			*p = s.milestone(work, 1, 2, 20, &record.Pointer{Attempt: 1, Milestone: 7})
		},
		"backward step": func(s *memory, p *record.Pointer) {
			old := s.milestone(work, 1, 1, 10, nil)
			*p = s.milestone(work, 1, 2, 9, &old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := newMemory(), t.Context()
			h := captured(t, s, work, 1)
			first := s.milestone(work, 1, 1, 10, nil)
			if v := h.Advance(ctx, first, Progress{}, quick); v.Outcome != Won {
				t.Fatal(v)
			}
			p := s.milestone(work, 1, 2, 20, &first)
			spoil(s, &p)
			if v := h.Advance(ctx, p, Progress{}, quick); v.Outcome != Refused || why(v.Err) != BadPointer || v.Over() {
				t.Fatal(v)
			}
			if v := h.Renew(ctx, Progress{}, quick); v.Outcome != Won {
				t.Fatal("the lease goes on after a refused pointer:", v)
			}
		})
	}
}
