package world

import (
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/proof/mutant"
)

// The test of the test: each protection that is taken away is noticed, within 10,000 seeds, by the invariant that it
// holds up.
func TestMutants(t *testing.T) {
	for kind, want := range map[mutant.Kind][]string{
		mutant.Unconditional: {"I1", "I2", "I6", "I8"},
		mutant.SharedPrefix:  {"I1", "I1b"},
		mutant.PointerApart:  {"I2"},
		mutant.AckFirst:      {"I3"},
		mutant.Reread:        {"I2", "I6", "I8"},
		mutant.SideThread:    {"I7"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			cfg := Config{Mutant: kind, Large: true, Scratch: scratch(t), Agents: kind == mutant.SideThread}
			for cfg.Seed = range uint64(10_000) {
				o := Run(t, cfg)
				if o.Broken == nil {
					continue
				}
				found, _, _ := strings.Cut(o.Broken.Error(), ":")
				if found == "I7" && !slices.Contains(want, found) {
					t.Logf("seed %d: %v", cfg.Seed, o.Broken) // it stands in its own way as well; the harm is looked for
					continue
				}
				if !slices.Contains(want, found) {
					t.Errorf("%s\nwant one of %v", o.Tell(cfg.Seed), want)
				}
				t.Logf("seed %d: %v", cfg.Seed, o.Broken)
				if !isInvariant(found) {
					t.Error("what broke is no invariant")
				}
				cfg.Mutant = mutant.None
				if o := Run(t, cfg); o.Broken != nil {
					t.Errorf("with the protection it breaks as well: %v", o.Broken)
				}
				return
			}
			t.Error("survived 10,000 seeds: the oracles or the generator are too weak")
		})
	}
	if len(mutant.All()) != 6 {
		t.Error("a mutant has no expectation here")
	}
}
