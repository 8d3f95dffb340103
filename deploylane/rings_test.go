package deploylane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
	"github.com/headway-run/headway/runners/record"
)

const ringFile = `ring: step37
engine: {adapter: ringsim, release: v0.9.0, needs: [physical-v4, layer-window]}
hosts:
  h1: {agent: "tcp://h1.ring:42011", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
  h2: {agent: "tcp://h2.ring:42012", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
shape: {batch: 128, ubatch: 32, context: 4096, parallel: 8, completion: 192MiB, output: 1024}
stages:
  - {node: step37-s0, host: h1, layers: 0-23,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h2, layers: 23-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
canary: {rounds: 3, gap: 20s, deadline: 60s, prompts: lane/canary.jsonl, format: sim, expect: {finish: eos}}
switch: {catalog: models, drain: 120s, tokens: 3000, output: 1000}
`

// onRing is a rig whose model goes to a ring of the simulator, which outlives every lane.
type onRing struct {
	*rig
	w     *ringsim.World
	lanes int
}

// withRing runs f in virtual time. The weights of the retrained model are on both hosts already.
func withRing(t *testing.T, f func(t *testing.T, g *onRing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &onRing{rig: newRig(t, 5)}
		c := ringsim.Post()
		o := ordered(g.job("digits"), g.policy.Rules[0].Requires)
		o.finish()
		for i := range c.Hosts {
			c.Hosts[i].ReadRate = 1 << 30
			c.Hosts[i].Models[0].Digest = "sha256:" + record.Hash([]byte(o.Spec.Work))
		}
		w, err := ringsim.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		g.w = w
		prompt := ringsim.Render("say hello")
		g.files = map[string]string{"lane/ring.yaml": ringFile,
			"lane/canary.jsonl": fmt.Sprintf(`{"format":"sim","text":%q,"max_tokens":64,"want":%q}`, prompt, ringsim.Answer(prompt))}
		m := g.conf.Models["digits"]
		m.Targets = []Target{{Name: "ring", Kind: TargetRing, Ring: &Ring{File: "lane/ring.yaml", Weights: Weights{File: "model.json", Arch: "step37", Layers: ringsim.PostLayers, Hidden: ringsim.PostHidden}}},
			{Name: "pointer", Kind: TargetPointer}}
		g.conf.Models["digits"] = m
		f(t, g)
	})
}

// process is a lane's process, with its own connection to the agents. The disk is the machine's.
func (g *onRing) process(disk string) *Lane {
	g.lanes++
	l := g.fresh()
	l.ID, l.State = fmt.Sprintf("lane-%d", g.lanes), disk
	l.Engines = map[string]OpenEngine{"ringsim": func(context.Context, *ring.Plan) (ring.Engine, func(), error) {
		return mortal{g.w.Outer(l.ID), g.dying}, func() {}, nil
	}}
	return l
}

// mortal is an engine's client that dies with the process.
type mortal struct {
	*ringsim.Outer
	d *dying
}

func (m mortal) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	if m.d.dead() {
		return ring.Answer{}, errors.New("the process is dead")
	}
	return m.Outer.Load(ctx, c)
}

func (m mortal) Unload(ctx context.Context, c ring.Command) (ring.Answer, error) {
	if m.d.dead() {
		return ring.Answer{}, errors.New("the process is dead")
	}
	return m.Outer.Unload(ctx, c)
}

// serving is what clients see; it has to answer two of them.
func (g *onRing) serving(t *testing.T) (version string, generation uint64) {
	t.Helper()
	shown, err := ring.StoreCatalogue{Records: ring.Records{Store: g.own, Model: "digits", Ring: "step37"}}.Read(t.Context(), "models")
	if err != nil || !shown.Serving {
		t.Fatalf("nothing serves: %+v, %v", shown, err)
	}
	g.lanes++
	o := g.w.Outer(fmt.Sprintf("client%d", g.lanes))
	for k := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := o.Session(ctx, shown.Entry.Route)
		if err == nil {
			var r ring.Reply
			if r, err = s.Request(ctx, ring.Query{ID: fmt.Sprint(k), Prompt: ringsim.Render("hello"), MaxTokens: 64}); err == nil {
				_, err = s.Settle(ctx, r)
			}
			err = errors.Join(err, s.Finish(ctx))
		}
		cancel()
		if err != nil {
			t.Fatalf("the catalog says generation %d, and: %v", shown.Load, err)
		}
	}
	for key, body := range g.records() {
		if strings.HasSuffix(key, "/release.json") && record.Hash([]byte(body)) == shown.Entry.Release {
			return strings.Split(key, "/")[2], shown.Load
		}
	}
	t.Fatalf("generation %d is of no release: %s", shown.Load, shown.Entry.Release)
	return "", 0
}

func (g *onRing) loads(t *testing.T) []ring.Load {
	t.Helper()
	all, err := ring.Records{Store: g.own, Model: "digits", Ring: "step37"}.Loads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRingFromTagToServing: a tag brings a model onto its ring behind the canary, once; a later release replaces it under a new
// generation; a stage tag brings the first one back under a third, and nothing is trained for it.
func TestRingFromTagToServing(t *testing.T) {
	withRing(t, func(t *testing.T, g *onRing) {
		disk := t.TempDir()
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.process(disk), "v1.0.0"); !s.Done || s.Refused {
			t.Fatalf("%+v", s)
		}
		if v, _ := g.serving(t); v != "v1.0.0" {
			t.Errorf("%s serves", v)
		}
		k, found, err := g.process(disk).read(t.Context(), key("digits", "v1.0.0", "target-ring"))
		if err != nil || !found || !strings.Contains(k.Record.Answer.Text, "ring step37 serves it as generation") {
			t.Errorf("%+v, %v", k, err)
		}
		sent := g.w.Sent()
		if s := g.settle(g.process(disk), "v1.0.0"); !s.Done || g.w.Sent() != sent {
			t.Errorf("it was loaded again: %+v", s)
		}
		g.tagged("v1.1.0", 2)
		if s := g.settle(g.process(disk), "v1.1.0"); !s.Done || s.Refused {
			t.Fatalf("%+v", s)
		}
		if v, _ := g.serving(t); v != "v1.1.0" {
			t.Errorf("%s serves", v)
		}
		launched := len(g.place.launched)
		g.staged("v1.0.0", "ann", 1)
		g.settle(g.process(disk), "v1.1.0")
		v, generation := g.serving(t)
		if all := g.loads(t); v != "v1.0.0" || len(all) != 3 || all[2].Intent.Generation != generation || len(g.place.launched) != launched {
			t.Errorf("%s serves as %d, %d loads, %d launches", v, generation, len(all), len(g.place.launched)-launched)
		}
		sent = g.w.Sent()
		g.settle(g.process(disk), "v1.1.0")
		if v, _ := g.serving(t); v != "v1.0.0" || g.w.Sent() < sent {
			t.Errorf("%s serves", v)
		}
	})
}

// TestRingKilled: a lane dies after any of its requests to the store while it brings a release onto the ring. Another one finishes
// it within minutes: one load serves, one answer is written, and the ring was never told to load by two at once.
func TestRingKilled(t *testing.T) {
	first, last := 0, 0 // requests before and behind the pass that loads
	withRing(t, func(t *testing.T, g *onRing) {
		g.tagged("v1.0.0", 1)
		for l := g.process(t.TempDir()); last == 0; time.Sleep(l.poll()) {
			first = g.dying.asked
			if _, trouble := g.pass(l); len(trouble) > 0 {
				t.Fatal(trouble)
			}
			if g.w.Sent() > 0 {
				last = g.dying.asked
			}
		}
	})
	if last-first < 60 {
		t.Fatalf("only %d requests", last-first)
	}
	for at := first + 1; at < last; at += 4 {
		withRing(t, func(t *testing.T, g *onRing) {
			g.tagged("v1.0.0", 1)
			disk := t.TempDir()
			g.dying.left = at
			l := g.process(disk)
			for range 40 {
				if g.pass(l); g.dying.dead() {
					break
				}
				time.Sleep(l.poll())
			}
			if !g.dying.dead() {
				t.Fatalf("at %d: it did not die", at)
			}
			g.dying.left = -1
			time.Sleep(5 * time.Minute)
			if s := g.settle(g.process(disk), "v1.0.0"); !s.Done || s.Refused {
				t.Fatalf("at %d: %+v", at, s)
			}
			v, generation := g.serving(t)
			served := 0
			for _, x := range g.loads(t) {
				if x.Ledger.Served {
					served++
				}
				if x.Ledger.Closed == "" && x.Intent.Generation != generation {
					t.Errorf("at %d: generation %d is open", at, x.Intent.Generation)
				}
			}
			if v != "v1.0.0" || served != 1 {
				t.Errorf("at %d: %s, %d served", at, v, served)
			}
		})
	}
}

// TestRingRefuses: what the guards find stops the release at its target, all of it at once and recorded beside the release, and
// what served goes on. Once it is mended the next look goes on by itself.
func TestRingRefuses(t *testing.T) {
	withRing(t, func(t *testing.T, g *onRing) {
		disk := t.TempDir()
		g.tagged("v1.0.0", 1)
		g.settle(g.process(disk), "v1.0.0")
		sent := g.w.Sent()
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = true })
		g.w.Change("h2", func(h *ringsim.Host) { h.Native.Hello = []string{"physical-v4"} })
		g.tagged("v1.1.0", 2)
		l := g.process(disk)
		s := g.settle(l, "v1.1.0")
		if s.Done || s.Stage != "target" || s.After != 0 || !strings.Contains(s.Text, "refused R5 agent h1") || !strings.Contains(s.Text, "refused R7") {
			t.Fatalf("%+v", s)
		}
		g.settle(l, "v1.1.0") // the same set of findings is one record
		var refused []Link
		for k := range g.records() {
			if strings.Contains(k, "/target-ring-refused-") {
				r, _, err := l.read(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				refused = append(refused, r)
			}
		}
		if len(refused) != 1 || refused[0].Record.Passed || !slices.ContainsFunc(refused[0].Record.Answer.Preflight.Findings, func(f preflight.Finding) bool { return f.Rule == "R5" && f.Blocks() }) {
			t.Errorf("%+v", refused)
		}
		if v, _ := g.serving(t); v != "v1.0.0" || len(g.loads(t)) != 1 {
			t.Errorf("%s serves, %d loads, %d sent", v, len(g.loads(t)), g.w.Sent()-sent)
		}
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = false })
		g.w.Change("h2", func(h *ringsim.Host) { h.Native.Hello = []string{"physical-v4", "layer-window"} })
		if s := g.settle(l, "v1.1.0"); !s.Done || s.Refused {
			t.Errorf("%+v", s)
		}
		if v, _ := g.serving(t); v != "v1.1.0" {
			t.Errorf("%s serves", v)
		}
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = true })
		back := g.staged("v1.0.0", "ann", 1)
		all, trouble := g.pass(l)
		if i := slices.IndexFunc(all, func(s Standing) bool { return s.Version == back.Name().String() }); len(trouble) > 0 || i < 0 || all[i].After != 0 || !strings.Contains(all[i].Text, "refused R5 agent h1") {
			t.Errorf("a step back that is refused: %+v, %v", all, trouble)
		}
		if v, _ := g.serving(t); v != "v1.1.0" {
			t.Errorf("%s serves", v)
		}
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = false })
		if _, trouble := g.pass(l); len(trouble) > 0 {
			t.Error(trouble)
		}
		if v, _ := g.serving(t); v != "v1.0.0" {
			t.Errorf("%s serves", v)
		}
	})
}

// TestRingIsNotTakenBack: a release that the ring refused, and that others overtook, is answered and not loaded when the way is free.
func TestRingIsNotTakenBack(t *testing.T) {
	withRing(t, func(t *testing.T, g *onRing) {
		disk := t.TempDir()
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = true })
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.process(disk), "v1.0.0"); s.Done {
			t.Fatalf("%+v", s)
		}
		g.tagged("v1.1.0", 2)
		g.settle(g.process(disk), "v1.1.0")
		g.w.Change("h1", func(h *ringsim.Host) { h.Journal.Off = false })
		for _, v := range []string{"v1.1.0", "v1.0.0"} {
			if s := g.settle(g.process(disk), v); !s.Done || s.Refused {
				t.Errorf("%s: %+v", v, s)
			}
		}
		if v, _ := g.serving(t); v != "v1.1.0" || len(g.loads(t)) != 1 {
			t.Errorf("%s serves, %d loads", v, len(g.loads(t)))
		}
	})
}

// TestRingPlanIsForeseen: what is wrong with a ring plan by itself refuses the candidate, and nothing is launched.
func TestRingPlanIsForeseen(t *testing.T) {
	for _, c := range []struct{ from, to, code, want string }{
		{"adapter: ringsim", "adapter: p4-staged", "NoEngine", "names the adapter p4-staged, and this build has a client of ringsim alone: there is none of the p4 engine to be had yet"},
		{"batch: 128, ubatch: 32", "batch: 2048, ubatch: 512", "RingRefused", "refused R3 stage step37-s0"},
		{"layers: 23-45", "layers: 23-44", "RingRefused", "R13"},
		{"h2.ring:42012", "127.0.0.1:42012", "RingPlan", "lane/ring.yaml:5:15: "},
		{"stages:\n", "generation: 5\nstages:\n", "RingPlan", "lane/ring.yaml:7:13: generation is a literal for a derived value"},
		{"prompts: lane/canary", "prompts: canary", "RingPlan", "expected a file below lane/"},
		{"prompts: lane/canary", "prompts: lane/other", "NoLane", "lane/other.jsonl is not there"},
		{"format: sim", "format: chatml", "RingRefused", "R8"},
		{"catalog: models", "catalog: ../current", "RingPlan", "switch.catalog"},
	} {
		withRing(t, func(t *testing.T, g *onRing) {
			g.files["lane/ring.yaml"] = strings.ReplaceAll(ringFile, c.from, c.to)
			g.tagged("v1.0.0", 1)
			s := g.settle(g.process(t.TempDir()), "v1.0.0")
			if !s.Refused || s.Stage != Candidate || s.Code != c.code || !strings.Contains(s.Text, c.want) || len(g.place.launched) > 0 || g.w.Sent() > 0 {
				t.Errorf("%s: %+v", c.to, s)
			}
		})
	}
	withRing(t, func(t *testing.T, g *onRing) {
		g.conf.Models["digits"].Targets[0].Ring.Weights.File = "model.gguf"
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.process(t.TempDir()), "v1.0.0"); s.Code != "EvidenceMissing" || !strings.Contains(s.Text, "has no file model.gguf") {
			t.Errorf("%+v", s)
		}
	})
}

func TestRingTargetIsRead(t *testing.T) {
	with := func(target string) []byte {
		return []byte(strings.Replace(good, "- pointer: true", "- "+target, 1))
	}
	const weights = "weights: {file: model.gguf, arch: step37, layers: 45, hidden: 4096}"
	c, err := Read(File, with("{ring: lane/rings/digits.yaml, "+weights+"}"), here())
	if err != nil {
		t.Fatal(err)
	}
	want := Target{Name: "ring-1", Kind: TargetRing, Ring: &Ring{File: "lane/rings/digits.yaml", Weights: Weights{File: "model.gguf", Arch: "step37", Layers: 45, Hidden: 4096}}}
	if d := cmp.Diff(want, c.Models["digits"].Targets[0]); d != "" {
		t.Error(d)
	}
	for target, want := range map[string]string{
		"{ring: rings/digits.yaml, " + weights + "}":                          "targets[0].ring is rings/digits.yaml: expected a file below lane/",
		"{ring: lane/r.yaml}":                                                 "targets[0].weights is missing: expected weights: {file: model.gguf",
		"{ring: lane/r.yaml, weights: {file: a}}":                             "targets[0].weights.arch is missing",
		"{pointer: true, " + weights + "}":                                    "targets[0].weights is given, and no ring",
		"{pointer: true, ring: lane/r.yaml, " + weights + "}":                 "expected one of pointer, exec, webhook, ring",
		"{ring: lane/r.yaml, " + strings.Replace(weights, "45", "0", 1) + "}": "layers is 0",
	} {
		if _, err := Read(File, with(target), here()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", target, err, want)
		}
	}
}
