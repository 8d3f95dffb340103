package ringsim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// spoil is a plan with one drift in every stage.
func (c *careless) spoil(f func(m *ring.Metadata, b *ring.StageLoad)) {
	for i := range c.body {
		f(&c.meta[i], &c.body[i])
	}
}

// want holds the answers' details against a sentence of the engine's, for every stage.
func want(t *testing.T, got []answered, status ring.Status, resource ring.Resource, sentence string) {
	t.Helper()
	for i, a := range got {
		if a.err != nil || a.Status != status || a.Resource != resource || !strings.Contains(a.Detail, sentence) {
			t.Errorf("stage %d: %+v, expected %s/%s %q", i, a, status, resource, sentence)
		}
	}
}

// lost holds the virtual minutes that came to nothing against a span.
func lost(t *testing.T, c *careless, from, to time.Duration) {
	t.Helper()
	if l := c.w.Lost(); l < from || l > to {
		t.Errorf("lost %s, expected from %s to %s", l, from, to)
	}
}

// R1: a LOAD for the node that it would create is said to be on its way, and nothing follows: no answer, no node, no
// line in any log. With the broker of the other version it is answered.
func TestR1TheCommandForANodeThatIsNotThere(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.RefuseUnknownNode = refuse
		world(t, cfg, func(t *testing.T, c *careless) {
			before := len(c.w.Log("h1"))
			cmd := c.command(0, ring.ContentLoad, c.body[0])
			cmd.Target = ring.Target{Kind: ring.ToNode, Agent: h1, Node: "step37-s0", Generation: generation}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			a, err := c.Load(ctx, cmd)
			if refuse {
				if err != nil || a.Status != ring.Rejected || a.Resource != ring.Absent {
					t.Errorf("%+v %v", a, err)
				}
				return
			}
			silent, ok := errors.AsType[ring.NoAnswer](err)
			if !ok || silent.After != 30*time.Minute || !strings.Contains(silent.Last, "queued") {
				t.Errorf("%v", err)
			}
			if log := c.w.Log("h1"); len(log) != before {
				t.Errorf("a line in the log: %q", log)
			}
			if in := c.inspect(h1); len(in.Nodes) != 0 || len(in.Buried) != 0 {
				t.Errorf("%+v", in.Nodes)
			}
		})
	}
	// The same by a wrong agent string: it is somewhere else, and there is nobody.
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		cmd := c.command(0, ring.ContentLoad, c.body[0])
		cmd.Target.Agent = "tcp://h1.lan:42011"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Load(ctx, cmd); !errors.As(err, new(ring.NoAnswer)) {
			t.Error(err)
		}
	})
}

// R2: with two numbers for one thing all stages load, the first request is answered rightly, its release kills the head,
// and every later session hangs at three of four.
func TestR2TwoGenerations(t *testing.T) {
	forgiving := ringsim.Post()
	forgiving.Rules.ForgivingRelease = true
	world(t, forgiving, func(t *testing.T, c *careless) {
		c.spoil(func(m *ring.Metadata, _ *ring.StageLoad) { m.Generation = 1 })
		c.mustLoad()
		for _, id := range []string{"one", "two"} {
			if _, err := c.ask(id); err != nil {
				t.Errorf("where nobody compares: %s: %v", id, err)
			}
		}
	})
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.spoil(func(m *ring.Metadata, _ *ring.StageLoad) { m.Generation = 1 })
		c.mustLoad()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := c.Session(ctx, c.route)
		if err != nil {
			t.Fatal(err)
		}
		prompt := ringsim.Render("hello")
		r, err := s.Request(ctx, ring.Query{ID: "one", Prompt: prompt, MaxTokens: 32})
		if err != nil || string(r.Text) != string(ringsim.Answer(prompt)) || r.Stop != ring.StopEnd {
			t.Fatalf("the first request is right in the post's world: %+v %v", r, err)
		}
		if _, err := s.Settle(ctx, r); !errors.As(err, new(ring.NoAnswer)) {
			t.Errorf("its receipt: %v", err)
		}
		later, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Finish(later)
		_, err = c.Session(later, c.route)
		if silent, ok := errors.AsType[ring.NoAnswer](err); !ok || silent.What != "session (3 of 4 ready)" || silent.To != "step37-s0 at "+h1 {
			t.Errorf("a later session: %v", err)
		}
		if n := c.inspect(h1).Nodes[0]; n.State != "stopped: release owner census generation differs from source" {
			t.Errorf("%+v", n)
		}
	})
}

// R2, from the other side: one session with a wrong generation spoils every stage, for those with the right one too.
func TestR2AWrongGenerationSticks(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.LenientGeneration = lenient
		world(t, cfg, func(t *testing.T, c *careless) {
			c.mustLoad()
			right := c.route
			c.route.Load++
			_, err := c.ask("wrong")
			if failed, ok := errors.AsType[ring.StageFailed](err); !ok || failed.State != "failed:session load generation is stale" {
				t.Fatal(err)
			}
			c.route = right
			_, err = c.ask("right")
			if _, ok := errors.AsType[ring.StageFailed](err); ok == lenient {
				t.Errorf("lenient %v: %v", lenient, err)
			}
			for _, at := range []string{h1, h2} {
				for _, n := range c.inspect(at).Nodes {
					if (n.State == "ready") != lenient {
						t.Errorf("lenient %v: %+v", lenient, n)
					}
				}
			}
		})
	}
}

// R2: a generation is never taken again, not even for the same plan, and not after an UNLOAD; a failed attempt leaves its
// number behind. A clock that went back makes such numbers.
func TestR2AGenerationIsUsedOnce(t *testing.T) {
	for _, kind := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.ReuseGenerations, cfg.Rules.OneClock = kind, kind
		world(t, cfg, func(t *testing.T, c *careless) {
			c.mustLoad()
			want(t, c.load(), ring.Rejected, ring.Present, "node id is in use")
			for i := range 4 {
				if a, err := c.unload(i); err != nil || a.Status != ring.Succeeded {
					t.Fatalf("%+v %v", a, err)
				}
			}
			later(time.Minute)
			if kind {
				c.mustLoad()
			} else {
				want(t, c.load(), ring.Rejected, ring.Absent, "StaleNode: generation 1789000000000 is not above 1789000000000")
			}
			c.w.Jump("h1", -24*time.Hour)
			if back := c.inspect(h1).ClockMS < time.Now().Add(-23*time.Hour).UnixMilli(); back == kind {
				t.Errorf("one clock %v: it went back: %v", kind, back)
			}
		})
	}
}

// R3: a remembered bound costs a whole load of every stage, and then fails in all of them.
func TestR3ARememberedBound(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) { b.Bound = 33_554_432 })
		want(t, c.load(), ring.Failed, ring.Absent, "max_physical_result_bytes")
		lost(t, c, 19*time.Minute, 21*time.Minute)
	})
	// The right bound of too wide a shape is admitted by nobody, as late.
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) {
			b.Batch, b.UBatch, b.Bound = 2048, 512, 34_419_218_444
			if b.Stage == 3 {
				b.Bound = 59_136_012
			}
		})
		want(t, c.load()[:3], ring.Failed, ring.Absent, "the retained store does not admit it: result 34419218444")
		lost(t, c, 19*time.Minute, 21*time.Minute)
	})
	// Looked at first, it would have cost a second.
	cfg := ringsim.Post()
	cfg.Rules.CheckFirst = true
	world(t, cfg, func(t *testing.T, c *careless) {
		c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) { b.Bound = 33_554_432 })
		want(t, c.load(), ring.Failed, ring.Absent, "max_physical_result_bytes")
		lost(t, c, 0, 2*time.Second)
	})
}

// R4: with a loopback address on an edge between hosts everything loads, all stages are ready, and then nothing arrives
// behind the edge; the last that was heard is the stage before it.
func TestR4ALoopbackAddress(t *testing.T) {
	const alone = "tcp://127.0.0.1:42012"
	for _, one := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.OneNetwork = one
		cfg.Hosts[1].Advertise = alone
		world(t, cfg, func(t *testing.T, c *careless) {
			for i := range 4 {
				if c.route.Stages[i].Agent == h2 {
					c.route.Stages[i].Agent, c.via[i] = alone, "tcp://h2:42012" // how the caller reaches it
				}
			}
			c.mustLoad()
			before := len(c.w.Log("h1")) + len(c.w.Log("h2"))
			_, err := c.ask("one")
			silent, ok := errors.AsType[ring.NoAnswer](err)
			if ok == one {
				t.Errorf("one network %v: %v", one, err)
			}
			if !one && (silent.What != "session (2 of 4 ready)" || len(c.w.Log("h1"))+len(c.w.Log("h2")) != before) {
				t.Errorf("%v %q", err, c.w.Log("h2"))
			}
		})
	}
}

// R4: what an address means depends on who asks.
func TestR4SeenFromThePeer(t *testing.T) {
	cfg := ringsim.Post()
	cfg.Hosts[0].Names = map[string]string{"h2.lan": "h2"} // h1 knows its peer by another name only
	world(t, cfg, func(t *testing.T, c *careless) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if in, err := c.Inspect(ctx, "", h2); err != nil || in.Agent != h2 {
			t.Errorf("from here: %+v %v", in.Agent, err)
		}
		if _, err := c.Inspect(ctx, "h1", h2); !errors.As(err, new(ring.Unreachable)) {
			t.Errorf("from h1: %v", err)
		}
		if in, err := c.Inspect(ctx, "h1", "tcp://h2.lan:42012"); err != nil || in.Agent != h2 {
			t.Errorf("from h1 by its name: %q %v", in.Agent, err)
		}
		if _, err := c.Inspect(ctx, "h1", "tcp://127.0.0.1:42012"); !errors.As(err, new(ring.Unreachable)) {
			t.Errorf("the loopback of h1: %v", err)
		}
		// The ring loads, and the caller's words to h2 go over h1, which cannot find it.
		c.mustLoad()
		if _, err := c.ask("one"); !errors.As(err, new(ring.NoAnswer)) {
			t.Error(err)
		}
	})
}

// R5: without a journal LOAD is refused at once, with the engine's sentence. Switched off on the quiet it moves the
// symptom: the load goes on to the next drift, twenty minutes later, which looks like progress.
func TestR5NoJournal(t *testing.T) {
	for _, optional := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.JournalOptional = optional
		for i := range cfg.Hosts {
			cfg.Hosts[i].Journal.Off = true
		}
		world(t, cfg, func(t *testing.T, c *careless) {
			c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) { b.Device = "CUDA0" })
			if optional {
				want(t, c.load(), ring.Failed, ring.Absent, "no such device: CUDA0")
				lost(t, c, 19*time.Minute, 21*time.Minute)
			} else {
				want(t, c.load(), ring.Rejected, ring.Absent, "operational journal is required before model LOAD")
				lost(t, c, 0, 0)
			}
		})
	}
	// One that cannot be written: the agent is there, and dies at the first event.
	for _, alter := range []func(*ringsim.Journal){
		func(j *ringsim.Journal) { j.ReadOnly = true }, func(j *ringsim.Journal) { j.Free = 0 },
	} {
		cfg := ringsim.Post()
		alter(&cfg.Hosts[0].Journal)
		world(t, cfg, func(t *testing.T, c *careless) {
			if j := c.inspect(h1).Journal; !j.On || j.Writable {
				t.Errorf("%+v", j)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := c.Load(ctx, c.command(0, ring.ContentLoad, c.body[0])); !errors.As(err, new(ring.NoAnswer)) {
				t.Error(err)
			}
			if _, err := c.Inspect(ctx, "", h1); !errors.As(err, new(ring.Unreachable)) {
				t.Error(err)
			}
		})
	}
}

// R6: the whole model is read, and then there is no such device. A mask numbers what it leaves anew.
func TestR6ADeviceOfAnotherBuild(t *testing.T) {
	for _, device := range []string{"CUDA0", "ROCm2"} {
		world(t, ringsim.Post(), func(t *testing.T, c *careless) {
			c.spoil(func(_ *ring.Metadata, b *ring.StageLoad) { b.Device = device })
			want(t, c.load(), ring.Failed, ring.Absent, "no such device: "+device)
			lost(t, c, 19*time.Minute, 21*time.Minute)
		})
	}
}

// R7: a native server of another release is found by its HELLO; by then the other host has read its share in vain.
func TestR7AnOlderServer(t *testing.T) {
	cfg := ringsim.Post()
	cfg.Hosts[1].Native.Hello = []string{"layer-window", "backend=hip"}
	world(t, cfg, func(t *testing.T, c *careless) {
		got := c.load()
		want(t, got[:2], ring.Succeeded, ring.Present, "")
		want(t, got[2:], ring.Failed, ring.Absent, "stage server HELLO omits physical-v4")
		lost(t, c, 19*time.Minute, 21*time.Minute)
	})
}
