package flops

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// perClock is FLOPs per unit and clock; 0: not in the family's table.
type perClock struct{ fp32, tf32, fp16, fp16a, fp8, fp8a, int8 float64 }

// families is the table of §2.2, one prefix of ids per entry; the first that fits counts.
var families = []struct {
	ids    string // words: prefixes of the id without vendor
	ratios perClock
}{
	{"v100", perClock{fp32: 128, fp16: 1024, fp16a: 1024}},
	{"p100", perClock{fp32: 128, fp16: 256}},
	{"rtx-2000-ada", perClock{256, 512, 1024, 1024, 2048, 2048, 2048}},
	{"t4 quadro titan-rtx", perClock{fp32: 128, fp16: 1024, fp16a: 1024, int8: 2048}},
	{"rtx-20", perClock{fp32: 128, fp16: 512, fp16a: 1024, int8: 2048}},
	{"rtx-4000 rtx-4500 rtx-5000 rtx-5880 rtx-6000 l4- l40s rtx-pro-6000", perClock{256, 512, 1024, 1024, 2048, 2048, 2048}},
	{"rtx-30", perClock{fp32: 256, tf32: 256, fp16: 512, fp16a: 1024, int8: 2048}},
	{"rtx-40 rtx-50", perClock{256, 256, 512, 1024, 1024, 2048, 2048}},
	{"a100 a30", perClock{fp32: 128, tf32: 1024, fp16: 2048, fp16a: 2048, int8: 4096}},
	{"a2 a10- a16 a40 rtx-a", perClock{fp32: 256, tf32: 512, fp16: 1024, fp16a: 1024, int8: 2048}},
	{"h100 h200", perClock{256, 2048, 4096, 4096, 8192, 8192, 8192}},
	{"mi100 mi2", perClock{fp16: 1024}},
	{"mi300 mi325", perClock{fp16: 2048, fp8: 4096, int8: 4096}},
	{"mi350 mi355", perClock{fp16: 4096, fp8: 8192}},
}

func ratiosOf(g GPU) (perClock, bool) {
	// The half-rate L40 has a family of its own: the same chip as the L40S at half the tensor rate.
	if g.bare() == "l40" {
		return perClock{256, 256, 512, 512, 1024, 1024, 1024}, true
	}
	for _, f := range families {
		for _, p := range strings.Fields(f.ids) {
			if strings.HasPrefix(g.bare()+"-", p) {
				return f.ratios, true
			}
		}
	}
	return perClock{}, false
}

// TestFiguresAreUnitsTimesClock recomputes every figure that units, clock and family give, to 1.5 %.
func TestFiguresAreUnitsTimesClock(t *testing.T) {
	checked, off := 0, []string{}
	for _, g := range table {
		r, ok := ratiosOf(g)
		if g.Units == 0 {
			continue
		}
		if !ok {
			t.Errorf("%s has units and no family", g.ID)
			continue
		}
		for _, c := range []struct {
			mode        string
			have, ratio float64
		}{{"fp32", g.Rated.FP32, r.fp32}, {"tf32", g.Rated.TF32, r.tf32}, {"fp16", g.Rated.FP16, r.fp16}, {"bf16", g.Rated.BF16, r.fp16},
			{"fp16_acc16", g.Rated.FP16Acc16, r.fp16a}, {"fp8", g.Rated.FP8, r.fp8}, {"fp8_acc16", g.Rated.FP8Acc16, r.fp8a}, {"int8", g.Rated.INT8, r.int8}} {
			if c.have == 0 || c.ratio == 0 {
				continue
			}
			checked++
			want := float64(g.Units) * g.BoostMHz * 1e6 * c.ratio / 1e12
			if math.Abs(c.have-want) > 0.015*want {
				off = append(off, g.bare()+" "+c.mode)
			}
		}
	}
	// A16: the datasheet rounds. Hopper: the vector clock is above the tensor clock. MI100: bf16 at half the fp16 rate.
	known := []string{"a16 fp32", "a16 tf32", "a16 fp16", "a16 bf16", "a16 fp16_acc16", "a16 int8",
		"h100-sxm5-80gb fp32", "h100-pcie fp32", "h200-sxm fp32", "mi100 bf16"}
	if d := cmp.Diff(known, off); d != "" {
		t.Errorf("figures that do not follow from units and clock (-known +found):\n%s", d)
	}
	if checked < 400 {
		t.Errorf("only %d figures were recomputed", checked)
	}
}

// TestRatioAssertions is the six products of §2.2.
func TestRatioAssertions(t *testing.T) {
	for _, c := range []struct {
		name                    string
		units, mhz, ratio, want float64
	}{
		{"RTX 3090", 82, 1695, 512, 71.2}, {"RTX 4090", 128, 2520, 512, 165.2}, {"RTX 5090", 170, 2407, 512, 209.5},
		{"a100-sxm4-80gb", 108, 1410, 2048, 311.9}, {"h100-sxm5-80gb", 132, 1830, 4096, 989.4}, {"MI300X", 304, 2100, 2048, 1307.4},
	} {
		near(t, c.name, c.units*c.mhz*1e6*c.ratio/1e12, c.want, 0.051)
		near(t, c.name+" file", peak(t, c.name, FP16)/1e12, c.want, 0.21)
		g, _, err := Resolve(c.name, 0)
		if err != nil || float64(g.Units) != c.units || g.BoostMHz != c.mhz {
			t.Errorf("%s: %d units at %v MHz, %v", c.name, g.Units, g.BoostMHz, err)
		}
	}
}
