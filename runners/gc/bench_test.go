package gc

import (
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket/mem"
)

// BenchmarkPlan looks at 1,000 works of three attempts each, about 30,000 objects, in a store in memory.
func BenchmarkPlan(b *testing.B) {
	c := newClocked(mem.New())
	w := &world{Bucket: c, pass: c.pass, t: b, ctx: b.Context()}
	for i := range 1000 {
		j := w.add(i)
		for range 3 {
			h := w.capture(j)
			w.advance(h)
			w.advance(h)
			w.revoke(h)
		}
	}
	c.pass(2 * time.Hour)
	var got Report
	for b.Loop() {
		var err error
		if got, err = Plan(b.Context(), w, Options{Milestones: 3}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(got.Requests), "requests")
	b.ReportMetric(float64(got.Objects), "objects")
	b.ReportMetric(float64(got.Sum().Objects), "deletable")
}
