package ring

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// command is a good LOAD of the first stage (or UNLOAD), with what its guard looks at.
func command(t *testing.T, unload bool) (*Plan, *Intent, Command, Look) {
	t.Helper()
	v := healthy(t)
	i := &Intent{Schema: 1, Ring: "step37", Generation: 1789, Weights: v.Weights}
	for _, s := range v.Plan.Stages {
		i.Stages = append(i.Stages, IntentStage{Node: s.Node, Host: s.Host, Agent: v.Plan.Host(s.Host).Agent})
	}
	look, _ := v.Survey.look("", "h1")
	if unload {
		look.Inspection.Nodes = []Node{{ID: "step37-s0", Generation: 1789}}
		c, err := i.Unload(i.Stages[0])
		if err != nil {
			t.Fatal(err)
		}
		return v.Plan, i, c, look
	}
	cs, err := v.Plan.Loads(v.Weights, 1789, func(string) (string, bool) { return "/m", true })
	if err != nil {
		t.Fatal(err)
	}
	return v.Plan, i, cs[0], look
}

func reload(t *testing.T, c *Command, change func(*StageLoad)) {
	t.Helper()
	var body StageLoad
	if err := json.Unmarshal(c.Envelope.Body, &body); err != nil {
		t.Fatal(err)
	}
	change(&body)
	c.Envelope.Body, _ = json.Marshal(body)
}

// TestCommandGuard: a command is looked at right before its first byte; each fault is refused by its rule alone.
func TestCommandGuard(t *testing.T) {
	for _, c := range []struct {
		what   string
		unload bool
		spoil  func(i *Intent, c *Command, l *Look)
		rules  []string
	}{
		{"a good load", false, func(*Intent, *Command, *Look) {}, nil},
		{"a good unload", true, func(*Intent, *Command, *Look) {}, nil},
		{"to the node that it would create", false, func(_ *Intent, c *Command, _ *Look) {
			c.Target = Target{Kind: ToNode, Agent: c.Target.Agent, Node: "step37-s0", Generation: 1789}
		}, []string{"R1"}},
		{"to another agent", false, func(_ *Intent, c *Command, _ *Look) { c.Target.Agent = "tcp://h2.ring:42012" }, []string{"R1"}},
		{"to a stranger", false, func(_ *Intent, c *Command, _ *Look) { c.Envelope.Meta.Node = "else" }, []string{"R1"}},
		{"an old inspection", false, func(_ *Intent, _ *Command, l *Look) { l.At = time.Now().Add(-inspectAge - time.Second) }, []string{"R1"}},
		{"another address", false, func(_ *Intent, c *Command, _ *Look) { c.Via = "tcp://10.0.0.1:42011" }, []string{"R1"}},
		{"no answer", false, func(_ *Intent, _ *Command, l *Look) { l.Err = NoAnswer{} }, []string{"R1"}},
		{"registered", false, func(_ *Intent, _ *Command, l *Look) {
			l.Inspection.Nodes = []Node{{ID: "step37-s0", Generation: 1}}
		}, []string{"R1"}},
		{"two numbers", false, func(_ *Intent, c *Command, _ *Look) { reload(t, c, func(b *StageLoad) { b.Load = 1 }) }, []string{"R2"}},
		{"not the recorded one", false, func(i *Intent, _ *Command, _ *Look) { i.Generation = 1788 }, []string{"R2"}},
		{"a remembered bound", false, func(_ *Intent, c *Command, _ *Look) { reload(t, c, func(b *StageLoad) { b.Bound = 33_554_432 }) }, []string{"R3"}},
		{"a KV range of its own", false, func(_ *Intent, c *Command, _ *Look) { reload(t, c, func(b *StageLoad) { b.KV[1] = 11 }) }, []string{"R13"}},
		{"gone", true, func(_ *Intent, _ *Command, l *Look) { l.Inspection.Nodes = nil }, []string{"R12"}},
		{"of another load", true, func(_ *Intent, _ *Command, l *Look) { l.Inspection.Nodes[0].Generation = 1790 }, []string{"R12"}},
		{"an unload to the node", true, func(_ *Intent, c *Command, _ *Look) { c.Target.Kind = ToNode }, []string{"R1"}},
		{"an unload with two numbers", true, func(_ *Intent, c *Command, _ *Look) {
			c.Envelope.Body = []byte(`{"schema":4,"ring":"step37","load_generation":1}`)
		}, []string{"R2"}},
	} {
		p, i, cmd, look := command(t, c.unload)
		c.spoil(i, &cmd, &look)
		var rules []string
		for _, f := range CheckCommand(p, i, cmd, look) {
			rules = append(rules, f.Rule)
		}
		if d := cmp.Diff(c.rules, slices.Compact(rules)); d != "" {
			t.Errorf("%s: %s", c.what, d)
		}
	}
	p, i, cmd, look := command(t, false)
	cmd.Target = Target{Kind: ToNode, Agent: "tcp://h1.ring:42011", Node: "step37-s0"}
	want := `LOAD for node "step37-s0": it goes to node step37-s0@0 at tcp://h1.ring:42011: expected agent tcp://h1.ring:42011; a node exists only after its LOAD; an event for an unknown node leaves the agent and is dropped`
	if got := CheckCommand(p, i, cmd, look)[0].String(); !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestReadPrompts(t *testing.T) {
	got, err := ReadPrompts("c.jsonl", []byte(`{"format":"step37","text":"<|user|>hi","max_tokens":8,"want":"ok"}`+"\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Prompt{{"step37", "<|user|>hi", 8, "ok"}}, got); d != "" {
		t.Error(d)
	}
	for text, want := range map[string]string{
		`{"format":"a"}`: "c.jsonl:2:1: a prompt without text or format", `{"text":1}`: "c.jsonl:2:1: no prompt", `{"temperature":1}`: "unknown field",
		`{"format":"a","text":"b"}{}`: "more than one value",
	} {
		if _, err := ReadPrompts("c.jsonl", []byte("\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzDecodeIntent: a record in a store is hostile bytes.
func FuzzDecodeIntent(f *testing.F) {
	f.Add([]byte(`{"schema":1,"ring":"r","generation":5,"stages":[{"node":"a","host":"h","agent":"t"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := DecodeIntent(b); err == nil && (i.Generation == 0 || len(i.Stages) == 0) {
			t.Fatalf("%+v", i)
		}
	})
}
