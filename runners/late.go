package runners

import (
	"fmt"
	"time"
)

// Late says that an order was not carried out because what it rested on was read too long ago: this process was stopped
// meanwhile, or the store was slow. Nothing was asked of the platform. Look again and decide anew.
type Late struct {
	Op      string // launch, release
	Claimed bool   // launch: the claim is in the store; its number is used up, and its window runs out like any other's
}

func (e *Late) Error() string {
	if e.Claimed {
		return fmt.Sprintf("%s: the claim is older than its call may be (was this process stopped?): the platform was not called", e.Op)
	}
	return fmt.Sprintf("%s: what it rests on was read too long ago (was this process stopped?): nothing was written and nobody was asked", e.Op)
}

// Passed reports whether t has passed, by the monotonic clock or by the wall clock. The one may stand still while a
// machine sleeps, the other may be set back; whoever asks is stopped by either, which costs another look and nothing
// else. The zero time never passes.
func Passed(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	now := time.Now()
	return now.After(t) || now.Round(0).After(t.Round(0))
}
