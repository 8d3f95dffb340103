package judge

import (
	"fmt"
	"testing"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// renewals are the entries of n renewals of the hand's lease.
func renewals(h *hand, n int) history.Log {
	from := len(h.log)
	for range n {
		h.renew("w1")
	}
	return h.log[from:]
}

// BenchmarkRenewal is what one more version of a lease costs, beside BenchmarkDecode, which is the record's decoder.
func BenchmarkRenewal(b *testing.B) {
	const works = 2000
	var entries history.Log
	j := New(Options{})
	for n := range works {
		h := newHand(Options{})
		h.work = workNo(n)
		h.n = n << 20
		h.first()
		for _, e := range h.log {
			j.Take(e)
		}
		entries = append(entries, renewals(h, 1+b.N/works)...)
	}
	b.ResetTimer()
	b.ReportAllocs()
	for i := range b.N {
		j.Take(entries[i%len(entries)])
	}
	b.StopTimer()
	if got := j.Broken(); len(got) > 0 {
		b.Fatal(got[0])
	}
}

func BenchmarkDecode(b *testing.B) {
	h := newHand(Options{})
	h.first()
	raw := renewals(h, 1)[0].Body
	b.ReportAllocs()
	for b.Loop() {
		if _, err := witness.Decode(h.work, raw); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSegment is what a log segment costs.
func BenchmarkSegment(b *testing.B) {
	h := newHand(Options{})
	h.first()
	body := []byte("a line of a log\n")
	prefix := record.LogPrefix(h.work, 1)
	n := 0
	for b.Loop() {
		n++
		h.j.Take(history.Entry{Actor: "w1", Op: history.Put, Key: record.SegmentKey(prefix, int64(n)), Cond: bucket.IfAbsent(), Body: body, Version: "v"})
	}
	if got := h.j.Broken(); len(got) > 0 {
		b.Fatal(fmt.Sprint(got[0]))
	}
}
