package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
)

const sinceKey = "notify/0011/since.json"

func observedAt() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// observed is what a dispatcher has written down of an end.
func observed() record.Observation {
	return record.Observation{Protocol: 1, Platform: "local", GPU: "cpu", Mode: "none", Work: record.Hash([]byte("observed")), Dispatch: 3, Attempt: 2, Class: "finished",
		Time: observedAt().Format(time.RFC3339)}
}

// spoiledLearnt damages what dispatchers have learnt and told.
func spoiledLearnt() []spoiled {
	o := observed()
	seen, book := record.ObservationKey(o, observedAt()), record.CompactKey(o.Platform, o.GPU, o.Mode)
	half := func(key string) func(*bench, string) {
		return func(b *bench, _ string) { b.put(key, b.raw(key)[:len(b.raw(key))/2]) }
	}
	observation := func(f func(*record.Observation)) func(*bench, string) {
		return func(b *bench, _ string) { change(b, seen, f) }
	}
	field := func(key, name string, v any) func(*bench, string) {
		return func(b *bench, _ string) { change(b, key, func(m *map[string]any) { (*m)[name] = v }) }
	}
	return []spoiled{
		{"stray statistics", false, false, func(b *bench, _ string) { b.put(seen+".bak", b.raw(seen)) }, Format, always(seen + ".bak")},
		{"stray observation: half", false, true, half(seen), Format, always(seen)},
		{"stray observation: of another work", false, true, observation(func(o *record.Observation) { o.Work = record.Hash(nil) }), Format, always(seen)},
		{"stray observation: of another card", false, true, observation(func(o *record.Observation) { o.GPU = "nvidia-t4" }), Format, always(seen)},
		{"stray observation: of another day", false, true, observation(func(o *record.Observation) { o.Time = "2026-12-01T00:00:00Z" }), Format, always(seen)},
		{"stray observation: newer", false, true, observation(func(o *record.Observation) { o.Protocol = 2 }), Format, always(seen)},
		{"stray compact: half", false, true, half(book), Format, always(book)},
		{"stray compact: too big", false, true, func(b *bench, _ string) { b.put(book, []byte(strings.Repeat(" ", maxCompact+1))) }, Format, always(book)},
		{"stray compact: of another platform", false, true, field(book, "platform", "two"), Format, always(book)},
		{"stray compact: without a rev", false, true, field(book, "rev", 0), Format, always(book)},
		{"stray compact: newer", false, true, field(book, "protocol", 2), Format, always(book)},
		{"stray rule: half", false, true, half(sinceKey), Format, always(sinceKey)},
		{"stray rule: of nothing", false, true, func(b *bench, _ string) { b.put(sinceKey, []byte("{}")) }, Format, always(sinceKey)},
		{"stray rule: newer", false, true, field(sinceKey, "protocol", 2), Format, always(sinceKey)},
	}
}

// TestAWorkerThatLeftBeforeItsCapture is no broken promise, and neither is what lies beside the works: a bucket that has
// all of it is sound.
func TestAWorkerThatLeftBeforeItsCapture(t *testing.T) {
	b := newBench(t, onMem(t))
	b.around()
	work := b.history(1, false)
	b.put(record.ClaimKey(work, 4), record.Claim{Protocol: 1, Work: work, Dispatch: 4, Nonce: record.Nonce()})
	b.put(record.RefusalKey(work, 4), record.Refusal{Protocol: 1, Work: work, Dispatch: 4, Text: "gpu: found nvidia-t4, the work is pinned to nvidia-h200"})
	if got, err := Check(t.Context(), b, Options{Deep: true}); err != nil || !got.OK() {
		t.Error(err, got.Findings)
	}
}
