package ringsim

import (
	"bytes"
	"fmt"
	"hash/fnv"
)

// TurnEnd is what a rendered turn ends with. A prompt without it is, to the model, a document to go on with.
const TurnEnd = "<|assistant|>"

// Render is the turn format of the simulated model, which its caller must apply (rule 12).
func Render(user string) []byte { return []byte("<|user|>" + user + TurnEnd) }

// answerWords is how long an answer is, tokens.
const answerWords = 6

// Answer is what an unharmed ring says to a rendered prompt: the expectation of a canary.
func Answer(prompt []byte) []byte {
	var out []byte
	for i := range answerWords {
		out = append(out, word(prompt, uint64(i))...)
	}
	return out
}

func word(prompt []byte, n uint64) []byte {
	h := fnv.New64a()
	h.Write(prompt)
	return fmt.Appendf(nil, "w%x ", (h.Sum64()^n*0x9e3779b97f4a7c15)>>48)
}

// layer is what one layer makes of a mark.
func layer(mark uint64, i int) uint64 {
	mark ^= uint64(i) + 1
	mark *= 0x100000001b3
	return mark ^ mark>>29
}

// through is a mark behind layers [from, to).
func through(mark uint64, from, to int) uint64 {
	for i := from; i < to; i++ {
		mark = layer(mark, i)
	}
	return mark
}

// speak is the tail's part: the token of a round, and whether it is the last by the model's own will. A mark that did not
// pass every layer once, in order, makes noise that never ends.
func speak(prompt []byte, round int, mark uint64, layers int, templates bool) (token []byte, end bool) {
	if mark != through(uint64(round), 0, layers) {
		return word(prompt, mark), false
	}
	if !templates && !bytes.HasSuffix(prompt, []byte(TurnEnd)) {
		return word(prompt, uint64(round)), false
	}
	return word(prompt, uint64(round)), round == answerWords-1
}
