package ringsim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// drifts are the rows of the matrix.
func drifts() []drift {
	return append(append(drifts1to4(), drifts5to9()...), append(drifts10to12(), drifts13and14()...)...)
}

// failed is the symptom of a load that fails in the stages from to to, late or not.
func failed(from, to int, status ring.Status, sentence string, least, most time.Duration) func(*trial, []answered) {
	return func(x *trial, got []answered) {
		x.t.Helper()
		resource := ring.Absent
		if sentence == "node id is in use" {
			resource = ring.Present
		}
		want(x.t, got[from:to], status, resource, sentence)
		lost(x.t, x.careless, least, most)
	}
}

// silent is the symptom of a session that hangs, and of logs that say nothing.
func silent(what string) func(*trial, []answered) {
	return func(x *trial, got []answered) {
		x.t.Helper()
		want(x.t, got, ring.Succeeded, ring.Present, "")
		before := len(x.w.Log("h1")) + len(x.w.Log("h2"))
		_, err := x.ask("one")
		if e, ok := errors.AsType[ring.NoAnswer](err); !ok || e.What != what {
			x.t.Errorf("%v, expected silence of %q", err, what)
		}
		if len(x.w.Log("h1"))+len(x.w.Log("h2")) != before {
			x.t.Error("a line in a log")
		}
	}
}

func body(c *ring.Command, alter func(*ring.StageLoad)) {
	var b ring.StageLoad
	json.Unmarshal(c.Envelope.Body, &b)
	alter(&b)
	c.Envelope.Body, _ = json.Marshal(b)
}

const wholeLoad = 19 * time.Minute

func drifts1to4() []drift {
	return []drift{
		{rule: "R1", what: "to the node", tamper: func(_ int, c *ring.Command) {
			c.Target = ring.Target{Kind: ring.ToNode, Agent: c.Target.Agent, Node: c.Envelope.Meta.Node, Generation: generation}
		}, symptom: func(x *trial, got []answered) {
			for i, a := range got {
				if e, ok := errors.AsType[ring.NoAnswer](a.err); !ok || !strings.Contains(e.Last, "queued") {
					x.t.Errorf("stage %d: %+v", i, a)
				}
			}
			if in := x.inspect(h1); len(in.Nodes) > 0 || len(x.w.Log("h1")) != 1 {
				x.t.Errorf("%+v %q", in.Nodes, x.w.Log("h1"))
			}
		}},
		{rule: "R1", what: "the node is there", before: func(x *trial) { older(x, "step37").mustLoad() },
			symptom: failed(0, 4, ring.Rejected, "node id is in use", 0, 0)},
		{rule: "R2", what: "two numbers", tamper: func(_ int, c *ring.Command) { c.Envelope.Meta.Generation = 1 }, symptom: func(x *trial, got []answered) {
			want(x.t, got, ring.Succeeded, ring.Present, "")
			if _, err := x.ask("first"); !errors.As(err, new(ring.NoAnswer)) {
				x.t.Errorf("the first receipt: %v", err)
			}
			if n := x.inspect(h1).Nodes[0]; !strings.HasPrefix(n.State, "stopped") {
				x.t.Errorf("the head: %+v", n)
			}
		}},
		{rule: "R2", what: "used before", before: func(x *trial) {
			o := older(x, "step37")
			o.mustLoad()
			for i := range 4 {
				o.unload(i)
			}
			later(time.Minute)
		}, view: func(v *ring.View) { v.Generation = generation - 200 }, symptom: failed(0, 4, ring.Rejected, "StaleNode", 0, 0)},
		{rule: "R3", what: "remembered", tamper: func(_ int, c *ring.Command) { body(c, func(b *ring.StageLoad) { b.Bound = 33_554_432 }) },
			symptom: failed(0, 4, ring.Failed, "max_physical_result_bytes", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R3", what: "too wide", view: func(v *ring.View) { v.Plan.Shape.Ubatch = 128 },
			symptom: failed(0, 3, ring.Failed, "the retained store does not admit it: result 540588428", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R3", what: "a smaller store", world: func(c *ringsim.Config) { c.Hosts[1].Retained = 128 << 20 },
			symptom: failed(2, 4, ring.Failed, "the retained store does not admit it", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R4", what: "loopback", world: func(c *ringsim.Config) { c.Hosts[1].Advertise = "tcp://127.0.0.1:42012" },
			before:  func(x *trial) { x.via["tcp://127.0.0.1:42012"] = "tcp://h2:42012" },
			view:    func(v *ring.View) { v.Plan.Hosts[1].Agent = "tcp://127.0.0.1:42012" },
			symptom: silent("session (2 of 4 ready)")},
		{rule: "R4", what: "another identity", world: func(c *ringsim.Config) {
			c.Hosts[1].Advertise = "tcp://h2.lan:42012"
			c.Names = map[string]string{"h1.ring": "h1", "h2.ring": "h2"}
			c.Hosts[0].Names, c.Hosts[1].Names = c.Names, c.Names
		}, symptom: func(x *trial, got []answered) {
			want(x.t, got[:2], ring.Succeeded, ring.Present, "")
			for _, a := range got[2:] {
				if !errors.As(a.err, new(ring.NoAnswer)) {
					x.t.Errorf("%+v", a)
				}
			}
			if len(x.w.Log("h2")) != 1 {
				x.t.Errorf("%q", x.w.Log("h2"))
			}
		}},
		{rule: "R4", what: "not from the peer", world: func(c *ringsim.Config) { c.Hosts[0].Names = map[string]string{} },
			symptom: silent("session (2 of 4 ready)")},
	}
}

func drifts5to9() []drift {
	return []drift{
		{rule: "R5", what: "off", world: func(c *ringsim.Config) { c.Hosts[0].Journal.Off = true },
			symptom: failed(0, 2, ring.Rejected, "operational journal is required before model LOAD", 0, 0)},
		{rule: "R5", what: "it moves the symptom", world: func(c *ringsim.Config) {
			c.Hosts[0].Journal.Off, c.Rules.JournalOptional = true, true
			c.Hosts[0].OOMAt = 0.9 // whatever comes next
		}, symptom: failed(0, 2, ring.Failed, "out of memory", 17*time.Minute, 21*time.Minute)},
		{rule: "R5", what: "a full disk", world: func(c *ringsim.Config) { c.Hosts[1].Journal.Free = 0 }, symptom: func(x *trial, got []answered) {
			for _, a := range got[2:] {
				if a.err == nil {
					x.t.Errorf("%+v", a)
				}
			}
			if l := x.w.Log("h2"); !strings.HasPrefix(l[len(l)-1], "fatal: journal") {
				x.t.Errorf("%q", l)
			}
		}},
		{rule: "R6", what: "a name of another build", view: func(v *ring.View) { v.Plan.Stages[2].Device = "CUDA0" },
			symptom: failed(2, 3, ring.Failed, "no such device: CUDA0", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R6", what: "a name behind the mask", view: func(v *ring.View) { v.Plan.Stages[1].Device = "ROCm2" },
			symptom: failed(1, 2, ring.Failed, "no such device: ROCm2", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R7", what: "an older server", world: func(c *ringsim.Config) {
			c.Hosts[1].Native.Hello = []string{"physical-v4"}
		}, symptom: failed(2, 4, ring.Failed, "stage server HELLO omits layer-window", wholeLoad, wholeLoad+2*time.Minute)},
		{rule: "R8", what: "no turn format", view: func(v *ring.View) { v.Prompts[0] = ring.Prompt{Format: "raw", Text: "hello", MaxTokens: 32} },
			symptom: func(x *trial, got []answered) {
				want(x.t, got, ring.Succeeded, ring.Present, "")
				p := x.view.Prompts[0]
				if r, err := x.query(ring.Query{ID: "raw", Prompt: []byte(p.Text), MaxTokens: p.MaxTokens}); err != nil || r.Stop != ring.StopLength || r.Count != 32 {
					x.t.Errorf("%+v %v", r, err)
				}
			}},
		{rule: "R9", what: "clients may send more", view: func(v *ring.View) { v.Plan.Catalog.Tokens = 5000 }, symptom: func(x *trial, got []answered) {
			want(x.t, got, ring.Succeeded, ring.Present, "")
			prompt := ringsim.Render(strings.Repeat("word", 5000))
			if _, err := x.query(ring.Query{ID: "large", Prompt: prompt, MaxTokens: 8}); !errors.As(err, new(ring.TooLarge)) {
				x.t.Error(err)
			}
		}},
	}
}

func drifts10to12() []drift {
	return []drift{
		{rule: "R10", what: "memory is not back", world: func(c *ringsim.Config) {
			for i := range c.Hosts {
				c.Hosts[i].Memory, c.Hosts[i].Back = 80<<30, time.Hour
			}
		}, before: func(x *trial) {
			o := older(x, "step36")
			o.mustLoad()
			for i := range 4 {
				o.unload(i)
			}
		}, symptom: failed(0, 4, ring.Failed, "out of memory at ", time.Minute, 15*time.Minute)},
		{rule: "R11", what: "slots leaked", world: func(c *ringsim.Config) { c.Hosts[0].Slots = 8 }, before: func(x *trial) {
			o := older(x, "step36")
			o.mustLoad()
			for i := 0; x.inspect(h1).Slots.Free > 0; i++ {
				rude := caller(x.t, x.w, fmt.Sprintf("rude%d", i), generation)
				if _, err := rude.Session(x.t.Context(), o.route); err != nil {
					x.t.Fatal(err)
				}
				rude.Vanish()
			}
		}, symptom: func(x *trial, got []answered) {
			want(x.t, got, ring.Succeeded, ring.Present, "")
			ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
			defer cancel()
			s, err := x.Session(ctx, x.route) // the last that gets in
			if err != nil {
				x.t.Fatal(err)
			}
			if _, err := x.Inspect(ctx, "", h1); !errors.As(err, new(ring.NoAnswer)) {
				x.t.Errorf("one more: %v", err)
			}
			still, cancel := context.WithTimeout(x.t.Context(), time.Minute)
			defer cancel()
			if r, err := s.Request(still, ring.Query{ID: "old", Prompt: ringsim.Render("x"), MaxTokens: 32}); err != nil || r.Stop != ring.StopEnd {
				x.t.Errorf("who is in is served: %+v %v", r, err)
			}
			s.Finish(still)
		}},
		{rule: "R12", what: "another generation", before: func(x *trial) {
			o := older(x, "step36")
			o.mustLoad()
			x.view.Replaces = &ring.Intent{Ring: "step36", Generation: generation - 101}
			for i, h := range o.route.Stages {
				x.view.Replaces.Stages = append(x.view.Replaces.Stages, ring.IntentStage{Node: h.Node, Host: []string{"h1", "h1", "h2", "h2"}[i], Agent: h.Agent})
			}
		}, symptom: func(x *trial, got []answered) {
			for _, s := range x.view.Replaces.Stages {
				c, err := x.view.Replaces.Unload(s)
				if err != nil {
					x.t.Fatal(err)
				}
				if a, err := x.Unload(x.t.Context(), c); err != nil || a.Status != ring.Rejected || a.Resource != ring.Present {
					x.t.Errorf("%+v %v", a, err)
				}
			}
		}},
	}
}

func drifts13and14() []drift {
	return []drift{
		{rule: "R13", what: "a gap", view: func(v *ring.View) { v.Plan.Stages[1].Layers[0] = 13 }, symptom: func(x *trial, got []answered) {
			want(x.t, got, ring.Succeeded, ring.Present, "")
			if r, err := x.ask("one"); err != nil || r.Stop != ring.StopLength {
				x.t.Errorf("%+v %v", r, err)
			}
		}},
		{rule: "R13", what: "another cache", tamper: func(i int, c *ring.Command) {
			body(c, func(b *ring.StageLoad) { b.KV[1]++ })
		}, symptom: func(x *trial, got []answered) {
			want(x.t, got, ring.Succeeded, ring.Present, "")
			if r, err := x.ask("one"); err != nil || r.Stop != ring.StopLength {
				x.t.Errorf("%+v %v", r, err)
			}
		}},
		{rule: "R14", what: "two releasers", view: func(v *ring.View) { v.Lease.Other = "lane-b" }, meanwhile: func(x *trial) {
			other := caller(x.t, x.w, "other", generation+1) // it begins at the other end
			want(x.t, other.send([]ring.Command{other.command(3, ring.ContentLoad, other.body[3])}), ring.Succeeded, ring.Present, "")
		}, symptom: func(x *trial, got []answered) {
			want(x.t, got[:3], ring.Succeeded, ring.Present, "")
			want(x.t, got[3:], ring.Rejected, ring.Present, "node id is in use")
			for _, load := range []uint64{generation, generation + 1} {
				x.route.Load = load
				if _, err := x.ask("whose"); !errors.As(err, new(ring.StageFailed)) {
					x.t.Errorf("load %d: %v", load, err)
				}
			}
		}},
		{rule: "W1", what: "truncated weights", world: func(c *ringsim.Config) { c.Hosts[0].Models[0].Bytes -= 1 << 30 },
			symptom: failed(0, 2, ring.Failed, "truncated", wholeLoad-time.Minute, wholeLoad+2*time.Minute)},
	}
}

// older is an earlier load of a ring, by somebody.
func older(x *trial, name string) *careless {
	o := caller(x.t, x.w, "older", generation-100)
	for i := range o.meta {
		o.route.Stages[i].Node = fmt.Sprintf("%s-s%d", name, i)
		o.meta[i].Node = o.route.Stages[i].Node
	}
	return o
}
