package ringsim

import (
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// The engine's own sentences.
const (
	stale     = "session load generation is stale"
	census    = "release owner census generation differs from source"
	oversized = "request exceeds the loaded resource profile"
)

// node is a loaded part of a model, registered under an id and a generation.
type node struct {
	a          *agent
	id         string
	generation uint64
	meta       ring.Metadata
	body       ring.StageLoad
	model      Weights
	server     *server
	queue      chan frame

	mu    sync.Mutex
	state string
	open  map[string]request // in flight
}

// request is what a stage keeps of one.
type request struct {
	caller target
	text   []byte // the tail's
	tokens int
}

func newNode(a *agent, m ring.Metadata, body ring.StageLoad) *node {
	depth := m.Queue
	if depth < 1 || depth > 1<<12 {
		depth = queueDepth
	}
	return &node{a: a, id: m.Node, generation: m.Generation, meta: m, body: body, server: newServer(a),
		queue: make(chan frame, depth), state: "loading", open: map[string]request{}}
}

func (n *node) become(state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = state
	n.a.w.note(n.a.m.Name, "%s@%d is %s", n.id, n.generation, state)
}

func (n *node) now() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *node) seen() ring.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	load := n.body.Load
	out := ring.Node{ID: n.id, Generation: n.generation, Load: &load, State: n.state, Resource: ring.Present, Busy: len(n.open), Resident: n.server.resident()}
	if n.server.ctx.Err() != nil {
		out.Resource = ring.Absent
	}
	return out
}

// watch notices that the native server is gone.
func (n *node) watch() {
	<-n.server.ctx.Done()
	if n.a.ctx.Err() == nil && n.a.find(n.id, n.generation) == n {
		n.become("failed:native server exited")
		n.a.log(fmt.Sprintf("%s@%d: native server exited", n.id, n.generation))
	}
}

// run is the node's own loop; it ends with its server, or where rule 7 ends it.
func (n *node) run() {
	for {
		select {
		case <-n.server.ctx.Done():
			return
		case f := <-n.queue:
			if !n.a.gate.wait(n.server.ctx) || !n.server.gate.wait(n.server.ctx) {
				return
			}
			w, err := unpack(f)
			if err != nil {
				continue
			}
			if !n.take(f, w) {
				return
			}
		}
	}
}

// take does one event; false: the node stops.
func (n *node) take(f frame, w work) bool {
	switch f.Kind {
	case kindSession:
		if n.agrees(f, w) {
			n.tell(f, kindReady, work{Request: w.Request, State: n.now()})
		}
	case kindInfer:
		if n.agrees(f, w) && n.fits(f, w) {
			w.Mark, w.Round = 0, 0
			n.compute(f, w)
		}
	case kindCapsule:
		if n.agrees(f, w) {
			n.compute(f, w)
		}
	case kindReceipt:
		if w.Load != n.generation && !n.a.w.cfg.Rules.ForgivingRelease {
			n.become("stopped: " + census)
			return false
		}
		n.release(f, w)
	case kindRelease:
		n.release(f, w)
	}
	return true
}

// agrees is rule 6: a wrong load generation is not only refused, it spoils the stage until the next LOAD.
func (n *node) agrees(f frame, w work) bool {
	state := n.now()
	if state == "ready" && w.Load != n.body.Load {
		state = "failed:" + stale
		if !n.a.w.cfg.Rules.LenientGeneration {
			n.become(state)
		}
	}
	if state == "ready" {
		return true
	}
	n.tell(f, kindFailed, work{Request: w.Request, State: state})
	return false
}

func (n *node) fits(f frame, w work) bool {
	b := n.body
	prompt := (len(w.Prompt) + 3) / 4
	if w.Max <= b.Output && prompt+w.Max <= b.Context && w.Max > 0 {
		return true
	}
	n.tell(f, kindTooLarge, work{Request: w.Request, State: oversized})
	return false
}

// tell sends the caller a word of this stage.
func (n *node) tell(f frame, kind string, w work) {
	w.Node, w.Gen, w.Load, w.Source = n.id, n.generation, n.body.Load, n.a.m.Advertise
	n.a.send(frame{ID: fmt.Sprintf("%s/%s@%d/%s", kind, n.id, n.generation, f.ID), Kind: kind, To: f.Answer, Answer: f.Answer, Body: pack(w)})
}

// pass sends an event to another stage, at the address that its agent advertises, from this host.
func (n *node) pass(stage int, kind string, f frame, w work) {
	hop := n.body.Stages[stage]
	n.a.send(frame{ID: fmt.Sprintf("%s/%s/%d/%d", kind, w.Request, w.Round, stage), Kind: kind,
		To: target{Kind: ring.ToNode, Agent: hop.Agent, Node: hop.Node}, Answer: f.Answer, Body: pack(w)})
}

// compute takes one round through this stage's layers. The tail ends a round with a token: the next round, or the output,
// and then the receipt.
func (n *node) compute(f frame, w work) {
	n.mu.Lock()
	q, known := n.open[w.Request]
	if !known {
		q.caller = f.Answer
	}
	n.open[w.Request] = q
	n.mu.Unlock()
	if !known {
		n.tell(f, kindAccepted, work{Request: w.Request})
	}
	if !sleep(n.server.ctx, 5*time.Millisecond) || !n.server.gate.wait(n.server.ctx) {
		return
	}
	b := n.body
	if b.Stage == 0 {
		w.Mark = uint64(w.Round)
	}
	if b.KV != b.Layers { // a layer without its cache
		w.Mark++
	}
	w.Mark = through(w.Mark, b.Layers[0], b.Layers[1])
	if b.Stage < len(b.Stages)-1 {
		n.pass(b.Stage+1, kindCapsule, f, w)
		return
	}
	token, end := speak(w.Prompt, w.Round, w.Mark, n.model.Layers, n.a.w.cfg.Rules.ServerHasTemplates)
	q.text, q.tokens = append(q.text, token...), q.tokens+1
	n.mu.Lock()
	n.open[w.Request] = q
	n.mu.Unlock()
	if w.Round == 0 {
		n.tell(f, kindFirst, work{Request: w.Request})
	}
	w.Round++
	if !end && w.Round < w.Max {
		n.pass(0, kindCapsule, f, w)
		return
	}
	stop := ring.StopLength
	if end {
		stop = ring.StopEnd
	}
	n.tell(f, kindOutput, work{Request: w.Request, Text: q.text, Round: q.tokens, Stop: stop})
	n.pass(0, kindReceipt, f, work{Request: w.Request, Load: n.body.Load, Round: w.Round})
}

// release closes the account of a request here and sends the word on; the tail tells the caller.
func (n *node) release(f frame, w work) {
	n.mu.Lock()
	delete(n.open, w.Request)
	n.mu.Unlock()
	w.Stages++
	if n.body.Stage < len(n.body.Stages)-1 {
		n.pass(n.body.Stage+1, kindRelease, f, w)
		return
	}
	n.tell(f, kindClosed, work{Request: w.Request, Stages: w.Stages})
}
