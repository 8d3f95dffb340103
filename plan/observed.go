package plan

import "time"

// States of an [Observed].
const (
	StateAbsent   = "absent"   // nothing of this work is in the store
	StateClaimed  = "claimed"  // a dispatch is claimed, no lease yet
	StateHeld     = "held"     // a worker holds the lease
	StateYielded  = "yielded"  // the last worker gave it back: the next attempt may start
	StateRevoked  = "revoked"  // taken away: the next attempt may start unless it was a stop
	StateFinished = "finished" // for ever
	StateFailed   = "failed"   // ended by its budget or by its program
	StateUnknown  = "unknown"  // the store could not say: nothing is decided on it
)

// Observed is what the store said of one work, as far as a diff needs it.
type Observed struct {
	Work          Digest        `json:"work"`
	State         string        `json:"state"`
	Attempt       int64         `json:"attempt,omitempty"`
	Dispatch      int64         `json:"dispatch,omitempty"`
	Platform      string        `json:"platform,omitempty"`
	Step          int64         `json:"step,omitempty"`
	Steps         int64         `json:"steps,omitempty"` // of the whole run; 0: not stated
	Milestone     int64         `json:"milestone,omitempty"`
	MilestoneStep int64         `json:"milestone_step,omitempty"` // step of the last acknowledged milestone
	Age           time.Duration `json:"age_ns,omitempty"`         // since its last change was seen
	LostGPUHours  float64       `json:"lost_gpu_hours,omitempty"` // paid since the last milestone: lost when it stops now
	LostPaid      string        `json:"lost_paid,omitempty"`      // the same in money, with its unit; "": its price is not known, or it is free
	Reason        string        `json:"reason,omitempty"`         // why it is so, one sentence
}

// Live says that somebody works or is on the way: stopping it would lose something.
func (o Observed) Live() bool { return o.State == StateClaimed || o.State == StateHeld }

// begun says that there is work already which a job goes on with.
func (o Observed) begun() bool { return o.Live() || o.State == StateYielded }
