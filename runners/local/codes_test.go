package local

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners/agent"
)

// The exit codes that are no failure of the launch are the agent's own, but for a defect, a refusal and the store.
func TestStartedCodesAreTheAgents(t *testing.T) {
	want := []int{agent.CodeFinished, agent.CodeUserCode, agent.CodeNoResult, agent.CodeYielded, agent.CodeLeaseLost,
		agent.CodeRevoked, agent.CodeNothingToDo, agent.CodeDiskFull}
	slices.Sort(want)
	if diff := cmp.Diff(want, startedCodes); diff != "" {
		t.Errorf("codes (-agent +here):\n%s", diff)
	}
	if slices.Contains(startedCodes, agent.CodeInternal) || slices.Contains(startedCodes, agent.CodeRefused) || storeCode != agent.CodeStore {
		t.Error("a defect, a refusal or a store that does not answer counts as a start")
	}
}
