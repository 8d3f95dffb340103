package world

import "testing"

// A program that fails twice in the same way rightly ends its work: no promise is broken by what does not finish then.
// (Two failures of a script, at different steps, are the same one where the attempts stand at one step: seed 2 of the large
// worlds was called an I7.)
func TestAProgramThatFailsTwiceNeedNotFinish(t *testing.T) {
	dir, met := scratch(t), int64(0)
	for seed := range uint64(60) {
		o := Run(t, Config{Seed: seed, Scratch: dir, Large: true})
		if n := o.Stats.Reached["a program failed twice in the same way"]; n > 0 && o.Broken != nil {
			t.Errorf("%s", o.Tell(seed))
		} else if met += n; n > 0 {
			t.Logf("seed %d", seed)
			return
		}
	}
	if met == 0 {
		t.Error("no program failed twice in the same way: the worlds are too tame")
	}
}

// Reads of leases that show the version before the newest one, as a cache in front of a store would: they cost money, and
// break nothing (S13 of the fault matrix). The probe refuses such a store all the same.
func TestStaleReadsOfLeasesBreakNothing(t *testing.T) {
	dir, stale, resumed := scratch(t), int64(0), int64(0)
	for seed := uint64(0); stale < 40; seed++ {
		if seed == 10_000 {
			t.Fatalf("%d stale reads in 10,000 worlds", stale)
		}
		cfg := Config{Seed: seed, Scratch: dir}
		if s := draw(cfg); s.staleReads == 0 {
			continue
		}
		o := Run(t, cfg)
		stale, resumed = stale+o.Stats.Faults[StaleRead], resumed+o.Stats.Reached["captured again"]
		if o.Broken != nil {
			t.Errorf("%s", o.Tell(seed))
		}
	}
	if t.Logf("%d stale reads, %d later attempts", stale, resumed); resumed == 0 {
		t.Error("nobody took a lease over: the worlds are too tame")
	}
}
