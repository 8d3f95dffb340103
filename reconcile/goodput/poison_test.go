package goodput

import (
	"strings"
	"testing"

	"github.com/headway-run/headway/runners/record"
)

// Whatever an account says within its bounds, the history that it is folded into can be read again: a stranger's worker
// must not be able to make a platform begin anew.
func TestOneAccountNeverSpoilsAHistory(t *testing.T) {
	for name, poison := range map[string]func(o *record.Observation){
		"speed":            func(o *record.Observation) { o.WorkKept, o.StepKeptS = 1e40, 1e-9 },
		"a card of no use": func(o *record.Observation) { o.WorkKept, o.StepKeptS, o.Peak = 1e40, 1e-9, 1e-30 },
		"counts":           func(o *record.Observation) { o.All.Ratios.Done = map[int]int64{8: 1e15, 9: 1e15, 111: 1e15} },
		"seconds": func(o *record.Observation) {
			o.WorkKept, o.StepKeptS, o.PaidS, o.LostS, o.TailS, o.StartS, o.FirstStepS = 1e40, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9
		},
	} {
		c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
		for n := range 13 {
			change := poison
			if n < 10 {
				change = nil
			}
			if !c.Fold(one(n, n, change)) {
				t.Fatalf("%s: not folded", name)
			}
		}
		body, err := record.Encode(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := Decode(body); err != nil {
			t.Errorf("%s: the history is lost: %v", name, err)
		}
	}
}

// One account of absurdly many steps weighs no more than a long attempt's, and hides no long step that others measured.
func TestOneAccountWeighsNoMoreThanALongAttempt(t *testing.T) {
	c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
	c.Fold(one(1, 1, func(o *record.Observation) { o.All.Ratios.Done = map[int]int64{8: 990_000, 40: 10_000} }))
	c.Fold(one(2, 2, func(o *record.Observation) { o.All.Ratios.Done = map[int]int64{8: 1e15, 111: 1} }))
	if n := c.Steps.Done[8]; n > 2_000_000 {
		t.Errorf("%d steps counted, expected 2,000,000 at most", n)
	}
	if c.Steps.Done[40] != 10_000 || c.Steps.Done[111] != 1 {
		t.Errorf("long steps: %v", c.Steps.Done)
	}
}

// A name of control characters takes six times its bytes where it is stored: a history would outgrow its bound.
func TestAFamilyIsBoundedAsItIsStored(t *testing.T) {
	for family, want := range map[string]bool{strings.Repeat("\x01", 512): false, strings.Repeat("\u2028", 170): false, strings.Repeat("g", 512): true, strings.Repeat("ü", 256): true} {
		o := one(1, 1, func(o *record.Observation) { o.Family = family })
		if err := Check(o); (err == nil) != want {
			t.Errorf("%.8q: %v", family, err)
		}
		c := NewCompact(KeyOf(o))
		c.Scores = []Score{{At: 1, Family: family}}
		if body, err := record.Encode(c); err != nil {
			t.Error(err)
		} else if _, err := Decode(body); (err == nil) != want {
			t.Errorf("%.8q is read: %v", family, err)
		}
	}
}

// Counts at their bound can be added up and read again.
func TestFullBinsStayReadable(t *testing.T) {
	c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
	c.Steps.Done = map[int]int64{8: 1e15}
	for n := range 10 {
		c.Fold(one(n, n, func(o *record.Observation) { o.All.Ratios.Done = map[int]int64{8: 1000} }))
	}
	body, err := record.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(body); err != nil {
		t.Error(err)
	}
}
