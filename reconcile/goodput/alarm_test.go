package goodput

import (
	"math"
	"math/rand/v2"
	"testing"
)

// science.md §3.3: how often one good attempt is taken for a bad one, by the history that it is held against. From 20,000
// histories the standard error is .0018 at most; the table is of other draws, rounded to a thousandth.
func TestFalseAlarms(t *testing.T) {
	const histories = 20_000
	gen := rand.New(rand.NewPCG(3, 3))
	for _, row := range []struct {
		name string
		draw func() float64
		n    int
		want float64
	}{
		{"normal, 7 %", func() float64 { return .26 * (1 + .07*gen.NormFloat64()) }, 8, .007},
		{"normal, 17 %", func() float64 { return .26 * (1 + .17*gen.NormFloat64()) }, 8, .025},
		{"normal, 17 %", func() float64 { return .26 * (1 + .17*gen.NormFloat64()) }, 20, .009},
		{"beta(4,1)", func() float64 { return math.Pow(gen.Float64(), 1.0/4) }, 8, .073},
		{"beta(4,1)", func() float64 { return math.Pow(gen.Float64(), 1.0/4) }, 20, .046},
	} {
		alarms, list := 0, make([]Sample, row.n)
		for range histories {
			for i := range list {
				list[i] = Sample{V: row.draw()}
			}
			b := BoundOf(list)
			if b.Threshold {
				t.Fatalf("%s: %d samples are judged by the threshold", row.name, row.n)
			}
			if row.draw() < b.V {
				alarms++
			}
		}
		near(t, row.name, float64(alarms)/histories, row.want, .004)
	}
}
