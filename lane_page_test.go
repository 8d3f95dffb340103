package headway

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/headway-run/headway/deploylane/spread"
)

// Whoever follows docs/lane.md with examples/digits is not refused at the candidate's stage: the margin of the page fits the
// spread that the example's five seeds have.
func TestTheLanePagesMarginFitsTheExample(t *testing.T) {
	page, err := os.ReadFile("docs/lane.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`val_accuracy: \{direction: higher, range: share, margin: ([0-9.]+), examples: 270\}`).FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/lane.md has no margin of val_accuracy")
	}
	margin, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	q := spread.Question{Metrics: []spread.Metric{{Name: "val_accuracy", Direction: spread.Higher, Range: spread.Share, Margin: margin, Gating: true, Examples: 270}}}
	for seed, right := range []float64{259, 260, 258, 265, 256} { // of 270, as seeds/digits.yaml gives them
		q.Parents = append(q.Parents, spread.Run{Name: strconv.Itoa(seed + 1), Metrics: map[string]float64{"val_accuracy": right / 270}})
	}
	if err := spread.Ready(q); err != nil {
		t.Error(err)
	}
}
