package counting_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/mem"
)

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return counting.New(mem.New()) })
}

func TestCounts(t *testing.T) {
	b := counting.New(mem.New())
	_, _ = b.Put(t.Context(), "k", strings.NewReader("12345"), bucket.IfAbsent())
	_, _ = b.Put(t.Context(), "k", strings.NewReader("12345"), bucket.IfAbsent()) // refused, and counted
	_, _ = b.Put(t.Context(), "k", strings.NewReader("123"), bucket.Always())
	before := b.Counts()
	_, _ = b.Get(t.Context(), "k", bucket.Range{})
	_, _ = b.Get(t.Context(), "absent", bucket.Range{})
	_, _ = b.List(t.Context(), "", "", 0)
	_ = b.Delete(t.Context(), "k")
	want := counting.Counts{Get: 2, List: 1, Delete: 1, GetBytes: 3}
	if diff := cmp.Diff(want, b.Counts().Minus(before)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	const line = "7 store requests (2 get, 1 list, 3 put of which 2 conditional, 1 delete)"
	if got := b.Counts().String(); got != line {
		t.Errorf("got %q, want %q", got, line)
	}
}
