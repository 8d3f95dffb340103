package ringsim_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// postPlan is the ring plan of ringsim.Post.
const postPlan = `ring: step37
engine: {adapter: p4-staged, release: v0.9.0, needs: [physical-v4, layer-window]}
hosts:
  h1: {agent: "tcp://h1.ring:42011", listen: "0.0.0.0:42011", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
  h2: {agent: "tcp://h2.ring:42012", listen: "0.0.0.0:42012", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
shape: {batch: 128, ubatch: 32, context: 4096, parallel: 8, completion: 192MiB, output: 1024}
stages:
  - {node: step37-s0, host: h1, layers: 0-12,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h1, layers: 12-23, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
  - {node: step37-s2, host: h2, layers: 23-34, device: ROCm0, mask: 0, endpoint: "127.0.0.1:42102"}
  - {node: step37-s3, host: h2, layers: 34-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42103"}
canary: {rounds: 3, gap: 20s, deadline: 60s, prompts: lane/canary/step37.jsonl, format: turns, expect: {finish: eos}}
switch: {catalog: the site's model list, drain: 120s, tokens: 3000, output: 1000}
`

// trial is one drift, set up in one world.
type trial struct {
	*careless
	t    *testing.T
	view *ring.View
	via  map[string]string // how a careless caller reaches an agent, where not by its advertised address
}

// drift is one row of the matrix.
type drift struct {
	rule      string
	what      string
	world     func(*ringsim.Config)
	before    func(*trial)                 // what happened in the world before
	view      func(*ring.View)             // what the plan and the records say wrongly
	tamper    func(i int, c *ring.Command) // what is wrong in a command alone: ring.CheckCommand sees it, preflight cannot
	meanwhile func(*trial)                 // what somebody else does while the commands are on their way
	symptom   func(*trial, []answered)     // with the guard off
}

// trial sets a drift up.
func (d drift) trial(t *testing.T, w *ringsim.World) *trial {
	p, err := ring.ReadPlan("ring.yaml", []byte(postPlan))
	if err != nil {
		t.Fatal(err)
	}
	x := &trial{careless: caller(t, w, "lane", generation), t: t, via: map[string]string{}}
	x.view = &ring.View{Plan: p, Generation: generation, Known: true, Lease: ring.Releaser{Known: true},
		Weights: ring.Weights{Digest: ringsim.PostDigest, Arch: "step37", Layers: ringsim.PostLayers, Hidden: ringsim.PostHidden},
		Prompts: []ring.Prompt{{Format: "turns", Text: string(ringsim.Render("hello")), MaxTokens: 32}}}
	if d.before != nil {
		d.before(x)
	}
	if d.view != nil {
		d.view(x.view)
	}
	return x
}

// commands are what a caller would send.
func (d drift) commands(x *trial) []ring.Command {
	out, err := x.view.Plan.Loads(x.view.Weights, x.view.Generation, func(string) (string, bool) { return ringsim.PostModel, true })
	if err != nil {
		x.t.Fatal(err)
	}
	x.route = ring.Route{Via: h1, Load: x.view.Generation}
	for i := range out {
		if via := x.via[out[i].Via]; via != "" {
			out[i].Via = via
		}
		x.route.Stages = append(x.route.Stages, ring.Hop{Agent: out[i].Target.Agent, Node: out[i].Envelope.Meta.Node})
		if d.tamper != nil {
			d.tamper(i, &out[i])
		}
	}
	return out
}

// guard is every guard but one, over this world: what blocks.
func (x *trial) guard(without string) []preflight.Finding {
	checks := ring.Checks(x.view, func(ctx context.Context) *ring.Survey {
		return ring.TakeSurvey(ctx, x.Outer, x.view.Plan, x.view.Replaces)
	})
	checks = slices.DeleteFunc(checks, func(c preflight.Check) bool { return c.ID == without })
	r := preflight.Run(x.t.Context(), "step37", checks, nil)
	return r.Blocking()
}

// check is the guard of each command, right before it would leave.
func (x *trial) check(commands []ring.Command) (out []preflight.Finding) {
	i := &ring.Intent{Ring: "step37", Generation: x.view.Generation, Weights: x.view.Weights}
	for _, s := range x.view.Plan.Stages {
		i.Stages = append(i.Stages, ring.IntentStage{Node: s.Node, Host: s.Host, Agent: x.view.Plan.Host(s.Host).Agent})
	}
	for _, c := range commands {
		in, err := x.Inspect(x.t.Context(), "", c.Via)
		out = append(out, ring.CheckCommand(x.view.Plan, i, c, ring.Look{Inspection: in, Err: err, At: time.Now()})...)
	}
	return slices.DeleteFunc(out, func(f preflight.Finding) bool { return !f.Blocks() })
}

// TestMatrix is the acceptance of the ring's guards. For each drift: with its guard on, it is refused in words, by that
// rule, and nothing was sent; with that one guard off nobody else sees it, and the symptom of the post follows, at its
// price in virtual minutes.
func TestMatrix(t *testing.T) {
	rules := map[string]bool{}
	for _, d := range drifts() {
		rules[d.rule] = true
		t.Run(d.rule+" "+d.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { d.on(t) })
			synctest.Test(t, func(t *testing.T) { d.off(t) })
		})
	}
	for _, r := range []string{"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "R14"} {
		if !rules[r] {
			t.Errorf("%s has no row", r)
		}
	}
}

func (d drift) start(t *testing.T) *ringsim.World {
	cfg := ringsim.Post()
	if d.world != nil {
		d.world(&cfg)
	}
	w, err := ringsim.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (d drift) on(t *testing.T) {
	w := d.start(t)
	defer w.Close()
	x := d.trial(t, w)
	before := w.Sent()
	found := x.guard("")
	if d.tamper != nil {
		if len(found) > 0 {
			t.Errorf("preflight sees what is in no plan: %v", found)
		}
		found = x.check(d.commands(x))
	}
	i := slices.IndexFunc(found, func(f preflight.Finding) bool { return f.Rule == d.rule && f.Verdict == preflight.Refused })
	if i < 0 {
		t.Fatalf("guard on: not refused by %s: %v", d.rule, found)
	}
	if f := found[i]; f.Subject == "" || f.Found == "" || f.Expected == "" || f.Fix == "" {
		t.Errorf("guard on: a refusal says whom, what, what instead and what to do: %+v", f)
	}
	if n := w.Sent() - before; n != 0 {
		t.Errorf("guard on: %d commands were sent", n)
	}
}

func (d drift) off(t *testing.T) {
	w := d.start(t)
	defer w.Close()
	x := d.trial(t, w)
	if d.tamper == nil {
		for _, f := range x.guard(d.rule) {
			if f.Verdict == preflight.Refused {
				t.Errorf("guard off: still refused: %s", f)
			}
		}
	}
	commands := d.commands(x)
	var others sync.WaitGroup
	if d.meanwhile != nil {
		others.Go(func() { d.meanwhile(x) })
		later(time.Second)
	}
	got := x.send(commands)
	others.Wait()
	d.symptom(x, got)
}

// TestMatrixCorrectRing: every guard is content with a ring in good order, before and after an earlier load of it, each
// command may leave, and three rounds are answered.
func TestMatrixCorrectRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d drift
		w := d.start(t)
		defer w.Close()
		for range 2 {
			x := d.trial(t, w)
			x.view.Generation = uint64(time.Now().UnixMilli())
			if found := x.guard(""); len(found) > 0 {
				t.Fatalf("refused: %v", found)
			}
			commands := d.commands(x)
			if found := x.check(commands); len(found) > 0 {
				t.Fatalf("refused: %v", found)
			}
			want(t, x.send(commands), ring.Succeeded, ring.Present, "")
			for _, id := range []string{"one", "two", "three"} {
				r, err := x.ask(id)
				if err != nil || r.Stop != ring.StopEnd {
					t.Fatalf("%s: %+v %v", id, r, err)
				}
				later(20 * time.Second)
			}
			i := &ring.Intent{Ring: "step37", Generation: x.view.Generation}
			for _, s := range x.view.Plan.Stages {
				c, err := i.Unload(ring.IntentStage{Node: s.Node, Host: s.Host, Agent: x.view.Plan.Host(s.Host).Agent})
				if err != nil {
					t.Fatal(err)
				}
				if a, err := x.Unload(t.Context(), c); err != nil || a.Status != ring.Succeeded {
					t.Fatalf("%+v %v", a, err)
				}
			}
			later(time.Minute)
		}
	})
}
