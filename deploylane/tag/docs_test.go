package tag

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestThePageHasTheTable: docs/lane.md has each code with its sentence, in the order of the checks.
func TestThePageHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/lane.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, s := range Sentences() {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", s.Code, s.When, s.Text)
	}
	if !strings.Contains(string(page), "| code | when | sentence |\n| --- | --- | --- |\n"+want.String()) {
		t.Errorf("the table of docs/lane.md, under Tags, must be\n%s", want.String())
	}
}

// TestThePolicyOfThePage: the policy that docs/lane.md shows can be read.
func TestThePolicyOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/lane.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml\nstages: ")
	text, _, ended := strings.Cut(after, "```")
	p, err := ReadPolicy([]byte("stages: " + text))
	if !ended || err != nil || p.Rule("digits") == nil || p.Rule("digits").Signers != 2 || len(p.Revoked) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}
