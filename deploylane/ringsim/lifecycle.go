package ringsim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// lifecycle takes what is addressed to the agent, one after the other; a LOAD goes on beside.
func (a *agent) lifecycle() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case f := <-a.inbox:
			if !a.gate.wait(a.ctx) {
				return
			}
			switch f.Kind {
			case kindInspect:
				a.inspect(f)
			case kindLoad:
				if a.journal() {
					a.load(f)
				}
			case kindUnload:
				if a.journal() {
					a.unload(f)
				}
			}
		}
	}
}

// journal writes that a command came. One that is on and cannot be written ends the agent: it starts, and dies at the
// first event.
func (a *agent) journal() bool {
	j := a.m.host().Journal
	if j.Off || a.w.cfg.Rules.JournalOptional || !j.ReadOnly && j.Free > 0 {
		return true
	}
	why := "no space left on device"
	if j.ReadOnly {
		why = "permission denied"
	}
	a.log(fmt.Sprintf("fatal: journal %s: %s", j.Dir, why))
	a.kill()
	return false
}

// answer sends a lifecycle result to whoever sent the command.
func (a *agent) answer(f frame, m ring.Metadata, s ring.Status, r ring.Resource, detail string, ready ...uint64) {
	ans := ring.Answer{Schema: 1, Agent: a.m.Advertise, Node: m.Node, Generation: m.Generation, Status: s, Resource: r, Detail: detail}
	if len(ready) == 2 {
		ans.Bound, ans.Memory = ready[0], ready[1]
	}
	if s != ring.Succeeded {
		a.log(fmt.Sprintf("%s %s@%d: %s: %s", f.Kind, m.Node, m.Generation, s, detail))
	}
	a.w.note(a.m.Name, "%s %s@%d %s/%s %s", f.Kind, m.Node, m.Generation, s, r, detail)
	a.send(frame{ID: "result/" + f.ID, Kind: kindResult, Content: ring.ContentResult, To: f.Answer, Body: pack(work{Result: &ans})})
}

func (a *agent) inspect(f frame) {
	in := a.w.inspection(a.m)
	in.Slots = &ring.Slots{Total: a.m.Slots, Free: cap(a.slots) - len(a.slots)}
	in.Nodes = []ring.Node{}
	for _, n := range a.list() {
		in.Nodes = append(in.Nodes, n.seen())
	}
	a.m.mu.Lock()
	for id, g := range a.m.tombs {
		in.Buried = append(in.Buried, ring.Tombstone{ID: id, Generation: g})
	}
	a.m.mu.Unlock()
	in.Buried = slices.DeleteFunc(in.Buried, func(t ring.Tombstone) bool { return a.find(t.ID, t.Generation) != nil })
	slices.SortFunc(in.Buried, func(x, y ring.Tombstone) int {
		if x.ID < y.ID {
			return -1
		}
		return 1
	})
	a.send(frame{ID: "inspected/" + f.ID, Kind: kindInspected, To: f.Answer, Body: pack(work{Report: &in})})
}

// load is rules 3 and 4: what the agent itself looks at, before its adapter begins.
func (a *agent) load(f frame) {
	e, err := ring.DecodeEnvelope(f.Content, f.Body)
	if err != nil {
		a.answer(f, ring.Metadata{}, ring.Rejected, ring.Unknown, err.Error())
		return
	}
	m, rules := e.Meta, a.w.cfg.Rules
	if a.m.host().Journal.Off && !rules.JournalOptional {
		a.answer(f, m, ring.Rejected, ring.Absent, "operational journal is required before model LOAD")
		return
	}
	if m.Adapter != ring.AdapterKind || m.AdapterContent != ring.AdapterContentLoad {
		a.answer(f, m, ring.Rejected, ring.Absent, fmt.Sprintf("no adapter for %q %q", m.Adapter, m.AdapterContent))
		return
	}
	if a.find(m.Node, 0) != nil {
		a.answer(f, m, ring.Rejected, ring.Present, "node id is in use")
		return
	}
	if last, ok := a.m.bury(m.Node, m.Generation, rules.ReuseGenerations); !ok {
		a.answer(f, m, ring.Rejected, ring.Absent, fmt.Sprintf("StaleNode: generation %d is not above %d", m.Generation, last))
		return
	}
	var body ring.StageLoad
	if err := json.Unmarshal(e.Body, &body); err != nil {
		a.answer(f, m, ring.Failed, ring.Absent, "the adapter cannot read its command: "+err.Error())
		return
	}
	n := newNode(a, m, body)
	a.mu.Lock()
	if a.ctx.Err() != nil {
		a.mu.Unlock()
		return
	}
	a.nodes[n.id] = n
	a.mu.Unlock()
	a.w.wg.Go(func() { a.bringUp(f, n) })
}

// bringUp is the adapter's part of a LOAD, and its account.
func (a *agent) bringUp(f frame, n *node) {
	began := time.Now()
	ready, err := a.start(n)
	spend := Spend{Host: a.m.Name, Node: n.id, Generation: n.generation, Load: n.body.Load, Began: began.Sub(a.w.begin), Status: ring.Succeeded}
	if err != nil {
		spend.Status, spend.Detail = ring.Failed, err.Error()
	}
	spend.Took = time.Since(began)
	a.w.mu.Lock()
	a.w.spends = append(a.w.spends, spend)
	a.w.mu.Unlock()
	if a.ctx.Err() != nil {
		n.server.kill()
		return
	}
	if err != nil {
		n.server.kill()
		a.mu.Lock()
		delete(a.nodes, n.id)
		a.mu.Unlock()
		a.answer(f, n.meta, ring.Failed, ring.Absent, err.Error())
		return
	}
	n.become("ready")
	a.w.wg.Go(n.run)
	a.w.wg.Go(n.watch)
	a.answer(f, n.meta, ring.Succeeded, ring.Present, "", ready, n.server.resident())
}

// unload is rule 10.
func (a *agent) unload(f frame) {
	e, err := ring.DecodeEnvelope(f.Content, f.Body)
	if err != nil {
		a.answer(f, ring.Metadata{}, ring.Rejected, ring.Unknown, err.Error())
		return
	}
	m := e.Meta
	n := a.find(m.Node, 0)
	if n == nil {
		a.answer(f, m, ring.Rejected, ring.Absent, "no such node")
		return
	}
	var body ring.StageUnload
	bad := len(e.Body) > 0 && json.Unmarshal(e.Body, &body) != nil
	saw := n.seen()
	switch {
	case bad:
		a.answer(f, m, ring.Rejected, ring.Present, "the adapter cannot read its command")
	case m.Generation != n.generation:
		a.answer(f, m, ring.Rejected, ring.Present, fmt.Sprintf("generation %d is not that of the node, %d", m.Generation, n.generation))
	case len(e.Body) > 0 && body.Load != n.body.Load:
		a.answer(f, m, ring.Rejected, ring.Present, stale)
	case saw.State == "loading" || saw.Busy > 0:
		a.answer(f, m, ring.Rejected, ring.Present, fmt.Sprintf("busy: %s, %d requests in flight", saw.State, saw.Busy))
	default:
		a.mu.Lock()
		delete(a.nodes, n.id)
		a.mu.Unlock()
		n.server.kill()
		a.answer(f, m, ring.Succeeded, ring.Absent, "")
	}
}
