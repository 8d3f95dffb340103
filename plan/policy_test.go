package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Policies and exit codes are placement: they come out as they were written, codes sorted, and make no other work.
func TestPoliciesArePlacement(t *testing.T) {
	load := func(more string) Job {
		t.Helper()
		p, ps := Load(NewMemTree(map[string]string{"headway.yaml": refuseConfig, "plans/a.yaml": "jobs:\n  a:\n    run: x\n" + more}))
		if len(ps) > 0 {
			t.Fatal(ps)
		}
		return p.Jobs[0]
	}
	bare := load("")
	j := load("    policy: [{log: 'out of \"memory\"', then: stop}, {log: ECC, then: exclude}]\n    exit_codes: {retry: [137, 75]}\n")
	if d := cmp.Diff([]Policy{{`out of "memory"`, "stop"}, {"ECC", "exclude"}}, j.Policy); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(ExitCodes{Retry: []int{75, 137}}, j.ExitCodes); d != "" {
		t.Error(d)
	}
	want := `{"exit_codes.retry":[75,137],"limits.retries":5,"on":["here"],"on_delete":"drain","policy":[{"log":"out of \"memory\"","then":"stop"},{"log":"ECC","then":"exclude"}],"trust":"any"}`
	if got := string(j.PlacementJSON()); j.Work != bare.Work || got != want {
		t.Errorf("work %s and %s, placement %s", j.Work, bare.Work, got)
	}
}
