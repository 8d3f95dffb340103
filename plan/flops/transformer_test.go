package flops

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// near fails unless got is within tol of want, absolutely.
func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s: got %v, want %v ± %v", what, got, want, tol)
	}
}

// ratio fails unless got is within the relative tolerance tol of want.
func ratio(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	near(t, what, got, want, tol*math.Abs(want))
}

const (
	day  = 86400.0
	a100 = 312e12
	h100 = 989.5e12 // the peak that llm-foundry's table divides by
)

func TestSixND(t *testing.T) {
	ratio(t, "T1", SixND(174_600e6, 300e9), 3.1428e23, 0.001)
	near(t, "T1 PF-days", SixND(174_600e6, 300e9)/(1e15*day), 3637.5, 0.1)
	ratio(t, "T2", SixND(12_850e6, 300e9), 2.313e22, 0.002)
	ratio(t, "T3", SixND(355e6, 250e9), 5.325e20, 0.002)
	ratio(t, "T4", SixND(70e9, 1.4e12), 5.88e23, 1e-12)
	ratio(t, "T4 budget", SixND(70e9, 1.4e12), 5.76e23, 0.03)
	near(t, "T8", SixND(124_337_664, 300e9)/(8*a100*0.3)/day, 3.4594, 0.01)
	ratio(t, "T24", SixND(405e9, 15.6e12), 3.791e25, 0.001)
	for _, c := range []struct{ tf, want float64 }{{430, 0.4348}, {400, 0.4045}, {380, 0.3842}} {
		near(t, "T25", MFU(c.tf*1e12, 1, 989e12), c.want, 0.0001)
	}
}

func TestNanoGPT(t *testing.T) {
	d := Decoder{Attention: Attention{Width: 768, Heads: 12, HeadDim: 64}, Layers: 12, Hidden: 4 * 768, Vocab: 50257}
	const s = 1024
	// Tied head: one embedding less; positions and 2L+1 norms more.
	params := d.Params() - 50257*768 + s*768 + (2*12+1)*768
	near(t, "T5 params", params, 124_337_664, 0)
	forward := 2 * s * d.Forward(s, false)
	near(t, "T5 forward", forward, 291_648_307_200, 0)
	near(t, "T5 train", 3*forward, 874_944_921_600, 0)
	palm := Shape{Trained: 124_337_664 - 786_432, Layers: 12, Width: 768, Context: s}
	near(t, "T6", s*palm.PerToken(), 875_062_886_400, 0)
	near(t, "T7", MFU(100*3*forward, 0.755, a100), 0.371432, 1e-5)
}

func TestPublishedMFU(t *testing.T) {
	palm := Shape{Trained: 540.35e9, Layers: 118, Width: 48 * 256, Context: 2048}
	near(t, "T9", MFU(238_300*palm.PerToken(), 1, 6144*275e12), 0.46229, 0.001)
	near(t, "T9 6N", MFU(SixND(540.35e9, 238_300), 1, 6144*275e12), 0.45726, 0.001)
	nlg := Shape{Trained: 530e9, Layers: 105, Width: 128 * 160, Context: 2048}
	near(t, "T10", MFU(65_430*nlg.PerToken(), 1, 2240*a100), 0.30266, 0.001)
	near(t, "T10 6N", MFU(SixND(530e9, 65_430), 1, 2240*a100), 0.29772, 0.001)
	llama := Shape{Trained: 65.2e9, Layers: 80, Width: 8192, Context: 2048}
	near(t, "T23 days", 1.4e12/(380*2048)/day, 20.82, 0.01)
	near(t, "T23 6N", MFU(SixND(65.2e9, 380), 1, a100), 0.4765, 0.0005)
	near(t, "T23", MFU(380*llama.PerToken(), 1, a100), 0.4961, 0.0005)
}

func TestLLMFoundry(t *testing.T) {
	for _, c := range []struct {
		id                          string
		n, layers, width, ctx, toks float64
		cards, peak, percent        float64
	}{
		{"T18", 6_658_859_008, 32, 4096, 2048, 85_144, 8, h100, 46.44},
		{"T19", 13_011_240_960, 40, 5120, 32768, 15_812, 8, h100, 31.68},
		{"T20", 64_862_437_376, 80, 8192, 2048, 515_636, 512, h100, 41.25},
		{"T21", 174_070_272, 12, 768, 65536, 162_946, 8, a100, 54.13},
		{"T22", 12_853_954_560, 40, 5120, 2048, 63_946, 32, a100, 52.62},
	} {
		s := Shape{Trained: c.n, Layers: c.layers, Width: c.width, Context: c.ctx}
		near(t, c.id, 100*MFU(c.toks*s.PerToken(), 1, c.cards*c.peak), c.percent, 0.00501)
	}
	s := Shape{Trained: 13_011_240_960, Layers: 40, Width: 5120, Context: 32768, Causal: true}
	near(t, "T19 causal", 100*MFU(15_812*s.PerToken(), 1, 8*h100), 23.64, 0.00501)
	near(t, "T19 6N", 100*MFU(SixND(13_011_240_960, 15_812), 1, 8*h100), 15.59, 0.00501)
	near(t, "T21 6N", 100*MFU(SixND(174_070_272, 162_946), 1, 8*a100), 6.82, 0.00501)
	near(t, "T20 HFU", 100*HFU(0.4125, 8, 6), 55.00, 0.00501)
	near(t, "H1", HFU(1, 8, 6), 1.3333, 0.0001)
}

func TestMegatron(t *testing.T) {
	for _, c := range []struct {
		id                              string
		batch, layers, width, sec, gpus float64
		mfu, hfu, tol                   float64
	}{
		{"T11", 4, 48, 6144, 1.10, 8, 0.4165, 0.4381, 0.003},
		{"T12", 64, 96, 12288, 13.75, 64, 0.5139, 0.5277, 0.001},
		{"T13", 280, 105, 20480, 37.83, 280, 0.5605, 0.5696, 0.001},
		{"T14", 512, 128, 25600, 71.49, 512, 0.5627, 0.5701, 0.001},
	} {
		m := Megatron{Batch: c.batch, Context: 2048, Layers: c.layers, Width: c.width, Vocab: 51200}
		mfu := MFU(m.Model(), c.sec, c.gpus*a100)
		near(t, c.id+" MFU", mfu, c.mfu, c.tol)
		near(t, c.id+" HFU", HFU(mfu, m.Selective(), m.Model()), c.hfu, c.tol)
		near(t, c.id+" MFU again", MFU(m.Selective(), c.sec, c.gpus*a100), HFU(mfu, m.Selective(), m.Model()), 1e-12)
	}
	near(t, "T15", MegatronSeconds(300e9, 175e9, 1024, 140e12)/day, 33.91, 0.01)
	near(t, "T16", MegatronSeconds(450e9, 1e12, 3072, 163e12)/day, 83.2, 0.1)
	for _, c := range []struct{ layers, width, want float64 }{
		{80, 12288, 145.622e9}, {105, 20480, 529.601e9}, {128, 25600, 1008.039e9}} {
		ratio(t, "T17", Megatron{Context: 2048, Layers: c.layers, Width: c.width, Vocab: 51200}.Params(), c.want, 0.0001)
	}
	m := Megatron{Batch: 1, Context: 2048, Layers: 105, Width: 20480, Vocab: 51200}
	near(t, "H3", HFU(1, m.Selective(), m.Model()), 1.01636, 0.00001)
	near(t, "H2", 57.8/46.2, 1.251, 0.001)
	// The 2021 form executes the forward pass twice in the layers and once in the head: 4/3 of the model without a head.
	noHead := Megatron{Batch: 1, Context: 2048, Layers: 105, Width: 20480}
	near(t, "full recompute", HFU(1, noHead.FullRecompute(), noHead.Model()), 8.0/6, 1e-12)
}

func TestMegaScale(t *testing.T) {
	toks := 6144 * 2048 / 6.34
	ratio(t, "T26 tok/s", toks, 1.985e6, 0.001)
	ratio(t, "T26 days", 300e9/toks/day, 1.750, 0.001)
	m := Megatron{Batch: 6144, Context: 2048, Layers: 96, Width: 12288, Vocab: 51200}
	mfu := MFU(m.Model(), 6.34, 12288*a100)
	ratio(t, "T26 MFU", mfu, 0.557, 0.015)
	ratio(t, "T26 printed", mfu, 0.552, 0.015)
}

func TestHoffmannRatios(t *testing.T) {
	for _, c := range []struct{ n, layers, width, hidden, want, printed float64 }{
		{73e6, 10, 640, 2560, 1.032, 1.03}, {305e6, 20, 1024, 4096, 1.100, 1.10}, {552e6, 24, 1280, 5120, 1.083, 1.08},
		{1138e6, 26, 1792, 7168, 1.048, 1.04}, {1631e6, 28, 2048, 8192, 1.008, 1.03}, {6802e6, 40, 3584, 14336, 0.993, 0.99}} {
		d := Decoder{Attention: Attention{Width: c.width, Heads: 1, HeadDim: c.width}, Layers: c.layers, Hidden: c.hidden}
		got := Train * d.Forward(2048, false) / SixND(c.n, 1)
		near(t, "T27", got, c.want, 0.001)
		near(t, "T27 printed", got, c.printed, 0.025)
	}
}

func TestMoE(t *testing.T) {
	d := Decoder{Attention: Attention{Width: 4096, Heads: 32, KVHeads: 8, HeadDim: 128}, Layers: 32, Hidden: 14336, Gated: true,
		Experts: 8, TopK: 2, Vocab: 32000}
	norms := (2*32.0 + 1) * 4096
	near(t, "M1 total", d.Params()+norms, 46_702_792_704, 0)
	active := d.Layers*d.Weights() + 2*32000*4096 + norms
	near(t, "M1 active", active, 12_879_925_248, 0)
	ratio(t, "M1 per token", Shape{Trained: active - 32000*4096}.PerToken(), 76.49e9, 0.0001)
	total := SixND(37e9, 14.8e12)
	ratio(t, "M2", total, 3.2856e24, 1e-4)
	perGPU := total / (2.664e6 * 3600)
	ratio(t, "M2 per GPU", perGPU, 342.6e12, 1e-4)
	near(t, "M2 share", MFU(perGPU, 1, 989.4e12), 0.3463, 0.0001)
	shared := MoE{Width: 8, Experts: 4, TopK: 1, Shared: 2, Expert: 100}
	near(t, "shared experts", shared.MACs(), 8*4+3*100, 0)
	near(t, "all experts", shared.Params(), 8*4+6*100, 0)
}

func TestLoRA(t *testing.T) {
	a := Attention{Width: 4096, Heads: 32, HeadDim: 128}
	base := 32*(a.Projections()+MLP(4096, 11008, true)) + 4096*32000
	near(t, "L1 linear weights", base, 6_607_077_376, 0)
	lora := 32.0 * 2 * (Linear(4096, 8) + Linear(8, 4096))
	near(t, "L1 LoRA weights", lora, 4_194_304, 0)
	short, full := Shape{Trained: lora, Frozen: base}, Shape{Trained: base}
	ratio(t, "L1", short.PerToken(), 2.6453e10, 1e-4)
	ratio(t, "L1 full", full.PerToken(), 3.9642e10, 1e-4)
	near(t, "L1 ratio", short.PerToken()/full.PerToken(), 0.66730, 0.00001)
	short.Layers, short.Width, short.Context = 32, 4096, 2048
	full.Layers, full.Width, full.Context = 32, 4096, 2048
	near(t, "L1 with attention", short.PerToken()/full.PerToken(), 0.69230, 0.00001)
	one := Shape{Frozen: 4096 * 4096, Trained: 2 * 32 * 4096}
	near(t, "L2", one.PerToken()/SixND(4096*4096, 1), 0.68229, 0.0001)
	if gain := 43.1 / 32.5; math.Abs(gain-1.326) > 0.001 || gain > float64(Train)/FrozenBase {
		t.Errorf("L3: %v is above the bound", gain)
	}
	half := Shape{Forward: 12, Trained: 12}.PerToken() / Shape{Trained: 24}.PerToken()
	near(t, "frozen prefix", half, 2.0/3, 1e-12)
}

// TestAttentionShare holds the closed forms of §1.1: s/(6d) with N = 12Ld².
func TestAttentionShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, d := rapid.Float64Range(1, 200).Draw(t, "layers"), rapid.Float64Range(64, 32768).Draw(t, "width")
		s := rapid.Float64Range(1, 1e6).Draw(t, "context")
		sh := Shape{Trained: 12 * l * d * d, Layers: l, Width: d, Context: s}
		if got, want := sh.PerToken()/(6*sh.Trained)-1, s/(6*d); math.Abs(got-want) > 1e-9*(1+want) {
			t.Fatalf("share %v, want %v", got, want)
		}
		causal := sh
		causal.Causal = true
		if 2*causal.Attention() != sh.Attention() {
			t.Fatal("causal is not half")
		}
		m := Megatron{Batch: 1, Context: s, Layers: l, Width: d}
		if got := m.Model() / s; math.Abs(got-sh.PerToken()) > 1e-9*got {
			t.Fatalf("Megatron without a head %v, 6N+12Lds %v", got, sh.PerToken())
		}
	})
}

// TestShapeScales: work is linear in every parameter count and never shrinks when something grows.
func TestShapeScales(t *testing.T) {
	num := rapid.Float64Range(0, 1e12)
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{Trained: num.Draw(t, "n"), Frozen: num.Draw(t, "f"), Forward: num.Draw(t, "w"),
			Layers: num.Draw(t, "l"), Width: num.Draw(t, "d"), Context: num.Draw(t, "s")}
		k := rapid.Float64Range(1, 100).Draw(t, "k")
		base := s.PerToken()
		all := Shape{s.Trained * k, s.Frozen * k, s.Forward * k, s.Layers * k, s.Width, s.Context, false}
		if math.Abs(all.PerToken()-k*base) > 1e-9*k*base {
			t.Fatalf("scaled by %v: %v against %v", k, all.PerToken(), k*base)
		}
		for i, p := range []*float64{&s.Trained, &s.Frozen, &s.Forward, &s.Layers, &s.Width, &s.Context} {
			was := *p
			*p *= k
			if s.PerToken() < base {
				t.Fatalf("field %d: grows by %v, work shrinks", i, k)
			}
			*p = was
		}
	})
}

func TestUtilisationOfNothing(t *testing.T) {
	for _, v := range []float64{MFU(1, 0, 1), MFU(1, 1, 0), MFU(1, math.NaN(), 1), HFU(1, 1, 0)} {
		if v != 0 {
			t.Errorf("got %v, want 0", v)
		}
	}
}
