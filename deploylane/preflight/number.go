package preflight

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// absent: none of the names that are about to be made is there already.
func (l Look) absent(ctx context.Context, dir string) Finding {
	out, err := output(ctx, dir, l.Run)
	want := fmt.Sprintf("none of %v in the output of %s", l.Names, l.Run[0])
	if err != nil {
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	}
	listed := wordsOf(out)
	for _, n := range l.Names {
		if lists(listed, n) {
			return Finding{Verdict: Refused, Found: fmt.Sprintf("%q is there already", n), Expected: want, Fix: "remove what has the name, or take another"}
		}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("none of %v is there", l.Names)}
}

// number is the one whole number that a program prints.
func number(ctx context.Context, dir string, argv []string) (uint64, error) {
	out, err := output(ctx, dir, argv)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s prints %s", argv[0], short([]byte(out)))
	}
	return n, nil
}

// equal: what every host says is one number, however it is written there.
func (l Look) equal(ctx context.Context, dir string) Finding {
	first := uint64(0)
	for i, argv := range l.Runs {
		n, err := number(ctx, dir, argv)
		switch {
		case err != nil:
			return Finding{Verdict: Unknown, Found: err.Error(), Expected: "one whole number of every host"}
		case i == 0:
			first = n
		case n != first:
			return Finding{Verdict: Refused, Found: fmt.Sprintf("command 1 says %d, command %d says %d", first, i+1, n), Expected: "one number on all hosts", Fix: "keep it in one place and have every host read it there"}
		}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%d hosts say %d", len(l.Runs), first)}
}

// bound: the figure that follows from its inputs fits what the target itself says that it takes.
func (l Look) bound(ctx context.Context, dir string) Finding {
	figure, fits := sumOf(l.Terms)
	if !fits {
		return Finding{Verdict: Refused, Found: fmt.Sprintf("the terms %v add up to more than 64 bits hold", l.Terms), Expected: "a figure that a target can take", Fix: "make an input smaller"}
	}
	want := fmt.Sprintf("at least %d, which follows from %v, in the output of %s", figure, l.Terms, l.Run[0])
	most, err := number(ctx, dir, l.Run)
	switch {
	case err != nil:
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	case most < figure:
		return Finding{Verdict: Refused, Found: fmt.Sprintf("it takes %d", most), Expected: want, Fix: "make an input smaller, or the target larger"}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%d fits %d", figure, most)}
}

// sumOf adds up the products of terms; false: it does not fit in 64 bits.
func sumOf(terms [][]uint64) (sum uint64, fits bool) {
	for _, factors := range terms {
		product := uint64(1)
		for _, f := range factors {
			high, low := bits.Mul64(product, f)
			if high != 0 {
				return 0, false
			}
			product = low
		}
		s, carry := bits.Add64(sum, product, 0)
		if carry != 0 {
			return 0, false
		}
		sum = s
	}
	return sum, true
}
