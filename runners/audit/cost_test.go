package audit

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
)

// TestCostOfAThousandWorks: a check asks no more often than there are objects, and keeps one work in memory at a time.
func TestCostOfAThousandWorks(t *testing.T) {
	const works = 1000
	b := newBench(t, onMem(t))
	b.around()
	for i := range works {
		b.history(i, i%2 == 0)
	}
	objects := 0
	for after, more := "", true; more; {
		p, err := b.List(t.Context(), "", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		objects, more = objects+len(p.Items), p.More
		after = p.Items[len(p.Items)-1].Key
	}
	for _, deep := range []bool{false, true} {
		c := counting.New(b)
		start := time.Now()
		got, err := Check(t.Context(), c, Options{Deep: deep})
		took := time.Since(start)
		n := c.Counts()
		if err != nil || !got.OK() || got.Works != works {
			t.Fatal(err, got.Works, got.Findings)
		}
		if n.Requests() != int64(got.Requests) || n.Requests() > int64(objects) || n.Put+n.Delete > 0 {
			t.Errorf("%d objects, reported %d requests, counted %s", objects, got.Requests, n)
		}
		w := &weighed{Store: b}
		if _, err := Check(t.Context(), w, Options{Deep: deep}); err != nil {
			t.Fatal(err)
		}
		if w.most-w.least > 4<<20 {
			t.Errorf("%d bytes are alive at once for %d works", w.most-w.least, works)
		}
		t.Logf("deep %v: %d works, %d objects: %s, %d bytes read, in %s; at most %d KiB alive at once", deep, works, objects, n, n.GetBytes,
			took.Round(time.Millisecond), (w.most-w.least)>>10)
	}
}

// weighed looks at what is alive in memory now and then.
type weighed struct {
	Store
	n           int
	least, most uint64
}

func (w *weighed) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if w.n++; w.n%2000 == 1 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		w.most = max(w.most, m.HeapAlloc)
		if w.least == 0 {
			w.least = m.HeapAlloc
		}
	}
	return w.Store.Get(ctx, key, r)
}

// TestSecondLookIsBounded: a bucket where everything is broken is looked at twice, and what is kept is bounded.
func TestSecondLookIsBounded(t *testing.T) {
	b := newBench(t, onMem(t))
	for i := range 50 {
		w := b.history(i, false)
		for _, k := range spoiledWitnesses()[:1] {
			k.spoil(b, w)
		}
	}
	sound := newBench(t, onMem(t))
	for i := range 50 {
		sound.history(i, false)
	}
	bad, err := Check(t.Context(), b, Options{Max: 10})
	if err != nil || len(bad.Findings) != 10 || bad.Dropped != 40 {
		t.Fatal(err, len(bad.Findings), bad.Dropped)
	}
	good, err := Check(t.Context(), sound, Options{})
	if err != nil || bad.Requests > 2*good.Requests+100 {
		t.Fatal(err, bad.Requests, good.Requests)
	}
}
