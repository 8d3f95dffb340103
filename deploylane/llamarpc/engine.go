package llamarpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// Config says how the parts are started.
type Config struct {
	Server  []string       // llama.cpp's server, with whatever must stand before it
	Listen  string         // address and port of the head; the loopback
	Threads int            // of the head; more than there are cores spin
	Stages  []string       // addresses and ports of all RPC servers, in ring order
	Private []netip.Prefix // where stages may be, beside the loopback
	Log     string         // file of the head's output
	Release string         // as the ring plan names it
}

// Engine drives one ring. A stage's agent is its RPC server; its identity is the address that is dialled, since the
// server knows no other.
type Engine struct {
	cfg Config
	ctx context.Context

	mu     sync.Mutex
	loads  map[uint64]*load // by generation
	events []ring.Event
}

var _ ring.Engine = (*Engine)(nil)

// load is one ring in the making, or made.
type load struct {
	bodies map[string]ring.StageLoad // node → its command
	agents map[string]string         // node → its agent
	done   chan struct{}             // closed when the head is up, or is not to be
	head   *head
	err    error
}

// New makes an engine whose processes end with ctx.
func New(ctx context.Context, cfg Config) *Engine {
	return &Engine{cfg: cfg, ctx: ctx, loads: map[uint64]*load{}}
}

func (e *Engine) note(hop, kind, node string, generation uint64, detail string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ring.Event{Number: uint64(len(e.events) + 1), At: time.Now(), Hop: hop, Kind: kind, Node: node, Generation: generation, Detail: detail})
}

// Events is ring.Engine's.
func (e *Engine) Events(_ context.Context, after uint64) ([]ring.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]ring.Event(nil), e.events[min(after, uint64(len(e.events))):]...), nil
}

// Inspect is ring.Engine's. Only the head dials stages, and it runs here: there is no other point of view.
func (e *Engine) Inspect(ctx context.Context, from ring.Viewpoint, address string) (ring.Inspection, error) {
	if from != "" {
		return ring.Inspection{}, ring.Unreachable{From: from, Address: address, Why: "stages of this engine are dialled by its head alone, which runs here"}
	}
	h, err := Ask(ctx, address)
	if err != nil {
		return ring.Inspection{}, err
	}
	in := ring.Inspection{Dialled: address, Agent: address, Release: e.cfg.Release, Nodes: []ring.Node{},
		Native: &ring.Native{Release: h.Protocol(), Backend: "rpc", Hello: []string{"rpc=" + h.Protocol()}}}
	if in.Devices, err = e.devices(ctx, address); err != nil {
		return ring.Inspection{}, err
	}
	if len(h.Devices) > 0 {
		in.Memory = &ring.Memory{Total: h.Devices[0].Total, Free: h.Devices[0].Free}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for g, l := range e.loads {
		for node, agent := range l.agents {
			if agent == address {
				in.Nodes = append(in.Nodes, l.node(node, g))
			}
		}
	}
	return in, nil
}

// node is how a stage stands.
func (l *load) node(id string, generation uint64) ring.Node {
	out := ring.Node{ID: id, Generation: generation, Load: &generation, State: "loading", Resource: ring.Present}
	select {
	case <-l.done:
		out.State = "ready"
		if why := l.head.gone(); why != "" {
			out.State, out.Resource = "failed:"+why, ring.Absent
		}
	default:
	}
	return out
}

// Load is ring.Engine's. A stage of this engine is loaded by the head, which needs all of them: the LOAD of each waits
// until those of the others have come.
func (e *Engine) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	began, m := time.Now(), c.Envelope.Meta
	ans := ring.Answer{Schema: 1, Agent: c.Target.Agent, Node: m.Node, Generation: m.Generation, Status: ring.Rejected, Resource: ring.Absent}
	var b ring.StageLoad
	if err := json.Unmarshal(c.Envelope.Body, &b); err != nil {
		ans.Detail = "the adapter cannot read its command: " + err.Error()
		return ans, nil
	}
	if why := e.refuses(c, b); why != "" {
		ans.Detail = why
		return ans, nil
	}
	l, last, err := e.join(c, b)
	if err != nil {
		ans.Detail, ans.Resource = err.Error(), ring.Present
		return ans, nil
	}
	e.note(c.Target.Agent, "queued", m.Node, m.Generation, "")
	if last {
		l.head, l.err = e.start(ctx, b, l)
		close(l.done)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		return ring.Answer{}, ring.NoAnswer{To: c.Target.String(), What: "LOAD", After: time.Since(began), Last: fmt.Sprintf("here (waiting for %d stages)", len(b.Stages))}
	}
	if l.err != nil {
		ans.Status, ans.Detail = ring.Failed, l.err.Error()
		e.mu.Lock()
		delete(e.loads, m.Generation)
		e.mu.Unlock()
		return ans, nil
	}
	ans.Status, ans.Resource = ring.Succeeded, ring.Present
	return ans, nil
}

func (e *Engine) refuses(c ring.Command, b ring.StageLoad) string {
	m := c.Envelope.Meta
	switch err := Placed(b.Endpoint, e.cfg.Private); {
	case c.Target.Kind != ring.ToAgent:
		return "a LOAD goes to an agent"
	case err != nil:
		return err.Error()
	case b.Load != m.Generation:
		return fmt.Sprintf("generation %d differs from load generation %d", m.Generation, b.Load)
	case b.Stage < 0 || b.Stage >= len(b.Stages) || b.Stages[b.Stage].Node != m.Node:
		return fmt.Sprintf("stage %d of %d is not node %s", b.Stage, len(b.Stages), m.Node)
	case strings.HasPrefix(b.Model, "-") || strings.ContainsAny(b.Device+b.Endpoint, ",- "):
		return "a model, a device or an endpoint that would be read as something else"
	}
	return ""
}

// join adds a stage to its load; last: all are there.
func (e *Engine) join(c ring.Command, b ring.StageLoad) (l *load, last bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	node := c.Envelope.Meta.Node
	for g, other := range e.loads {
		if _, there := other.agents[node]; there || g != b.Load {
			return nil, false, fmt.Errorf("node %s: the ring is in use by load %d", node, g)
		}
	}
	if l = e.loads[b.Load]; l == nil {
		l = &load{bodies: map[string]ring.StageLoad{}, agents: map[string]string{}, done: make(chan struct{})}
		e.loads[b.Load] = l
	}
	l.bodies[node], l.agents[node] = b, c.Target.Agent
	return l, len(l.bodies) == len(b.Stages), nil
}

// Unload is ring.Engine's. The first one ends the head, and with it every stage's memory.
func (e *Engine) Unload(_ context.Context, c ring.Command) (ring.Answer, error) {
	m := c.Envelope.Meta
	ans := ring.Answer{Schema: 1, Agent: c.Target.Agent, Node: m.Node, Generation: m.Generation, Status: ring.Rejected, Resource: ring.Absent, Detail: "no such node"}
	e.mu.Lock()
	l := e.loads[m.Generation]
	if l == nil || l.agents[m.Node] == "" {
		e.mu.Unlock()
		return ans, nil
	}
	select {
	case <-l.done:
	default:
		e.mu.Unlock()
		ans.Resource, ans.Detail = ring.Present, "busy: loading"
		return ans, nil
	}
	delete(l.agents, m.Node)
	if len(l.agents) == 0 {
		delete(e.loads, m.Generation)
	}
	e.mu.Unlock()
	l.head.end()
	ans.Status, ans.Detail = ring.Succeeded, ""
	return ans, nil
}
