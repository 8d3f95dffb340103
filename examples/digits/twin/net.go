package twin

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
)

const (
	pixels = 64
	digits = 10
)

// row is one image: its pixels from 0 to 1 with a 1 behind them for the bias, and the digit it shows.
type row struct {
	x     [pixels + 1]float64
	digit int
}

// split is who trains, who validates and who is held out: 70, 15 and 15 percent, by seed.
type split struct {
	train, validation, heldOut []row
}

// read loads the rows of a gzipped CSV file and splits them.
func read(path string, seed uint64) (split, error) {
	f, err := os.Open(path)
	if err != nil {
		return split{}, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return split{}, fmt.Errorf("read %s: %w", path, err)
	}
	lines, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return split{}, fmt.Errorf("read %s: %w", path, err)
	}
	rows := make([]row, len(lines))
	for i, line := range lines {
		if rows[i], err = parse(line); err != nil {
			return split{}, fmt.Errorf("read %s: line %d: %w", path, i+1, err)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	a, b := len(rows)*70/100, len(rows)*85/100
	return split{rows[:a], rows[a:b], rows[b:]}, nil
}

func parse(line []string) (r row, err error) {
	if len(line) != pixels+1 {
		return r, fmt.Errorf("%d fields, expected %d pixels and a digit", len(line), pixels)
	}
	for i, field := range line {
		n, err := strconv.Atoi(field)
		switch {
		case err != nil:
			return r, err
		case i < pixels:
			r.x[i] = float64(n) / 16
		case n < 0 || n >= digits:
			return r, fmt.Errorf("digit %d, expected 0 to 9", n)
		default:
			r.digit = n
		}
	}
	r.x[pixels] = 1
	return r, nil
}

// network has one hidden layer of rectified units. A row of weights per unit, its bias last.
type network struct {
	W1 [][]float64 `json:"w1"` // hidden × (64 + 1)
	W2 [][]float64 `json:"w2"` // 10 × (hidden + 1)
}

func newNetwork(hidden int, rng *rand.Rand) *network {
	return &network{gaussian(hidden, pixels, rng), gaussian(digits, hidden, rng)}
}

func gaussian(units, inputs int, rng *rand.Rand) [][]float64 {
	w := make([][]float64, units)
	for i := range w {
		w[i] = make([]float64, inputs+1)
		for j := range inputs {
			w[i][j] = rng.NormFloat64() * math.Sqrt(2/float64(inputs))
		}
	}
	return w
}

// forward returns the activations of the hidden units (with a 1 behind them) and the chance of each digit.
func (n *network) forward(x []float64) (hidden []float64, chances [digits]float64) {
	hidden = make([]float64, len(n.W1)+1)
	for i, w := range n.W1 {
		hidden[i] = max(0, dot(w, x))
	}
	hidden[len(n.W1)] = 1
	top := math.Inf(-1)
	for i, w := range n.W2 {
		chances[i] = dot(w, hidden)
		top = max(top, chances[i])
	}
	var total float64
	for i, score := range chances {
		chances[i] = math.Exp(score - top)
		total += chances[i]
	}
	for i := range chances {
		chances[i] /= total
	}
	return hidden, chances
}

// train makes one step of gradient descent on the cross-entropy of a batch and returns its mean loss before the step.
func (n *network) train(batch []*row, lr float64) float64 {
	var loss float64
	rate := lr / float64(len(batch))
	g1, g2 := zeros(n.W1), zeros(n.W2)
	for _, r := range batch {
		hidden, errs := n.forward(r.x[:])
		loss -= math.Log(max(errs[r.digit], 1e-300))
		errs[r.digit]--
		for k, e := range errs {
			axpy(g2[k], e, hidden)
		}
		for j := range n.W1 {
			if hidden[j] == 0 {
				continue // a rectified unit that is off passes no error on
			}
			var delta float64
			for k, e := range errs {
				delta += e * n.W2[k][j]
			}
			axpy(g1[j], delta, r.x[:])
		}
	}
	for i := range g1 {
		axpy(n.W1[i], -rate, g1[i])
	}
	for i := range g2 {
		axpy(n.W2[i], -rate, g2[i])
	}
	return loss / float64(len(batch))
}

// accuracy is the share of rows whose likeliest digit is the right one.
func (n *network) accuracy(rows []row) float64 {
	right := 0
	for i := range rows {
		_, chances := n.forward(rows[i].x[:])
		best := 0
		for d, c := range chances {
			if c > chances[best] {
				best = d
			}
		}
		if best == rows[i].digit {
			right++
		}
	}
	return float64(right) / float64(len(rows))
}

func dot(a, b []float64) (sum float64) {
	for i, v := range a {
		sum += float64(v * b[i]) // the conversion keeps compilers from fusing: equal bits on every processor
	}
	return sum
}

// axpy adds f × x to y.
func axpy(y []float64, f float64, x []float64) {
	for i, v := range x {
		y[i] += float64(f * v)
	}
}

func zeros(like [][]float64) [][]float64 {
	z := make([][]float64, len(like))
	for i := range z {
		z[i] = make([]float64, len(like[i]))
	}
	return z
}
