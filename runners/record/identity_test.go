package record

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// vector is one row of the digest vectors that plan's own encoder is held against; the field names are those of a job.
type vector struct {
	Name string
	Job  struct {
		Kind, CodeTree, Result, Parent string
		Argv                           []string
		Params, Requires, Env          map[string]string
		Seed, Replica                  int64
		Generation                     int
		Deploy                         bool
		Inputs                         []struct{ Job, Work string }
	}
	Identity, Digest string
}

func vectors(t *testing.T) (out map[string]Spec) {
	t.Helper()
	raw, err := os.ReadFile("../../plan/testdata/vectors/identity.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []vector
	if err := json.Unmarshal(raw, &rows); err != nil || len(rows) < 10 {
		t.Fatal(len(rows), err)
	}
	out = map[string]Spec{}
	for _, v := range rows {
		j := v.Job
		s := Spec{Protocol: 1, Work: v.Digest, Kind: j.Kind, CodeTree: j.CodeTree, Argv: j.Argv, Params: j.Params, Seed: j.Seed, Replica: j.Replica,
			Requires: j.Requires, Generation: j.Generation, Parent: j.Parent, Deploy: j.Deploy, Env: j.Env, Result: j.Result, Identity: json.RawMessage(v.Identity)}
		for _, in := range j.Inputs {
			s.Inputs = append(s.Inputs, Input(in))
		}
		out[v.Name] = s
	}
	return out
}

// TestIdentityVectors: this package's canonical form is the plan's, by the same vectors, also after a trip through the
// store.
func TestIdentityVectors(t *testing.T) {
	for name, s := range vectors(t) {
		if got := string(Identity(s)); got != string(s.Identity) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, s.Identity)
		}
		raw, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Spec
		if err := Decode(raw, MaxRecord, &back); err != nil {
			t.Fatal(err)
		}
		if err := CheckIdentity(back); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryFieldIsBound: a spec whose identity is honest and one of whose fields is not is refused by that field's name.
func TestEveryFieldIsBound(t *testing.T) {
	good := vectors(t)["everything"]
	other := strings.Repeat("b", 64)
	spoil := map[string]func(s *Spec){
		"kind":       func(s *Spec) { s.Kind = "dataset" },
		"code_tree":  func(s *Spec) { s.CodeTree = strings.Repeat("0", 40) },
		"argv":       func(s *Spec) { s.Argv = []string{"x", "${needs.up}", "--evil"} },
		"params":     func(s *Spec) { s.Params = map[string]string{"p": "2"} },
		"seed":       func(s *Spec) { s.Seed = 0 },
		"replica":    func(s *Spec) { s.Replica++ },
		"inputs":     func(s *Spec) { s.Inputs = []Input{{"up", other}} },
		"requires":   func(s *Spec) { s.Requires = nil },
		"env":        func(s *Spec) { s.Env = map[string]string{"OMP_NUM_THREADS": "4", "LD_PRELOAD": "/tmp/evil.so"} },
		"result":     func(s *Spec) { s.Result = "elsewhere" },
		"generation": func(s *Spec) { s.Generation = 1 },
		"parent":     func(s *Spec) { s.Parent = "" },
		"deploy":     func(s *Spec) { s.Deploy = true },
	}
	for _, field := range slices.Sorted(maps.Values(fields)) {
		if spoil[field] == nil && field != "" {
			t.Errorf("no test spoils %s", field)
		}
	}
	for field, f := range spoil {
		s := good
		f(&s)
		e, ok := errors.AsType[*BadIdentity](CheckIdentity(s))
		if !ok || e.Field != field || !strings.Contains(e.Error(), "the spec's "+field) {
			t.Errorf("%s: %v", field, CheckIdentity(s))
		}
	}
}

// TestBadIdentities: an identity that is honest about its hash and about nothing else.
func TestBadIdentities(t *testing.T) {
	rehash := func(identity string) Spec {
		s := vectors(t)["smallest"]
		s.Identity, s.Work = json.RawMessage(identity), Hash([]byte(identity))
		return s
	}
	twice := vectors(t)["one work under two names"]
	twice.Inputs[1].Job = twice.Inputs[0].Job
	literal := vectors(t)["one input"]
	literal.Argv = []string{"python3", "backtest.py", "--model=${needs:" + literal.Inputs[0].Work + "}/x"}
	moved := vectors(t)["smallest"]
	moved.Work = work
	for want, s := range map[string]Spec{
		"is no JSON:":                          rehash(`{`),
		"is no JSON object":                    rehash(`[]`),
		"hashes to":                            moved,
		`has the key "shell"`:                  rehash(`{"generation":1,"headway":1,"run":["x"],"shell":"y"}`),
		`is of format "2"`:                     rehash(`{"generation":1,"headway":2,"run":["x"]}`),
		`is of format ""`:                      rehash(`{"run":["x"]}`),
		"not written in the canonical way":     rehash(`{"headway":1,"generation":1,"run":["x"]}`),
		`computed over "[\"\\u0078\"]"`:        rehash(`{"generation":1,"headway":1,"run":["\u0078"]}`),
		"the spec's inputs name":               twice,
		"the spec's argv has ${needs:…} in wo": literal,
	} {
		if err := CheckIdentity(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	two := rehash(`{"generation":1,"headway":1,"run":["evil"],"run":["x"]}`) // a decoder sees the last one
	if err := CheckIdentity(two); err == nil {
		t.Error("a key that is given twice was accepted")
	}
}

// FuzzIdentity: what is in a spec comes from a stranger's hands; a check answers, and only honest ones pass.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"work":"1ffc76c3aa3b83cdbf9146a936e73d77524d8e69c8d5c71b92b666d821b76e48","argv":["x"],"identity":{"generation":1,"headway":1,"run":["x"]}}`))
	f.Add([]byte(`{"argv":["${needs.a","}"],"inputs":[{"job":"a","work":"b"}],"identity":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s Spec
		if Decode(raw, MaxRecord, &s) != nil {
			return
		}
		if err := CheckIdentity(s); err == nil && Hash(Identity(s)) != s.Work {
			t.Errorf("passed: %s", raw)
		}
		s.Identity = Identity(s)
		if !json.Valid(s.Identity) {
			t.Errorf("no JSON: %s", s.Identity)
		}
	})
}
