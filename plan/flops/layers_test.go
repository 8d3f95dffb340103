package flops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// net adds up the multiply-adds of a convolutional network as data flows through it.
type net struct {
	t        *testing.T
	size, ch int64
	macs     float64
}

func (n *net) conv(out, kernel, stride, pad, groups int64) *net {
	c := Conv{In: n.ch, Out: out, Size: []int64{n.size, n.size}, Kernel: []int64{kernel}, Stride: []int64{stride},
		Pad: []int64{pad}, Groups: groups}
	if err := c.Check(); err != nil {
		n.t.Fatal(err)
	}
	n.macs += c.MACs()
	n.size, n.ch = c.Output()[0], out
	return n
}

func (n *net) pool(kernel, stride, pad int64) *net {
	n.size = (n.size+2*pad-kernel)/stride + 1
	return n
}

func (n *net) linear(in, out float64) *net { n.macs += Linear(in, out); return n }

// resnet is torchvision's: blocks of two 3x3, or bottlenecks with the stride in the 3x3.
func resnet(t *testing.T, blocks []int, bottleneck bool, groups, base int64) float64 {
	n := (&net{t: t, size: 224, ch: 3}).conv(64, 7, 2, 3, 1).pool(3, 2, 1)
	for stage, count := range blocks {
		planes := int64(64) << stage
		for b := range count {
			stride := int64(1)
			if stage > 0 && b == 0 {
				stride = 2
			}
			side := &net{t: t, size: n.size, ch: n.ch}
			was := n.ch
			if bottleneck {
				width := planes * base / 64 * groups
				n.conv(width, 1, 1, 0, 1).conv(width, 3, stride, 1, groups).conv(4*planes, 1, 1, 0, 1)
			} else {
				n.conv(planes, 3, stride, 1, 1).conv(planes, 3, 1, 1, 1)
			}
			if was != n.ch || stride != 1 {
				n.macs += side.conv(n.ch, 1, stride, 0, 1).macs
			}
		}
	}
	return n.linear(float64(n.ch), 1000).macs
}

func vgg(t *testing.T, stages ...int) float64 {
	n := &net{t: t, size: 224, ch: 3}
	for i, count := range stages {
		for range count {
			n.conv(min(512, int64(64)<<i), 3, 1, 1, 1)
		}
		n.pool(2, 2, 0)
	}
	return n.linear(25088, 4096).linear(4096, 4096).linear(4096, 1000).macs
}

func alexnet(t *testing.T) float64 {
	n := (&net{t: t, size: 224, ch: 3}).conv(64, 11, 4, 2, 1).pool(3, 2, 0).conv(192, 5, 1, 2, 1).pool(3, 2, 0)
	n.conv(384, 3, 1, 1, 1).conv(256, 3, 1, 1, 1).conv(256, 3, 1, 1, 1)
	return n.linear(9216, 4096).linear(4096, 4096).linear(4096, 1000).macs
}

func mobilenetV2(t *testing.T) float64 {
	n := (&net{t: t, size: 224, ch: 3}).conv(32, 3, 2, 1, 1)
	for _, s := range [][4]int64{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}} {
		for i := range s[2] {
			stride, wide := s[3], n.ch*s[0]
			if i > 0 {
				stride = 1
			}
			if s[0] > 1 {
				n.conv(wide, 1, 1, 0, 1)
			}
			n.conv(wide, 3, stride, 1, wide).conv(s[1], 1, 1, 0, 1)
		}
	}
	return n.conv(1280, 1, 1, 0, 1).linear(1280, 1000).macs
}

func TestConvolutionalNetworks(t *testing.T) {
	r50 := resnet(t, []int{3, 4, 6, 3}, true, 1, 64)
	for _, c := range []struct {
		id                   string
		got, want, gmac, tol float64
	}{
		{"C1", resnet(t, []int{2, 2, 2, 2}, false, 1, 64), 1_814_073_344, 1.814, 0.0005},
		{"C2", resnet(t, []int{3, 4, 6, 3}, false, 1, 64), 3_663_761_408, 3.664, 0.0005},
		{"C3", r50, 4_089_184_256, 4.089, 0.0005},
		{"C4 101", resnet(t, []int{3, 4, 23, 3}, true, 1, 64), 7_801_405_440, 7.801, 0.0005},
		{"C4 152", resnet(t, []int{3, 8, 36, 3}, true, 1, 64), 11_513_626_624, 11.514, 0.0005},
		{"C5", resnet(t, []int{3, 4, 6, 3}, true, 32, 4), 4_230_479_872, 4.230, 0.0005},
		{"C6", resnet(t, []int{3, 4, 23, 3}, true, 32, 8), 16_414_015_488, 16.414, 0.0005},
		{"C7", resnet(t, []int{3, 4, 6, 3}, true, 1, 128), 11_398_021_120, 11.398, 0.0005},
		{"C8 11", vgg(t, 1, 1, 2, 2, 2), 7_609_090_048, 7.609, 0.0005},
		{"C8 16", vgg(t, 2, 2, 3, 3, 3), 15_470_264_320, 15.47, 0.0005},
		{"C8 19", vgg(t, 2, 2, 4, 4, 4), 19_632_062_464, 19.632, 0.0005},
		{"C9", alexnet(t), 714_188_480, 0.714, 0.0005},
		{"C10", mobilenetV2(t), 300_774_272, 0.301, 0.001},
	} {
		near(t, c.id, c.got, c.want, 0)
		ratio(t, c.id+" printed", c.got, c.gmac*1e9, c.tol)
	}
	near(t, "C11", Train*r50, 24_535_105_536, 0)
}

func TestVisionTransformers(t *testing.T) {
	b := ViT{Image: 224, Patch: 16, Layers: 12, Width: 768, Hidden: 3072, Classes: 1000}
	near(t, "V1", b.MACs(), 17_563_828_224, 0)
	near(t, "V1 without attention", b.MACs()-b.Layers*2*197*197*b.Width, 16.849e9, 0.0005*16.849e9)
	b.Patch = 32
	near(t, "V2 B/32", b.MACs(), 4_409_186_304, 0)
	l := ViT{Image: 224, Patch: 16, Layers: 24, Width: 1024, Hidden: 4096, Classes: 1000}
	near(t, "V2 L/16", l.MACs(), 61_554_712_576, 0)
	l.Patch = 32
	near(t, "V2 L/32", l.MACs(), 15_377_539_072, 0)
	h := ViT{Image: 224, Patch: 14, Layers: 32, Width: 1280, Hidden: 5120, Classes: 1000}
	near(t, "V2 H/14", h.MACs(), 167_295_109_120, 0)
}

func TestRecurrent(t *testing.T) {
	near(t, "R1", Recurrent{Cell: LSTM, In: 512, Hidden: 512, Layers: 4}.MACs(), 8_388_608, 0)
	near(t, "R2", Recurrent{Cell: LSTM, In: 512, Hidden: 2048, Projection: 512}.MACs(), 9_437_184, 0)
	near(t, "R3", Recurrent{Cell: LSTM, In: 28, Hidden: 128}.Params(1), 80_384, 0)
	near(t, "R4", Recurrent{Cell: GRU, In: 28, Hidden: 128}.Params(2), 60_672, 0)
	near(t, "RNN", Recurrent{Cell: RNN, In: 3, Hidden: 5}.MACs(), 5*8, 0)
	// Two ways of 5; the second layer reads both: 2·5·(3+5) + 2·5·(10+5).
	near(t, "bidirectional", Recurrent{Cell: RNN, In: 3, Hidden: 5, Layers: 2, Bidirectional: true}.MACs(), 80+150, 0)
	weights := Linear(42, 24) + Recurrent{Cell: GRU, In: 24, Hidden: 24}.MACs() + Recurrent{Cell: GRU, In: 90, Hidden: 48}.MACs() +
		Recurrent{Cell: GRU, In: 114, Hidden: 96}.MACs() + Linear(96, 22) + Linear(24, 1)
	near(t, "R5", weights, 86_952, 0)
	near(t, "R5 biases", weights+24+3*(24+48+96)+22+1, 87_503, 0)
	near(t, "R5 rate", 2*100*weights, 17.5e6, 0.2e6)
}

func TestConformer(t *testing.T) {
	for _, c := range []struct {
		id                  string
		width, layers, want float64
	}{{"F1", 144, 16, 26.2}, {"F2", 256, 16, 71.7}, {"F3", 512, 18, 280.6}} {
		m := Conformer{Width: c.width, Layers: c.layers, Kernel: 31, Mels: 80}.MACs(3000)
		near(t, c.id, 2*m/1e9, c.want, 0.05)
	}
}

func TestAttentionParts(t *testing.T) {
	full := Attention{Width: 4096, Heads: 32, HeadDim: 128}
	near(t, "projections", full.Projections(), 4*4096*4096, 0)
	gqa := full
	gqa.KVHeads = 8
	near(t, "grouped queries", gqa.Projections(), 2*4096*4096+2*4096*8*128, 0)
	near(t, "scores", full.Scores(100, false), 2*100*4096, 0)
	near(t, "causal", full.Scores(100, true), 100*4096, 0)
	near(t, "gated", MLP(10, 30, true), 900, 0)
	near(t, "plain", MLP(10, 30, false), 600, 0)
}

func TestConvShapes(t *testing.T) {
	one := Conv{In: 4, Out: 8, Size: []int64{10}, Kernel: []int64{3}, Dilation: []int64{2}, Pad: []int64{2}}
	near(t, "1d dilated", one.MACs(), 10*8*3*4, 0)
	three := Conv{In: 3, Out: 5, Size: []int64{4, 6, 8}, Kernel: []int64{3, 1, 2}, Stride: []int64{1, 2, 2}, Pad: []int64{1, 0, 0}}
	if got, want := three.Output(), []int64{4, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("output %v, want %v", got, want)
	}
	near(t, "3d", three.MACs(), 4*3*4*5*6*3, 0)
	up := Conv{In: 64, Out: 32, Size: []int64{14, 14}, Kernel: []int64{4}, Stride: []int64{2}, Pad: []int64{1}, Transposed: true}
	if got, want := up.Output(), []int64{28, 28}; !slices.Equal(got, want) {
		t.Errorf("transposed output %v, want %v", got, want)
	}
	near(t, "transposed", up.MACs(), 14*14*64*16*32, 0)
}

func TestConvRefusals(t *testing.T) {
	good := Conv{In: 4, Out: 8, Size: []int64{10, 10}, Kernel: []int64{3}}
	for want, c := range map[string]Conv{
		"do not divide":     {In: 4, Out: 8, Size: good.Size, Kernel: good.Kernel, Groups: 3},
		"does not fit":      {In: 4, Out: 8, Size: []int64{2, 2}, Kernel: good.Kernel},
		"0 dimensions":      {In: 4, Out: 8, Kernel: good.Kernel},
		"kernel is 0":       {In: 4, Out: 8, Size: good.Size, Kernel: []int64{0}},
		"in is -1":          {In: -1, Out: 8, Size: good.Size},
		"stride has 3":      {In: 4, Out: 8, Size: good.Size, Stride: []int64{1, 1, 1}},
		"size is 999999999": {In: 4, Out: 8, Size: []int64{999999999}},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", c, err, want)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// TestConvScales: linear in the channels, divided by the groups, never below zero, and a transposed convolution costs
// what its forward twin costs from the other side.
func TestConvScales(t *testing.T) {
	small := rapid.Int64Range(1, 7)
	rapid.Check(t, func(t *rapid.T) {
		g := small.Draw(t, "groups")
		c := Conv{In: g * small.Draw(t, "in"), Out: g * small.Draw(t, "out"), Groups: g,
			Size: rapid.SliceOfN(rapid.Int64Range(1, 64), 1, 3).Draw(t, "size"), Kernel: []int64{small.Draw(t, "kernel")},
			Stride: []int64{small.Draw(t, "stride")}, Pad: []int64{rapid.Int64Range(0, 3).Draw(t, "pad")},
			Dilation: []int64{rapid.Int64Range(1, 3).Draw(t, "dilation")}}
		if c.Check() != nil {
			return
		}
		twice := c
		twice.Out *= 2
		if c.MACs() <= 0 || twice.MACs() != 2*c.MACs() {
			t.Fatalf("%+v: %v, twice %v", c, c.MACs(), twice.MACs())
		}
		plain := c
		plain.Groups = 1
		if math.Abs(plain.MACs()-float64(g)*c.MACs()) > 1e-9*plain.MACs() {
			t.Fatalf("%d groups: %v, one: %v", g, c.MACs(), plain.MACs())
		}
		back := c
		back.In, back.Out, back.Size, back.Transposed = c.Out, c.In, c.Output(), true
		if back.MACs() != c.MACs() {
			t.Fatalf("transposed twin %v, forward %v", back.MACs(), c.MACs())
		}
	})
}
