package plan

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan/flops"
)

const estimateConfig = `headway: v1
platforms:
  here:   {runner: local}
  kaggle: {runner: kaggle, gpu: [T4x2]}
  vast:   {runner: vast, gpu: [RTX_4090]}
  both:   {runner: vast, gpu: [RTX_4090, RTX_3090]}
  old:    {runner: slurm, gpu: [nvidia-titan-v]}
`

// TestEstimate: hours where everything that they take is known, and nothing where anything is not.
func TestEstimate(t *testing.T) {
	for name, c := range map[string]struct{ job, want string }{
		"one card":          {"on: [vast, here], gpu: {any: [RTX_4090], dtype: fp16}, work: {flops: 3.1e18}", "1 nvidia-rtx-4090"},
		"a pair":            {"on: [kaggle], gpu: {any: [T4x2], dtype: fp16}, work: {flops: 3.1e18}", "2 nvidia-t4"},
		"several asked for": {"on: [kaggle, vast], gpu: {any: [RTX_4090, T4x2], dtype: fp16}, work: {flops: 3.1e18}", "2 nvidia-t4"},
		"four cards":        {"on: [vast], gpu: {any: [RTX_4090], count: 4, dtype: bf16}, work: {flops_per_step: 1e14, steps: 1000}", "4 nvidia-rtx-4090"},
		"one of two cards":  {"on: [both], gpu: {any: [RTX_4090, RTX_3090], dtype: fp16}, work: {flops: 3.1e18}", ""},
		"the one of two":    {"on: [both], gpu: {any: [RTX_3090], dtype: fp16}, work: {flops: 3.1e18}", "1 nvidia-rtx-3090"},
		"no dtype":          {"on: [vast], gpu: {any: [RTX_4090]}, work: {flops: 3.1e18}", ""},
		"no figure":         {"on: [old], gpu: {any: [nvidia-titan-v], dtype: fp16}, work: {flops: 3.1e18}", ""},
		"no work":           {"on: [vast], gpu: {any: [RTX_4090], dtype: fp16}", ""},
		"no steps":          {"on: [vast], gpu: {any: [RTX_4090], dtype: fp16}, work: {flops_per_step: 1e14}", ""},
		"no card":           {"on: [here], work: {flops: 3.1e18}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, map[string]string{ConfigFile: estimateConfig, "plans/p.yaml": "jobs:\n  a: {run: x, " + c.job + "}\n"})
			ch := Diff(p, nil, nil).Changes[0]
			e := ch.Estimate
			if e == nil {
				if c.want != "" {
					t.Error("no estimate")
				}
				return
			}
			if got := strings.TrimSpace(strings.Join([]string{string(rune('0' + e.Cards)), e.Card}, " ")); got != c.want {
				t.Errorf("on %q, want %q", got, c.want)
			}
			card, _, err := flops.Resolve(e.Card, 0)
			if err != nil {
				t.Fatal(err)
			}
			peak, err := flops.Peak(card, flops.Mode(e.DType))
			if err != nil {
				t.Fatal(err)
			}
			for mfu, h := range map[float64]float64{0.3: e.High, 0.5: e.Low} { // back from hours to FLOPs
				if got := h * 3600 * peak * float64(e.Cards) * mfu; math.Abs(got/ch.FLOPs-1) > 1e-9 {
					t.Errorf("%g hours at MFU %g are %g FLOP, want %g", h, mfu, got, ch.FLOPs)
				}
			}
		})
	}
}

// TestEstimateIsShown: the sentence names the card and the assumption; a running job has none.
func TestEstimateIsShown(t *testing.T) {
	text := "jobs:\n  a: {run: x, on: [vast], gpu: {any: [RTX_4090], count: 2, dtype: fp16}, work: {flops: 3.1e18}}\n  b: {run: y, on: [here], work: {flops: 1e15}}\n  c: {run: z, on: [here]}\n"
	p := mustLoad(t, map[string]string{ConfigFile: estimateConfig, "plans/p.yaml": text})
	var b bytes.Buffer
	if err := Diff(p, nil, nil).Text(&b, false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for l := range strings.Lines(b.String()) {
		if strings.HasPrefix(l, "    on ") {
			got = append(got, strings.TrimSpace(l))
		}
	}
	want := []string{"on vast: 3.1e+18 FLOP, 5.2 h to 8.7 h on 2 of nvidia-rtx-4090 in fp16 at an assumed MFU of 0.3 to 0.5, cost unknown",
		"on here: 1e+15 FLOP, time and cost unknown", "on here: work, time and cost unknown"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	a := Accept(p, "c1")
	for _, c := range Diff(p, &a, map[Digest]Observed{p.Jobs[0].Work: {State: StateHeld}}).Changes {
		if c.Estimate != nil {
			t.Errorf("%+v", c)
		}
	}
	for h, want := range map[float64]string{1e-4: "0.36 s", 0.25: "15 min", 1: "1 h", 99: "99 h", 240: "10 d", 1e9: "4.2e+07 d"} {
		if got := hours(h); got != want {
			t.Errorf("%g hours are %q, want %q", h, got, want)
		}
	}
}
