package fingerprint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"strings"
)

// probeVersion goes up when what Compute computes changes: its value is then another one on every machine.
const probeVersion = "v1"

// Compute is the fact Probe: a hash over the bits of fixed computations on the CPU, in a fixed order, some milliseconds
// long: products of matrices in 32 and 64 bits, sums front to back and in pairs, exp, log, sin, tanh and powers. Another
// instruction set (where a product and a sum are fused into one rounding), other vector units behind exp, or a broken CPU give
// another hash. It is the agent's own arithmetic, not a framework's: that is what ProbeRun is for.
func Compute() string {
	h := sha256.New()
	multiply32(h)
	multiply64(h)
	reduce(h)
	functions(h)
	return probeVersion + " sha256:" + hex.EncodeToString(h.Sum(nil))
}

// side of the matrices.
const side = 48

// numbers are n values in (-1, 1), the same ever: a linear congruence (Knuth's MMIX).
func numbers(n int, seed uint64) []float64 {
	out := make([]float64, n)
	for i := range out {
		seed = seed*6364136223846793005 + 1442695040888963407
		out[i] = float64(int64(seed)>>11) / (1 << 52)
	}
	return out
}

func bits64(h hash.Hash, v float64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
	h.Write(b[:]) // never fails (hash.Hash)
}

func multiply32(h hash.Hash) {
	a, b := numbers(side*side, 1), numbers(side*side, 2)
	for i := range side {
		for j := range side {
			var sum float32
			for k := range side {
				sum += float32(a[i*side+k]) * float32(b[k*side+j])
			}
			bits64(h, float64(sum))
		}
	}
}

func multiply64(h hash.Hash) {
	a, b := numbers(side*side, 3), numbers(side*side, 4)
	for i := range side {
		for j := range side {
			var sum float64
			for k := range side {
				sum += a[i*side+k] * b[k*side+j]
			}
			bits64(h, sum)
		}
	}
}

func reduce(h hash.Hash) {
	xs := numbers(1<<14, 5)
	var sum float64
	var small float32
	for _, x := range xs {
		sum += x
		small += float32(x)
	}
	bits64(h, sum)
	bits64(h, float64(small))
	bits64(h, pairs(xs))
}

// pairs sums halves.
func pairs(xs []float64) float64 {
	if len(xs) == 1 {
		return xs[0]
	}
	return pairs(xs[:len(xs)/2]) + pairs(xs[len(xs)/2:])
}

func functions(h hash.Hash) {
	for _, x := range numbers(512, 6) {
		for _, v := range []float64{math.Exp(8 * x), math.Log(1 + math.Abs(x)), math.Sin(100 * x), math.Tanh(x), math.Pow(2, 10*x), math.Sqrt(math.Abs(x)), math.Erf(x)} {
			bits64(h, v)
		}
	}
}

// SplitProbe reads what a work requires of ProbeRun: the hash that is expected, and the words of the command that prints what is
// hashed, which are divided at blanks and run without a shell. The hash may be "unknown": the refusal then names the one that
// was found, for a person to write down.
func SplitProbe(required string) (sum string, argv []string, err error) {
	words := strings.Fields(required)
	if len(words) < 2 || words[0] != "unknown" && (len(words[0]) != 71 || !strings.HasPrefix(words[0], "sha256:") || strings.Trim(words[0][7:], "0123456789abcdef") != "") {
		return "", nil, fmt.Errorf("%s is %.200q, expected a hash and a command such as sha256:… python3 probe.py, or at first: unknown python3 probe.py", ProbeRun, required)
	}
	return words[0], words[1:], nil
}
