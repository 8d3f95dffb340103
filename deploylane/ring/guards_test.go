package ring

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/preflight"
)

const sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func step37Plan(t *testing.T) *Plan {
	t.Helper()
	p, err := ReadPlan("ring.yaml", []byte(step37))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func step37Weights() Weights {
	return Weights{Digest: "sha256:" + sha, Arch: "step37", Layers: 45, Hidden: 4096}
}

// inspected is what a healthy agent of a host says.
func inspected(h Host, from string) Inspection {
	store := h.Retained
	return Inspection{From: Viewpoint(from), Dialled: h.Agent, Agent: h.Agent, Release: "v0.9.0", Build: "b1",
		Slots: &Slots{Total: 256, Free: 250}, Journal: &Journal{On: true, Dir: "/var/p4/journal", Writable: true, Free: 2 << 30}, Retained: &store,
		Nodes: []Node{}, Needs: []string{"kv-v2"},
		Native:  &Native{Path: h.Path, SHA256: h.SHA256, Release: "v0.9.0", Backend: "hip", Hello: []string{"physical-v4", "layer-window=1", "kv-v2=yes"}},
		Devices: []Device{{Name: "ROCm0"}, {Name: "ROCm1"}, {Name: "ROCm2"}}, Memory: &Memory{Total: 128 << 30, Free: 100 << 30},
		Models: []Model{{Path: "/models/step37.gguf", Digest: "sha256:" + sha, Bytes: 1}}}
}

// healthy is a view in which every guard is content.
func healthy(t *testing.T) *View {
	p := step37Plan(t)
	var all []Inspection
	for _, h := range p.Hosts {
		all = append(all, inspected(h, ""))
	}
	all = append(all, inspected(p.Hosts[1], "h1"), inspected(p.Hosts[0], "h2"))
	return &View{Plan: p, Weights: step37Weights(), Generation: 1000, Known: true, Recorded: []Recorded{{999, "the store"}}, Lease: Releaser{Known: true},
		Prompts: []Prompt{{Format: "step37", Text: "hello", MaxTokens: 16}}, Survey: SurveyOf(p, all)}
}

// alter changes what a host's agent answers, from wherever it is asked.
func (v *View) alter(host string, change func(*Look)) {
	for k, l := range v.Survey.looks {
		if k.Host == host {
			change(&l)
			v.Survey.looks[k] = l
		}
	}
}

func without(cs []preflight.Check, rule string) []preflight.Check {
	return slices.DeleteFunc(cs, func(c preflight.Check) bool { return c.ID == rule })
}

func TestHealthyRingPasses(t *testing.T) {
	r := preflight.Run(t.Context(), "step37", Checks(healthy(t), nil), nil)
	if r.Blocked {
		t.Errorf("%v", r.Blocking())
	}
	rules := map[string]bool{}
	for _, f := range r.Findings {
		rules[f.Rule] = true
	}
	if len(rules) != 15 { // R1 to R14 and W1
		t.Errorf("%d rules spoke: %v", len(rules), rules)
	}
}

type fault struct {
	rule  string
	what  string
	spoil func(v *View)
	says  string // the refusal holds it; "": it is unknown
}

func seen(change func(in *Inspection)) func(*View) {
	return func(v *View) { v.alter("h1", func(l *Look) { change(&l.Inspection) }) }
}

// faults are drifts that exactly one guard sees.
func faults() []fault {
	return []fault{
		{"R1", "the node is registered", seen(func(in *Inspection) {
			in.Nodes = []Node{{ID: "step37-s0", Generation: 7, State: "ready"}}
		}), "node step37-s0 is registered on agent tcp://h1.ring:42011 at generation 7"},
		{"R2", "the clock went back", func(v *View) { v.Recorded = append(v.Recorded, Recorded{1000, "load/1000.json"}) }, "generation 1000 is not above 1000, recorded in load/1000.json"},
		{"R2", "a tombstone", seen(func(in *Inspection) { in.Buried = []Tombstone{{"step37-s1", 5000}} }), "generation 1000 is not above 5000, recorded in a former node step37-s1 on tcp://h1.ring:42011"},
		{"R2", "two numbers", seen(func(in *Inspection) {
			two := uint64(1789)
			in.Nodes = []Node{{ID: "else-s1", Generation: 1, Load: &two}}
		}), "generation 1 (node else-s1) differs from load generation 1789: expected one number"},
		{"R2", "no records", func(v *View) { v.Known = false }, ""},
		{"R3", "the profile of the post", func(v *View) { v.Plan.Shape.Batch, v.Plan.Shape.Ubatch = 2048, 512 }, "stage step37-s0: largest result 34,419,218,444 bytes at n_batch 2048 × n_ubatch 512 cannot fit the completion cap of 201,326,592 nor the agent's store of 268,435,456"},
		{"R3", "another architecture", func(v *View) { v.Weights.Arch = "step38" }, ""},
		{"R3", "a smaller store than written", seen(func(in *Inspection) { *in.Retained = 64 << 20 }), "its store holds 67,108,864 bytes"},
		{"R3", "a store that holds the cap, and not what a LOAD asks for", seen(func(in *Inspection) { *in.Retained = 200 << 20 }), "its store holds 209,715,200 bytes, the plan says 268,435,456: expected at least 268,435,456"},
		{"R3", "a result between cap and store", func(v *View) { v.Plan.Shape.Ubatch = 55 }, "cannot fit the completion cap of 201,326,592: expected at most 201,326,592; at n_batch 128 the largest n_ubatch that fits is 47"},
		{"R3", "a store that is not said", seen(func(in *Inspection) { in.Retained = nil }), ""},
		{"R4", "loopback", func(v *View) {
			v.Plan.Hosts[1].Agent = "tcp://127.0.0.1:42012"
			v.alter("h2", func(l *Look) { l.Inspection.Agent = "tcp://127.0.0.1:42012" })
		}, "edge step37-s1 → step37-s2: agent h2 advertises 127.0.0.1:42012, a loopback address; from h1 that is h1 itself"},
		{"R4", "another identity", func(v *View) {
			l := v.Survey.looks[pair{"h1", "h2"}]
			l.Inspection.Agent = "tcp://h2.lan:42012"
			v.Survey.looks[pair{"h1", "h2"}] = l
		}, `edge step37-s1 → step37-s2: dialled from h1, agent h2 answers as "tcp://h2.lan:42012", the plan says "tcp://h2.ring:42012"`},
		{"R4", "not reached from there", func(v *View) {
			v.Survey.looks[pair{"h2", "h1"}] = Look{Err: Unreachable{From: "h2", Address: "tcp://h1.ring:42011", Why: "refused"}}
		}, "edge step37-s3 → step37-s0: tcp://h1.ring:42011 cannot be reached from h2"},
		{"R4", "not dialled from there", func(v *View) { delete(v.Survey.looks, pair{"h2", "h1"}) }, ""},
		{"R4", "silence", func(v *View) { v.Survey.looks[pair{"h2", "h1"}] = Look{Err: NoAnswer{To: "h1", What: "INSPECT"}} }, ""},
		{"R5", "no journal", seen(func(in *Inspection) { in.Journal.On = false }), "agent h1: it runs without an operational journal (P4_EVENT_OUTBOUND_JOURNAL_DIR)"},
		{"R5", "not its folder", seen(func(in *Inspection) { in.Journal.Writable = false }), "its user cannot write the journal"},
		{"R5", "a full disk", seen(func(in *Inspection) { in.Journal.Free = 1 << 29 }), "has 536,870,912 bytes of room: expected at least 1,073,741,824"},
		{"R5", "not said", seen(func(in *Inspection) { in.Journal = nil }), ""},
		{"R6", "a name of another build", func(v *View) { v.Plan.Stages[0].Device = "CUDA0" }, `stage step37-s0: device "CUDA0" is not one of [ROCm0 ROCm1 ROCm2] that h1's hip build offers`},
		{"R6", "another build", seen(func(in *Inspection) { in.Native.Backend = "vulkan" }), `the build on h1 is "vulkan", the plan says "hip"`},
		{"R6", "a mask behind the last", func(v *View) { v.Plan.Stages[1].Mask = "3" }, `the mask "3" names a device behind the last`},
		{"R6", "no list", seen(func(in *Inspection) { in.Devices = nil }), ""},
		{"R7", "a capability is missing", seen(func(in *Inspection) { in.Native.Hello = []string{"physical-v4", "layer-window=1"} }), `h1: native server at /opt/p4/p4_staged_server lacks capability "kv-v2" that agent release v0.9.0 requires`},
		{"R7", "a capability of another value", seen(func(in *Inspection) { in.Native.Hello[1] = "layer-window=2" }), `lacks capability "layer-window=1"`},
		{"R7", "an old native server", seen(func(in *Inspection) { in.Native.Release = "v0.8.0" }), "the agent is release v0.9.0 and the native server v0.8.0"},
		{"R7", "another file", seen(func(in *Inspection) { in.Native.SHA256 = strings.Repeat("b", 64) }), "expected /opt/p4/p4_staged_server with " + sha},
		{"R7", "two builds", seen(func(in *Inspection) { in.Build = "b0" }), "agents of different builds: b0 on h1, b1 on h2"},
		{"R7", "nothing said", seen(func(in *Inspection) { in.Needs = nil }), ""},
		{"R8", "another format", func(v *View) { v.Prompts[0].Format = "chatml" }, `prompt 1 is rendered as "chatml", the plan says "step37"`},
		{"R8", "ends by length", func(v *View) { v.Plan.Canary.Finish = StopLength }, `finish "length"`},
		{"R8", "no prompts", func(v *View) { v.Prompts = nil }, ""},
		{"R9", "clients may send more", func(v *View) { v.Plan.Catalog.Tokens = 4096 }, "clients may send 4096 tokens and ask for 1000"},
		{"R9", "the canary asks for more", func(v *View) { v.Prompts[0].MaxTokens = 1025 }, "prompt 1 asks for 1025 tokens"},
		{"R10", "memory is not back", seen(func(in *Inspection) { in.Memory.Free = 59 << 30 }), "host h1: 63,350,767,616 bytes are free and 0 come back"},
		{"R10", "not measured", seen(func(in *Inspection) { in.Memory = nil }), ""},
		{"R11", "slots leaked", seen(func(in *Inspection) { in.Slots.Free = 3 }), "3 of 256 connections are free: expected at least 4"},
		{"R11", "not said", seen(func(in *Inspection) { in.Slots = nil }), ""},
		{"R12", "another generation than recorded", func(v *View) {
			v.Replaces = &Intent{Generation: 998, Stages: []IntentStage{{Node: "step36-s0", Host: "h1", Agent: "tcp://h1.ring:42011"}}}
			v.alter("h1", func(l *Look) { l.Inspection.Nodes = []Node{{ID: "step36-s0", Generation: 997}} })
		}, "node step36-s0: it exists at generation 997, the record of its load says 998"},
		{"R12", "an agent that the plan has no more, not asked", func(v *View) {
			v.Replaces = &Intent{Generation: 998, Stages: []IntentStage{{Node: "step36-s0", Host: "h1", Agent: "tcp://h0.ring:42010"}}}
		}, ""},
		{"R13", "a gap", func(v *View) { v.Plan.Stages[1].Layers = [2]int{13, 23} }, "stage step37-s1: layers [13, 23) behind those up to 12"},
		{"R13", "another model", func(v *View) { v.Weights.Layers = 46 }, "the stages end at layer 45: expected 46"},
		{"R13", "not known", func(v *View) { v.Weights.Layers = 0 }, ""},
		{"R14", "a second releaser", func(v *View) { v.Lease.Other = "lane-b" }, "another release holds it: lane-b"},
		{"R14", "not read", func(v *View) { v.Lease.Known = false }, ""},
		{"W1", "other weights", seen(func(in *Inspection) { in.Models[0].Digest = "sha256:00" }), "no file of 1 has the release's digest"},
		{"W1", "not looked at", seen(func(in *Inspection) { in.Models = nil }), ""},
	}
}

// TestEachGuardAlone: every fault is seen by its guard, in its words, and by no other: with that guard left out, the
// fault passes. So no guard is a second name of another, and none can be left out.
func TestEachGuardAlone(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range faults() {
		v := healthy(t)
		c.spoil(v)
		r := preflight.Run(t.Context(), "step37", Checks(v, nil), nil)
		var said bool
		for _, f := range r.Blocking() {
			if f.Rule != c.rule {
				t.Errorf("%s, %s: also seen by %s", c.rule, c.what, f)
			}
			if f.Expected == "" || f.Fix == "" {
				t.Errorf("%s, %s: what is in the way says what to do: %s", c.rule, c.what, f)
			}
			said = said || (c.says == "") == (f.Verdict == preflight.Unknown) && strings.Contains(f.String(), c.says)
		}
		if !r.Blocked || !said {
			t.Errorf("%s, %s: not said as %q: %v", c.rule, c.what, c.says, r.Blocking())
		}
		if off := preflight.Run(t.Context(), "step37", without(Checks(v, nil), c.rule), nil); off.Blocked {
			t.Errorf("%s, %s: with the guard off: %v", c.rule, c.what, off.Blocking())
		}
		tested[c.rule] = true
	}
	for _, g := range guards {
		if !tested[g.id] {
			t.Errorf("%s has no fault", g.id)
		}
	}
}

// TestBoundFixOfThePost: the refusal names what fits.
func TestBoundFixOfThePost(t *testing.T) {
	v := healthy(t)
	v.Plan.Shape.Batch, v.Plan.Shape.Ubatch = 128, 64
	f := guardBound(v)[0]
	if want := "at n_batch 128 the largest n_ubatch that fits is 47"; f.Verdict != preflight.Refused || !strings.Contains(f.Fix, want) {
		t.Errorf("%s; want %s", f, want)
	}
}

// TestReplacedLoadIsNoObstacle: the nodes of the load that serves are unloaded first: neither their ids nor their memory
// are in the way.
func TestReplacedLoadIsNoObstacle(t *testing.T) {
	v := healthy(t)
	v.Replaces = &Intent{Generation: 900, Stages: []IntentStage{{Node: "step37-s0", Host: "h1", Agent: "tcp://h1.ring:42011"}, {Node: "step37-s2", Host: "h2", Agent: "tcp://h2.ring:42012"}}}
	v.alter("h1", func(l *Look) {
		l.Inspection.Nodes = []Node{{ID: "step37-s0", Generation: 900, Resident: 80 << 30}}
		l.Inspection.Memory.Free = 1 << 30
	})
	if r := preflight.Run(t.Context(), "step37", Checks(v, nil), nil); r.Blocked {
		t.Errorf("%v", r.Blocking())
	}
}

// TestSilentAgentIsUnknown: an agent that says nothing is unknown to every guard that needs its answer, and the cheap
// guards speak before anybody is asked.
func TestSilentAgentIsUnknown(t *testing.T) {
	v := healthy(t)
	s := v.Survey
	v.Survey = nil
	v.Plan.Stages[1].Layers = [2]int{13, 23}
	var asked int
	r := preflight.Run(t.Context(), "step37", Checks(v, func(context.Context) *Survey {
		asked++
		for k := range s.looks {
			s.looks[k] = Look{Err: NoAnswer{To: k.Host, What: "INSPECT", After: time.Second}}
		}
		return s
	}), nil)
	unknown := map[string]bool{}
	for _, f := range r.Blocking() {
		unknown[f.Rule] = true
	}
	var got []string
	for k := range unknown {
		got = append(got, k)
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"R1", "R10", "R11", "R13", "R2", "R3", "R4", "R5", "R6", "R7", "W1"}, got); d != "" || asked != 1 {
		t.Errorf("asked %d times; %s", asked, d)
	}
}

// TestOneNumber: wherever the engine compares two numbers, both are written from one variable.
func TestOneNumber(t *testing.T) {
	v := healthy(t)
	cs, err := v.Plan.Loads(v.Weights, 1789, func(h string) (string, bool) { return v.Survey.model(h, v.Weights.Digest) })
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cs {
		var body StageLoad
		if err := json.Unmarshal(c.Envelope.Body, &body); err != nil {
			t.Fatal(err)
		}
		if c.Envelope.Meta.Generation != 1789 || body.Load != 1789 || body.KV != body.Layers || c.Target.Kind != ToAgent {
			t.Errorf("%+v", c)
		}
		if want := map[bool]uint64{false: 137_935_244, true: 3_696_012}[i == 3]; body.Bound != want {
			t.Errorf("stage %d: bound %d, want %d", i, body.Bound, want)
		}
		if wire, err := c.Envelope.Encode(); err != nil {
			t.Error(err)
		} else if back, err := DecodeEnvelope(ContentLoad, wire); err != nil || cmp.Diff(c.Envelope, back) != "" {
			t.Errorf("%v: %s", err, cmp.Diff(c.Envelope, back))
		}
	}
	if _, err := v.Plan.Loads(Weights{Arch: "other", Layers: 45, Hidden: 1}, 1, func(string) (string, bool) { return "/m", true }); !errors.Is(err, ErrNoVector) {
		t.Errorf("a bound out of nothing: %v", err)
	}
}
