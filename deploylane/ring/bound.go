package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// ErrUnknownRelease says that no vectors are held for an engine release: its bound is unknown, which blocks. It is
// never "probably the same" as that of another release.
var ErrUnknownRelease = errors.New("no test vectors are held for this engine release")

// ErrNoVector says that the release is known, but no vector of it covers what was asked (speculative decoding): unknown.
var ErrNoVector = errors.New("no test vector of this engine release covers it")

// ErrOverflow says that the bound does not fit in 64 bits; the engine refuses such a shape too.
var ErrOverflow = errors.New("the bound does not fit in 64 bits")

// Wire holds the constants of one wire format, bytes. Formula: ring.md §4; source: the stage server's own derivation,
// reproduced to the byte by the vectors of bound_test.go.
type Wire struct {
	Text       uint64 // longest string on the wire, with its length field
	RowFixed   uint64 // of a row, without owner and sequence ids
	OwnerFixed uint64 // of a row's owner, without its strings
	Sequence   uint64 // of one sequence id in a row
	Capsule    uint64 // header of a capsule
	Descriptor uint64 // of a tensor, without its name
	Token      uint64 // of a token, without its strings
	Output     uint64 // of an output, without its token
	Message    uint64 // header of the result
}

const (
	ownerTexts = 5
	tokenTexts = 2
	floatBytes = 4 // a hidden state travels as f32
)

// Formula is how one engine release derives the largest result of a stage.
type Formula struct {
	Release string // as the agent reports it
	Wire    Wire
	cuts    map[string]uint64 // architecture → tensors of a cut between two layers
}

// formulas is the table of releases that we hold vectors for. A release is added together with its vectors.
var formulas = []Formula{{
	Release: ReleaseOfThePost,
	Wire: Wire{Text: 2 + 4096, RowFixed: 16 + 4 + 1, OwnerFixed: 56, Sequence: 4, Capsule: 8 + 10*4,
		Descriptor: 8 + 32 + 32 + 8 + 8 + 4 + 8, Token: 4 + 4, Output: 24, Message: 12},
	cuts: map[string]uint64{"step37": 2},
}}

// ReleaseOfThePost is the name under which we hold the vectors of the engine that the post-mortem ran.
const ReleaseOfThePost = "v0.9.0"

// Releases lists the releases with vectors.
func Releases() []string {
	var out []string
	for _, f := range formulas {
		out = append(out, f.Release)
	}
	return out
}

// FormulaOf finds the formula of a release, or ErrUnknownRelease.
func FormulaOf(release string) (Formula, error) {
	i := slices.IndexFunc(formulas, func(f Formula) bool { return f.Release == release })
	if i < 0 {
		return Formula{}, fmt.Errorf("engine release %q: %w (held: %q)", release, ErrUnknownRelease, Releases())
	}
	return formulas[i], nil
}

// Tensors is how many tensors one cut of an architecture carries, by the release's recorded table.
func (f Formula) Tensors(arch string) (uint64, bool) {
	t, ok := f.cuts[arch]
	return t, ok
}

// BoundInput is what the bound of a stage is derived from.
type BoundInput struct {
	Batch       uint64 // n_batch: rows, and at most as many capsules, since each micro-batch that is kept has a row
	Ubatch      uint64 // n_ubatch: rows of one micro-batch
	Parallel    uint64 // n_seq_max
	Tensors     uint64 // of the cut behind the stage; 0 for the tail
	Hidden      uint64 // width of a hidden state; used where Payload is 0
	Payload     uint64 // bytes of one capsule as the engine measured them; 0: Tensors × Ubatch × Hidden × 4
	Speculative bool
}

// Bound is the largest result that a stage can send, bytes.
type Bound struct {
	Forwarding uint64 // a result that carries hidden states on
	Tail       uint64 // a result that carries tokens out
}

// Reported is what the stage server says at READY: the greater of the two.
func (b Bound) Reported() uint64 { return max(b.Forwarding, b.Tail) }

// Bound derives the bound of a stage. ErrOverflow: it does not fit in 64 bits. ErrNoVector: speculative decoding, for
// which the formula is known and no vector is. Any other error is an input that no engine accepts.
func (f Formula) Bound(in BoundInput) (Bound, error) {
	switch {
	case in.Parallel == 0:
		return Bound{}, errors.New("parallel is 0: expected at least 1")
	case in.Ubatch == 0 || in.Ubatch > in.Batch:
		return Bound{}, fmt.Errorf("ubatch is %d: expected 1 to the batch, %d", in.Ubatch, in.Batch)
	case in.Speculative:
		return Bound{}, fmt.Errorf("speculative decoding on %s: %w", f.Release, ErrNoVector)
	}
	w, n := f.Wire, &sum{}
	payload := in.Payload
	if payload == 0 {
		payload = n.mul(n.mul(n.mul(in.Tensors, in.Ubatch), in.Hidden), floatBytes)
	}
	row := n.add(w.RowFixed, w.OwnerFixed, n.mul(ownerTexts, w.Text), n.mul(w.Sequence, in.Parallel))
	desc := n.add(w.Descriptor, w.Text)
	out := n.add(w.Output, w.Token, n.mul(tokenTexts, w.Text))
	b := Bound{
		Forwarding: n.add(w.Message, n.mul(in.Batch, n.add(w.Capsule, n.mul(in.Tensors, desc), payload)), n.mul(in.Batch, row)),
		Tail:       n.add(w.Message, n.mul(in.Batch, w.Capsule), n.mul(in.Batch, n.add(row, out))),
	}
	if n.over {
		return Bound{}, fmt.Errorf("batch %d, ubatch %d, parallel %d, %d tensors, hidden %d: %w", in.Batch, in.Ubatch, in.Parallel, in.Tensors, in.Hidden, ErrOverflow)
	}
	return b, nil
}

// LargestUbatch is the largest ubatch at the given batch whose bound is at most limit bytes; 0: none fits. A measured
// payload belongs to one ubatch and takes no part.
func (f Formula) LargestUbatch(in BoundInput, limit uint64) uint64 {
	in.Payload = 0
	return largest(1, in.Batch, func(u uint64) bool {
		in.Ubatch = u
		return f.fits(in, limit)
	})
}

// LargestBatch is the largest batch at the given ubatch whose bound is at most limit bytes; 0: none fits.
func (f Formula) LargestBatch(in BoundInput, limit uint64) uint64 {
	in.Payload = 0
	return largest(in.Ubatch, limit, func(b uint64) bool { // each row has more than a byte: no batch above the limit fits
		in.Batch = b
		return f.fits(in, limit)
	})
}

func (f Formula) fits(in BoundInput, limit uint64) bool {
	b, err := f.Bound(in)
	return err == nil && b.Reported() <= limit
}

// largest finds the greatest x in low … high for which ok holds; ok holds up to some x and not beyond. 0: for none.
func largest(low, high uint64, ok func(uint64) bool) uint64 {
	if low == 0 || low > high || !ok(low) {
		return 0
	}
	for low < high {
		mid := low + (high-low+1)/2
		if ok(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// sum adds and multiplies, and remembers an overflow.
type sum struct{ over bool }

func (s *sum) mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	s.over = s.over || hi != 0
	return lo
}

func (s *sum) add(terms ...uint64) uint64 {
	var total uint64
	for _, t := range terms {
		var carry uint64
		total, carry = bits.Add64(total, t, 0)
		s.over = s.over || carry != 0
	}
	return total
}
