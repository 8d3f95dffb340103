package world

import (
	"strings"
	"testing"
)

// A collector that deletes what somebody needs is seen by the judge, at the delete.
func TestCarelessCollector(t *testing.T) {
	for _, kind := range []Careless{OfThePointer, OfTheHolder} {
		t.Run(string(kind), func(t *testing.T) {
			dir := scratch(t)
			for seed := range uint64(1000) {
				o := Run(t, Config{Seed: seed, Scratch: dir, Careless: kind})
				if o.Broken == nil {
					continue
				}
				if !strings.HasPrefix(o.Broken.Error(), "I9: ") || !strings.Contains(o.Broken.Error(), "gc ") {
					t.Errorf("%s", o.Tell(seed))
				}
				t.Logf("seed %d: %v", seed, o.Broken)
				if o := Run(t, Config{Seed: seed, Scratch: dir}); o.Broken != nil {
					t.Errorf("with its rule it breaks as well: %v", o.Broken)
				}
				return
			}
			t.Error("survived 1,000 seeds")
		})
	}
}
