package judge

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// What dispatchers learn and tell is lost or counted twice in none of the ways that are allowed, and each other way is seen.
func TestWhatLiesBesideTheWorks(t *testing.T) {
	o := record.Observation{Platform: "p", GPU: "g", Mode: "m", Work: workNo(3), Dispatch: 2}
	day := time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)
	raw, sum := record.ObservationKey(o, day), record.CompactKey("p", "g", "m")
	form := func(rev int, folded, closed string) []byte {
		return fmt.Appendf(nil, `{"rev":%d,"folded":{%s},"closed":%q}`, rev, folded, closed)
	}
	ours := fmt.Sprintf(`"2026-11-30":["%.16s.2"]`, o.Work)
	is := func(b []byte) bucket.Cond { return bucket.IfIs(bucket.Version(record.Hash(b))) }
	absent, any := bucket.IfAbsent(), bucket.Cond{}
	one, two := form(1, ours, ""), form(2, ours, "2026-11-30")
	for name, c := range map[string]struct {
		do   func(h *hand)
		want string
	}{
		"as it should": {do: func(h *hand) {
			h.take("a", raw, []byte("x"), absent)
			h.take("a", sum, one, absent)
			h.del("b", raw)
			h.take("a", raw, []byte("x"), absent) // arrives a second time
			h.take("b", sum, two, is(one))
			h.del("b", raw)
			h.take("b", sum, form(3, "", "2026-12-01"), is(two))
			h.take("a", "board/-", []byte("1"), absent)
			h.take("b", "board/-", []byte("2"), is([]byte("1")))
			h.take("a", "notify/r/m", []byte("x"), absent)
			h.del("", "notify/r/m")
		}},
		"an observation without a condition": {want: "STATS", do: func(h *hand) { h.take("a", raw, []byte("x"), any) }},
		"an observation that is changed": {want: "STATS", do: func(h *hand) {
			h.take("a", raw, []byte("x"), absent)
			h.take("b", raw, []byte("y"), absent)
		}},
		"one that goes before it is counted": {want: "STATS", do: func(h *hand) {
			h.take("a", raw, []byte("x"), absent)
			h.take("a", sum, form(1, "", ""), absent)
			h.del("a", raw)
		}},
		"one that came late, where the first is counted": {want: "STATS", do: func(h *hand) {
			late := o
			late.Late = true
			h.take("a", record.ObservationKey(late, day), []byte("x"), absent)
			h.take("a", sum, one, absent)
			h.del("a", record.ObservationKey(late, day))
		}},
		"a compact form without a condition": {want: "STATS", do: func(h *hand) { h.take("a", sum, one, any) }},
		"one over another version":           {want: "STATS", do: func(h *hand) { h.take("a", sum, one, absent); h.take("b", sum, two, is(two)) }},
		"one that forgets":                   {want: "STATS", do: func(h *hand) { h.take("a", sum, one, absent); h.take("b", sum, form(2, "", ""), is(one)) }},
		"one that skips a rev":               {want: "STATS", do: func(h *hand) { h.take("a", sum, one, absent); h.take("b", sum, form(3, ours, ""), is(one)) }},
		"one that goes":                      {want: "STATS", do: func(h *hand) { h.take("a", sum, one, absent); h.del("a", sum) }},
		"a key of no shape":                  {want: "STATS", do: func(h *hand) { h.take("a", "stats/p/other", one, absent) }},
		"told of without a condition":        {want: "NOTIFY", do: func(h *hand) { h.take("a", "notify/r/m", one, any) }},
		"what was told of goes":              {want: "NOTIFY", do: func(h *hand) { h.take("a", "notify/r/m", one, absent); h.del("a", "notify/r/m") }},
		"a board without a condition":        {want: "BOARD", do: func(h *hand) { h.take("a", "board/-", one, any) }},
		"a board over another version":       {want: "BOARD", do: func(h *hand) { h.take("a", "board/-", one, absent); h.take("a", "board/-", two, is(two)) }},
	} {
		h := newHand(Options{})
		c.do(h)
		got := ""
		if all := h.j.Broken(); len(all) > 0 {
			got = all[0].Invariant
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, h.j.Broken())
		}
	}
}
