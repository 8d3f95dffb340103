package ring_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// liar is an engine whose second agent says what it likes, from the moment on that a test chooses.
type liar struct {
	ring.Engine
	mu      sync.Mutex
	inspect func(*ring.Inspection)
	answer  func(*ring.Answer)
	session ring.Session // in place of the engine's own
	err     error
}

// leaseOver is when a lease that nobody renews is nobody's.
const leaseOver = 5 * time.Minute

const second = "tcp://h2.ring:42012"

func (e *liar) Inspect(ctx context.Context, from ring.Viewpoint, a string) (ring.Inspection, error) {
	in, err := e.Engine.Inspect(ctx, from, a)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && a == second && e.inspect != nil {
		e.inspect(&in)
	}
	return in, err
}

func (e *liar) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	a, err := e.Engine.Load(ctx, c)
	return e.lie(c, a), err
}

func (e *liar) Unload(ctx context.Context, c ring.Command) (ring.Answer, error) {
	a, err := e.Engine.Unload(ctx, c)
	return e.lie(c, a), err
}

func (e *liar) Session(ctx context.Context, r ring.Route) (ring.Session, error) {
	if e.session == nil && e.err == nil {
		return e.Engine.Session(ctx, r)
	}
	return e.session, e.err
}

func (e *liar) lie(c ring.Command, a ring.Answer) ring.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Target.Agent == second && e.answer != nil {
		e.answer(&a)
	}
	return a
}

// readable says that every record of the ring can be read, and that the ring can be released to when its agents say the
// truth again.
func (p *place) readable(t *testing.T, what string) {
	t.Helper()
	if _, err := p.lane(&life{}).Records.Loads(t.Context()); err != nil {
		t.Errorf("%s: its words are in the records now: %v", what, err)
		return
	}
	if out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t)); err != nil {
		t.Errorf("%s: recover: %+v, %v", what, out, err)
	}
	if out, err := p.lane(&life{}).Release(t.Context(), release("r9"), nil); err != nil || out.Release != "r9" {
		t.Errorf("%s: afterwards: %+v, %v", what, out, err)
	}
}

// TestHostileAnswers: whatever an agent answers to a LOAD or an UNLOAD, the load ends, no success comes of it, and nothing
// that it says makes the ring's records unreadable.
func TestHostileAnswers(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for what, lie := range map[string]func(*ring.Answer){
		"a huge status":      func(a *ring.Answer) { a.Status = ring.Status(huge) },
		"a huge resource":    func(a *ring.Answer) { a.Resource = ring.Resource(huge) },
		"a huge detail":      func(a *ring.Answer) { a.Status, a.Detail = ring.Failed, huge },
		"a status of none":   func(a *ring.Answer) { a.Status = "" },
		"another's node":     func(a *ring.Answer) { a.Node = huge },
		"another's name":     func(a *ring.Answer) { a.Agent = huge },
		"another generation": func(a *ring.Answer) { a.Generation++ },
		"bytes of no text":   func(a *ring.Answer) { a.Status, a.Detail = ring.Rejected, "\xff\x00\x1b[2J" },
	} {
		inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
			p.mustServe("r1")
			l := p.lane(&life{})
			l.Engine = &liar{Engine: l.Engine, answer: lie}
			out, err := l.Release(t.Context(), release("r2"), nil)
			if len(fmt.Sprint(out, err)) > 16<<10 {
				t.Errorf("%s: %d bytes are said", what, len(fmt.Sprint(out, err)))
			}
			later(leaseOver)
			p.readable(t, what)
		})
	}
}

// TestHostileInspections: what an agent says of itself is bounded, refused by a guard or taken for silence; nothing is sent,
// and no number of it is taken over into the records.
func TestHostileInspections(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	const last = 1<<53 - 1
	for what, lie := range map[string]func(*ring.Inspection){
		"a huge name":            func(in *ring.Inspection) { in.Agent = huge },
		"a huge release":         func(in *ring.Inspection) { in.Native = &ring.Native{Release: huge}; in.Release = huge },
		"a million capabilities": func(in *ring.Inspection) { in.Needs = slices.Repeat([]string{"x"}, 1_000_000) },
		"a million devices":      func(in *ring.Inspection) { in.Devices = make([]ring.Device, 1_000_000) },
		"a million nodes":        func(in *ring.Inspection) { in.Nodes = make([]ring.Node, 1_000_000) },
		"one node twice": func(in *ring.Inspection) {
			in.Nodes = []ring.Node{{ID: "x", Generation: 1}, {ID: "x", Generation: 2}}
		},
		"the last generation of all": func(in *ring.Inspection) {
			in.Buried = append(in.Buried, ring.Tombstone{ID: "step37-s1", Generation: last})
		},
		"the last but one": func(in *ring.Inspection) {
			in.Buried = append(in.Buried, ring.Tombstone{ID: "step37-s1", Generation: last - 1})
		},
		"one of the next century": func(in *ring.Inspection) {
			in.Nodes = append(in.Nodes, ring.Node{ID: "step37-s1", Generation: 4_000_000_000_000})
		},
		"less than nothing": func(in *ring.Inspection) { in.Slots = &ring.Slots{Total: -1, Free: -1 << 62} },
	} {
		inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
			l := p.lane(&life{})
			l.Engine = &liar{Engine: l.Engine, inspect: lie}
			sent := p.w.Sent()
			out, err := l.Release(t.Context(), release("r1"), nil)
			if _, is := errors.AsType[ring.Blocked](err); !is || p.w.Sent() != sent || out.Report == nil {
				t.Fatalf("%s: %+v, %.300v", what, out.Serving, err)
			}
			if said := fmt.Sprint(out.Report.Findings); len(said) > 32<<10 {
				t.Errorf("%s: a report of %d bytes", what, len(said))
			}
			later(leaseOver)
			p.readable(t, what)
			if loads, err := p.lane(&life{}).Records.Loads(t.Context()); err != nil || loads[len(loads)-1].Intent.Generation > 4_000_000_000_000 {
				t.Errorf("%s: its number was taken over: %v", what, err)
			}
		})
	}
}

// said is a session that answers what it likes.
type said struct {
	reply   ring.Reply
	receipt ring.Receipt
	err     error
}

func (s said) Request(context.Context, ring.Query) (ring.Reply, error) { return s.reply, s.err }

func (s said) Settle(context.Context, ring.Reply) (ring.Receipt, error) { return s.receipt, nil }

func (s said) Finish(context.Context) error { return s.err }

// TestHostileSessions: whatever a client of the ring is told, the release is taken back, the catalog never names it, and what
// is said of it is bounded.
func TestHostileSessions(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	failed := ring.StageFailed{Agent: second, Node: huge, State: huge}
	for what, lie := range map[string]*liar{
		"a session that fails in many words": {err: failed},
		"a request that does":                {session: said{err: failed}},
		"an endless reply":                   {session: said{reply: ring.Reply{Text: []byte(huge), Stop: ring.StopEnd, Count: -1}}},
		"an end that is none":                {session: said{reply: ring.Reply{Stop: ring.Stop(huge)}}},
		"a receipt of another load":          {session: said{reply: ring.Reply{Text: ringsim.Answer(ringsim.Render("say r1")), Count: 5, Stop: ring.StopEnd}, receipt: ring.Receipt{Generation: 1, Stages: 2}}},
	} {
		inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
			l := p.lane(&life{})
			lie.Engine, l.Engine = l.Engine, lie
			out, err := l.Release(t.Context(), release("r1"), nil)
			if err != nil || out.Serving != 0 || len(out.Why) > 4<<10 || p.cat.entry() != nil {
				t.Errorf("%s: %+v, %v", what, out.Serving, err)
			}
			later(leaseOver)
			if _, err := p.lane(&life{}).Records.Loads(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if out, err := p.lane(&life{}).Release(t.Context(), release("r9"), nil); err != nil || out.Release != "r9" {
				t.Errorf("%s: afterwards: %+v, %v", what, out, err)
			}
		})
	}
}

// TestCanaryWantsAnAnswer: an engine that says nothing, or closes the account of another request, has proven nothing; and one that lets
// a deadline pass in silence is named, with the seconds.
func TestCanaryWantsAnAnswer(t *testing.T) {
	for want, lie := range map[string]func(load uint64) *liar{
		"the reply is empty (0 tokens, 0 bytes)": func(load uint64) *liar {
			return &liar{session: said{reply: ring.Reply{Stop: ring.StopEnd}, receipt: ring.Receipt{Generation: load, Stages: 2}}}
		},
		`the receipt that was closed is of request "other"`: func(load uint64) *liar {
			return &liar{session: said{reply: ring.Reply{ID: "mine", Text: []byte("ok"), Count: 1, Stop: ring.StopEnd}, receipt: ring.Receipt{ID: "other", Generation: load, Stages: 2}}}
		},
		"no answer to request from tcp://h1.ring:42011 after 1m0s": func(uint64) *liar { return &liar{session: silent{}} },
	} {
		inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
			served := p.mustServe("r1")
			l, r2 := p.lane(&life{}), release("r2")
			r2.Prompts[0].Want = ""
			x := lie(served.Serving)
			x.Engine, l.Engine = l.Engine, x
			out, err := l.Release(t.Context(), r2, nil)
			if err != nil || out.Serving != 0 || !strings.Contains(out.Why, want) {
				t.Errorf("%+v, %v; want %s", out, err, want)
			}
		})
	}
}

// silent is a session that lets every deadline pass, and does not say so.
type silent struct{}

func (silent) Request(ctx context.Context, _ ring.Query) (ring.Reply, error) {
	<-ctx.Done()
	return ring.Reply{}, ctx.Err()
}

func (silent) Settle(ctx context.Context, _ ring.Reply) (ring.Receipt, error) {
	<-ctx.Done()
	return ring.Receipt{}, ctx.Err()
}

func (silent) Finish(context.Context) error { return nil }
