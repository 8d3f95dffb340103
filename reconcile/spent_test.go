package reconcile

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headway-run/headway/runners"
)

// However many launches a work has seen, and however many of them cost nothing, what they spent is never forgotten and
// never counted twice: the window and the claims in it give what the whole history gives.
func TestWhatWasSpentIsNotForgotten(t *testing.T) {
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 0))
		dear := 1 + int(seed%6) // one launch in so many is refused
		var whole History
		for n := int64(1); n <= 200; n++ {
			h := window(whole)
			spent := Spent(h, account(h))
			if want := Spent(whole, account(whole)); spent != want {
				t.Fatalf("seed %d before dispatch %d: %d retries spent, the whole history says %d", seed, n, spent, want)
			}
			d := Dispatch{N: n, Platform: "p", Answered: true, Class: string(runners.NoSlots), Age: time.Hour, Window: time.Minute, Spent: spent}
			if rng.IntN(dear) == 0 {
				d.Class = string(runners.Rejected)
			}
			whole.Dispatches, whole.Last = append(whole.Dispatches, d), n
			if rng.IntN(10) == 0 {
				whole.Dispatches[n-1].Captured = true
				whole.Attempts = append(whole.Attempts, Attempt{N: int64(len(whole.Attempts) + 1), Dispatch: n, Platform: "p", End: "internal", Gained: rng.IntN(2) == 0})
			}
		}
		h := window(whole)
		if n := Spent(whole, account(whole)); failed(h, account(h), int(n)-1) == "" || failed(h, account(h), int(n)) != "" {
			t.Fatalf("seed %d: %d retries are spent, and limits.retries does not run out with that one", seed, n)
		}
	}
}

// window is what a decision sees of a history.
func window(h History) History {
	h.Dispatches = h.Dispatches[max(len(h.Dispatches)-historyWindow, 0):]
	h.Attempts = h.Attempts[max(len(h.Attempts)-historyWindow, 0):]
	return h
}
