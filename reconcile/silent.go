package reconcile

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// What a person can do about a program that is never heard of.
const (
	whyNoStep = "the program never said that a step ended: call run.step from its loop, declare a long first step with run.phase, set watch:, or promise a longer silence with lease: {floor: 30m}"
	whyNoFile = "no finished file has matched the watch path: mend the path, or promise a longer silence with watch: {interval: 30m} or lease: {floor: 30m}"
	whyUnsaid = "went silent before its first step: its machine is gone, or " + whyNoStep
	whyLate   = "went silent, and no step of it had reached its lease by then: declare a long first step with run.phase, or promise a longer silence with lease: {floor: 30m}"
)

// unheard says why a work ends whose program ran twice in a row, by the worker's word, without any sign of progress: a
// third try would be as silent. Both began at the same step, since whoever gives no sign moves no pointer; that an earlier
// attempt came further changes nothing about that step.
func unheard(h History) string {
	in := 0
	for i, a := range h.Attempts {
		class := a.class()
		if a.Live || a.heard() || class != classNoStep && class != classNoFile {
			in = 0
			continue
		}
		if in++; in >= 2 {
			return fmt.Sprintf("%s (attempts %d and %d ended so%s)", ruleOf(class).Why, h.Attempts[i-1].N, a.N, behind(a.From))
		}
	}
	return ""
}

func behind(step int64) string {
	if step == 0 {
		return ""
	}
	return fmt.Sprintf(", having gone on from step %d", step)
}

// heard reports whether anybody heard of a step of this attempt. A worker renews at the first step of its program, so the
// lease tells; a new attempt's says the step that it goes on from.
func (a Attempt) heard() bool { return a.Gained || a.Stepped > a.From }

// unsaid says what is known of an attempt that went silent before it said anything; "": it had said something. That it
// came to its first step all the same, too late, only its own account can tell.
func (a Attempt) unsaid() string {
	switch {
	case a.Gained || a.Leased > a.From:
		return ""
	case a.heard():
		return whyLate
	}
	return whyUnsaid
}

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
			b.Moved, b.Stopped = b.Moved || old.Moved, max(b.Stopped, old.Stopped)
		}
		out[b.Attempt] = &b
	}
	return out
}

// writtenOff reports whether a lease was ended as silent, and not to stop the work.
func writtenOff(rec *witness.Record) bool {
	return rec.State == witness.Revoked && !rec.Stopped() && rec.Attempt > 0
}

// stoppedBy is the sentence of the limit for which a lease was stopped, or "".
func stoppedBy(rec *witness.Record) string {
	if rec.State != witness.Revoked || !rec.Stopped() || rec.Attempt == 0 || !strings.HasPrefix(rec.Reason, "limits.") {
		return ""
	}
	return shown(rec.Reason, 300)
}

// lateEnd is for how long the account of an attempt that was written off is looked for: its worker learns of it by and
// by, and what it says may be the reason of the whole silence.
const lateEnd = 2 * time.Minute

// awaits reports whether the last attempt may still write its account.
func (s *shelf) awaits(rec *witness.Record) bool {
	return writtenOff(rec) && s.ends[rec.Attempt] == nil && time.Since(s.since) < lateEnd
}
