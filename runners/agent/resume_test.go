package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// A loop that goes on from step 10,000 has made one step when it says 10,001, not ten thousand and one: the lease that
// follows from its time covers the next one. (Found by proof/world: every attempt after the first was written off.)
func TestTheFirstStepAfterAResumeIsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []int64{0, 5, 10_000} {
			d := newDesk(terms(), func(string, int64, string) {})
			d.step = from
			d.greet()
			d.stepped(from) // some loops say where they begin
			time.Sleep(75 * time.Second)
			d.stepped(from + 1)
			if l := promise(d.terms, &d.pace, phase{}); l.Length() < 3*75*time.Second {
				t.Errorf("from step %d: a lease of %v after a step of 75 s", from, l.Length())
			}
			d.greet()
			time.Sleep(90 * time.Second)
			d.stepped(from + 2)
			if l := promise(d.terms, &d.pace, phase{}); l.Length() < 3*90*time.Second {
				t.Errorf("from step %d, a second loop: a lease of %v after a step of 90 s", from, l.Length())
			}
		}
	})
}
