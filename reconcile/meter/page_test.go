package meter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/meter"
)

// TestThePageNamesEachMetric: docs/observability.md has a row for each metric that is printed, with its type, its labels and
// its meaning, and for no other. TestTheTableIsWhatIsPrinted holds the table against what is printed.
func TestThePageNamesEachMetric(t *testing.T) {
	b, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(b), "<!-- metrics -->\n")
	rows, _, ok := strings.Cut(rows, "<!-- /metrics -->")
	if !ok {
		t.Fatal("docs/observability.md has no <!-- metrics --> … <!-- /metrics -->")
	}
	var got []meter.Metric
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\| (.*) \\|$").FindAllStringSubmatch(rows, -1) {
		row := meter.Metric{Name: m[1], Type: m[2], Help: m[4]}
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			row.Labels = append(row.Labels, l[1])
		}
		got = append(got, row)
	}
	if diff := cmp.Diff(meter.Table(), got); diff != "" {
		t.Errorf("metrics (-printed +docs/observability.md):\n%s", diff)
	}
}
