package ringsim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// TestSeeds: worlds with noise and faults out of a seed. Whatever befalls, every call ends by its deadline with an error
// that has a name; a success is one (the node is there, the answer is the model's); a node never has a generation twice;
// and the world comes down without a goroutine left. A seed repeats its run.
func TestSeeds(t *testing.T) {
	served := 0
	for seed := range uint64(60) {
		one, ok := seeded(t, seed)
		if ok {
			served++
		}
		if seed%10 == 0 {
			if again, _ := seeded(t, seed); !cmp.Equal(one, again) {
				t.Errorf("seed %d has two runs: %s", seed, cmp.Diff(one, again))
			}
		}
	}
	if served == 0 || served == 60 {
		t.Errorf("%d of 60 worlds served to their end: the faults are all, or none", served)
	}
}

func seeded(t *testing.T, seed uint64) (trace []ringsim.Entry, served bool) {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := ringsim.Post()
	cfg.Seed = seed
	cfg.Noise = ringsim.Noise{Drop: 0.004 * float64(rng.IntN(3)), Delay: 0.2, Duplicate: 0.1, Most: time.Second}
	steps := []string{"load/received", "load/weights", "load/device", "event/load", "event/session", "event/capsule", "event/release", "event/unload"}
	for range rng.IntN(3) {
		cfg.Faults = append(cfg.Faults, ringsim.Fault{Host: fmt.Sprintf("h%d", 1+rng.IntN(2)), At: steps[rng.IntN(len(steps))], Nth: 1 + rng.IntN(4),
			Do: ringsim.Act(1 + rng.IntN(int(ringsim.FreezeServer))), By: time.Duration(rng.IntN(300)) * time.Second})
	}
	cfg.Rules = ringsim.Rules{RefuseUnknownNode: rng.IntN(2) == 0, LenientGeneration: rng.IntN(2) == 0, FinishOptional: rng.IntN(2) == 0, UnboundedQueues: rng.IntN(2) == 0}
	world(t, cfg, func(t *testing.T, c *careless) {
		named := func(what string, err error) bool {
			if err != nil && !errors.As(err, new(ring.NoAnswer)) && !errors.As(err, new(ring.Unreachable)) && !errors.As(err, new(ring.StageFailed)) && !errors.As(err, new(ring.Busy)) {
				t.Errorf("seed %d: %s: %T %v", seed, what, err, err)
			}
			return err == nil
		}
		served = true
		for i, a := range c.load() {
			served = named("load", a.err) && a.Status == ring.Succeeded && served
			if a.err == nil && a.Status == ring.Succeeded && (a.Node != c.meta[i].Node || a.Generation != generation) {
				t.Errorf("seed %d: somebody else's answer: %+v", seed, a)
			}
		}
		for _, id := range []string{"one", "two"} {
			r, err := c.ask(id)
			if served = named("request", err) && served; err == nil && string(r.Text) != string(ringsim.Answer(ringsim.Render("say "+id))) {
				t.Errorf("seed %d: %q", seed, r.Text)
			}
		}
		for i := range 4 {
			a, err := c.unload(i)
			served = named("unload", err) && a.Status == ring.Succeeded && served
		}
		later(time.Hour)
		for i, a := range c.load() { // the same generation, whatever became of it
			if named("again", a.err) && a.Status == ring.Succeeded && c.reached(i) {
				t.Errorf("seed %d: a generation twice: %+v", seed, a)
			}
		}
		trace = c.w.Trace()
	})
	return trace, served
}

// reached says that the first LOAD of a stage did reach its agent: then its number is used up.
func (c *careless) reached(i int) bool {
	for _, s := range c.w.Spent() {
		if s.Node == c.meta[i].Node && s.Began < time.Hour {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
			defer cancel()
			_, err := c.Inspect(ctx, "", c.via[i])
			return err == nil
		}
	}
	return false
}
