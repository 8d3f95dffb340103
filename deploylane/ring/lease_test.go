package ring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// TestSuccessorWaits: a loader that waits twenty minutes for its stages keeps the ring's lease for as long as it lives, and the
// successor of one that died in the same wait goes on within five minutes.
func TestSuccessorWaits(t *testing.T) {
	slow := func(c *ringsim.Config) {
		for k := range c.Hosts {
			c.Hosts[k].ReadRate = 50 << 20 // some twenty minutes for a stage
		}
	}
	over := func(err error) bool { _, is := errors.AsType[ring.LeaseOver](err); return is }
	inWorld(t, t.TempDir(), slow, func(t *testing.T, p *place) {
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := p.lane(&life{}).Release(t.Context(), release("r1"), nil)
			done <- err
		}()
		for range 3 {
			later(6 * time.Minute)
			if _, err := p.lane(&life{}).Recover(t.Context(), thePlan(t)); !over(err) {
				t.Errorf("after %s somebody else took over: %v", time.Since(began), err)
			}
		}
		if err := <-done; err != nil || time.Since(began) < 15*time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	whole := &life{}
	inWorld(t, t.TempDir(), slow, func(t *testing.T, p *place) {
		if _, err := p.lane(whole).Release(t.Context(), release("r1"), nil); err != nil {
			t.Fatal(err)
		}
	})
	inWorld(t, t.TempDir(), slow, func(t *testing.T, p *place) {
		beat := 0
		for k, what := range whole.what { // the first renewal behind the last LOAD
			if what == "load step37-s0" || what == "load step37-s1" {
				beat = k + 2
			}
		}
		l := p.lane(&life{at: beat, after: true})
		go l.Release(t.Context(), release("r1"), nil)
		later(2 * time.Minute)
		if _, err := p.lane(&life{}).Recover(t.Context(), thePlan(t)); !over(err) {
			t.Errorf("nobody can know yet that it is dead: %v", err)
		}
		later(3 * time.Minute)
		out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if wrong := p.afterwards(out, err); wrong != "" || err != nil || out.Release != "r1" {
			t.Errorf("%s: %+v, %v", wrong, out, err)
		}
		later(time.Hour) // the dead one's calls end
	})
}
