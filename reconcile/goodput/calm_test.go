package goodput_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/record"
)

func ended(n int64, class string, steps int64, cut ...float64) record.Observation {
	o := record.Observation{Protocol: record.Protocol, Platform: "p", GPU: "cpu", Mode: "none", Family: "f", Work: strings.Repeat("a", 64), Dispatch: n,
		Attempt: n, Class: class, Captured: true, CaptureS: 1, PaidS: 100, Time: "2026-01-02T03:04:05Z"}
	if steps > 0 {
		o.All.Ratios.Done = map[int]int64{record.BinOf(1): steps}
	}
	for _, r := range cut {
		o.All.Ratios.Add(r, true)
	}
	return o
}

// TestOneAttemptAllowsOneRevision: however many steps it made; and a false write-off starts the clock again.
func TestOneAttemptAllowsOneRevision(t *testing.T) {
	var b goodput.Book
	for i, row := range []struct {
		o    record.Observation
		want goodput.Calm
	}{
		{ended(1, "finished", 4000), goodput.Calm{Steps: 4000}},
		{ended(2, "silent", 7000), goodput.Calm{Revisions: 1}}, // died: nobody told of its step
		{ended(3, "finished", 1e6), goodput.Calm{Revisions: 2}},
		{ended(4, "revoked", 100, 7), goodput.Calm{Revisions: 2, Steps: 100}}, // stopped on purpose in a step
		{ended(5, "silent", 5000, 12), goodput.Calm{Falses: 1, Reached: record.BinFloor(record.BinOf(12) + 1)}},
		{ended(6, "finished", 9999), goodput.Calm{Falses: 1, Reached: record.BinFloor(record.BinOf(12) + 1), Steps: 9999}},
		{ended(7, "silent", 5, 3), goodput.Calm{Falses: 2, Reached: record.BinFloor(record.BinOf(12) + 1)}},
	} {
		if !b.Add(row.o) || b.Add(row.o) {
			t.Fatalf("observation %d is folded once", i+1)
		}
		if got := b.Calm("p"); got != row.want {
			t.Errorf("after observation %d: %+v, want %+v", i+1, got, row.want)
		}
	}
}

// TestWhatCameLate: a worker that woke after its end was written down raises the lease all the same, once, and nothing else.
func TestWhatCameLate(t *testing.T) {
	var b goodput.Book
	died := ended(1, "silent", 20_000)
	b.Add(died)
	late := ended(1, "silent", 20_000, 40)
	if b.Add(late) {
		t.Error("the same dispatch is folded twice")
	}
	late.Late = true
	if !b.Add(late) || b.Add(late) {
		t.Error("what came late is folded once")
	}
	if got := b.Calm("p"); got.Falses != 1 || got.Reached < 40 || got.Revisions != 0 {
		t.Errorf("%+v", got)
	}
	if done, cut := b.Steps("p").N(); done != 20_000 || cut != 1 || len(b.Captures("p")) != 1 {
		t.Errorf("%d steps, %d cut off, captures %v", done, cut, b.Captures("p"))
	}
}

// TestCalmOfCards: where one card saw a false write-off, the others' older revisions count no more.
func TestCalmOfCards(t *testing.T) {
	var b goodput.Book
	other := ended(1, "finished", 20_000)
	other.GPU = "nvidia-t4"
	b.Add(other)
	b.Add(ended(2, "finished", 20_000))
	if got := b.Calm("p"); got != (goodput.Calm{Revisions: 2}) {
		t.Errorf("both: %+v", got)
	}
	b.Add(ended(3, "silent", 10, 30))
	if got := b.Calm("p"); got.Revisions != 0 || got.Reached < 30 {
		t.Errorf("one was shaken: %+v", got)
	}
	if got := b.Calm("elsewhere"); got != (goodput.Calm{}) {
		t.Errorf("another platform: %+v", got)
	}
}

// TestCalmNeverRunsAhead: an observation allows one revision at most, and only a false write-off takes any back.
func TestCalmNeverRunsAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b goodput.Book
		for n := range rapid.IntRange(1, 30).Draw(t, "attempts") {
			before := b.Calm("p")
			o := ended(int64(n)+1, rapid.SampledFrom([]string{"finished", "silent", "yielded"}).Draw(t, "class"), rapid.Int64Range(0, 50_000).Draw(t, "steps"))
			if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
				o.All.Ratios.Add(rapid.Float64Range(1, 100).Draw(t, "reached"), true)
			}
			b.Add(o)
			after := b.Calm("p")
			_, alive := goodput.Reached(o)
			if alive && (after.Revisions != 0 || after.Reached < before.Reached) || !alive && (after.Revisions < before.Revisions || after.Revisions > before.Revisions+1) {
				t.Fatalf("from %+v to %+v by %+v", before, after, o)
			}
		}
	})
}
