package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
)

// lose notes a milestone that was accepted and will not arrive. The lock is held.
func (d *desk) lose(r courier.Report) {
	if errors.Is(r.Err, courier.ErrSkipped) {
		return // a newer one holds all of it
	}
	d.lost = append(d.lost[max(0, len(d.lost)+1-maxRow):], r.Pointer)
	if !errors.Is(r.Err, courier.ErrLost) {
		d.vainly(time.Now(), r.Err)
	}
}

// leaveBehind gives up the milestones that have arrived and that the witness does not name yet. The lock is held.
func (d *desk) leaveBehind() {
	for _, r := range d.pending {
		d.lost = append(d.lost[max(0, len(d.lost)+1-maxRow):], r.Pointer)
	}
	d.pending = nil
}

// left names what was accepted and goes with the attempt, as its account says it: the milestones that lie behind the resume
// pointer and are on no chain. Empty: nothing is lost.
func (d *desk) left() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveBehind()
	var names []string
	for _, p := range d.lost {
		if d.own.Resume == nil || p.Step > d.own.Resume.Step {
			names = append(names, fmt.Sprintf("milestone %d at step %d", p.Milestone, p.Step))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (lost on its way: " + strings.Join(names, ", ") + ")"
}
