package ringsim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// A ring in good order loads in twenty virtual minutes, answers three times, and unloads; its memory comes back, and no
// slot stays taken but those between the two agents.
func TestARingInGoodOrder(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		begin := time.Now()
		for i, a := range c.load() {
			if a.err != nil || a.Status != ring.Succeeded || a.Resource != ring.Present || a.Generation != generation || a.Bound != c.body[i].Bound {
				t.Fatalf("stage %d: %+v", i, a)
			}
		}
		if took := time.Since(begin); took < 19*time.Minute || took > 21*time.Minute {
			t.Errorf("loaded in %s, expected about twenty minutes", took)
		}
		for _, id := range []string{"one", "two", "three"} {
			r, err := c.ask(id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(ringsim.Answer(ringsim.Render("say "+id))), string(r.Text)); diff != "" || r.Stop != ring.StopEnd {
				t.Errorf("%s: %s %s", id, r.Stop, diff)
			}
			if r.First <= 0 || r.First > r.Took {
				t.Errorf("first token after %s of %s", r.First, r.Took)
			}
		}
		full := c.inspect(h1)
		if len(full.Nodes) != 2 || full.Nodes[0].State != "ready" || *full.Nodes[0].Load != generation || full.Nodes[0].Busy != 0 {
			t.Errorf("%+v", full.Nodes)
		}
		for i := range 4 {
			if a, err := c.unload(i); err != nil || a.Status != ring.Succeeded || a.Resource != ring.Absent {
				t.Errorf("unload %d: %+v %v", i, a, err)
			}
		}
		if free := c.inspect(h1).Memory.Free; free > 128<<30-40<<30 {
			t.Errorf("memory is back at once: %d", free)
		}
		later(time.Minute)
		for _, at := range []string{h1, h2} {
			in := c.inspect(at)
			if in.Memory.Free != in.Memory.Total || in.Slots.Free < 254 || len(in.Nodes) != 0 || len(in.Buried) != 2 {
				t.Errorf("%s: %+v %+v %+v %+v", at, in.Memory, in.Slots, in.Nodes, in.Buried)
			}
		}
		if lost := c.w.Lost(); lost != 0 {
			t.Errorf("lost %s", lost)
		}
	})
}

// Two runs of one seed have one trace, with noise in it; another seed has another.
func TestASeedRepeats(t *testing.T) {
	run := func(seed uint64) (out []ringsim.Entry) {
		cfg := ringsim.Post()
		cfg.Seed = seed
		cfg.Noise = ringsim.Noise{Drop: 0.01, Delay: 0.2, Duplicate: 0.1, Most: 3 * time.Second}
		world(t, cfg, func(t *testing.T, c *careless) {
			c.load()
			for _, id := range []string{"one", "two", "three"} {
				c.ask(id)
			}
			out = c.w.Trace()
		})
		return out
	}
	for seed := range uint64(5) {
		one := run(seed)
		if diff := cmp.Diff(one, run(seed)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if cmp.Equal(one, run(seed+1000)) {
			t.Errorf("seeds %d and %d are one", seed, seed+1000)
		}
	}
}
