package preflight

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func says(id string, cost Cost, order *[]string, fs ...Finding) Check {
	return Check{ID: id, Class: Addressee, Cost: cost, Run: func(context.Context) []Finding {
		*order = append(*order, id)
		return fs
	}}
}

// TestAllFailuresCheapFirst: every check runs, in the order of cost, whatever the earlier ones said.
func TestAllFailuresCheapFirst(t *testing.T) {
	var order []string
	r := Run(t.Context(), "x", []Check{
		says("p", Process, &order, Finding{Subject: "1", Verdict: Refused}), says("n", Network, &order, Finding{Subject: "1", Verdict: Unknown}),
		says("f", Free, &order, Finding{Subject: "1", Verdict: Refused}, Finding{Subject: "2", Verdict: OK}),
	}, nil)
	if d := cmp.Diff([]string{"f", "n", "p"}, order); d != "" {
		t.Error(d)
	}
	if len(r.Findings) != 4 || len(r.Blocking()) != 3 || !r.Blocked {
		t.Errorf("%+v", r)
	}
}

// TestUnknownBlocks: what could not be looked at blocks: said, or not said at all, or in a word that nobody knows, or
// because the time was over.
func TestUnknownBlocks(t *testing.T) {
	var order []string
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ok := Finding{Subject: "1", Verdict: OK}
	for name, r := range map[string]Report{
		"said":  Run(t.Context(), "x", []Check{says("a", Free, &order, Finding{Subject: "1", Verdict: Unknown})}, nil),
		"empty": Run(t.Context(), "x", []Check{says("a", Free, &order)}, nil),
		"word":  Run(t.Context(), "x", []Check{says("a", Free, &order, Finding{Subject: "1", Verdict: "fine"})}, nil),
		"time":  Run(ended, "x", []Check{says("a", Free, &order, ok)}, nil),
	} {
		if !r.Blocked || r.Findings[0].Verdict != Unknown {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := Run(t.Context(), "x", []Check{says("a", Free, &order, ok)}, nil); r.Blocked {
		t.Errorf("%+v", r)
	}
}

// TestOverride: a person may go on over the unknown, by name and with a reason, for one rule and one subject; never over
// a refusal, and never for something that is not unknown.
func TestOverride(t *testing.T) {
	var order []string
	unknown, refused := Finding{Subject: "s", Verdict: Unknown}, Finding{Subject: "s", Verdict: Refused}
	good := Override{"a", "s", "anna", "read by hand"}
	for _, c := range []struct {
		f       Finding
		o       Override
		blocked bool
	}{
		{unknown, good, false}, {refused, good, true}, {unknown, Override{"b", "s", "anna", "x"}, true},
		{unknown, Override{"a", "t", "anna", "x"}, true}, {unknown, Override{"a", "s", "", "x"}, true}, {unknown, Override{"a", "s", "anna", ""}, true},
		{Finding{Subject: "s", Verdict: OK}, good, true},
	} {
		r := Run(t.Context(), "x", []Check{says("a", Free, &order, c.f)}, []Override{c.o})
		if r.Blocked != c.blocked {
			t.Errorf("%+v over %+v: %+v", c.o, c.f, r)
		}
		if by := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Override != nil && f.Override.By == "anna" }); by == c.blocked {
			t.Errorf("%+v: recorded %v", c.o, by)
		}
	}
}

// TestReportRoundTrip: the report is a document that programs read.
func TestReportRoundTrip(t *testing.T) {
	var order []string
	r := Run(t.Context(), "x", []Check{says("a", Network, &order, Finding{Subject: "s", Verdict: Unknown, Found: "f", Expected: "e", Fix: "x"})}, []Override{{"a", "s", "anna", "why"}})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, back); d != "" {
		t.Error(d)
	}
	if err := json.Unmarshal([]byte(`{"findings":[{"cost":"cheap"}]}`), &back); err == nil {
		t.Error("an unknown cost was read")
	}
}
