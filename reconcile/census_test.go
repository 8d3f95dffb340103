package reconcile

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// What explains an instance of dispatch 3 that platform p lists, and which of those that nothing explains may be ended.
func TestWhatExplainsAnInstance(t *testing.T) {
	claim := &record.Claim{Platform: "p", CaptureS: 60}
	handle := json.RawMessage(`{"id": 1}`)
	open := &record.Receipt{OK: true, Handle: json.RawMessage(`{"id":1}`)}
	lease := func(s witness.State, dispatch, floor int64) witness.Record {
		return witness.Record{State: s, Attempt: 2, Dispatch: dispatch, Floor: floor}
	}
	old, young := time.Hour, time.Second
	for _, c := range []struct {
		name            string
		p               papers
		twins           int
		explained, ours bool
	}{
		{"it holds the lease", papers{claim: claim, lease: lease(witness.Held, 3, 0), age: old}, 1, true, false},
		{"it, or its twin, holds the lease", papers{claim: claim, lease: lease(witness.Held, 3, 0), age: old}, 2, false, false},
		{"the receipt says which of two is the one", papers{claim: claim, receipt: open, lease: lease(witness.Held, 3, 0), age: old}, 2, true, false},
		{"no lease yet, in its window", papers{claim: claim, age: young}, 1, true, false},
		{"in its window, and another holds", papers{claim: claim, lease: lease(witness.Held, 2, 0), age: young}, 1, true, false},
		{"its window is over, its receipt is open", papers{claim: claim, receipt: open, age: old}, 1, true, false},
		{"its lease was removed, its receipt is open", papers{claim: claim, receipt: open, age: old, lost: "no lease"}, 1, false, false},
		{"its lease was removed, in its window", papers{claim: claim, receipt: open, age: young, lost: "no lease"}, 1, true, false},
		{"its window is over, without a receipt", papers{claim: claim, age: old}, 1, false, true},
		{"released, says the platform, and lists it", papers{claim: claim, receipt: open, settled: "closed", age: old}, 1, false, true},
		{"a twin of what the receipt names", papers{claim: claim, receipt: &record.Receipt{OK: true, Handle: json.RawMessage(`{"id":2}`)}, age: old}, 1, false, true},
		{"a later dispatch holds", papers{claim: claim, lease: lease(witness.Held, 4, 0), age: old}, 1, false, true},
		{"a later dispatch was captured at once", papers{claim: claim, lease: lease(witness.Held, 4, 0), age: young}, 1, false, true},
		{"its lease is over", papers{claim: claim, lease: lease(witness.Revoked, 3, 0), age: young}, 1, false, true},
		{"barred by a stop", papers{claim: claim, lease: lease(witness.Revoked, 2, 4), age: young}, 1, false, true},
		// Found by the simulation: its work left the plan and was stopped while the launch was on its way, so that nobody looks at
		// the receipt that came then. It was paid for, for ever, and explained.
		{"barred by a stop, and nobody asks for its receipt", papers{claim: claim, receipt: open, lease: lease(witness.Revoked, 0, 4), age: old}, 1, false, true},
		{"barred by a stop a moment ago", papers{claim: claim, receipt: open, lease: lease(witness.Revoked, 0, 4), age: young}, 1, true, false},
		{"barred by a stop, its release goes on", papers{claim: claim, receipt: open, settled: "pending", lease: lease(witness.Revoked, 0, 4), age: old}, 1, true, false},
		{"finished", papers{claim: claim, receipt: open, lease: lease(witness.Finished, 3, 0), age: young}, 1, false, true},
		{"no claim", papers{lease: lease(witness.Finished, 3, 0)}, 1, false, false},
		{"its records are damaged", papers{bad: "no claim", age: old}, 1, false, false},
		{"its records are damaged, and it holds the lease", papers{bad: "no claim", lease: lease(witness.Held, 3, 0)}, 1, true, false},
		{"claimed for another platform", papers{claim: &record.Claim{Platform: "q"}, age: old}, 1, false, false},
		{"the store did not say", papers{noVerify: "no answer"}, 1, true, false},
	} {
		why, ours := c.p.explain("p", 3, handle, c.twins)
		if (why == "") != c.explained || ours != c.ours {
			t.Errorf("%s: %q, may be ended: %v", c.name, why, ours)
		}
	}
}

// A quarter of the window, and never longer than what was read may be believed.
func TestCallWithin(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Minute: 15 * time.Second, time.Hour: 30 * time.Second, time.Second: 250 * time.Millisecond} {
		if got := callWithin(window); got != want {
			t.Errorf("window %v: %v, want %v", window, got, want)
		}
	}
}
