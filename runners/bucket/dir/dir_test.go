package dir_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/dir"
)

func open(t *testing.T, root string, o dir.Options) *dir.Bucket {
	t.Helper()
	b, err := dir.Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]dir.Options{"link": {Create: true, NoSync: true}, "no link": {Create: true, NoSync: true, NoLink: true}} {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, t.TempDir(), o) })
		})
	}
}

// TestDurable walks through every write with fsync on; the suite, with its thousands of writes, runs without.
func TestDurable(t *testing.T) {
	b := open(t, t.TempDir(), dir.Options{Create: true})
	v, err := b.Put(t.Context(), "a/b/c", strings.NewReader("1"), bucket.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), "a/b/c", strings.NewReader("2"), bucket.IfIs(v)); err != nil {
		t.Error(err)
	}
	if _, err := b.Put(t.Context(), "a/d", strings.NewReader("3"), bucket.Always()); err != nil {
		t.Error(err)
	}
	if err := b.Delete(t.Context(), "a/b/c"); err != nil {
		t.Error(err)
	}
	if _, err := b.Put(t.Context(), "a/b/c", strings.NewReader("2"), bucket.IfIs(v)); !bucket.Is(err, bucket.Gone) {
		t.Errorf("swap of an absent key: %v, want Gone", err)
	}
	p, err := b.List(t.Context(), "", "", 0)
	if err != nil || len(p.Items) != 1 || p.Items[0].Key != "a/d" {
		t.Errorf("list: %+v, %v", p, err)
	}
	if _, err := b.Get(t.Context(), "a/b", bucket.Range{}); !bucket.Is(err, bucket.NotFound) {
		t.Errorf("a folder: %v", err)
	}
}

// BenchmarkObserve10000 is one look at 10,000 witnesses: every page of the listing, and a Get of each, as the first pass of
// a dispatcher does. It prints the requests of the last look.
func BenchmarkObserve10000(b *testing.B) {
	inner, err := dir.Open(b.TempDir(), dir.Options{Create: true, NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	record := strings.Repeat("0123456789abcdef", 50)
	for i := range 10_000 {
		if _, err := inner.Put(b.Context(), fmt.Sprintf("witness/%064x", i*7919), strings.NewReader(fmt.Sprint(i, record)), bucket.IfAbsent()); err != nil {
			b.Fatal(err)
		}
	}
	c := counting.New(inner)
	var last counting.Counts
	listing := time.Duration(0)
	for b.Loop() {
		before, start := c.Counts(), time.Now()
		var keys []string
		for after, more := "", true; more; {
			p, err := c.List(b.Context(), "witness/", after, 0)
			if err != nil {
				b.Fatal(err)
			}
			for _, i := range p.Items {
				keys, after = append(keys, i.Key), i.Key
			}
			more = p.More
		}
		listing += time.Since(start)
		for _, k := range keys {
			o, err := c.Get(b.Context(), k, bucket.Range{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, o.Body); err != nil {
				b.Fatal(err)
			}
			_ = o.Body.Close()
		}
		last = c.Counts().Minus(before)
	}
	b.ReportMetric(float64(listing.Milliseconds())/float64(b.N), "list-ms/op")
	b.ReportMetric(float64(last.Requests()), "requests/op")
	b.Log(last)
}
