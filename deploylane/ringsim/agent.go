package ringsim

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/headway-run/headway/deploylane/ring"
)

// queueDepth is of an agent's own queue and of a link, events.
const queueDepth = 64

// agent is the one process of a host: connections, the broker, and the nodes that it holds.
type agent struct {
	w    *World
	m    *machine
	ctx  context.Context
	end  context.CancelFunc
	l    net.Listener
	gate gate

	slots chan struct{}
	inbox chan frame

	mu    sync.Mutex
	conns map[net.Conn]bool
	outer map[string]*link // channel → its connection
	links map[string]*link // address → the connection to another agent
	nodes map[string]*node
	seen  map[string]bool // the duplicate ledger
}

func newAgent(w *World, m *machine, l net.Listener) *agent {
	a := &agent{w: w, m: m, l: l,
		slots: make(chan struct{}, m.Slots), inbox: make(chan frame, queueDepth),
		conns: map[net.Conn]bool{}, outer: map[string]*link{}, links: map[string]*link{},
		nodes: map[string]*node{}, seen: map[string]bool{}}
	a.ctx, a.end = context.WithCancel(w.ctx)
	return a
}

func (a *agent) log(line string) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.lines = append(a.m.lines, line)
}

// kill is SIGKILL: no goodbye on any connection, and the stage servers go with their parent.
func (a *agent) kill() {
	a.end()
	a.l.Close()
	a.mu.Lock()
	conns, nodes := a.conns, a.nodes
	a.conns, a.nodes = map[net.Conn]bool{}, map[string]*node{}
	a.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	for _, n := range nodes {
		n.server.kill()
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.m.agent == a {
		a.m.agent = nil
	}
}

// accept takes connections while there is a slot. At none free the next one waits, unread, and nobody is told.
func (a *agent) accept() {
	for {
		c, err := a.l.Accept()
		if err != nil || !a.hold(c) {
			return
		}
		select {
		case a.slots <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		if !a.gate.wait(a.ctx) {
			return
		}
		a.w.wg.Go(func() { a.serve(c) })
	}
}

// hold keeps a connection in the list that a kill closes.
func (a *agent) hold(c net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		c.Close()
		return false
	}
	a.conns[c] = true
	return true
}

func (a *agent) forget(c net.Conn) {
	c.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c)
}

// serve reads one connection to its end. Without a FINISH its slot is gone for good.
func (a *agent) serve(c net.Conn) {
	back := newLink(a, c, "a caller")
	finished, channel := false, ""
	defer func() {
		if channel != "" {
			a.mu.Lock()
			if a.outer[channel] == back {
				delete(a.outer, channel)
			}
			a.mu.Unlock()
		}
		back.close()
		a.forget(c)
		if finished || a.w.cfg.Rules.FinishOptional {
			<-a.slots
		} else if a.ctx.Err() == nil {
			a.w.note(a.m.Name, "slot leaked")
		}
	}()
	for {
		f, err := readFrame(c)
		if err != nil || !a.gate.wait(a.ctx) {
			return
		}
		switch f.Kind {
		case kindFinish:
			finished = true
			back.last(f)
			return
		case kindRelay:
			a.relay(c, f)
			finished = true
			return
		}
		if ch := f.Answer.Channel; ch != "" && f.Answer.Agent == "" {
			f.Answer.Agent, channel = a.m.Advertise, ch // this agent is the caller's ingress
			back.call(ch)
			a.mu.Lock()
			a.outer[ch] = back
			a.mu.Unlock()
		}
		if drop, double, by := a.strike(a.w.fates(a.m.Name, f.To.Node, "event/"+f.Kind, f.ID), a.server(f.To.Node)); drop {
			a.w.note(a.m.Name, "fault: dropped %s", f.ID)
		} else if by > 0 {
			a.w.wg.Go(func() {
				if sleep(a.ctx, by) {
					a.route(f, back)
				}
			})
		} else {
			a.route(f, back)
			if double {
				a.route(f, back)
			}
		}
	}
}

// route is the broker: it reads the target alone. from is where a hand-back goes; nil: nowhere.
func (a *agent) route(f frame, from *link) {
	if a.ctx.Err() != nil || a.duplicate(f.ID) {
		return
	}
	reply := func(kind string) {
		if from != nil && f.Answer.Channel != "" && acknowledged(f.Kind) {
			from.put(frame{ID: kind + "/" + a.m.Name + "/" + f.ID, Kind: kind, To: f.Answer, Body: pack(work{Request: f.ID, Source: a.m.Advertise})})
		}
	}
	if f.To.Kind == ring.ToAgent && f.To.Agent == "" {
		f.To.Agent = a.m.Advertise // an INSPECT asks whoever is here
	}
	if f.To.Agent != a.m.Advertise {
		a.forward(f, reply)
		return
	}
	var taken bool
	switch f.To.Kind {
	case toOuter:
		a.mu.Lock()
		l := a.outer[f.To.Channel]
		a.mu.Unlock()
		if l == nil {
			a.w.note(a.m.Name, "dropped %s: nobody listens on %s", f.ID, f.To.Channel)
			return
		}
		l.put(f)
		return
	case ring.ToAgent:
		taken = enqueue(a, a.inbox, f)
	case ring.ToNode:
		n := a.find(f.To.Node, f.To.Generation)
		if n == nil {
			a.unknown(f, reply)
			return
		}
		taken = enqueue(a, n.queue, f)
	}
	if taken {
		a.w.note(a.m.Name, "arrived %s", f.Kind)
		reply(kindQueued)
	} else {
		a.w.note(a.m.Name, "handed back %s: full", f.ID)
		reply(kindFull)
	}
}

// acknowledged says which kinds are: those that a caller sends.
func acknowledged(kind string) bool {
	switch kind {
	case kindInspect, kindLoad, kindUnload, kindSession, kindInfer:
		return true
	}
	return false
}

// unknown is rule 1: in the post's world an event for a node that is not there leaves the agent, and is then dropped
// where nobody looks; the caller was told that it is on its way.
func (a *agent) unknown(f frame, reply func(string)) {
	if a.w.cfg.Rules.RefuseUnknownNode {
		reply(kindNoNode)
		return
	}
	reply(kindQueued)
	a.w.note(a.m.Name, "dropped %s: no node %s@%d", f.ID, f.To.Node, f.To.Generation)
}

// enqueue puts an event into a queue; false: it is full, and the event is handed back.
func enqueue[T any](a *agent, q chan T, f T) bool {
	select {
	case q <- f:
		return true
	default:
	}
	if !a.w.cfg.Rules.UnboundedQueues {
		return false
	}
	a.w.wg.Go(func() {
		select {
		case q <- f:
		case <-a.ctx.Done():
		}
	})
	return true
}

// duplicate asks the ledger, which is bounded: old names are forgotten all at once.
func (a *agent) duplicate(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[id] {
		return true
	}
	if len(a.seen) >= 1<<16 {
		clear(a.seen)
	}
	a.seen[id] = true
	return false
}

// find is a node by id; generation 0 is whatever is there.
func (a *agent) find(id string, generation uint64) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[id]; n != nil && (generation == 0 || generation == n.generation) {
		return n
	}
	return nil
}

func (a *agent) server(id string) *server {
	if n := a.find(id, 0); id != "" && n != nil {
		return n.server
	}
	return nil
}

func (a *agent) list() []*node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*node
	for _, n := range a.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(x, y *node) int {
		if x.id < y.id {
			return -1
		}
		return 1
	})
	return out
}

// send starts an event of this agent's own on its way.
func (a *agent) send(f frame) { a.route(f, nil) }

// forward is for targets elsewhere: over the link to whatever address the identity spells. Nobody there: dropped,
// without a line in any log.
func (a *agent) forward(f frame, reply func(string)) {
	a.mu.Lock()
	l := a.links[f.To.Agent]
	if l == nil {
		l = newLink(a, nil, f.To.Agent)
		a.links[f.To.Agent] = l
		to := f.To.Agent
		a.w.wg.Go(func() { l.outbound(to) })
	}
	a.mu.Unlock()
	if l.put(f) {
		reply(kindQueued)
	} else {
		reply(kindFull)
	}
}
