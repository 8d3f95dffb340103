package flops

// SixND is Kaplan's and Hoffmann's 6·N·D: training FLOPs of params parameters over tokens tokens, without attention.
func SixND(params, tokens float64) float64 { return Train * params * tokens }

// Shape is what one token costs in training. Without Layers, Width and Context the attention term is left out, which
// is right only where the context is far below the width (its share of the whole is about context/(6·width)).
type Shape struct {
	Trained float64 // parameters, the output head once; input embeddings are free, experts count when active
	Frozen  float64 // frozen, with something trainable below (LoRA base)
	Forward float64 // forward pass only
	Layers  float64
	Width   float64 // heads × head dimension, not the model width where they differ
	Context float64 // tokens
	Causal  bool    // halve the attention term
}

// Attention is the attention term of one token: 12·L·d·s, or half of it when causal. It is the same under LoRA, where
// both operands of the scores need gradients.
func (s Shape) Attention() float64 {
	a := 12 * s.Layers * s.Width * s.Context
	if s.Causal {
		return a / 2
	}
	return a
}

// PerToken is the training FLOPs of one token: 6N + 4·frozen + 2·forward + attention.
func (s Shape) PerToken() float64 {
	return Train*s.Trained + FrozenBase*s.Frozen + ForwardOnly*s.Forward + s.Attention()
}

// Megatron is the shape in the closed forms of Narayanan 2021 and Korthikanti 2022: a GPT with 4·h hidden units.
type Megatron struct {
	Batch   float64 // sequences of one iteration
	Context float64 // tokens of one sequence
	Layers  float64
	Width   float64
	Vocab   float64
}

func (m Megatron) form(passes, attention, head float64) float64 {
	return passes * m.Batch * m.Context * m.Layers * m.Width * m.Width *
		(1 + m.Context/(attention*m.Width) + m.Vocab/(head*m.Width*m.Layers))
}

// Model is the FLOPs of one iteration that the model needs (2022).
func (m Megatron) Model() float64 { return m.form(72, 6, 12) }

// Selective is what the hardware executes when the attention alone is recomputed (2022).
func (m Megatron) Selective() float64 { return m.form(72, 3, 12) }

// FullRecompute is what the hardware executes when every activation is recomputed (2021).
func (m Megatron) FullRecompute() float64 { return m.form(96, 6, 16) }

// Params is the parameter count 12·L·h²·(1 + 13/(12h) + (V+s)/(12·L·h)), biases, norms and positions included.
func (m Megatron) Params() float64 {
	return 12*m.Layers*m.Width*m.Width + 13*m.Layers*m.Width + (m.Vocab+m.Context)*m.Width
}

// MegatronSeconds is the training time with full recomputation, 8·T·P/(n·X), for T tokens, P parameters and n cards that
// each do X executed FLOP/s.
func MegatronSeconds(tokens, params, cards, perCard float64) float64 {
	return 8 * tokens * params / (cards * perCard)
}

// Decoder is a decoder-only transformer by its parts.
type Decoder struct {
	Attention Attention
	Layers    float64
	Hidden    float64 // of the MLP
	Gated     bool
	Experts   float64 // 0: dense
	TopK      float64
	Shared    float64
	Vocab     float64
}

func (d Decoder) moe() MoE {
	return MoE{Width: d.Attention.Width, Experts: d.Experts, TopK: d.TopK, Shared: d.Shared,
		Expert: MLP(d.Attention.Width, d.Hidden, d.Gated)}
}

// Forward is the multiply-adds of one token's forward pass over a context of s tokens, head counted.
func (d Decoder) Forward(s float64, causal bool) float64 {
	return d.Layers*(d.Weights()+d.Attention.Scores(s, causal)) + d.Attention.Width*d.Vocab
}

// Weights is the multiply-adds of one token through the matrices of one layer, which is also its active weights.
func (d Decoder) Weights() float64 {
	mlp := MLP(d.Attention.Width, d.Hidden, d.Gated)
	if d.Experts > 0 {
		mlp = d.moe().MACs()
	}
	return d.Attention.Projections() + mlp
}

// Params is all weights of the matrices and of untied input and output embeddings; norms and biases are left out.
func (d Decoder) Params() float64 {
	layer := d.Weights()
	if d.Experts > 0 {
		layer = d.Attention.Projections() + d.moe().Params()
	}
	return d.Layers*layer + 2*d.Vocab*d.Attention.Width
}

// MFU is the model FLOPs utilisation: work / (rated peak × seconds), peak summed over all cards in FLOP/s. It is 0
// when peak or seconds is not positive.
func MFU(work, seconds, peak float64) float64 {
	if !(peak > 0) || !(seconds > 0) {
		return 0
	}
	return work / (peak * seconds)
}

// HFU is the hardware utilisation for executed FLOPs: MFU × executed/model. Full recomputation executes 8/6 of the
// model's FLOPs.
func HFU(mfu, executed, model float64) float64 {
	if !(model > 0) {
		return 0
	}
	return mfu * executed / model
}
