package ringsim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// session is ring.Session.
type session struct {
	c     *channel
	route ring.Route
	key   string
}

// Session is ring.Engine's: every stage is told, and every stage must say that it is ready.
func (o *Outer) Session(ctx context.Context, r ring.Route) (ring.Session, error) {
	if len(r.Stages) == 0 {
		return nil, fmt.Errorf("a route without stages: name the head first")
	}
	began, key := time.Now(), o.key("session %d at %s", r.Load, r.Stages[0].Node)
	c, err := o.dial(ctx, "", r.Via, key)
	if err != nil {
		return nil, o.unreached(ctx, began, "", r.Via, "session", err)
	}
	x := c.begin(key)
	waiting := map[string]bool{}
	for i, h := range r.Stages {
		waiting[h.Node] = true
		c.send(frame{ID: fmt.Sprintf("%s/%d", key, i), Kind: kindSession, Answer: target{Kind: toOuter, Channel: c.name},
			To: target{Kind: ring.ToNode, Agent: h.Agent, Node: h.Node}, Body: pack(work{Request: key, Load: r.Load})})
	}
	failed := map[string]ring.StageFailed{}
	for len(waiting) > 0 {
		f, w, err := x.wait(ctx, began, r.Stages[0].Node, "session")
		if silent, ok := err.(ring.NoAnswer); ok {
			silent.To, silent.What = missing(r, waiting), fmt.Sprintf("session (%d of %d ready)", len(r.Stages)-len(waiting), len(r.Stages))
			err = silent
		}
		if err == nil && ctx.Err() != nil { // stages that are none of this route's, without end
			err = x.silence(began, missing(r, waiting), fmt.Sprintf("session (%d of %d ready)", len(r.Stages)-len(waiting), len(r.Stages)), "")
		}
		switch {
		case err != nil && len(failed) == 0:
			c.finish(ctx)
			return nil, err
		case err != nil:
			clear(waiting)
		case f.Kind == kindFailed && waiting[w.Node]:
			failed[w.Node] = ring.StageFailed{Agent: w.Source, Node: w.Node, Generation: w.Gen, State: w.State}
			delete(waiting, w.Node)
		case f.Kind == kindNoNode:
			i := 0
			fmt.Sscanf(w.Request[strings.LastIndex(w.Request, "/")+1:], "%d", &i)
			node := r.Stages[min(max(i, 0), len(r.Stages)-1)].Node
			failed[node] = ring.StageFailed{Agent: w.Source, Node: node, State: "UnknownNode"}
			delete(waiting, node)
		case f.Kind == kindReady:
			delete(waiting, w.Node)
		}
	}
	for _, h := range r.Stages {
		if e, ok := failed[h.Node]; ok {
			c.finish(ctx)
			return nil, e
		}
	}
	return &session{c: c, route: r, key: key}, nil
}

func missing(r ring.Route, waiting map[string]bool) string {
	var out []string
	for _, h := range r.Stages {
		if waiting[h.Node] {
			out = append(out, h.Node+" at "+h.Agent)
		}
	}
	return strings.Join(out, ", ")
}

// Request is ring.Session's.
func (s *session) Request(ctx context.Context, q ring.Query) (ring.Reply, error) {
	began, head := time.Now(), s.route.Stages[0]
	key := s.c.o.key("request %s of %s", q.ID, s.key)
	x := s.c.begin(key)
	s.c.send(frame{ID: key, Kind: kindInfer, Answer: target{Kind: toOuter, Channel: s.c.name},
		To: target{Kind: ring.ToNode, Agent: head.Agent, Node: head.Node}, Body: pack(work{Request: key, Load: s.route.Load, Prompt: q.Prompt, Max: q.MaxTokens})})
	out := ring.Reply{ID: key}
	for {
		f, w, err := x.wait(ctx, began, head.Node+" at "+head.Agent, "request")
		if err != nil {
			return ring.Reply{}, err
		}
		switch f.Kind {
		case kindFirst:
			out.First = time.Since(began)
		case kindOutput:
			out.Text, out.Count, out.Stop, out.Took = w.Text, w.Round, w.Stop, time.Since(began)
			return out, nil
		case kindTooLarge:
			return ring.Reply{}, ring.TooLarge{Node: w.Node, Why: w.State}
		case kindFailed:
			return ring.Reply{}, ring.StageFailed{Agent: w.Source, Node: w.Node, Generation: w.Gen, State: w.State}
		case kindNoNode:
			return ring.Reply{}, ring.StageFailed{Agent: w.Source, Node: head.Node, State: "UnknownNode"}
		}
	}
}

// Settle is ring.Session's.
func (s *session) Settle(ctx context.Context, r ring.Reply) (ring.Receipt, error) {
	s.c.mu.Lock()
	x := s.c.subs[r.ID]
	s.c.mu.Unlock()
	if x == nil {
		return ring.Receipt{}, fmt.Errorf("reply %q is none of this session's", r.ID)
	}
	head := s.route.Stages[0]
	f, w, err := x.wait(ctx, time.Now(), head.Node+" at "+head.Agent, "receipt")
	if err != nil {
		return ring.Receipt{}, err
	}
	if f.Kind != kindClosed {
		return ring.Receipt{}, ring.StageFailed{Agent: w.Source, Node: w.Node, Generation: w.Gen, State: w.State}
	}
	s.c.mu.Lock()
	delete(s.c.subs, r.ID)
	s.c.mu.Unlock()
	return ring.Receipt{ID: r.ID, Generation: w.Load, Stages: w.Stages}, nil
}

// Finish is ring.Session's.
func (s *session) Finish(ctx context.Context) error { return s.c.finish(ctx) }
