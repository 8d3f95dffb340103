package audit

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// TestBesideLiveWorkers: while works are captured, advanced, written off and finished, and what they no longer need is
// tidied away, no check sees anything wrong.
func TestBesideLiveWorkers(t *testing.T) {
	b := newBench(t, onMem(t))
	var wg sync.WaitGroup
	done := make(chan struct{})
	var works []string
	for i := range 4 {
		works = append(works, b.spec(i))
	}
	for _, work := range works {
		wg.Go(func() {
			for n := int64(1); n <= 12; n++ {
				if b.attempt(work, n) {
					return
				}
			}
		})
		wg.Go(func() { // somebody who writes off at random moments
			for {
				select {
				case <-done:
					return
				case <-time.After(300 * time.Microsecond):
				}
				seen, err := witness.Read(t.Context(), b, work)
				if err == nil && seen.Record.Attempt < 8 {
					_, _, _ = witness.Revoke(t.Context(), b, seen, "silent")
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				b.sweep(works)
			}
		}
	})
	checks := 0
	for finished := 0; finished < len(works); checks++ {
		got, err := Check(t.Context(), b, Options{Deep: checks%2 == 0})
		if err != nil || !got.OK() {
			t.Errorf("check %d: %v %+v", checks, err, got.Findings)
			break
		}
		finished = got.Finished
	}
	close(done)
	wg.Wait()
	b.sweep(works)
	if got, err := Check(t.Context(), b, Options{Deep: true}); err != nil || !got.OK() || got.Dispatches > 0 {
		t.Errorf("after all was tidied: %v %d claims %+v", err, got.Dispatches, got.Findings)
	}
	t.Logf("%d checks beside live workers", checks)
}

// attempt is one dispatch with a worker that may be deposed at any moment; true: it finished the work.
func (b *bench) attempt(work string, n int64) bool {
	ctx := b.t.Context()
	b.put(record.ClaimKey(work, n), record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()})
	h, err := witness.Capture(ctx, b, witness.CaptureRequest{Work: work, Dispatch: n, Lease: witness.LeaseFor(0, time.Second, 0)})
	for ; err != nil; h, err = witness.Capture(ctx, b, witness.CaptureRequest{Work: work, Dispatch: n, Lease: witness.LeaseFor(0, time.Second, 0)}) {
		no, is := errors.AsType[*witness.Refusal](err)
		if !is || no.Why != witness.SpawnedElsewhere {
			b.t.Error(err)
			return true
		}
		if seen, err := witness.Read(ctx, b, work); err == nil {
			_, _, _ = witness.Revoke(ctx, b, seen, "silent")
		}
	}
	if h.Open(ctx, record.Open{}).Over() {
		return false
	}
	r := h.Seen().Record
	for m := int64(1); m <= 3; m++ {
		folder := record.MilestonePrefix(work, r.Attempt, m)
		at := h.Seen().Record.Resume
		step := int64(10)
		if at != nil {
			step = at.Step + 10
		}
		man := record.Manifest{Protocol: 1, Work: work, Attempt: r.Attempt, Milestone: m, Step: step, Parent: at, Files: b.files(folder, step)}
		raw := b.put(folder+"manifest.json", man)
		p := record.Pointer{Attempt: r.Attempt, Milestone: m, Step: step, Manifest: folder + "manifest.json", SHA256: record.Hash(raw)}
		if h.Advance(ctx, p, witness.Progress{Step: step}, r.Lease).Over() {
			return false
		}
	}
	folder := record.ResultPrefix(work, r.Attempt)
	man := record.Manifest{Protocol: 1, Work: work, Attempt: r.Attempt, Parent: h.Seen().Record.Resume, Files: b.files(folder, 99)}
	raw := b.put(folder+"manifest.json", man)
	v := h.Finish(ctx, witness.FinishedPointer{Attempt: r.Attempt, Manifest: folder + "manifest.json", SHA256: record.Hash(raw)}, witness.Progress{})
	return v.Outcome == witness.Won
}

// sweep deletes what retention may: the claims of finished works, and the milestones of deposed attempts that are on no
// line.
func (b *bench) sweep(works []string) {
	for _, work := range works {
		seen, err := witness.Read(b.t.Context(), b, work)
		if err != nil {
			continue
		}
		kept := map[string]bool{}
		for p := seen.Record.Resume; p != nil; {
			var m record.Manifest
			if err := record.Decode(b.raw(p.Manifest), record.MaxManifest, &m); err != nil {
				b.t.Error(err)
				return
			}
			kept[strings.TrimSuffix(p.Manifest, "manifest.json")], p = true, m.Parent
		}
		page, err := b.List(b.t.Context(), record.WorkPrefix(work), "", 0)
		if err != nil {
			b.t.Error(err)
			return
		}
		for _, it := range page.Items {
			k, _ := record.Parse(it.Key)
			claims := k.Dispatch > 0 && seen.Record.State == witness.Finished
			deposed := k.Attempt > 0 && k.Attempt < seen.Record.Attempt && strings.HasPrefix(k.Rest, "milestone/") &&
				!kept[it.Key[:len(record.MilestonePrefix(work, k.Attempt, 1))]]
			if !claims && !deposed {
				continue
			}
			if err := b.Delete(b.t.Context(), it.Key); err != nil {
				b.t.Error(err)
			}
		}
	}
}
