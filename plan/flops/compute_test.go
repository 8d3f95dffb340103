package flops

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// nums makes a mapping of numbers.
func nums(kv ...any) map[string]Value {
	m := map[string]Value{}
	for i := 0; i < len(kv); i += 2 {
		switch v := kv[i+1].(type) {
		case int:
			m[kv[i].(string)] = Value{Num: float64(v)}
		case float64:
			m[kv[i].(string)] = Value{Num: v}
		case string:
			m[kv[i].(string)] = Value{Text: v}
		case []map[string]Value:
			m[kv[i].(string)] = Value{List: v}
		}
	}
	return m
}

func TestCompute(t *testing.T) {
	stem := nums("in", 3, "out", 64, "size", 224, "kernel", 7, "stride", 2, "pad", 3)
	for name, c := range map[string]struct {
		stated map[string]Value
		want   Work
	}{
		"nothing":    {nil, Work{}},
		"steps only": {nums("steps", 7), Work{Steps: 7}},
		"the example of the plan format": {
			nums("params", 124e6, "layers", 12, "width", 768, "context", 1024, "tokens_per_step", 65536, "steps", 20000),
			Work{Total: (6*124e6 + 12*12*768*1024) * 65536 * 20000, PerStep: (6*124e6 + 12*12*768*1024) * 65536, Steps: 20000}},
		"causal": {
			nums("params", 124e6, "layers", 12, "width", 768, "context", 1024, "attention", "causal", "tokens_per_step", 1),
			Work{PerStep: 6*124e6 + 6*12*768*1024}},
		"chinchilla":  {nums("params", 70e9, "tokens", 1.4e12), Work{Total: 5.88e23}},
		"lora":        {nums("params", 4_194_304, "frozen_params", 6_607_077_376.0, "tokens_per_step", 1, "steps", 1), Work{Total: 26453475328, PerStep: 26453475328, Steps: 1}},
		"teacher":     {nums("params", 10, "forward_params", 100, "tokens_per_step", 2), Work{PerStep: 2 * (60 + 200)}},
		"last short":  {nums("params", 1, "tokens", 105, "tokens_per_step", 10), Work{Total: 630, PerStep: 60, Steps: 11}},
		"per step":    {nums("params", 1, "tokens", 100, "steps", 10), Work{Total: 600, PerStep: 60, Steps: 10}},
		"all agree":   {nums("params", 1, "tokens", 100, "steps", 10, "tokens_per_step", 10), Work{Total: 600, PerStep: 60, Steps: 10}},
		"given":       {nums("flops", 1e18), Work{Total: 1e18}},
		"given steps": {nums("flops", 1e18, "steps", 1000), Work{Total: 1e18, PerStep: 1e15, Steps: 1000}},
		"given each":  {nums("flops_per_step", 1e12, "steps", 5), Work{Total: 5e12, PerStep: 1e12, Steps: 5}},
		"given both":  {nums("flops_per_step", 1e12, "flops", 5e12), Work{Total: 5e12, PerStep: 1e12, Steps: 5}},
		"resnet-50":   {nums("macs_per_sample", 4_089_184_256.0, "samples", 1), Work{Total: 24_535_105_536}},
		"conv": {nums("conv", []map[string]Value{stem}, "samples_per_step", 2, "steps", 3),
			Work{Total: 6 * 118_013_952 * 6, PerStep: 6 * 118_013_952 * 2, Steps: 3}},
		"convs": {nums("conv", []map[string]Value{
			nums("in", 8, "out", 8, "size", 10, "kernel", 3, "pad", 1, "groups", 8, "repeat", 5),
			nums("in", 8, "out", 4, "size", 10, "kernel", 3, "dilation", 2, "dims", 1),
			nums("in", 8, "out", 4, "size", 10, "kernel", 2, "stride", 2, "transposed", "yes", "pad", 0)}, "samples", 1),
			Work{Total: 6 * (5*100*8*9 + 6*8*4*3 + 100*8*4*4)}},
	} {
		got, err := Compute(c.stated)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-12, 0)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestComputeRefusals(t *testing.T) {
	ok := func() map[string]Value { return nums("params", 10, "tokens_per_step", 10) }
	with := func(kv ...any) map[string]Value {
		m := ok()
		for k, v := range nums(kv...) {
			m[k] = v
		}
		return m
	}
	convs := func(kv ...any) map[string]Value { return nums("conv", []map[string]Value{nums(kv...)}, "samples", 1) }
	for name, c := range map[string]struct {
		stated map[string]Value
		want   []string // one piece of each refusal
	}{
		"unknown":        {with("setps", 3), []string{`work.setps: unknown key (did you mean "steps"?)`}},
		"far":            {with("zzzzzzzzzzzz", 3), []string{"one of flops, flops_per_step"}},
		"two at once":    {with("steps", 0, "layer", 3), []string{`did you mean "layers"`, "work.steps: found 0: expected a whole number"}},
		"fraction":       {with("steps", 1.5), []string{"found 1.5"}},
		"negative":       {with("params", -5), []string{"found -5"}},
		"not a number":   {with("params", math.NaN()), []string{"found NaN"}},
		"infinite":       {nums("flops", math.Inf(1)), []string{"found +Inf"}},
		"choice":         {with("attention", "half"), []string{`found "half": expected one of full, causal`}},
		"mixed":          {with("flops", 1e9), []string{"work.params: stated beside flops: state the cost one way"}},
		"half a shape":   {with("layers", 2), []string{"width is missing", "context is missing"}},
		"only attention": {with("attention", "full"), []string{"layers is missing", "width is missing", "context is missing"}},
		"no tokens":      {nums("params", 3), []string{"tokens_per_step is missing"}},
		"no params":      {nums("tokens", 3), []string{"params is missing: tokens needs it"}},
		"contradiction":  {nums("params", 1, "tokens", 100, "steps", 10, "tokens_per_step", 12), []string{"work.tokens: found 100, but tokens_per_step × steps is 120"}},
		"given contrad.": {nums("flops", 1e9, "flops_per_step", 1e6, "steps", 10), []string{"work.flops: found 1e+09, but flops_per_step × steps is 1e+07"}},
		"both ways":      {nums("conv", []map[string]Value{nums("in", 1)}, "macs_per_sample", 3, "samples", 1), []string{"both or neither"}},
		"no samples":     {nums("macs_per_sample", 3), []string{"samples_per_step is missing"}},
		"no macs":        {nums("samples", 3), []string{"both or neither"}},
		"no layer":       {nums("conv", []map[string]Value{}, "samples", 1), []string{"found 0 entries"}},
		"conv key":       {convs("inn", 3, "out", 1, "size", 1, "kernel", 1), []string{`work.conv[0].inn: unknown key (did you mean "in"?)`}},
		"conv missing":   {convs("in", 3, "size", 1, "kernel", 1), []string{"work.conv[0]: out is missing"}},
		"conv dims":      {convs("in", 3, "out", 1, "size", 1, "kernel", 1, "dims", 4), []string{"work.conv[0].dims: found 4"}},
		"conv fit":       {convs("in", 3, "out", 1, "size", 1, "kernel", 3), []string{"work.conv[0]: a kernel of 3"}},
		"conv huge":      {convs("in", 3, "out", 1, "size", 1e18, "kernel", 3), []string{"size is 1000000000000000000"}},
		"absurd":         {nums("params", 1e18, "tokens", 1e18, "steps", 1), []string{"found 6e+36"}},
	} {
		_, err := Compute(c.stated)
		all, is := errors.AsType[KeyErrors](err)
		if name == "absurd" {
			c.want = []string{"would cost 6e+36 FLOPs"}
		}
		if !is || len(all) != len(c.want) {
			t.Errorf("%s: got %v, want %d refusals", name, err, len(c.want))
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(all[i].Error(), w) {
				t.Errorf("%s: refusal %d is %q, want %q", name, i, all[i], w)
			}
		}
		if _, is := errors.AsType[*KeyError](err); !is {
			t.Errorf("%s: no single refusal inside %v", name, err)
		}
	}
}

// TestKeysAreDocumented: every key has a sentence, and each is accepted by name.
func TestKeysAreDocumented(t *testing.T) {
	for _, table := range [][]Key{Keys, convKeys} {
		seen := map[string]bool{}
		for _, k := range table {
			if k.Doc == "" || seen[k.Name] || (k.Type == Choice) != (len(k.Choices) > 0) || (k.Type == Layers) != (len(k.Keys) > 0) {
				t.Errorf("%+v", k)
			}
			seen[k.Name] = true
		}
	}
	grouped := map[string]bool{"steps": true}
	for _, way := range [][]string{givenKeys, paramKeys, sampleKeys} {
		for _, k := range way {
			grouped[k] = true
		}
	}
	for _, k := range Keys {
		if !grouped[k.Name] {
			t.Errorf("%s belongs to no way of stating the cost", k.Name)
		}
	}
}

// TestComputeGrows: more parameters, tokens or steps are never less work, and Total is PerStep times Steps.
func TestComputeGrows(t *testing.T) {
	count := rapid.Float64Range(1, 1e9)
	rapid.Check(t, func(t *rapid.T) {
		m := map[string]Value{}
		for _, k := range []string{"params", "frozen_params", "tokens_per_step", "steps", "layers", "width", "context"} {
			m[k] = Value{Num: math.Floor(count.Draw(t, k))}
		}
		a, err := Compute(m)
		if err != nil {
			if a.Total != 0 {
				t.Fatal("work beside an error")
			}
			return
		}
		if math.Abs(a.Total-a.PerStep*float64(a.Steps)) > 1e-9*a.Total {
			t.Fatalf("%+v", a)
		}
		k := rapid.SampledFrom([]string{"params", "frozen_params", "tokens_per_step", "steps", "layers", "width", "context"}).Draw(t, "key")
		m[k] = Value{Num: 2 * m[k].Num}
		b, err := Compute(m)
		if err == nil && (b.Total < a.Total || b.PerStep < a.PerStep) {
			t.Fatalf("twice the %s: %+v against %+v", k, b, a)
		}
	})
}

// FuzzLookup: no name makes the resolver fail in another way than by its own error.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{"NVIDIA GeForce RTX 4090", "T4x2", "A100:8", "x", "NVIDIA  A30", "\x00\xff", "a100-sxm4-40gb MIG 1g.5gb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		m, err := Lookup(name)
		if err == nil && (len(m.GPUs) == 0 || m.Count < 1) {
			t.Fatalf("%q: %+v", name, m)
		}
		if err != nil && !errors.Is(err, ErrUnknownGPU) {
			t.Fatalf("%q: %v", name, err)
		}
	})
}
