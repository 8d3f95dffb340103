package ring

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
)

// maxGeneration is the largest that JSON readers of every kind take exactly.
const maxGeneration = 1<<53 - 1

// Capacities of a node's queues in its agent; the engine's defaults.
const (
	queueEvents   = 256
	retainedSlots = 64
)

// Loads builds the LOAD of every stage, in ring order. One variable, generation, is written wherever the engine compares
// two numbers; layers, KV range, overrides and bounds are derived. models says where the weights are on a host.
func (p *Plan) Loads(w Weights, generation uint64, models func(host string) (string, bool)) ([]Command, error) {
	var hops []Hop
	for _, s := range p.Stages {
		hops = append(hops, Hop{Agent: p.Host(s.Host).Agent, Node: s.Node})
	}
	var out []Command
	for i, s := range p.Stages {
		h := p.Host(s.Host)
		path, ok := models(s.Host)
		if !ok {
			return nil, fmt.Errorf("host %s has no weights with %s: fetch them there first", s.Host, w.Digest)
		}
		bound, err := p.BoundOf(w, i)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", s.Node, err)
		}
		body, err := json.Marshal(StageLoad{Schema: 4, Ring: p.Ring, Load: generation, Stage: i, Stages: hops, Model: path, Digest: w.Digest,
			Layers: s.Layers, KV: s.Layers, Override: overrides(s.Layers, w.Layers), Device: s.Device, Mask: s.Mask, Endpoint: s.Endpoint,
			Batch: int(p.Shape.Batch), UBatch: int(p.Shape.Ubatch), Context: int(p.Shape.Context), Parallel: int(p.Shape.Parallel),
			Output: int(p.Shape.Output), Bound: bound, Needs: p.Engine.Needs})
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", s.Node, err)
		}
		out = append(out, Command{Via: h.Agent, Target: Target{Kind: ToAgent, Agent: h.Agent}, Envelope: Envelope{Content: ContentLoad, Body: body,
			Meta: Metadata{Schema: 1, Node: s.Node, Generation: generation, Adapter: AdapterKind, AdapterContent: AdapterContentLoad,
				Queue: queueEvents, Completion: p.Shape.Completion, RetainedSlots: retainedSlots, Retained: h.Retained}}})
	}
	return out, nil
}

// overrides keep the tensors of layers that a stage does not own off its device.
func overrides(own [2]int, layers int) []string {
	var out []string
	for _, r := range [][2]int{{0, own[0]}, {own[1], layers}} {
		if r[0] < r[1] {
			out = append(out, "blk.["+strconv.Itoa(r[0])+"-"+strconv.Itoa(r[1]-1)+"]=CPU")
		}
	}
	return out
}

// Unload builds the UNLOAD of one stage of a load.
func (i *Intent) Unload(s IntentStage) (Command, error) {
	body, err := json.Marshal(StageUnload{Schema: 4, Ring: i.Ring, Load: i.Generation})
	if err != nil {
		return Command{}, err
	}
	return Command{Via: s.Agent, Target: Target{Kind: ToAgent, Agent: s.Agent}, Envelope: Envelope{Content: ContentUnload, Body: body,
		Meta: Metadata{Schema: 1, Node: s.Node, Generation: i.Generation, Adapter: AdapterKind, AdapterContent: AdapterContentUnload}}}, nil
}

// CheckCommand is the guard of a single command, right before its first byte (R1, R2, R12, R13): nil, or what is wrong.
// look is the newest inspection of the agent that the command goes to.
func CheckCommand(p *Plan, i *Intent, c Command, look Look) []preflight.Finding {
	var f findings
	m := c.Envelope.Meta
	op := map[string]string{ContentLoad: "LOAD", ContentUnload: "UNLOAD"}[c.Envelope.Content]
	subject := fmt.Sprintf("%s for node %q", op, m.Node)
	at := slices.IndexFunc(i.Stages, func(s IntentStage) bool { return s.Node == m.Node })
	switch {
	case op == "" || at < 0:
		f.refuse(subject, fmt.Sprintf("content %q for a node that generation %d does not name", c.Envelope.Content, i.Generation), "a lifecycle command of this load", "build commands from the record of the load alone")
		return named("R1", f)
	case c.Target.Kind != ToAgent || c.Target.Agent != i.Stages[at].Agent:
		f.refuse(subject, fmt.Sprintf("it goes to %s", c.Target), "agent "+i.Stages[at].Agent, "a node exists only after its LOAD; an event for an unknown node leaves the agent and is dropped")
	case look.Err != nil || look.Inspection.Agent != c.Target.Agent || look.Inspection.Dialled != c.Via || time.Since(look.At) > inspectAge:
		f.refuse(subject, fmt.Sprintf("the agent at %s was last seen as %q %s ago (%v)", c.Via, look.Inspection.Agent, time.Since(look.At).Round(time.Second), look.Err), fmt.Sprintf("an INSPECT answered by %s within %s from the address that is used", c.Target.Agent, inspectAge), "inspect it again")
	}
	n := slices.IndexFunc(look.Inspection.Nodes, func(n Node) bool { return n.ID == m.Node })
	out := named("R1", f)
	f = nil
	if op == "LOAD" {
		if n >= 0 {
			f.refuse(subject, fmt.Sprintf("it is registered at generation %d", look.Inspection.Nodes[n].Generation), "a node that does not exist yet", "unload it by the record of its load, or find out whose it is")
		}
		out = append(out, named("R1", f)...)
		return append(out, checkLoad(p, i, c, subject)...)
	}
	if n < 0 {
		f.refuse(subject, "it does not exist", "an UNLOAD of exactly what exists: one for a node that is gone makes the whole command ambiguous", "inspect again and unload what is there")
	} else if g := look.Inspection.Nodes[n].Generation; g != i.Generation {
		f.refuse(subject, fmt.Sprintf("it exists at generation %d", g), fmt.Sprintf("%d, of this record", i.Generation), "find the record that names the other")
	}
	out = append(out, named("R12", f)...)
	var body StageUnload
	if err := json.Unmarshal(c.Envelope.Body, &body); err != nil || body.Load != m.Generation || m.Generation != i.Generation {
		out = append(out, named("R2", twoNumbers(subject, m.Generation, body.Load, i.Generation))...)
	}
	return out
}

func twoNumbers(subject string, node, load, recorded uint64) findings {
	var f findings
	f.refuse(subject, fmt.Sprintf("generation %d differs from load generation %d (recorded: %d)", node, load, recorded), "one number: a ring loaded with two loses its head at the first release", "write both from one variable")
	return f
}

// checkLoad: the numbers in a LOAD are those that they must equal.
func checkLoad(p *Plan, i *Intent, c Command, subject string) []preflight.Finding {
	var out []preflight.Finding
	var body StageLoad
	var f findings
	m := c.Envelope.Meta
	if err := json.Unmarshal(c.Envelope.Body, &body); err != nil {
		f.refuse(subject, "its body is not the adapter's command: "+err.Error(), "load-v4", "build the body with this lane's own types")
		return named("R1", f)
	}
	if body.Load != m.Generation || m.Generation != i.Generation {
		out = append(out, named("R2", twoNumbers(subject, m.Generation, body.Load, i.Generation))...)
	}
	s := slices.IndexFunc(p.Stages, func(s Stage) bool { return s.Node == m.Node })
	if s < 0 || body.Layers != p.Stages[s].Layers || body.KV != body.Layers || body.Stage != s {
		f.refuse(subject, fmt.Sprintf("layers %v, KV %v", body.Layers, body.KV), "the layers of its stage, twice", "derive both from the plan's stage")
		return append(out, named("R13", f)...)
	}
	if want, err := p.BoundOf(i.Weights, s); err != nil || body.Bound != want || m.Completion != p.Shape.Completion {
		f.refuse(subject, fmt.Sprintf("result bound %s, completion cap %s", digits(body.Bound), digits(m.Completion)), fmt.Sprintf("%s and %s", digits(want), digits(p.Shape.Completion)), "the bound is derived, never remembered")
		out = append(out, named("R3", f)...)
	}
	return out
}

func named(rule string, f findings) []preflight.Finding {
	for i := range f {
		f[i].Rule = rule
	}
	return f
}
