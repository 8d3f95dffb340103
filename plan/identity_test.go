package plan

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vector is one case of testdata/vectors/identity.json: a job, its canonical identity and its digest. The file is
// written by hand and never rewritten: a digest that changes makes every finished work of every user unknown.
type vector struct {
	Name     string `json:"name"`
	Job      Job    `json:"job"`
	Identity string `json:"identity"`
	Digest   Digest `json:"digest"`
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors/identity.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var out []vector
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestIdentityVectors(t *testing.T) {
	vs := readVectors(t)
	if len(vs) < 10 {
		t.Fatalf("%d vectors", len(vs))
	}
	for _, v := range vs {
		t.Run(v.Name, func(t *testing.T) {
			if d := cmp.Diff(v.Identity, string(v.Job.IdentityJSON())); d != "" {
				t.Error(d)
			}
			if got := v.Job.Digest(); got != v.Digest {
				t.Errorf("digest %s, want %s", got, v.Digest)
			}
			if !json.Valid(v.Job.IdentityJSON()) {
				t.Error("not JSON")
			}
		})
	}
}

func TestRenamingAnUpstreamJobChangesNothing(t *testing.T) {
	a := specTree(nil)
	b := specTree(map[string]string{"plans/digits.yaml": "", "plans/other/x.yaml": renamed(specPlan, "digits-backtest", "check", "digits-seeds", "sweep", "digits", "numbers", "../examples/numbers", "../../examples/digits")})
	p, ps := Load(a)
	q, qs := Load(b)
	if len(ps)+len(qs) > 0 {
		t.Fatal(ps, qs)
	}
	for _, pair := range [][2]string{{"digits", "numbers"}, {"digits-backtest", "check"}, {"digits-seeds-seed=3", "sweep-seed=3"}} {
		x, ok := p.Job(pair[0])
		y, ok2 := q.Job(pair[1])
		if !ok || !ok2 || x.Work != y.Work {
			t.Errorf("%v: %+v, %+v", pair, x, y)
		}
	}
}

func TestMatrixAndLike(t *testing.T) {
	p, ps := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": `jobs:
  base:
    run: x ${params.a} ${params.b} ${seed}
    params: {a: 1, b: 2}
    limits: {retries: 1, wall: 3h}
    on: [vast, here]
    labels: {x: y}
  child:
    like: base
    params: {b: "0.10"}
    limits: {wall: 5h}
  sweep:
    like: child
    matrix: {seed: [2, 1], params.a: [p/q, r]}
  later:
    run: y ${needs.sweep} --base=${needs.base}
    needs: [sweep, base]
  plain: {like: sweep, matrix: {}}
`}))
	if len(ps) != 1 || ps[0].Code != "SharedWork" { // plain asks for what child asks for
		t.Fatal(ps)
	}
	var got []string
	for _, j := range p.Jobs {
		got = append(got, j.Name+" < "+j.Group+": "+string(putList(nil, j.Argv))+" "+j.On[0]+" "+j.Limits.Wall.String()+" "+j.Labels["x"])
	}
	want := []string{
		`base < base: ["x","1","2","0"] vast 3h0m0s y`,
		`child < child: ["x","1","0.10","0"] vast 5h0m0s y`,
		`later < later: ["y","${needs.sweep-a=p_q-seed=1}","${needs.sweep-a=p_q-seed=2}","${needs.sweep-a=r-seed=1}","${needs.sweep-a=r-seed=2}","--base=${needs.base}"] here 0s `,
		`plain < plain: ["x","1","0.10","0"] vast 5h0m0s y`,
		`sweep-a=p_q-seed=1 < sweep: ["x","p/q","0.10","1"] vast 5h0m0s y`,
		`sweep-a=p_q-seed=2 < sweep: ["x","p/q","0.10","2"] vast 5h0m0s y`,
		`sweep-a=r-seed=1 < sweep: ["x","r","0.10","1"] vast 5h0m0s y`,
		`sweep-a=r-seed=2 < sweep: ["x","r","0.10","2"] vast 5h0m0s y`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if j, _ := p.Job("later"); len(j.Inputs) != 5 {
		t.Errorf("%+v", j.Inputs)
	}
	if j, _ := p.Job("child"); j.Limits.Retries != 1 {
		t.Errorf("%+v", j.Limits)
	}
	if g := p.Group("sweep"); len(g) != 4 {
		t.Errorf("%d in the group", len(g))
	}
}
