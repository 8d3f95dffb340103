//go:build demo

package headway

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDemoTranscript holds what the README shows of the demo against what a run of it printed just now: .ci/run runs
// the demo and hands its output over in HEADWAY_DEMO_OUTPUT. Numbers may differ, words may not.
func TestDemoTranscript(t *testing.T) {
	out, err := os.ReadFile(os.Getenv("HEADWAY_DEMO_OUTPUT"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			for _, c := range b.commands() {
				if !strings.HasSuffix(c.text, "headway demo") || len(c.want) == 0 {
					continue
				}
				compared++
				pattern := regexp.MustCompile(`[0-9]+(?:\\\.[0-9]+)?`).ReplaceAllString(strings.ReplaceAll(c.pattern().String(), " {2,}", " +"), "[0-9.]+")
				if !regexp.MustCompile(pattern).Match(out) {
					t.Errorf("%s:%d: the demo prints something else:\n%s", p.path, c.line, out)
				}
			}
		}
	}
	if compared == 0 {
		t.Error("no page shows the demo")
	}
}
