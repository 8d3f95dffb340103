package repo

import (
	"fmt"
	"testing"
)

// However many commits were read, what a handle keeps of their trees is bounded, and what is forgotten is read again.
func TestTreesAreNotKeptForEver(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	many := func(n int) map[string]file {
		out := files("x", fmt.Sprint(n))
		for i := range 200 {
			out[fmt.Sprintf("f%03d", i)] = file{body: "1"}
		}
		return out
	}
	var all []string
	for n := range 6 {
		all = append(all, o.commit("main", fmt.Sprint(n), many(n)))
	}
	r.reads.held = maxHeld - 300 // as after many others
	for range 3 {
		for n, c := range all {
			readX(t, r, c, fmt.Sprint(n))
		}
	}
	if r.reads.older == nil || r.reads.held >= maxHeld || len(r.reads.trees)+len(r.reads.older) < len(all) {
		t.Errorf("%d entries held, %d and %d trees", r.reads.held, len(r.reads.trees), len(r.reads.older))
	}
	expect(t, r, "advanced >5")
	expect(t, r, "unchanged 5") // what was read is forgotten
	readX(t, r, all[2], "2")
}
