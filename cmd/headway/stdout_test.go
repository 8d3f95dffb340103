package main

import (
	"bytes"
	"testing"
)

// A worker's exit code says how it ended, also where its own output cannot be kept.
func TestWorkerKeepsItsCode(t *testing.T) {
	for _, args := range [][]string{{"agent", "--help"}, {"agent", "--nonsense"}} {
		var codes [2]int
		for i, room := range []int{0, 1 << 20} {
			var stderr bytes.Buffer
			e := env{args: args, stdout: &closed{room}, stderr: &stderr, getenv: func(string) string { return "" }, dir: t.TempDir()}
			codes[i] = run(t.Context(), e)
		}
		if codes[0] != codes[1] {
			t.Errorf("%v: %d without room for its output, %d with", args, codes[0], codes[1])
		}
	}
}
