package reconcile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// claimReads counts the looks at each work's dispatches, whoever takes them: a pass, or the census beside it.
type claimReads struct {
	bucket.Bucket
	mu    sync.Mutex
	works map[plan.Digest]int
}

func (c *claimReads) note(key string) {
	work, in := strings.CutPrefix(key, "work/")
	work, rest, _ := strings.Cut(work, "/")
	if in && strings.HasPrefix(rest, "dispatch/") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.works[plan.Digest(work)]++
	}
}

func (c *claimReads) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	c.note(key)
	return c.Bucket.Get(ctx, key, r)
}

func (c *claimReads) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	c.note(prefix)
	return c.Bucket.List(ctx, prefix, after, limit)
}

// of is how many of these works were looked at since the last call.
func (c *claimReads) of(works map[plan.Digest]bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range works {
		if c.works[w] > 0 {
			n++
		}
	}
	c.works = map[plan.Digest]int{}
	return n
}

// Many new works of one commit launch before their first claims are asked for. One that was claimed before is not launched
// twice, spends nothing, and what its records say shows; those that found no place are read by the next pass. What is counted are
// the works that are not launched: of the others the census, which runs beside the passes, may look at any number.
func TestManyNewWorksLaunchBeforeTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40})
		jobs := numbered(200)
		first := jobs[0] // first in order, so its launch is tried
		r.raw(record.ClaimKey(string(first.Work), 1), record.Claim{Protocol: record.Protocol, Work: string(first.Work), Dispatch: 1,
			Nonce: record.Nonce(), Dispatcher: "somebody", Platform: "here", Runner: "sim", CaptureS: 600})
		reads := &claimReads{Bucket: r.store, works: map[plan.Digest]int{}}
		rec, d := r.reconciler(func(c *reconcile.Config) { c.Bucket = reads }), r.desired("c1", jobs...)
		rep := r.pass(rec, d)
		if n := r.sim.Meter().Started; n < 39 || n > 40 {
			t.Errorf("%d launches", n)
		}
		wait := map[plan.Digest]bool{} // those that found no place
		for _, j := range jobs[1:] {
			wait[j.Work] = true
		}
		for _, in := range r.sim.Truth() {
			delete(wait, plan.Digest(in.Work))
		}
		if n := reads.of(wait); n > 0 {
			t.Errorf("of %d works that were not launched the records of %d were read before and during the launches", len(wait), n)
		}
		if s := rep.States[first.Work]; s.State != plan.StateClaimed || s.Dispatch != 1 {
			t.Errorf("what was claimed before is %+v", s)
		}
		<-time.After(time.Second)
		r.pass(rec, d)
		if n := reads.of(wait); n != len(wait) {
			t.Errorf("the next pass read %d of %d works that were never claimed", n, len(wait))
		}
		<-time.After(time.Second)
		rep = r.pass(rec, d)
		if n := reads.of(wait); n > 0 {
			t.Errorf("the third pass read %d of %d works once more", n, len(wait))
		}
		if s := rep.States[first.Work]; s.Dispatch != 1 {
			t.Errorf("what was claimed before is %+v", s)
		}
		if n := r.sim.Meter().Started; n > 40 {
			t.Errorf("%d launches", n)
		}
	})
}
