package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners"
)

// Quoted is a platform with Config.Quota, which says what is left of it.
type Quoted struct{ *Runner }

var _ runners.Quoter = Quoted{}

// Quota counts the hours of this period, by the platform's own clock.
func (q Quoted) Quota(context.Context) (runners.Quota, error) {
	left, resets := q.left()
	return runners.Quota{Left: left.Hours(), Whole: q.c.Quota.Hours(), Unit: "hours", Resets: resets}, nil
}

// left is what is left of this period's machine time, and when the next one begins. Periods follow each other from New on.
func (r *Runner) left() (time.Duration, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	from := r.opened.Add(now.Sub(r.opened) / r.c.Per * r.c.Per)
	used := make([]time.Duration, r.machines+1)
	for _, in := range r.all {
		used[in.on] = max(used[in.on], min(in.paid(), in.until(now).Sub(from)))
	}
	left := r.c.Quota
	for _, d := range used {
		left -= d
	}
	return max(left, 0), from.Add(r.c.Per)
}

// until is when what is paid for an instance ended, or now. Under Runner.mu.
func (in *instance) until(now time.Time) time.Time {
	if in.over.IsZero() {
		return now
	}
	return in.over
}

// usedUp refuses a launch when nothing is left. What runs goes on.
func (r *Runner) usedUp() error {
	if r.c.Quota <= 0 {
		return nil
	}
	left, resets := r.left()
	if left > 0 {
		return nil
	}
	f := r.fail(OpLaunch, fmt.Sprintf("the %s of this period are used up", r.c.Quota))
	f.Until = resets
	return f
}
