package plan

import (
	"strings"
	"testing"
)

// TestResearchMakesFirstGenerationAlone: whatever a plan says, what comes of it is of generation 1, has no parent and no
// deploy flag, and no value inside of it can put one into the identity. `headway apply` and `watch` launch nothing else.
func TestResearchMakesFirstGenerationAlone(t *testing.T) {
	p, ps := Load(specTree(map[string]string{"plans/x.yaml": `jobs:
  odd: {run: x, params: {deploy: true, generation: 2}, env: {DEPLOY: "true"}, labels: {deploy: "true"}, requires: {generation: "2"}}
`}))
	for _, q := range ps {
		if q.Severity == Error {
			t.Fatal(q)
		}
	}
	if len(p.Jobs) < 3 {
		t.Fatal(len(p.Jobs))
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		id := string(j.IdentityJSON())
		if j.Generation != 1 || j.Parent != "" || j.Deploy || !strings.Contains(id, `"generation":1,"headway":1`) || strings.HasPrefix(id, `{"deploy"`) {
			t.Errorf("%s: generation %d, parent %q, deploy %t: %s", j.Name, j.Generation, j.Parent, j.Deploy, id)
		}
	}
}
