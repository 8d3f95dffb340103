package flops

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// gpu is the row with an id.
func gpu(t testing.TB, id string) GPU {
	t.Helper()
	i := slices.IndexFunc(table, func(g GPU) bool { return g.ID == id })
	if i < 0 {
		t.Fatalf("no row %s", id)
	}
	return table[i]
}

func peak(t testing.TB, name string, m Mode) float64 {
	t.Helper()
	g, _, err := Resolve(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Peak(g, m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTableSize(t *testing.T) {
	seen, evidence := map[string]bool{}, map[string]int{}
	for _, g := range table {
		if seen[g.ID] {
			t.Errorf("%s: twice", g.ID)
		}
		seen[g.ID] = true
		evidence[g.Evidence]++
		if len(g.MemoryGB) == 0 || g.Devices < 1 || !strings.HasPrefix(g.ID, g.Vendor) && g.Vendor != "google" {
			t.Errorf("%s: memory %v, devices %d, vendor %s", g.ID, g.MemoryGB, g.Devices, g.Vendor)
		}
	}
	want := map[string]int{"read": 65, "derived": 29, "recalled": 6}
	if d := cmp.Diff(want, evidence); d != "" {
		t.Errorf("rows by evidence (-want +got):\n%s", d)
	}
}

func TestEveryDriverNameIsOneRow(t *testing.T) {
	for _, g := range table {
		for _, name := range g.Drivers {
			got, n, err := Resolve(name, 0)
			if normal(name) == "geforce rtx 3080" {
				amb, ok := errors.AsType[*AmbiguousGPUError](err)
				if !ok || len(amb.Candidates) != 2 || !errors.Is(err, ErrAmbiguousGPU) {
					t.Errorf("%s: got %v, want two candidates", name, err)
				}
				continue
			}
			if err != nil || got.ID != g.ID || n != 1 {
				t.Errorf("%s: got %s ×%d, %v; want %s", name, got.ID, n, err, g.ID)
			}
			old, _, err := Resolve(strings.TrimPrefix(name, "NVIDIA "), 0)
			if err != nil || old.ID != g.ID {
				t.Errorf("%s without NVIDIA: got %s, %v; want %s", name, old.ID, err, g.ID)
			}
		}
		for _, name := range []string{g.ID, g.bare(), strings.ReplaceAll(g.ID, "-", "_")} {
			if m, err := Lookup(name); err == nil && len(m.GPUs) == 1 && m.GPUs[0].ID != g.ID {
				t.Errorf("%s: got %s, want %s", name, m.GPUs[0].ID, g.ID)
			}
		}
		if got, _, err := Resolve(g.ID, 0); err != nil || got.ID != g.ID {
			t.Errorf("id %s: got %s, %v", g.ID, got.ID, err)
		}
	}
}

func TestEveryOfferFindsItsRow(t *testing.T) {
	for _, g := range table {
		for _, o := range g.Offers {
			m, err := LookupOn(o.Provider, o.Name)
			if err != nil || !slices.ContainsFunc(m.GPUs, func(c GPU) bool { return c.ID == g.ID }) || m.Count != o.Count {
				t.Errorf("%s %q: got %d rows ×%d, %v; want %s ×%d", o.Provider, o.Name, len(m.GPUs), m.Count, err, g.ID, o.Count)
			}
			if _, err := Lookup(o.Name); err != nil {
				t.Errorf("%q: %v", o.Name, err)
			}
		}
	}
}

func TestMemoryDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory float64
		want   string
	}{
		{"NVIDIA GeForce RTX 3080", 10, "nvidia-rtx-3080-10gb"},
		{"GeForce RTX 3080", 12, "nvidia-rtx-3080-12gb"},
		{"RTX_3080", 9.6, "nvidia-rtx-3080-10gb"},
		{"RTX 3080", 11.8, "nvidia-rtx-3080-12gb"},
		{"A100_SXM4", 40, "nvidia-a100-sxm4-40gb"},
		{"A100 SXM4", 79.2, "nvidia-a100-sxm4-80gb"},
		{"A100 PCIE", 80, "nvidia-a100-pcie-80gb"},
		{"H100", 94, "nvidia-h100-nvl"},
	} {
		g, n, err := Resolve(c.name, c.memory)
		if err != nil || g.ID != c.want || n != 1 {
			t.Errorf("%s, %v GB: got %s ×%d, %v; want %s", c.name, c.memory, g.ID, n, err, c.want)
		}
	}
	for name, want := range map[string]int{"A100": 4, "H100": 3, "V100": 3, "Tesla V100": 2, "Tesla P100": 2, "RTX 3080": 2, "RTX_PRO_6000": 3} {
		_, _, err := Resolve(name, 0)
		amb, ok := errors.AsType[*AmbiguousGPUError](err)
		if !ok || len(amb.Candidates) != want {
			t.Errorf("%s: got %v, want %d candidates", name, err, want)
			continue
		}
		if !strings.Contains(err.Error(), amb.Candidates[0].ID) {
			t.Errorf("%s: %q does not list its candidates", name, err)
		}
	}
	if _, _, err := Resolve("A100", 40); !errors.Is(err, ErrAmbiguousGPU) || len(mustAs(t, err).Candidates) != 2 {
		t.Errorf("A100 of 40 GB: got %v, want the two of 40 GB", err)
	}
	if _, _, err := Resolve("RTX 3080", 24); !errors.Is(err, ErrAmbiguousGPU) {
		t.Errorf("a 3080 of 24 GB: got %v", err)
	}
}

func mustAs(t *testing.T, err error) *AmbiguousGPUError {
	t.Helper()
	e, ok := errors.AsType[*AmbiguousGPUError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return e
}

func TestNamesOfPlans(t *testing.T) {
	for _, c := range []struct {
		name, provider, want string
		count                int
	}{
		{"RTX_4090", "", "nvidia-rtx-4090", 1}, {"RTX 4090", "", "nvidia-rtx-4090", 1}, {"rtx-4090", "", "nvidia-rtx-4090", 1},
		{"T4x2", "", "nvidia-t4", 2}, {"T4 x2", "", "nvidia-t4", 2}, {"T4:2", "modal", "nvidia-t4", 2}, {"T4", "", "nvidia-t4", 1},
		{"NvidiaTeslaT4", "kaggle", "nvidia-t4", 2}, {"NvidiaTeslaT4", "", "nvidia-t4", 2}, {"NvidiaL4X1", "kaggle", "nvidia-l4", 1},
		{"H100", "modal", "nvidia-h100-sxm5-80gb", 1}, {"H100!", "modal", "nvidia-h100-sxm5-80gb", 1}, {"H100:8", "lightning", "nvidia-h100-sxm5-80gb", 8},
		{"NVIDIA  A30", "", "nvidia-a30", 1}, {"NVIDIA RTX A30", "runpod", "nvidia-a30", 1}, {"NVIDIA GeForce RTX 3080TI", "", "nvidia-rtx-3080-ti", 1},
		{"A10g", "", "nvidia-a10g", 1}, {"A10", "", "nvidia-a10", 1}, {"RTX_4070S_Ti", "", "nvidia-rtx-4070-ti-super", 1},
		{"RTX 6000Ada", "", "nvidia-rtx-6000-ada", 1}, {"Q RTX 8000", "", "nvidia-quadro-rtx-8000", 1}, {"L40S", "", "nvidia-l40s", 1},
		{"L4", "", "nvidia-l4", 1}, {"NVIDIA H200", "", "nvidia-h200-sxm", 1}, {"H200", "", "nvidia-h200-sxm", 1}, {"H20", "", "nvidia-h20", 1},
		{"TpuV5E8", "kaggle", "tpu-v5e", 8}, {"nvidia-tesla-p100", "gcp", "nvidia-p100-pcie", 1}, {"MI300X", "", "amd-mi300x", 1},
		{"RTX-PRO-6000", "modal", "nvidia-rtx-pro-6000-ws", 1}, {"B200+", "modal", "nvidia-b200", 1}, {"RTX_3090x4", "", "nvidia-rtx-3090", 4},
	} {
		g, n, err := ResolveOn(c.provider, c.name, 0)
		if err != nil || g.ID != c.want || n != c.count {
			t.Errorf("%s on %q: got %s ×%d, %v; want %s ×%d", c.name, c.provider, g.ID, n, err, c.want, c.count)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	for name, nearest := range map[string]string{"RTX_4900": "RTX_4090", "RTX4090": "RTX_4090", "T44": "T4", "A100-SXM4-80G": "A100_SXM4_80GB", "L40SS": "L40S"} {
		_, _, err := Resolve(name, 0)
		u, ok := errors.AsType[*UnknownGPUError](err)
		if !ok || !slices.Contains(u.Nearest(), nearest) {
			t.Errorf("%s: got %v, want a hint at %s", name, err, nearest)
		}
		for _, n := range u.Nearest() {
			if _, err := Lookup(n); err != nil {
				t.Errorf("hint %s of %s: %v", n, name, err)
			}
		}
	}
	for _, name := range []string{"", "  ", "NVIDIA ", "gpu:tesla:4(S:0-1)", "RTX", "6000", "A1000", "my NVIDIA L4 box", strings.Repeat("x", 100_000), "x2", "T4x0", "T4x99999"} {
		if _, err := Lookup(name); !errors.Is(err, ErrUnknownGPU) {
			t.Errorf("%.40q: got %v", name, err)
		}
	}
	_, err := Lookup("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
	if u, ok := errors.AsType[*UnknownGPUError](err); !ok || !u.Slice || !strings.Contains(err.Error(), "slice") {
		t.Errorf("MIG slice: got %v", err)
	}
}

// TestNoPartMatches: a name with something added or cut off never resolves to the card it resembles.
func TestNoPartMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(table).Draw(t, "card")
		if len(g.Drivers) == 0 {
			return
		}
		name := rapid.SampledFrom(g.Drivers).Draw(t, "name") + rapid.StringMatching(`[ -][a-z]{1,6}q`).Draw(t, "tail")
		if m, err := Lookup(name); err == nil {
			t.Fatalf("%q resolved to %s", name, m.GPUs[0].ID)
		}
	})
}

func TestPeakRefusals(t *testing.T) {
	for id, modes := range map[string][]Mode{
		"nvidia-t4": {BF16, TF32, FP8}, "nvidia-v100-sxm2": {BF16, TF32}, "nvidia-v100-pcie": {BF16}, "nvidia-p100-pcie": {BF16, FP16Acc16},
		"nvidia-rtx-2080-ti": {BF16, TF32}, "nvidia-k80": {FP16}, "nvidia-rtx-3090": {FP8}, "nvidia-b300": {INT8},
		"nvidia-titan-v": Modes, "nvidia-rtx-pro-4000": Modes,
	} {
		for _, m := range modes {
			_, err := Peak(gpu(t, id), m)
			e, ok := errors.AsType[*NoPeakError](err)
			if !ok || !errors.Is(err, ErrNoPeak) || e.Mode != m || !strings.Contains(err.Error(), "no rated peak for "+string(m)+" on "+id) {
				t.Errorf("%s on %s: got %v", m, id, err)
			}
		}
	}
	_, err := Peak(gpu(t, "nvidia-t4"), "bf61")
	if e, ok := errors.AsType[*UnknownModeError](err); !ok || e.Nearest != "bf16" || !errors.Is(err, ErrUnknownMode) {
		t.Errorf("bf61: got %v", err)
	}
	if _, err := ParseMode("half"); err == nil || !strings.Contains(err.Error(), "fp16_acc16") {
		t.Errorf("half: got %v, want the list of modes", err)
	}
	for _, m := range Modes {
		if got, err := ParseMode(string(m)); err != nil || got != m {
			t.Errorf("%s: got %s, %v", m, got, err)
		}
	}
}

// TestPublicTablesPairs holds the figures that public tables get wrong (§2.3), beside the wrong ones.
func TestPublicTablesPairs(t *testing.T) {
	for _, c := range []struct {
		name  string
		right float64
		wrong []float64
	}{
		{"NVIDIA GeForce RTX 4090", 165.2, []float64{82.6, 330}}, {"NVIDIA GeForce RTX 3090", 71, []float64{35.6, 142}},
		{"NVIDIA A10G", 70, []float64{125}}, {"NVIDIA RTX A6000", 154.8, []float64{38.7}},
		{"NVIDIA RTX 6000 Ada Generation", 364.2, []float64{728.5}}, {"NVIDIA H100 80GB HBM3", 989.4, []float64{1979}},
		{"NVIDIA L40S", 362, []float64{121, 733}}, {"NVIDIA H200", 989.4, nil},
	} {
		got := peak(t, c.name, BF16) / 1e12
		near(t, c.name, got, c.right, 1e-9)
		for _, w := range c.wrong {
			if math.Abs(got-w) < 1 {
				t.Errorf("%s has the wrong figure %v", c.name, w)
			}
		}
	}
	if _, err := Lookup("NVIDIA Z900"); !errors.Is(err, ErrUnknownGPU) {
		t.Errorf("an unknown card gets %v", err)
	}
	if got := gpu(t, "amd-mi325x").Memory(); !slices.Equal(got, []float64{256}) {
		t.Errorf("MI325X has %v GB", got)
	}
}

// TestBoards: a row with the figures of a board answers per device.
func TestBoards(t *testing.T) {
	near(t, "MI250X device", peak(t, "AMD Instinct MI250X", BF16), 191.5e12, 1)
	near(t, "MI250 device", peak(t, "AMD Instinct MI250", FP16), 181.05e12, 1)
	near(t, "K80 device", peak(t, "Tesla K80", FP32), 4.37e12, 1)
	near(t, "A16 device", peak(t, "NVIDIA A16", FP16), 17.9e12, 1)
	if got := gpu(t, "amd-mi250").Memory(); !slices.Equal(got, []float64{64}) {
		t.Errorf("a MI250 device has %v GB", got)
	}
	if got := gpu(t, "amd-mi250").MemoryGB; !slices.Equal(got, []float64{128}) {
		t.Errorf("Memory changed the table: %v", got)
	}
}
