package judge

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/proof/model"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// TestConcurrent: real goroutines at one store, each with the product's lease code; the recorder puts their writes in the
// store's order, and neither oracle has anything against it.
func TestConcurrent(t *testing.T) {
	j, f := New(Options{}), model.FollowAll()
	rec := history.Record(mem.New(), history.Tee(j, f), time.Now())
	var all sync.WaitGroup
	for n := range 3 {
		work := workNo(100 + n)
		for actor := range 4 {
			all.Go(func() {
				name := fmt.Sprintf("life %d at work %d", actor, n)
				for round := range 6 {
					compete(t, rec.As(fmt.Sprintf("%s, round %d", name, round)), work, int64(actor), int64(round))
				}
			})
		}
	}
	all.Wait()
	for _, v := range j.Broken() {
		t.Error(v)
	}
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	c := f.Coverage()
	if c.Taken[model.Capture] == 0 || c.Taken[model.Advance] == 0 || c.Taken[model.Revoke] == 0 {
		t.Errorf("too little happened: %v", c.Taken)
	}
	t.Logf("%d entries, %v", j.Taken(), c.Taken)
}

// compete claims, revokes whoever holds, captures, and goes on for as long as it may.
func compete(t *testing.T, s bucket.Bucket, work string, actor, round int64) {
	ctx := t.Context()
	for n := int64(1); ; n++ { // the next free number; somebody else may be quicker
		b := encoded(record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()})
		_, err := s.Put(ctx, record.ClaimKey(work, n), bytes.NewReader(b), bucket.IfAbsent())
		if bucket.Is(err, bucket.Condition) {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if seen, err := witness.Read(ctx, s, work); err == nil && (actor+round)%2 == 0 {
			_, _, _ = witness.Revoke(ctx, s, seen, "in the way")
		}
		h, err := witness.Capture(ctx, s, witness.CaptureRequest{Work: work, Dispatch: n, Lease: lease()})
		if err != nil {
			return // somebody holds, or a later number was claimed: nothing was written
		}
		if h.Open(ctx, record.Open{}).Outcome != witness.Won {
			return
		}
		for range 3 {
			at := h.Seen().Record
			p := record.Pointer{Attempt: at.Attempt, Milestone: 1, Step: 10}
			if at.Resume != nil {
				p.Step = at.Resume.Step + 10
				if at.Resume.Attempt == at.Attempt {
					p.Milestone = at.Resume.Milestone + 1
				}
			}
			m := encoded(record.Manifest{Protocol: 1, Work: work, Attempt: p.Attempt, Milestone: p.Milestone, Step: p.Step, Parent: at.Resume})
			p.Manifest, p.SHA256 = record.MilestoneManifestKey(work, p.Attempt, p.Milestone), record.Hash(m)
			if _, err := s.Put(ctx, p.Manifest, bytes.NewReader(m), bucket.Always()); err != nil {
				t.Error(err)
			}
			if h.Advance(ctx, p, witness.Progress{Step: p.Step}, lease()).Over() {
				return
			}
		}
		h.Yield(ctx, "done for now")
		return
	}
}
