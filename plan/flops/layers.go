package flops

import (
	"fmt"
	"math"
)

// FLOPs per multiply-add, by what the backward pass has to compute (science.md §1.5): forward 2, gradient of the
// input 2, gradient of the weight 2.
const (
	Train       = 6 // trained matrix; attention scores, which have no weights, too
	FrozenBase  = 4 // frozen matrix with something trainable below it (LoRA base)
	FirstLayer  = 4 // first trainable layer on raw input: nobody needs the input's gradient
	ForwardOnly = 2 // frozen prefix, teacher, inference
)

// Linear is the multiply-adds of one row through an in×out matrix.
func Linear(in, out float64) float64 { return in * out }

// MLP is the multiply-adds of one token through two matrices of hidden size hidden, or three when gated (SwiGLU).
func MLP(width, hidden float64, gated bool) float64 {
	if gated {
		return 3 * width * hidden
	}
	return 2 * width * hidden
}

// Attention is one attention layer. KVHeads below Heads is grouped-query attention; 0 means equal to Heads.
type Attention struct {
	Width   float64 // model width
	Heads   float64 // query heads
	KVHeads float64 // key/value heads
	HeadDim float64
}

// Projections is the multiply-adds of one token through the query, key, value and output matrices.
func (a Attention) Projections() float64 {
	kv := a.KVHeads
	if kv == 0 {
		kv = a.Heads
	}
	return 2*a.Width*a.Heads*a.HeadDim + 2*a.Width*kv*a.HeadDim
}

// Scores is the multiply-adds of one token's scores and values over a context of s tokens (of the other side, for
// cross-attention); causal halves it.
func (a Attention) Scores(s float64, causal bool) float64 {
	m := 2 * s * a.Heads * a.HeadDim
	if causal {
		return m / 2
	}
	return m
}

// MoE is a mixture-of-experts layer with a router; shared experts are always on.
type MoE struct {
	Width   float64
	Experts float64
	TopK    float64
	Shared  float64
	Expert  float64 // multiply-adds of one expert for one token: see MLP
}

// MACs is the multiply-adds of one token.
func (m MoE) MACs() float64 { return m.Width*m.Experts + (m.TopK+m.Shared)*m.Expert }

// Params is all weights, active or not.
func (m MoE) Params() float64 { return m.Width*m.Experts + (m.Experts+m.Shared)*m.Expert }

// Conv is a convolution layer of one to three dimensions. Kernel, Stride, Pad and Dilation have one entry per
// dimension, or one for all; empty means 1, 1, 0, 1. Groups 0 means 1.
type Conv struct {
	In, Out                       int64   // channels
	Size                          []int64 // input, one entry per dimension
	Kernel, Stride, Pad, Dilation []int64
	Groups                        int64
	Transposed                    bool
}

// maxConv bounds every number of a Conv, so that sizes cannot overflow.
const maxConv = 1 << 24

func at(v []int64, i int, def int64) int64 {
	switch {
	case len(v) == 0:
		return def
	case len(v) == 1:
		return v[0]
	}
	return v[i]
}

// Check says what makes the layer impossible: a number out of bounds, channels that the groups do not divide, a
// kernel larger than the padded input.
func (c Conv) Check() error {
	if n := len(c.Size); n < 1 || n > 3 {
		return fmt.Errorf("found %d dimensions, expected 1 to 3", n)
	}
	in := func(what string, v []int64, low int64) error {
		if len(v) > 1 && len(v) != len(c.Size) {
			return fmt.Errorf("%s has %d entries for %d dimensions", what, len(v), len(c.Size))
		}
		for _, x := range v {
			if x < low || x > maxConv {
				return fmt.Errorf("%s is %d, expected %d to %d", what, x, low, maxConv)
			}
		}
		return nil
	}
	for _, f := range []struct {
		what string
		v    []int64
		low  int64
	}{{"in", []int64{c.In}, 1}, {"out", []int64{c.Out}, 1}, {"groups", []int64{c.Groups}, 0}, {"size", c.Size, 1},
		{"kernel", c.Kernel, 1}, {"stride", c.Stride, 1}, {"pad", c.Pad, 0}, {"dilation", c.Dilation, 1}} {
		if f.what == "in" || f.what == "out" || f.what == "groups" {
			if f.v[0] < f.low || f.v[0] > maxConv {
				return fmt.Errorf("%s is %d, expected %d to %d", f.what, f.v[0], f.low, maxConv)
			}
			continue
		}
		if err := in(f.what, f.v, f.low); err != nil {
			return err
		}
	}
	if g := max(1, c.Groups); c.In%g != 0 || c.Out%g != 0 {
		return fmt.Errorf("%d groups do not divide %d input and %d output channels", g, c.In, c.Out)
	}
	for i, o := range c.Output() {
		if o < 1 {
			return fmt.Errorf("a kernel of %d (dilation %d) does not fit an input of %d with pad %d",
				at(c.Kernel, i, 1), at(c.Dilation, i, 1), c.Size[i], at(c.Pad, i, 0))
		}
	}
	return nil
}

// Output is the size of the output, one entry per dimension; below 1 where the kernel does not fit.
func (c Conv) Output() []int64 {
	out := make([]int64, len(c.Size))
	for i, n := range c.Size {
		span := at(c.Dilation, i, 1)*(at(c.Kernel, i, 1)-1) + 1
		stride, pad := at(c.Stride, i, 1), at(c.Pad, i, 0)
		if c.Transposed {
			out[i] = (n-1)*stride - 2*pad + span
			continue
		}
		room := n + 2*pad - span
		if room < 0 {
			continue
		}
		out[i] = room/stride + 1
	}
	return out
}

// MACs is the multiply-adds of one sample: output positions × out × kernel × in/groups, or input positions for a
// transposed convolution. The layer must pass Check.
func (c Conv) MACs() float64 {
	places := c.Output()
	if c.Transposed {
		places = c.Size
	}
	m := float64(c.In) * float64(c.Out) / float64(max(1, c.Groups))
	for i, p := range places {
		m *= float64(p) * float64(at(c.Kernel, i, 1))
	}
	return m
}

// Cell is the kind of a recurrent layer: its value is the number of gates.
type Cell int

const (
	RNN  Cell = 1
	GRU  Cell = 3
	LSTM Cell = 4
)

// Recurrent is a stack of recurrent layers.
type Recurrent struct {
	Cell          Cell
	In, Hidden    float64
	Projection    float64 // LSTM only; 0: none
	Layers        int     // 0 means 1
	Bidirectional bool
}

func (r Recurrent) out() float64 {
	if r.Projection > 0 {
		return r.Projection
	}
	return r.Hidden
}

// MACs is the multiply-adds of one time step, which is also the number of weights without biases.
func (r Recurrent) MACs() float64 {
	ways, in, sum := 1.0, r.In, 0.0
	if r.Bidirectional {
		ways = 2
	}
	for range max(1, r.Layers) {
		m := float64(r.Cell)*r.Hidden*(in+r.out()) + r.Hidden*r.Projection
		sum += ways * m
		in = ways * r.out()
	}
	return sum
}

// Params is the weights plus biasSets bias vectors per gate (Keras LSTM 1, PyTorch and Keras GRU 2).
func (r Recurrent) Params(biasSets float64) float64 {
	ways := 1.0
	if r.Bidirectional {
		ways = 2
	}
	return r.MACs() + ways*float64(max(1, r.Layers))*float64(r.Cell)*r.Hidden*biasSets
}

// Conformer is an encoder with relative positions behind a fourfold convolutional subsampling of mel frames.
type Conformer struct {
	Width, Layers, Kernel, Mels float64
}

// MACs is the multiply-adds of one forward pass over frames input frames.
func (c Conformer) MACs(frames float64) float64 {
	t, d := math.Floor(frames/4), c.Width
	sub := math.Floor(frames/2)*(c.Mels/2)*9*d + t*(c.Mels/4)*9*d*d + t*(c.Mels/4)*d*d
	return sub + c.Layers*(t*(24*d*d+c.Kernel*d)+3*t*t*d)
}

// ViT is a vision transformer for square images in three colours, with one class token.
type ViT struct {
	Image, Patch, Layers, Width, Hidden, Classes float64
}

// MACs is the multiply-adds of one image.
func (v ViT) MACs() float64 {
	side := math.Floor(v.Image / v.Patch)
	n, d := side*side, v.Width
	t := n + 1
	return n*3*v.Patch*v.Patch*d + v.Layers*(t*(4*d*d+2*d*v.Hidden)+2*t*t*d) + d*v.Classes
}
