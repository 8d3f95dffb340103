package ring_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// TestGuardsOnTheSimulator: what is wrong with a simulated ring is refused by the rule that it belongs to, before any
// command leaves and before anything is written.
func TestGuardsOnTheSimulator(t *testing.T) {
	for _, c := range []struct {
		what string
		rule string
		host func(h *ringsim.Host) // of h2
		do   func(t *testing.T, p *place)
	}{
		{what: "the journal is off", rule: "R5", host: func(h *ringsim.Host) { h.Journal.Off = true }},
		{what: "the journal cannot be written", rule: "R5", host: func(h *ringsim.Host) { h.Journal.ReadOnly = true }},
		{what: "the journal's disk is full", rule: "R5", host: func(h *ringsim.Host) { h.Journal.Free = 1 << 20 }},
		{what: "an older native server", rule: "R7", host: func(h *ringsim.Host) { h.Native.Hello = []string{"physical-v4"} }},
		{what: "another build", rule: "R7", host: func(h *ringsim.Host) { h.Build = "v0.9.0+g0000000" }},
		{what: "another backend", rule: "R6", host: func(h *ringsim.Host) { h.Native.Backend = "vulkan" }},
		{what: "fewer devices", rule: "R6", host: func(h *ringsim.Host) { h.Devices = h.Devices[:2] }},
		{what: "a small store", rule: "R3", host: func(h *ringsim.Host) { h.Retained = 64 << 20 }},
		{what: "too little memory", rule: "R10", host: func(h *ringsim.Host) { h.Memory = 32 << 30 }},
		{what: "another model file", rule: "W1", host: func(h *ringsim.Host) { h.Models[0].Digest = "sha256:00" }},
		{what: "it answers as another name", rule: "R4", host: func(h *ringsim.Host) { h.Advertise = "tcp://h2.lan:42012" }},
		{what: "another leads to the host before it", rule: "R4", host: func(h *ringsim.Host) { h.Names = map[string]string{"h1.ring": "h2"} }},
		{what: "clients leaked its connections", rule: "R11", host: func(h *ringsim.Host) { h.Slots = 3 }},
		{what: "a node of nobody's", rule: "R1", do: func(t *testing.T, p *place) {
			l := p.lane(&life{})
			cs, err := thePlan(t).Loads(release("x").Weights, 5, func(string) (string, bool) { return ringsim.PostModel, true })
			if err != nil {
				t.Fatal(err)
			}
			if a, err := l.Engine.Load(t.Context(), cs[1]); err != nil || a.Status != ring.Succeeded {
				t.Fatalf("%+v, %v", a, err)
			}
		}},
	} {
		change := func(w *ringsim.Config) {
			if c.host != nil {
				c.host(&w.Hosts[1])
			}
		}
		inWorld(t, t.TempDir(), change, func(t *testing.T, p *place) {
			if c.do != nil {
				c.do(t, p)
			}
			l := &life{}
			_, err := p.lane(l).Release(t.Context(), release("r1"), nil)
			b, is := errors.AsType[ring.Blocked](err)
			if !is || l.n != 0 {
				t.Fatalf("%s: %v after %v", c.what, err, l.what)
			}
			var rules []string
			for _, f := range b.Report.Blocking() {
				rules = append(rules, f.Rule)
			}
			if !slices.Contains(rules, c.rule) {
				t.Errorf("%s: refused by %v, not by %s", c.what, rules, c.rule)
			}
		})
	}
}

// TestMemoryStaysAway: when the memory of the old release does not come back, no LOAD leaves; the ring is down, the
// catalog empty, and no record is open.
func TestMemoryStaysAway(t *testing.T) {
	inWorld(t, t.TempDir(), func(w *ringsim.Config) {
		w.Rules.MemoryStays = true
		for i := range w.Hosts {
			w.Hosts[i].Memory = 100 << 30
		}
	}, func(t *testing.T, p *place) {
		p.mustServe("r1")
		l := &life{}
		out, err := p.lane(l).Release(t.Context(), release("r2"), nil)
		b, is := errors.AsType[ring.Blocked](err)
		if !is || !strings.HasPrefix(b.Report.Blocking()[0].Rule, "R10") || out.Serving != 0 || !strings.Contains(err.Error(), "the old release is unloaded") {
			t.Errorf("%+v, %v", out, err)
		}
		if slices.ContainsFunc(l.what, func(s string) bool { return strings.HasPrefix(s, "load ") }) || p.cat.entry() != nil {
			t.Errorf("%v, %+v", l.what, p.cat.entry())
		}
		if wrong := p.afterwards(out, err); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestRollbackWaitsForMemory: what a failed release held comes back late, and the old one is loaded again all the same; after a
// crash too. A guard that waiting does not mend is not waited for.
func TestRollbackWaitsForMemory(t *testing.T) {
	tight := func(w *ringsim.Config) {
		for i := range w.Hosts {
			w.Hosts[i].Memory, w.Hosts[i].Back = 100<<30, 90*time.Second
		}
	}
	bad := release("r2")
	bad.Prompts[0].Want = "something else"
	inWorld(t, t.TempDir(), tight, func(t *testing.T, p *place) {
		p.mustServe("r1")
		out, err := p.lane(&life{}).Release(t.Context(), bad, nil)
		if wrong := p.afterwards(out, err); err != nil || !out.RolledBack || out.Release != "r1" || wrong != "" {
			t.Errorf("%+v, %v: %s", out, err, wrong)
		}
		must(p.w.Restart("h2"))
		again, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if wrong := p.afterwards(again, err); err != nil || again.Release != "r1" || again.Serving <= out.Serving || wrong != "" {
			t.Errorf("%+v, %v: %s", again, err, wrong)
		}
	})
	inWorld(t, t.TempDir(), tight, func(t *testing.T, p *place) {
		p.mustServe("r1")
		must(p.w.Restart("h2"))
		p.w.Change("h2", func(h *ringsim.Host) { h.Models[0].Digest = "sha256:00" })
		began := time.Now()
		out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if _, is := errors.AsType[ring.Blocked](err); !is || time.Since(began) > 4*time.Minute {
			t.Errorf("after %s: %+v, %v", time.Since(began), out, err)
		}
	})
}

// mute is an engine whose answers never come, and which does not say so.
type mute struct{ ring.Engine }

func (mute) Load(ctx context.Context, _ ring.Command) (ring.Answer, error) {
	<-ctx.Done()
	return ring.Answer{}, ctx.Err()
}

func (mute) Events(context.Context, uint64) ([]ring.Event, error) {
	return []ring.Event{{Number: 1, Hop: "tcp://h2.ring:42012", Kind: "queued", Node: "step37-s1"}}, nil
}

// TestSilenceHasAName: a command whose answer does not come ends in bounded time, and its record says whom it was for and
// which hop acknowledged last.
func TestSilenceHasAName(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		l := p.lane(&life{})
		l.Engine = mute{l.Engine}
		began := time.Now()
		out, err := l.Release(t.Context(), release("r1"), nil)
		if err != nil || out.Serving != 0 || time.Since(began) > 2*l.Times.Load {
			t.Errorf("%+v, %v after %s", out, err, time.Since(began))
		}
		loads, err := l.Records.Loads(t.Context())
		if err != nil || loads[0].Ledger.Closed != ring.OpGone {
			t.Fatalf("%+v, %v", loads, err)
		}
		var said []string
		for _, e := range loads[0].Events {
			if e.Op == ring.OpAnswer {
				said = append(said, e.Detail)
			}
		}
		want := "no answer to load of step37-s1 from tcp://h2.ring:42012 after 30m0s; the last acknowledgement came from tcp://h2.ring:42012 (queued)"
		if len(said) != 2 || !strings.Contains(said[1], want) {
			t.Errorf("%q, want %q", said, want)
		}
	})
}

// TestExamine: a plan with the answers of its agents, its records and its lease passes as in a release; without them it is
// unknown, and says of what.
func TestExamine(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		p.mustServe("r1")
		l, rel := p.lane(&life{}), release("r2")
		var seen []ring.Inspection
		for _, ask := range [][2]string{{"", "tcp://h1.ring:42011"}, {"", "tcp://h2.ring:42012"}, {"h1", "tcp://h2.ring:42012"}, {"h2", "tcp://h1.ring:42011"}} {
			in, err := l.Engine.Inspect(t.Context(), ring.Viewpoint(ask[0]), ask[1])
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, in)
		}
		b, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		if seen, err = ring.ReadInspections("seen.json", b); err != nil {
			t.Fatal(err)
		}
		r, err := ring.Examine(t.Context(), thePlan(t), rel.Weights, rel.Prompts, seen, &l.Records, nil)
		if err != nil || r.Blocked {
			t.Errorf("%v, %v", r.Blocking(), err)
		}
		r, err = ring.Examine(t.Context(), thePlan(t), ring.Weights{}, nil, nil, nil, nil)
		unknown := map[string]bool{}
		for _, f := range r.Blocking() {
			if f.Verdict != preflight.Unknown {
				t.Errorf("%s", f)
			}
			unknown[f.Rule] = true
		}
		if err != nil || len(unknown) != 13 { // all but R9 and R12, which need nothing else
			t.Errorf("%d: %v, %v", len(unknown), unknown, err)
		}
	})
}

// shy is an engine whose agent on h2 does not say how many connections are free.
type shy struct{ ring.Engine }

func (s shy) Inspect(ctx context.Context, from ring.Viewpoint, a string) (ring.Inspection, error) {
	in, err := s.Engine.Inspect(ctx, from, a)
	if a == "tcp://h2.ring:42012" {
		in.Slots = nil
	}
	return in, err
}

// TestOverrideIsRecorded: what is unknown blocks, until a person goes on over it: the name is in the record of the load,
// and holds for the rollback of that load too, which nobody could be asked about.
func TestOverrideIsRecorded(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		l := p.lane(&life{})
		l.Engine = shy{l.Engine}
		if _, err := l.Release(t.Context(), release("r1"), nil); err == nil || !strings.Contains(err.Error(), "unknown R11 agent h2") {
			t.Fatal(err)
		}
		over := []preflight.Override{{Rule: "R11", Subject: "agent h2", By: "anna", Reason: "counted by hand"}}
		first, err := l.Release(t.Context(), release("r1"), over)
		if err != nil || first.Serving == 0 {
			t.Fatalf("%+v, %v", first, err)
		}
		bad := release("r2")
		bad.Prompts[0].Want = "something else"
		out, err := l.Release(t.Context(), bad, over)
		if err != nil || !out.RolledBack {
			t.Fatalf("%+v, %v", out, err)
		}
		loads, err := l.Records.Loads(t.Context())
		if err != nil || len(loads) != 3 {
			t.Fatalf("%+v, %v", loads, err)
		}
		for _, x := range loads {
			if len(x.Intent.Overrides) == 0 || x.Intent.Overrides[0].By != "anna" {
				t.Errorf("generation %d: %+v", x.Intent.Generation, x.Intent.Overrides)
			}
		}
		plain := p.lane(&life{}) // its agents say everything: what was let pass then is not in the way now
		must(p.w.Restart("h2"))
		if out, err := plain.Recover(t.Context(), thePlan(t)); err != nil || out.Release != "r1" {
			t.Errorf("%+v, %v", out, err)
		}
	})
}
