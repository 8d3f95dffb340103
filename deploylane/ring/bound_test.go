package ring

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func post(t *testing.T) Formula {
	t.Helper()
	f, err := FormulaOf(ReleaseOfThePost)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestBoundVectors holds the formula against every figure that the engine itself, its unit test or its users printed.
func TestBoundVectors(t *testing.T) {
	f := post(t)
	for _, c := range []struct {
		seen             string
		in               BoundInput
		forwarding, tail uint64
	}{
		{"the post, s0 to s2 and s3", BoundInput{Batch: 2048, Ubatch: 512, Hidden: 4096, Parallel: 8, Tensors: 2}, 34_419_218_444, 59_136_012},
		{"committed plans", BoundInput{Batch: 128, Ubatch: 32, Hidden: 4096, Parallel: 8, Tensors: 2}, 137_935_244, 3_696_012},
		{"the engine's unit test", BoundInput{Batch: 512, Ubatch: 512, Payload: 1_048_576, Parallel: 10, Tensors: 2}, 551_745_036, 0},
		{"the same, derived", BoundInput{Batch: 512, Ubatch: 512, Hidden: 256, Parallel: 10, Tensors: 2}, 551_745_036, 0},
		{"wide micro-batch", BoundInput{Batch: 128, Ubatch: 128, Hidden: 4096, Parallel: 8, Tensors: 2}, 540_588_428, 0},
		{"fits", BoundInput{Batch: 64, Ubatch: 32, Hidden: 4096, Parallel: 8, Tensors: 2}, 68_967_628, 0},
		{"fits", BoundInput{Batch: 64, Ubatch: 64, Hidden: 4096, Parallel: 8, Tensors: 2}, 136_076_492, 0},
		{"does not", BoundInput{Batch: 128, Ubatch: 64, Hidden: 4096, Parallel: 8, Tensors: 2}, 272_152_972, 0},
		{"does not", BoundInput{Batch: 256, Ubatch: 32, Hidden: 4096, Parallel: 8, Tensors: 2}, 275_870_476, 0},
	} {
		got, err := f.Bound(c.in)
		if err != nil || got.Forwarding != c.forwarding || c.tail != 0 && got.Tail != c.tail {
			t.Errorf("%s: %+v gave %+v, %v; want %d, %d", c.seen, c.in, got, err, c.forwarding, c.tail)
		}
	}
	// A tail cuts nothing, so its reported bound is that of the tokens.
	tail, err := f.Bound(BoundInput{Batch: 2048, Ubatch: 512, Hidden: 4096, Parallel: 8})
	if err != nil || tail.Reported() != 59_136_012 {
		t.Errorf("tail: %+v, %v", tail, err)
	}
}

// TestBoundLimits is the table of what fits below a cap.
func TestBoundLimits(t *testing.T) {
	f := post(t)
	in := BoundInput{Batch: 128, Ubatch: 32, Hidden: 4096, Parallel: 8, Tensors: 2}
	type row struct{ Ubatch, Batch uint64 }
	for limit, want := range map[uint64]row{192 << 20: {47, 186}, 256 << 20: {63, 249}, 1000: {}} {
		if d := cmp.Diff(want, row{f.LargestUbatch(in, limit), f.LargestBatch(in, limit)}); d != "" {
			t.Errorf("%d bytes: %s", limit, d)
		}
	}
}

// TestUnknownRelease: a release without vectors has no bound, however alike its name is.
func TestUnknownRelease(t *testing.T) {
	for _, r := range []string{"", "v0.9.1", "v0.9.0+g0000000", "V0.9.0", "v0.9.0 "} {
		if _, err := FormulaOf(r); !errors.Is(err, ErrUnknownRelease) {
			t.Errorf("%q: %v", r, err)
		}
	}
	if _, err := post(t).Bound(BoundInput{Batch: 8, Ubatch: 8, Parallel: 1, Speculative: true}); !errors.Is(err, ErrNoVector) {
		t.Errorf("speculative: %v", err)
	}
}

// TestBoundRefuses: shapes that no engine accepts, and sums of more than 64 bits.
func TestBoundRefuses(t *testing.T) {
	f := post(t)
	for _, in := range []BoundInput{
		{Batch: 8, Ubatch: 9, Parallel: 1}, {Batch: 8, Parallel: 1}, {Parallel: 1}, {Batch: 8, Ubatch: 8},
	} {
		if b, err := f.Bound(in); err == nil || errors.Is(err, ErrOverflow) {
			t.Errorf("%+v gave %+v, %v", in, b, err)
		}
	}
	for _, in := range []BoundInput{
		{Batch: math.MaxUint64, Ubatch: 1, Parallel: 1},
		{Batch: 1, Ubatch: 1, Parallel: math.MaxUint64},
		{Batch: 4, Ubatch: 4, Parallel: 1, Tensors: 2, Hidden: math.MaxUint64 / 4},
		{Batch: 2, Ubatch: 2, Parallel: 1, Payload: math.MaxUint64},
	} {
		if b, err := f.Bound(in); !errors.Is(err, ErrOverflow) {
			t.Errorf("%+v gave %+v, %v", in, b, err)
		}
	}
}

// TestBoundExact holds the arithmetic against unbounded integers: equal where it fits, refused where it does not.
func TestBoundExact(t *testing.T) {
	f := post(t)
	rapid.Check(t, func(t *rapid.T) {
		in := BoundInput{Batch: rapid.Uint64Min(1).Draw(t, "batch"), Parallel: rapid.Uint64Min(1).Draw(t, "parallel"),
			Tensors: rapid.Uint64Max(1<<20).Draw(t, "tensors"), Hidden: rapid.Uint64Max(1<<40).Draw(t, "hidden")}
		in.Ubatch = rapid.Uint64Range(1, in.Batch).Draw(t, "ubatch")
		x := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
		mul := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
		add := func(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
		row := add(x(20_567), mul(x(4), x(in.Parallel)))
		payload := mul(mul(x(in.Tensors), x(in.Ubatch)), mul(x(in.Hidden), x(4)))
		capsule := add(add(x(48), mul(x(in.Tensors), x(4198))), payload)
		forwarding := add(x(12), add(mul(x(in.Batch), capsule), mul(x(in.Batch), row)))
		tail := add(x(12), add(mul(x(in.Batch), x(48)), mul(x(in.Batch), add(row, x(8228)))))
		got, err := f.Bound(in)
		if fits := forwarding.IsUint64() && tail.IsUint64(); !fits {
			if !errors.Is(err, ErrOverflow) {
				t.Fatalf("%+v: %v; want an overflow", in, err)
			}
		} else if err != nil || x(got.Forwarding).Cmp(forwarding) != 0 || x(got.Tail).Cmp(tail) != 0 {
			t.Fatalf("%+v: %+v, %v; want %s, %s", in, got, err, forwarding, tail)
		}
	})
}
