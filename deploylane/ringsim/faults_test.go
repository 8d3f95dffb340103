package ringsim_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// Whatever is dropped, every call ends by its deadline and names its silence; nothing is ever taken for a success.
func TestADroppedEventIsANamedSilence(t *testing.T) {
	steps := map[string]string{"load": "LOAD", "inspect": "INSPECT", "session": "session", "ready": "session", "infer": "request", "capsule": "request",
		"output": "request", "receipt": "receipt", "release": "receipt", "closed": "receipt", "result": "LOAD", "unload": "UNLOAD"}
	for step, what := range steps {
		cfg := ringsim.Post()
		for _, h := range []string{"h1", "h2"} {
			cfg.Faults = append(cfg.Faults, ringsim.Fault{Host: h, At: "event/" + step, Do: ringsim.Drop})
		}
		world(t, cfg, func(t *testing.T, c *careless) {
			err := c.whole()
			switch step {
			case "ready", "output", "closed", "result", "receipt": // what an agent says itself crosses no broker where both are at home
				_, ok := errors.AsType[ring.NoAnswer](err)
				if dropped := c.dropped(); dropped != ok || !ok && err != nil {
					t.Errorf("%s: dropped: %v; %v", step, dropped, err)
				}
			default:
				silent, ok := errors.AsType[ring.NoAnswer](err)
				if !ok || !strings.HasPrefix(silent.What, what) || silent.After <= 0 {
					t.Errorf("%s: %v", step, err)
				}
			}
		})
	}
}

// dropped says whether a fault took an event away.
func (c *careless) dropped() bool {
	return slices.ContainsFunc(c.w.Trace(), func(e ringsim.Entry) bool { return strings.HasPrefix(e.What, "fault: dropped") })
}

// whole is everything that a careful caller does with a ring, once; the first error ends it.
func (c *careless) whole() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Inspect(ctx, "", h1); err != nil {
		return err
	}
	for _, a := range c.load() {
		if a.err != nil {
			return a.err
		}
	}
	if _, err := c.ask("one"); err != nil {
		return err
	}
	for i := range 4 {
		if _, err := c.unload(i); err != nil {
			return err
		}
	}
	return nil
}

// Twice delivered is once done, and late is not wrong.
func TestDoubledAndLateEvents(t *testing.T) {
	for _, n := range []ringsim.Noise{{Duplicate: 1}, {Delay: 1, Most: 300 * time.Millisecond}} {
		cfg := ringsim.Post()
		cfg.Noise = n
		world(t, cfg, func(t *testing.T, c *careless) {
			if err := c.whole(); err != nil {
				t.Errorf("%+v: %v", n, err)
			}
		})
	}
}

// A stage that is killed at any step of its LOAD is absent afterwards, says why, and its memory comes back; a killed
// agent says nothing. The rest of the ring is heard out.
func TestKilledInAnyStepOfALoad(t *testing.T) {
	for _, at := range []string{"received", "spawned", "hello", "weights", "read", "device", "ready"} {
		for _, do := range []ringsim.Act{ringsim.KillServer, ringsim.KillAgent} {
			cfg := ringsim.Post()
			cfg.Faults = []ringsim.Fault{{Host: "h2", Node: "step37-s2", At: "load/" + at, Nth: 1, Do: do}}
			world(t, cfg, func(t *testing.T, c *careless) {
				got := c.load()
				want(t, got[:2], ring.Succeeded, ring.Present, "")
				if do == ringsim.KillServer {
					want(t, got[3:], ring.Succeeded, ring.Present, "")
					want(t, got[2:3], ring.Failed, ring.Absent, "the native server exited")
				} else {
					for _, a := range got[2:] {
						if !errors.As(a.err, new(ring.NoAnswer)) && !errors.As(a.err, new(ring.Unreachable)) { // the other one's LOAD came too late
							t.Errorf("%s: %+v", at, a)
						}
					}
					if err := c.w.Restart("h2"); err != nil {
						t.Fatal(err)
					}
				}
				later(time.Minute)
				in := c.inspect(h2)
				if want := uint64(128<<30) - resident(in); in.Memory.Free != want || len(in.Buried) == 0 {
					t.Errorf("%s: %d bytes free, %d expected; buried %v", at, in.Memory.Free, want, in.Buried)
				}
			})
		}
	}
}

func resident(in ring.Inspection) (sum uint64) {
	for _, n := range in.Nodes {
		sum += n.Resident
	}
	return sum
}

// A frozen stage hangs requests without limit while its agent says that all is well; after it goes on, it serves.
func TestHealthIsNotService(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.mustLoad()
		c.w.FreezeServer("h2", "step37-s2", true)
		if n := c.inspect(h2).Nodes[0]; n.State != "ready" || n.Resource != ring.Present {
			t.Errorf("%+v", n)
		}
		_, err := c.ask("hangs")
		if silent, ok := errors.AsType[ring.NoAnswer](err); !ok || !strings.Contains(silent.What, "3 of 4") {
			t.Errorf("%v", err)
		}
		c.w.FreezeServer("h2", "step37-s2", false)
		later(time.Second)
		if _, err := c.ask("serves"); err != nil {
			t.Error(err)
		}
		c.w.KillServer("h2", "step37-s2")
		later(time.Second)
		if n := c.inspect(h2).Nodes[0]; n.State != "failed:native server exited" || n.Resource != ring.Absent {
			t.Errorf("%+v", n)
		}
	})
}

// A frozen agent answers nobody; a killed one is not to be reached, and its stages are gone when it is back, while those
// of the other host live on.
func TestAgentsFreezeAndDie(t *testing.T) {
	world(t, ringsim.Post(), func(t *testing.T, c *careless) {
		c.mustLoad()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c.w.Freeze("h2", true)
		if _, err := c.Inspect(ctx, "", h2); !errors.As(err, new(ring.NoAnswer)) {
			t.Error(err)
		}
		c.w.Freeze("h2", false)
		later(time.Minute)
		if len(c.inspect(h2).Nodes) != 2 {
			t.Error("what was loaded before a pause is there after it")
		}
		c.w.Kill("h2")
		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Inspect(late, "", h2); !errors.As(err, new(ring.Unreachable)) {
			t.Error(err)
		}
		if err := c.w.Restart("h2"); err != nil {
			t.Fatal(err)
		}
		if in := c.inspect(h2); len(in.Nodes) != 0 || len(in.Buried) != 2 {
			t.Errorf("%+v %+v", in.Nodes, in.Buried)
		}
		if len(c.inspect(h1).Nodes) != 2 {
			t.Error("the other host lost its stages")
		}
		if a, err := c.unload(0); err != nil || a.Status != ring.Succeeded {
			t.Errorf("the survivor: %+v %v", a, err)
		}
	})
}

// Slow disks, memory that ends at a share of the weights, and files that end early: each at its own time.
func TestTroubleWithWeights(t *testing.T) {
	for what, c := range map[string]struct {
		alter    func(*ringsim.Host)
		sentence string
		from, to time.Duration
	}{
		"oom":       {func(h *ringsim.Host) { h.OOMAt = 0.5 }, "out of memory at 50 % of the weights", 9 * time.Minute, 11 * time.Minute},
		"truncated": {func(h *ringsim.Host) { h.Models[0].Bytes -= 1 << 30 }, "truncated", 18 * time.Minute, 21 * time.Minute},
		"elsewhere": {func(h *ringsim.Host) { h.Models[0].Path = "/models/other.gguf" }, "no such file", 0, 2 * time.Second},
	} {
		cfg := ringsim.Post()
		for i := range cfg.Hosts {
			c.alter(&cfg.Hosts[i])
		}
		world(t, cfg, func(t *testing.T, l *careless) {
			want(t, l.load(), ring.Failed, ring.Absent, c.sentence)
			if lost := l.w.Lost(); lost < c.from || lost > c.to {
				t.Errorf("%s: lost %s, expected from %s to %s", what, lost, c.from, c.to)
			}
		})
	}
	cfg := ringsim.Post()
	cfg.Hosts[0].Slower = 4
	world(t, cfg, func(t *testing.T, c *careless) {
		got := c.load()
		for i, a := range got {
			if late := errors.As(a.err, new(ring.NoAnswer)); late != (i < 2) {
				t.Errorf("stage %d on the slow host, in an hour: %+v", i, a)
			}
		}
		later(time.Hour)
		if n := c.inspect(h1).Nodes; len(n) != 2 || n[0].State != "ready" {
			t.Errorf("it was slow, not gone: %+v", n)
		}
	})
}

// A queue that is full hands the event back, and the caller knows that nothing was sent. Without bounds it waits.
func TestAFullQueueHandsBack(t *testing.T) {
	for _, unbounded := range []bool{false, true} {
		cfg := ringsim.Post()
		cfg.Rules.UnboundedQueues = unbounded
		world(t, cfg, func(t *testing.T, c *careless) {
			c.spoil(func(m *ring.Metadata, _ *ring.StageLoad) { m.Queue = 2 })
			c.mustLoad()
			c.w.FreezeServer("h1", "step37-s0", true)
			busy := 0
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := c.Session(ctx, c.route)
				if errors.As(err, new(ring.Busy)) {
					busy++
				}
				cancel()
			}
			if busy != map[bool]int{false: 1, true: 0}[unbounded] {
				t.Errorf("unbounded %v: %d handed back", unbounded, busy)
			}
		})
	}
}
