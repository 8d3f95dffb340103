package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Where a job would run now stands below its line, the rungs in order; a single rung that simply takes it says nothing.
func TestWhereItWouldRunNow(t *testing.T) {
	parked := Rung{Platform: "kaggle", WaitS: 11520, Why: "parked 3 h 12 min: the weekly quota resets"}
	vast := Rung{Platform: "vast", Chosen: true, PerHour: 0.45, Unit: "USD", Why: "would wait 0 s, costs 0.45 USD/h"}
	for _, c := range []struct {
		name  string
		rungs []Rung
		want  []string
	}{
		{"two rungs", []Rung{parked, vast}, []string{"now: kaggle: parked 3 h 12 min: the weekly quota resets", "now: vast: would wait 0 s, costs 0.45 USD/h"}},
		{"a price is worth a line", []Rung{vast}, []string{"now: vast: would wait 0 s, costs 0.45 USD/h"}},
		{"the only rung, at no known price", []Rung{{Platform: "here", Chosen: true, Why: "would wait 0 s, its price is not known"}}, nil},
		{"the only rung, for nothing", []Rung{{Platform: "here", Chosen: true, Unit: "free", Why: "would wait 0 s, costs nothing"}}, nil},
		{"hostile text", []Rung{parked, {Platform: "x", Why: "\x1b[2J\nboo"}}, []string{"now: kaggle: parked 3 h 12 min: the weekly quota resets", "now: x: " + printable("\x1b[2J\nboo")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := Change{Op: OpCreate, Job: "a", On: []string{"kaggle", "vast"}, Rungs: c.rungs}
			if diff := cmp.Diff(c.want, ch.where()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var b strings.Builder
			all := &Changes{Changes: []Change{ch}}
			if err := all.Text(&b, false); err != nil {
				t.Fatal(err)
			}
			for _, l := range c.want {
				if !strings.Contains(b.String(), "    "+l+"\n") {
					t.Errorf("the text lacks %q:\n%s", l, b.String())
				}
			}
		})
	}
}
