package reconcile

import (
	"fmt"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
)

// That a dispatch ends by itself at some time is its platform's word. It is asked again once that has passed.
const (
	boundMargin = time.Minute    // clocks differ, and an end takes a moment
	boundMost   = 24 * time.Hour // without another question, whatever end is promised
)

// boundLeft is how long a platform that promises an end in d is left alone.
func boundLeft(d time.Duration) time.Duration { return min(max(d, 0), boundMost) + boundMargin }

// promised is how long a platform that answered bounded is still left alone: by the store's stamps, then by our own
// clock. An end that cannot be read has passed.
func (r *records) promised(w plan.Digest, n int64, d *slip) time.Duration {
	left := boundMargin
	if until, err := time.Parse(time.RFC3339, d.release.Until); err == nil && !d.told.IsZero() {
		left = boundLeft(until.Sub(d.told))
	}
	return max(left-r.ages.age(record.ReleaseKey(string(w), n, d.released), d.told, d.toldDate, ancient), 0)
}

// ends says what is known of the end of a dispatch whose platform answered bounded, or "". The time is in UTC.
func (d Dispatch) ends() string {
	switch {
	case d.Settled != runners.Bounded.String():
		return ""
	case d.Asked > 0:
		return fmt.Sprintf("platform %s says that dispatch %d ends by itself at %s; it is asked again once that has passed", d.Platform, d.N, d.Promised)
	}
	return fmt.Sprintf("platform %s said that dispatch %d would end by itself at %s, and that has passed: it is asked until it says closed", d.Platform, d.N, d.Promised)
}

// ending adds to a decision that starts and stops nothing what is known of the newest promised end.
func (a Action) ending(h History) Action {
	switch a.Kind {
	case Launch, WriteOff, Move, Stop, Release:
		return a
	case None, Wait, Blocked, Fail:
	}
	for i := len(h.Dispatches) - 1; i >= 0; i-- {
		if d := h.Dispatches[i]; d.OK && !d.Ended && d.ends() != "" {
			a.Reason, a.Ending = a.Reason+"; "+d.ends(), true
			return a
		}
	}
	return a
}
