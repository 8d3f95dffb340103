package deploylane

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

func identity(t *testing.T, b []byte) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range raw {
		out[k] = string(v)
	}
	return out
}

// differ names the fields in which two identities differ.
func differ(a, b map[string]string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if a[k] != b[k] {
			out = append(out, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if _, there := a[k]; !there {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// TestTheSecondGenerationIsTheSameWork: of everything that a plan can put into an identity, the retrained work has what the
// candidate has, but for generation, parent and the pinned environment; its backtest has the deploy flag and reads the new model.
func TestTheSecondGenerationIsTheSameWork(t *testing.T) {
	data := strings.Repeat("d", 64)
	train := plan.Job{Name: "digits", Kind: "train", Code: "digits", CodeTree: tree, Argv: []string{"train", "${needs.data}"}, Params: map[string]string{"lr": "0.1"}, Seed: 7, Replica: 2,
		Inputs: []plan.Input{{Job: "data", Work: plan.Digest(data)}}, Requires: map[string]string{"os": "linux", "driver": "549"}, Env: map[string]string{"OMP_NUM_THREADS": "1"}, Result: "out", Generation: 1}
	train.Work = train.Digest()
	check := train
	check.Name, check.Kind, check.Argv = "digits-backtest", "backtest", []string{"score", "${needs.digits}", "${needs.data}"}
	check.Inputs = append(slices.Clone(train.Inputs), plan.Input{Job: "digits", Work: train.Work})
	check.Work = check.Digest()
	was := identity(t, train.IdentityJSON())
	for _, f := range plan.Fields() {
		if _, there := was[f.Name]; f.Sort == plan.Identity && !there {
			t.Errorf("this test says nothing about %s", f.Name)
		}
	}
	c := &Chosen{Order: Order{Requires: map[string]string{"driver": "550.1"}}}
	c.order(&train, &check)
	is := identity(t, record.Identity(c.Retrain.Spec))
	if d := cmp.Diff([]string{"generation", "parent", "requires"}, differ(was, is)); d != "" {
		t.Error(d)
	}
	if is["generation"] != "2" || is["parent"] != `"`+string(train.Work)+`"` || is["requires"] != `{"driver":"550.1","os":"linux"}` {
		t.Errorf("%v", is)
	}
	back := identity(t, record.Identity(c.Check.Spec))
	if d := cmp.Diff([]string{"deploy", "generation", "needs", "parent", "requires", "run"}, differ(identity(t, check.IdentityJSON()), back)); d != "" {
		t.Error(d)
	}
	if back["run"] != `["score","${needs:`+c.Retrain.Spec.Work+`}","${needs:`+data+`}"]` || back["deploy"] != "true" {
		t.Errorf("%v", back)
	}
}

// TestSeedsOfOtherHardwareDoNotCount: seeds that ran on another card, of the same name or not, are left out and named.
func TestSeedsOfOtherHardwareDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		for i := range g.jobs {
			j := &g.jobs[i]
			if !strings.HasPrefix(j.Name, "digits-seeds-seed=") || strings.HasSuffix(j.Name, "1") {
				continue
			}
			key := record.OpenKey(string(j.Work), 1)
			b, _, err := get(t.Context(), g.research, key, record.MaxRecord)
			var open record.Open
			if err = errors.Join(err, record.Decode(b, record.MaxRecord, &open)); err != nil {
				t.Fatal(err)
			}
			open.Fingerprint["gpu_pci"] = "0x2330"
			b, err = record.Encode(open)
			if err == nil {
				_, err = g.research.Put(t.Context(), key, bytes.NewReader(b), bucket.Always())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if !s.Refused || s.Code != "TooFewSeeds" || !strings.Contains(s.Text, "found 1 of the parent's seeds") ||
			!strings.Contains(s.Text, "it ran on other hardware (arch amd64, cpu x, gpu_pci 0x2330) than the candidate (arch amd64, cpu x)") || len(g.place.launched) > 0 {
			t.Errorf("%+v", s)
		}
	})
}
