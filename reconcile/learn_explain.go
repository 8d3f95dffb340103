package reconcile

import (
	"fmt"
	"math"
)

// Achieved is what an attempt that is over committed of what was paid for. nil: unknown, never 0.
type Achieved struct {
	Goodput *float64 `json:"goodput"` // MFU × Share
	MFU     *float64 `json:"mfu"`     // kept work per rated work of the time of its steps
	Share   *float64 `json:"share"`   // of the paid time that was kept steps
	PaidS   *float64 `json:"paid_s"`  // until its end was seen, seconds
	Score   *float64 `json:"score"`   // that was held against the bound, with as many attempts before it as it takes to be judged
	Bound   *float64 `json:"bound"`
	GPU     string   `json:"gpu"`
	Mode    string   `json:"mode"`
	Spent   bool     `json:"spent"` // below its bound; whether that costs a retry its class says too
	Why     string   `json:"why"`
}

// achieved tells it of one attempt; nil: it is not over.
func achieved(a Attempt) *Achieved {
	if a.Live {
		return nil
	}
	if a.Judged == nil {
		return &Achieved{GPU: "unknown", Mode: modeNone, Why: "what it committed is not known"}
	}
	v := a.Judged
	s := stintOf(v)
	known := func(x float64, ok bool) *float64 {
		if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	out := &Achieved{Goodput: known(s.Goodput()), MFU: known(s.MFU()), Share: known(s.Share()), PaidS: known(s.PaidS, s.PaidS > 0),
		Score: known(v.Score, v.Known), Bound: known(v.Bound, v.Known), GPU: shown(v.GPU, 128), Mode: shown(v.Mode, 40), Spent: v.Spent && v.Known, Why: shown(v.Why, 300)}
	return out
}

// String is one line for people.
func (a *Achieved) String() string {
	say := func(v *float64) string {
		if v == nil {
			return "unknown"
		}
		return fmt.Sprintf("%.3f", *v)
	}
	text := fmt.Sprintf("%s = MFU %s × share %s", say(a.Goodput), say(a.MFU), say(a.Share))
	if a.PaidS != nil {
		text += fmt.Sprintf(" of %.0f s paid", *a.PaidS)
	}
	text += fmt.Sprintf(" (%s, %s)", a.GPU, a.Mode)
	switch {
	case a.Bound == nil:
		return text + "; not judged: " + a.Why
	case a.Spent:
		return text + fmt.Sprintf("; bound %s: below: %s", say(a.Bound), a.Why)
	}
	return text + fmt.Sprintf("; bound %s: not below: %s", say(a.Bound), a.Why)
}
