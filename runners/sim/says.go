package sim

import "github.com/headway-run/headway/runners"

// Sentences is what this platform is known to say: a table of values.
func Sentences() []runners.Sentence {
	return []runners.Sentence{
		{Words: "do not run here", Class: runners.Rejected}, // first: it quotes the job
		{Words: "may not do that", Class: runners.Rejected},
		{Words: "cards for a machine of", Class: runners.Rejected},
		{Words: "no such instance", Class: runners.Rejected},
		{Words: "there are no longer any instances available", Class: runners.NoSlots},
		{Words: "machines are taken", Class: runners.NoSlots},
		{Words: "no offer below", Class: runners.NoSlots},
		{Words: "quota reached", Class: runners.QuotaExhausted},
		{Words: "of this period are used up", Class: runners.QuotaExhausted},
		{Words: "no route to host", Class: runners.Unreachable},
		{Words: "connection refused", Class: runners.Unreachable},
		{Words: "connection reset by peer", Class: runners.Unreachable},
		{Words: "no answer in time", Class: runners.Unreachable},
	}
}

// Says makes the platform refuse every launch with these words from now on; "" ends that.
func (r *Runner) Says(words string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says = words
}
