package ringsim

import (
	"context"
	"sync"
	"time"
)

// Act is what a fault does.
type Act int

// The acts. Drop, Delay and Duplicate befall an event; the others an agent or the native server of a node.
const (
	Drop Act = iota + 1
	Delay
	Duplicate
	KillAgent
	FreezeAgent
	KillServer
	FreezeServer
)

// Fault befalls one step at one host. Steps are "event/<kind>" where an event arrives at a broker (load, unload, inspect,
// session, infer, capsule, receipt, release, ready, output, closed, result, …) and, inside a LOAD, "load/received",
// "load/spawned", "load/hello", "load/weights" (once per twentieth of them), "load/read", "load/device", "load/ready".
type Fault struct {
	Host string
	Node string // "": any
	At   string
	Nth  int // counted from 1 over the matching steps; 0: every one
	Do   Act
	By   time.Duration // of Delay
}

// Noise befalls events at random, out of the seed and the event's name; each a probability.
type Noise struct {
	Drop      float64
	Delay     float64 // by up to Most
	Duplicate float64
	Most      time.Duration
}

// fates says what befalls a step: the acts of the faults that match.
func (w *World) fates(host, node, at, event string) []Fault {
	var out []Fault
	w.mu.Lock()
	for i, f := range w.cfg.Faults {
		if f.Host != host || f.At != at || f.Node != "" && f.Node != node {
			continue
		}
		w.fired[i]++
		if f.Nth == 0 || f.Nth == w.fired[i] {
			out = append(out, f)
		}
	}
	w.mu.Unlock()
	n := w.cfg.Noise
	if event == "" || n == (Noise{}) {
		return out
	}
	seed := w.cfg.Seed
	if draw(seed, "drop", host, event) < n.Drop {
		out = append(out, Fault{Do: Drop})
	}
	if draw(seed, "duplicate", host, event) < n.Duplicate {
		out = append(out, Fault{Do: Duplicate})
	}
	if draw(seed, "delay", host, event) < n.Delay {
		out = append(out, Fault{Do: Delay, By: time.Duration(draw(seed, "by", host, event) * float64(n.Most))})
	}
	return out
}

// strike does to agent and server what faults say; for events it returns whether to drop or double it, and the delay.
func (a *agent) strike(faults []Fault, s *server) (drop, double bool, by time.Duration) {
	for _, f := range faults {
		switch f.Do {
		case Drop:
			drop = true
		case Duplicate:
			double = true
		case Delay:
			by += f.By
		case KillAgent:
			a.w.note(a.m.Name, "fault: agent killed")
			a.kill()
		case FreezeAgent:
			a.w.note(a.m.Name, "fault: agent frozen")
			a.gate.shut(true)
		case KillServer:
			if s != nil {
				s.kill()
			}
		case FreezeServer:
			if s != nil {
				s.gate.shut(true)
			}
		}
	}
	return drop, double, by
}

// step passes a step inside a LOAD; false: agent or server is gone.
func (a *agent) step(ctx context.Context, n *node, at string) bool {
	a.strike(a.w.fates(a.m.Name, n.id, at, ""), n.server)
	return a.gate.wait(ctx) && n.server.gate.wait(ctx) && ctx.Err() == nil
}

// gate is a place that can be shut: what SIGSTOP does to a process.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it is open
}

func (g *gate) shut(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on && g.open == nil {
		g.open = make(chan struct{})
	}
	if !on && g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// wait passes when the gate is open; false: ctx ended first.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if open == nil {
			return ctx.Err() == nil
		}
		select {
		case <-open:
		case <-ctx.Done():
			return false
		}
	}
}

// sleep waits for d; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
