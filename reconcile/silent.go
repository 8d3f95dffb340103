package reconcile

import (
	"fmt"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// What a person can do about a program that is never heard of.
const (
	whyNoStep = "the program never said that a step ended: call run.step from its loop, set watch:, or promise a longer silence with lease: {floor: 30m}"
	whyNoFile = "no finished file has matched the watch path: mend the path, or promise a longer silence with watch: {interval: 30m} or lease: {floor: 30m}"
	whyUnsaid = "went silent before its first step: its machine is gone, or " + whyNoStep
)

// unheard says why a work ends whose program ran twice in a row, by the worker's word, without any sign of progress: a
// third try would be as silent. A work that was ever heard of is not meant: there the budget decides.
func unheard(h History) string {
	in := 0
	for i, a := range h.Attempts {
		class := a.class()
		if a.heard() {
			return ""
		}
		if a.Live || class != classNoStep && class != classNoFile {
			in = 0
			continue
		}
		if in++; in >= 2 {
			return fmt.Sprintf("%s (attempts %d and %d ended so)", ruleOf(class).Why, h.Attempts[i-1].N, a.N)
		}
	}
	return ""
}

// heard reports whether anybody ever heard of a step of the work: in this attempt, or in one that it goes on from. A
// worker renews at the first step of its program, so the lease tells.
func (a Attempt) heard() bool { return a.Gained || a.From > 0 || a.Stepped > 0 }

// before is what later claims say of attempts, which outlasts both the lease and an attempt that left no record.
func (s *shelf) before() map[int64]*record.Before {
	out := map[int64]*record.Before{}
	for n, d := range s.listed {
		if d.claim == nil || d.claim.Before == nil || d.claim.Before.Dispatch >= n {
			continue // of nobody: an attempt that was there before the claim has an earlier dispatch
		}
		b := *d.claim.Before
		if old := out[b.Attempt]; old != nil {
			b.Dispatch, b.Step, b.Off = max(b.Dispatch, old.Dispatch), max(b.Step, old.Step), b.Off || old.Off
		}
		out[b.Attempt] = &b
	}
	return out
}

// writtenOff reports whether a lease was ended as silent, and not to stop the work.
func writtenOff(rec *witness.Record) bool {
	return rec.State == witness.Revoked && !rec.Stopped() && rec.Attempt > 0
}

// lateEnd is for how long the account of an attempt that was written off is looked for: its worker learns of it by and
// by, and what it says may be the reason of the whole silence.
const lateEnd = 2 * time.Minute

// awaits reports whether the last attempt may still write its account.
func (s *shelf) awaits(rec *witness.Record) bool {
	return writtenOff(rec) && s.ends[rec.Attempt] == nil && time.Since(s.since) < lateEnd
}
