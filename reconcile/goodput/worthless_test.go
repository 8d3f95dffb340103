package goodput

import "testing"

// A platform on which no attempt ever kept anything has no usual share: that nothing is kept there once more costs a retry,
// else its jobs would be launched there for ever.
func TestNothingIsNobodysUsualShare(t *testing.T) {
	b := &Book{}
	for n := range 20 {
		o := one(n, n, nil)
		o.Class, o.StepKeptS, o.WorkKept, o.PaidS = "silent", 0, 0, 300
		b.Add(o)
	}
	o := one(100, 30, nil)
	o.Class, o.StepKeptS, o.WorkKept, o.PaidS = "silent", 0, 0, 300
	for paid, want := range map[float64]int{30: 2, 300: 1} { // too short to be judged alone, and long enough
		o.PaidS = paid
		list := []Stint{StintOf(o)}
		for len(list) < want {
			if v, ok := b.Judge(list); !ok || v.Below {
				t.Errorf("%v s: %+v %v", paid, v, ok)
			}
			list = append(list, StintOf(o))
		}
		if v, ok := b.Judge(list); !ok || !v.Below || !v.Judged {
			t.Errorf("%v s, %d times: %+v %v", paid, want, v, ok)
		}
	}
}
