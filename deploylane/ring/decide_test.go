package ring

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func standings(all ...Standing) []Found {
	var out []Found
	for i, s := range all {
		f := Found{IntentStage: IntentStage{Node: string(rune('a' + i))}, Standing: s}
		if s == Stranger {
			f.Generation = 7
		}
		out = append(out, f)
	}
	return out
}

func nodeNames(all []IntentStage) string {
	out := ""
	for _, s := range all {
		out += s.Node
	}
	return out
}

// TestDecide has every row of ring.md §5.3, in its order, then what the rows leave open.
func TestDecide(t *testing.T) {
	intent := &Intent{Generation: 5}
	sent := Ledger{Sent: true}
	for _, c := range []struct {
		row  string
		s    Situation
		want Do
		on   string // nodes of the decision
	}{
		{"no intent, anything: start over", Situation{Found: standings(Missing, Missing)}, DoStart, ""},
		{"intent, no sent event, nodes absent", Situation{Intent: intent, Found: standings(Missing, Missing)}, DoAbandon, ""},
		{"intent, no sent event, a node at this generation", Situation{Intent: intent, Found: standings(Loading, Missing)}, DoMarkSent, "a"},
		{"sent, all nodes loaded", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Loaded)}, DoCanary, ""},
		{"some loaded, some absent", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Missing)}, DoTakeBack, "a"},
		{"some loaded, some failed", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Broken)}, DoTakeBack, "ab"},
		{"some loading", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Loading)}, DoWait, ""},
		{"some loading, the deadline is over", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Loading), Late: true}, DoTakeBack, "ab"},
		{"unknown resource state", Situation{Intent: intent, Ledger: sent, Found: standings(Loading, Unclear)}, DoStop, ""},
		{"nodes at another generation", Situation{Intent: intent, Ledger: sent, Found: standings(Stranger, Loaded)}, DoStop, ""},
		{"all loaded, canary failed", Situation{Intent: intent, Ledger: Ledger{Sent: true, Failed: true}, Found: standings(Loaded, Loaded)}, DoTakeBack, "ab"},
		{"switched, not serving, all loaded", Situation{Intent: intent, Ledger: Ledger{Sent: true, Switched: true}, Found: standings(Loaded, Loaded)}, DoCanary, ""},
		{"store unreachable", Situation{Store: errors.New("down"), Intent: intent, Ledger: sent, Found: standings(Loaded, Missing)}, DoNothing, ""},
		{"both records lost", Situation{Found: standings(Stranger, Missing)}, DoAdopt, ""},
		{"an agent restarted under a serving ring", Situation{Intent: intent, Ledger: Ledger{Sent: true, Switched: true, Serving: true}, Found: standings(Loaded, Missing)}, DoTakeBack, "a"},

		{"it serves", Situation{Intent: intent, Ledger: Ledger{Sent: true, Switched: true, Serving: true}, Found: standings(Loaded, Loaded)}, DoNothing, ""},
		{"cleared for the next release, nothing unloaded", Situation{Intent: intent, Ledger: Ledger{Sent: true, Cleared: true}, Found: standings(Loaded, Loaded)}, DoCanary, ""},
		{"its unload had begun", Situation{Intent: intent, Ledger: Ledger{Sent: true, Unloads: true}, Found: standings(Loaded, Loaded)}, DoTakeBack, "ab"},
		{"its unload is done", Situation{Intent: intent, Ledger: Ledger{Sent: true, Unloads: true}, Found: standings(Missing, Missing)}, DoClose, ""},
		{"closed", Situation{Intent: intent, Ledger: Ledger{Sent: true, Closed: OpGone}, Found: standings(Stranger)}, DoNothing, ""},
		{"an agent does not answer", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Unseen)}, DoWait, ""},
		{"an agent does not answer, for too long", Situation{Intent: intent, Ledger: sent, Found: standings(Loaded, Unseen), Late: true}, DoStop, ""},
	} {
		got := Decide(c.s)
		if got.Do != c.want || nodeNames(got.Nodes) != c.on || got.Why == "" {
			t.Errorf("%s: %s %q (%s), want %s %q", c.row, got.Do, nodeNames(got.Nodes), got.Why, c.want, c.on)
		}
	}
}

// TestDecideIsCautious: for any record and any inspection, what exists is what is unloaded, nothing unknown or foreign is
// touched, and nothing but a whole ring is proven.
func TestDecideIsCautious(t *testing.T) {
	all := []Standing{Missing, Loading, Loaded, Broken, Stranger, Unclear, Unseen}
	rapid.Check(t, func(t *rapid.T) {
		l := Ledger{Sent: rapid.Bool().Draw(t, "sent"), Unloads: rapid.Bool().Draw(t, "unloads"), Failed: rapid.Bool().Draw(t, "failed"),
			Switched: rapid.Bool().Draw(t, "switched"), Serving: rapid.Bool().Draw(t, "serving"), Cleared: rapid.Bool().Draw(t, "cleared")}
		s := Situation{Intent: &Intent{Generation: 5}, Ledger: l, Late: rapid.Bool().Draw(t, "late"),
			Found: standings(rapid.SliceOfN(rapid.SampledFrom(all), 1, 5).Draw(t, "found")...)}
		d, is := Decide(s), count(s.Found)
		if foreign := is[Stranger] + is[Unclear] + is[Unseen]; foreign > 0 && d.Do != DoStop && d.Do != DoWait {
			t.Fatalf("%+v: %+v", s, d)
		}
		switch d.Do {
		case DoTakeBack:
			if nodeNames(d.Nodes) != nodeNames(nodes(s.Found, Loaded, Broken, Loading)) || len(d.Nodes) == 0 {
				t.Fatalf("%+v: %+v", s, d)
			}
		case DoCanary:
			if is[Loaded] != len(s.Found) || l.Failed {
				t.Fatalf("%+v: %+v", s, d)
			}
		case DoAbandon, DoClose:
			if is[Missing] != len(s.Found) {
				t.Fatalf("%+v: %+v", s, d)
			}
		case DoNothing:
			if !l.Serving || is[Loaded] != len(s.Found) {
				t.Fatalf("%+v: %+v", s, d)
			}
		case DoWait:
			if s.Late {
				t.Fatalf("%+v: %+v", s, d)
			}
		}
	})
}

// TestFind: how an inspection reads as a standing.
func TestFind(t *testing.T) {
	five, six := uint64(5), uint64(6)
	for _, c := range []struct {
		what string
		n    []Node
		want Standing
	}{
		{"nothing", nil, Missing},
		{"ready", []Node{{ID: "a", Generation: 5, Load: &five, State: "ready", Resource: Present}}, Loaded},
		{"an older agent", []Node{{ID: "a", Generation: 5, State: "ready", Resource: Present}}, Loaded},
		{"two numbers", []Node{{ID: "a", Generation: 5, Load: &six, State: "ready", Resource: Present}}, Broken},
		{"failed", []Node{{ID: "a", Generation: 5, State: "failed:session load generation is stale", Resource: Present}}, Broken},
		{"a state that nobody knows", []Node{{ID: "a", Generation: 5, State: "READY ", Resource: Present}}, Broken},
		{"loading", []Node{{ID: "a", Generation: 5, State: "loading", Resource: Present}}, Loading},
		{"unknown", []Node{{ID: "a", Generation: 5, State: "ready", Resource: Unknown}}, Unclear},
		{"another's", []Node{{ID: "a", Generation: 9, State: "ready", Resource: Present}}, Stranger},
		{"of another open load", []Node{{ID: "a", Generation: 4, State: "ready", Resource: Present}}, Missing},
	} {
		i := &Intent{Generation: 5, Stages: []IntentStage{{Node: "a", Host: "h", Agent: "tcp://h:1"}}}
		s := &Survey{looks: map[pair]Look{{"", "h"}: {Inspection: Inspection{Agent: "tcp://h:1", Nodes: c.n}}}}
		if got := find(i, s, map[uint64]bool{4: true})[0].Standing; got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		i.Stages[0].Agent = "tcp://h.lan:1"
		if got := find(i, s, nil)[0].Standing; got != Unseen {
			t.Errorf("%s, of an agent with another identity: %s", c.what, got)
		}
	}
}

// TestChoose: the clock, or one above all that was ever seen.
func TestChoose(t *testing.T) {
	got := []uint64{
		choose(1789, nil, nil), choose(0, nil, nil), choose(10, []Recorded{{12, ""}}, []Recorded{{11, ""}}), choose(10, nil, []Recorded{{10, ""}, {9, ""}}),
		choose(1, []Recorded{{maxGeneration, ""}}, nil),
		choose(10, nil, []Recorded{{10 + maxAhead, ""}, {12, ""}}), choose(10, nil, []Recorded{{9 + maxAhead, ""}}),
		choose(0, nil, []Recorded{{1 << 50, ""}}), // a store without a clock
		choose(10, []Recorded{{1 << 50, ""}}, []Recorded{{1<<50 + 1, ""}}),
	}
	if d := cmp.Diff([]uint64{1789, 1, 13, 11, 0, 13, 10 + maxAhead, 1<<50 + 1, 1<<50 + 2}, got); d != "" {
		t.Error(d)
	}
}
