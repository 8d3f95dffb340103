package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A reason is one line: the log itself lies where the hint says.
func TestLastWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"\n\n":                           "",
		"starting\nerror: no store\n":    "error: no store",
		"starting\nrefused: not here\n":  "refused: not here",
		"panic: oh\n\ngoroutine 1:\nx\n": "panic: oh",
		strings.Repeat("y\n", 9000):      "y",
		strings.Repeat("z", 20_000):      strings.Repeat("z", 297) + "…",
	} {
		file := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(file); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
	if got := lastWords(filepath.Join(t.TempDir(), "absent")); got != "" {
		t.Errorf("no log: %q", got)
	}
}
