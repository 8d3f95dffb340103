package witness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/record"
)

var quick = LeaseFor(50, 100*time.Millisecond, 0) // table of values: the lease that most tests promise

// TestRoad walks the whole life of a work: two attempts, a revoke between them, a finish.
func TestRoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx, work := newMemory(), t.Context(), workNamed(1)
		s.claim(work, 1)
		h, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 1, Lease: quick})
		if err != nil {
			t.Fatal(err)
		}
		if v := h.Open(ctx, record.Open{Platform: "local"}); v.Outcome != Won {
			t.Fatal(v)
		}
		p1 := s.milestone(work, 1, 1, 10, nil)
		if v := h.Advance(ctx, p1, Progress{Step: 10}, quick); v.Outcome != Won {
			t.Fatal(v)
		}
		seen, err := Read(ctx, s, work)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := Revoke(ctx, s, seen, "silent"); got != Ended || err != nil {
			t.Fatal(got, err)
		}
		if v := h.Renew(ctx, Progress{Step: 11}, quick); v.Outcome != Lost || v.By.State != Revoked || !v.Over() {
			t.Fatal(v)
		}
		s.claim(work, 2)
		h, err = Capture(ctx, s, CaptureRequest{Work: work, Dispatch: 2, Lease: quick})
		if err != nil {
			t.Fatal(err)
		}
		if r := h.Seen().Record; r.Attempt != 2 || *r.Resume != p1 {
			t.Fatal(r)
		}
		if v := h.Open(ctx, record.Open{}); v.Outcome != Won {
			t.Fatal(v)
		}
		f := s.result(work, 2, &p1)
		if v := h.Finish(ctx, f, Progress{Step: 20}); v.Outcome != Won {
			t.Fatal(v)
		}
		if got, _, err := Stop(ctx, s, work, 9, "too late"); got != AlreadyOver || err != nil {
			t.Fatal(got, err)
		}
		if v := h.Renew(ctx, Progress{}, quick); !v.Over() {
			t.Fatal(v)
		}
		if s.repeats != 0 {
			t.Fatal("two versions were byte-identical")
		}
	})
}
