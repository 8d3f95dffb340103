package record_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
)

// A ratio lies in its bin, a merge is the histogram of both, and what no worker can have measured is refused.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratio := rapid.Float64Range(0.5001, 8000).Draw(t, "ratio")
		b := record.BinOf(ratio)
		if lo, hi := record.BinFloor(b), record.BinFloor(b+1); ratio < lo*(1-1e-12) || ratio >= hi*(1+1e-12) {
			t.Fatalf("%v is in bin %d, from %v to %v", ratio, b, lo, hi)
		}
		var one, two, both record.Histogram
		for i, r := range rapid.SliceOf(rapid.Float64Range(0, 20000)).Draw(t, "ratios") {
			both.Add(r, i%3 == 0)
			if i%2 == 0 {
				one.Add(r, i%3 == 0)
			} else {
				two.Add(r, i%3 == 0)
			}
		}
		one.Merge(two)
		if diff := cmp.Diff(both, one); diff != "" {
			t.Fatal(diff)
		}
		if err := both.Check(); err != nil {
			t.Fatal(err)
		}
	})
	for _, odd := range []float64{math.NaN(), math.Inf(-1), -1, 0, 0.5} {
		if b := record.BinOf(odd); b != 0 {
			t.Errorf("%v is in bin %d", odd, b)
		}
	}
	if b := record.BinOf(math.Inf(1)); b != record.MaxBin {
		t.Errorf("infinity is in bin %d", b)
	}
	for _, s := range []record.Sums{{Work: math.NaN()}, {StepS: -1}, {Steps: -1}, {WarmS: 1e10}, {Ratios: record.Histogram{Done: map[int]int64{record.MaxBin + 1: 1}}}, {Ratios: record.Histogram{Censored: map[int]int64{3: -1}}}} {
		if s.Check() == nil {
			t.Errorf("%+v passes", s)
		}
	}
	if err := (record.Sums{Steps: 3, Work: 1e21, StepS: 3}).Check(); err != nil {
		t.Error(err)
	}
}
