package flops

import (
	cmpstd "cmp"
	"flag"
	"fmt"
	"go/format"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "rewrite table.go from gpus.yaml")

// list is a YAML scalar or a sequence of them.
type list []string

func (l *list) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = list{n.Value}
		return nil
	}
	return n.Decode((*[]string)(l))
}

type row struct {
	ID        string             `yaml:"id"`
	Vendor    string             `yaml:"vendor"`
	Arch      string             `yaml:"arch"`
	Cap       string             `yaml:"capability"`
	Memory    list               `yaml:"memory_gb"`
	Devices   int                `yaml:"devices_per_board"`
	Units     int                `yaml:"units"`
	Boost     float64            `yaml:"boost_mhz"`
	Peaks     map[string]float64 `yaml:"peak_tflops"`
	Drivers   []string           `yaml:"driver_names"`
	PCI       []string           `yaml:"pci_device_ids"`
	Providers map[string]list    `yaml:"provider_ids"`
	Source    string             `yaml:"source"`
	Evidence  string             `yaml:"evidence"`
	Note      string             `yaml:"note"`
}

func readRows(t testing.TB) []row {
	t.Helper()
	f, err := os.Open("gpus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var file struct {
		Schema int   `yaml:"schema"`
		GPUs   []row `yaml:"gpus"`
	}
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if file.Schema != 1 {
		t.Fatalf("schema %d, expected 1", file.Schema)
	}
	return file.GPUs
}

// counts is how many cards come under a provider's name, where that is not one.
var counts = map[string]int{"NvidiaTeslaT4": 2, "TpuV38": 4, "Tpu1VmV38": 4, "TpuV5E8": 8, "TpuV6E8": 8}

// figures are the keys of peak_tflops and the fields they become.
var figures = [][2]string{{"fp64", "FP64"}, {"fp64_tensor", "FP64Tensor"}, {"fp32", "FP32"}, {"fp32_matrix", "FP32Matrix"},
	{"tf32", "TF32"}, {"bf16", "BF16"}, {"fp16", "FP16"}, {"fp16_acc16", "FP16Acc16"}, {"fp8", "FP8"},
	{"fp8_acc16", "FP8Acc16"}, {"int8", "INT8"}}

func (r row) line(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "{ID: %q, Vendor: %q, Arch: %q, ", r.ID, r.Vendor, r.Arch)
	if r.Cap != "" {
		fmt.Fprintf(&b, "Capability: %q, ", r.Cap)
	}
	fmt.Fprintf(&b, "MemoryGB: []float64{%s}, Devices: %d, ", strings.Join(r.Memory, ", "), max(1, r.Devices))
	if strings.Contains(r.Note, "board figures") {
		b.WriteString("PerBoard: true, ")
	}
	if r.Units > 0 {
		fmt.Fprintf(&b, "Units: %d, BoostMHz: %v, ", r.Units, r.Boost)
	}
	var peaks []string
	for _, f := range figures {
		if v, ok := r.Peaks[f[0]]; ok {
			peaks = append(peaks, fmt.Sprintf("%s: %v", f[1], v))
		}
	}
	if len(peaks) != len(r.Peaks) {
		t.Fatalf("%s: a key of peak_tflops is unknown: %v", r.ID, r.Peaks)
	}
	if len(peaks) > 0 {
		fmt.Fprintf(&b, "Rated: Rated{%s}, ", strings.Join(peaks, ", "))
	}
	if len(r.Drivers) > 0 {
		fmt.Fprintf(&b, "Drivers: %s, ", fmt.Sprintf("%#v", r.Drivers))
	}
	var offers []string
	for _, p := range []string{"gcp", "kaggle", "lightning", "modal", "runpod", "vast"} {
		for _, n := range r.Providers[p] {
			offers = append(offers, fmt.Sprintf("{%q, %q, %d}", p, n, max(1, counts[n])))
		}
		delete(r.Providers, p)
	}
	if len(r.Providers) > 0 {
		t.Fatalf("%s: unknown provider: %v", r.ID, r.Providers)
	}
	if len(offers) > 0 {
		fmt.Fprintf(&b, "Offers: []Offer{%s}, ", strings.Join(offers, ", "))
	}
	fmt.Fprintf(&b, "Evidence: %q},\n", r.Evidence)
	return b.String()
}

// hold compares a generated file with the committed one; -update writes it.
func hold(t *testing.T, name, text string) {
	t.Helper()
	want, err := format.Source([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Fatalf("%s is not what gpus.yaml gives; run with -update, twice (-want +got):\n%s", name, d)
	}
}

const header = "// Code generated from gpus.yaml by go test -run 'TestTableIsTheFile|TestNamesAreTheTable' -update; DO NOT EDIT.\n\npackage flops\n\n"

// TestTableIsTheFile makes table.go from gpus.yaml.
func TestTableIsTheFile(t *testing.T) {
	var b strings.Builder
	b.WriteString(header + "// table is the rated peaks and names of all known cards.\nvar table = []GPU{\n")
	for _, r := range readRows(t) {
		b.WriteString(r.line(t))
	}
	hold(t, "table.go", b.String()+"}\n")
}

// TestNamesAreTheTable makes names.go from the table that is compiled in.
func TestNamesAreTheTable(t *testing.T) {
	var all []alias
	for i, g := range table {
		all = append(all, alias{normal(g.ID), byID, "", i, 1}, alias{normal(g.bare()), byID, "", i, 1}, alias{g.family(), byOffer, "", i, 1})
		for _, d := range g.Drivers {
			all = append(all, alias{normal(d), byDriver, "", i, 1})
		}
		for _, o := range g.Offers {
			all = append(all, alias{normal(o.Name), byOffer, o.Provider, i, o.Count})
		}
	}
	slices.SortStableFunc(all, func(a, b alias) int {
		return cmpstd.Or(cmpstd.Compare(a.name, b.name), cmpstd.Compare(a.trust, b.trust), cmpstd.Compare(a.provider, b.provider), a.row-b.row)
	})
	all = slices.Compact(all)
	trusts := []string{"byID", "byDriver", "byOffer"}
	var b strings.Builder
	b.WriteString(header + "// aliases is the table of every normal name, sorted.\nvar aliases = []alias{")
	for i, a := range all {
		if i == 0 || a.name != all[i-1].name {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "{%q, %s, %q, %d, %d}, ", a.name, trusts[a.trust], a.provider, a.row, a.count)
	}
	hold(t, "names.go", b.String()+"\n}\n")
}

func BenchmarkResolve(b *testing.B) {
	for b.Loop() {
		if _, _, err := Resolve("RTX_4090x2", 0); err != nil {
			b.Fatal(err)
		}
	}
}
