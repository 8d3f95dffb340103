package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// What a dispatcher knows does not depend on the order in which it found it, nor on how much at a time.
func TestTheBookIsTheSameHoweverItWasFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []record.Observation
		for i := range rapid.IntRange(1, 30).Draw(t, "observations") {
			all = append(all, record.Observation{Protocol: record.Protocol, Platform: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "platform"), GPU: "cpu", Mode: "none",
				Family: "f", Work: fmt.Sprintf("%064x", i), Dispatch: 1, Attempt: 1, Class: "finished", Captured: true, CaptureS: float64(1 + i), PaidS: 600, StepKeptS: float64(i),
				Time: time.Date(2026, 1, 1, 0, 0, rapid.IntRange(0, 40).Draw(t, "second"), 0, time.UTC).Format(time.RFC3339)})
		}
		books := func(order []record.Observation, batch, tail int) string {
			r, err := New(Config{Bucket: mem.New(), ID: "d"})
			if err != nil {
				t.Fatal(err)
			}
			r.learner.tail = tail
			for part := range slices.Chunk(order, batch) {
				raw := map[string]record.Observation{}
				for _, o := range part {
					raw[o.Work] = o
				}
				r.learned(&looked{raw: raw})
			}
			out := ""
			for _, p := range []string{"a", "b"} {
				if c := r.book.Get(goodput.Key{Platform: p, GPU: "cpu", Mode: "none"}); c != nil {
					b, err := record.Encode(c)
					if err != nil {
						t.Fatal(err)
					}
					out += string(b)
				}
			}
			return out
		}
		want := books(all, len(all), bookTail)
		got := books(rapid.Permutation(all).Draw(t, "order"), rapid.IntRange(1, 5).Draw(t, "batch"), rapid.IntRange(1, 4).Draw(t, "tail"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
