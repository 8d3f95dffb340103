package reconcile

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/headway-run/headway/plan"
)

// noteLimits writes down since when the limits of works are what they are, where that was not so from their first launch on: a
// limit that was lowered, or is new, holds from then on; else a work that has long spent it would be stopped between two
// milestones. What stayed as it was in force before keeps its time, so neither a restart nor another commit begins a grace anew.
// now is the store's; zero: it is not known, and nothing is written down.
func (f *inForce) noteLimits(before *inForce, now time.Time, begun func(plan.Digest) bool) {
	was := make(map[plan.Digest]*plan.AcceptedJob, len(before.jobs()))
	for i := range before.jobs() {
		was[before.plan.Jobs[i].Work] = &before.plan.Jobs[i]
	}
	f.Limits = nil
	for i := range f.plan.Jobs {
		j := &f.plan.Jobs[i]
		at := ""
		switch old := was[j.Work]; {
		case old != nil && (bytes.Equal(old.Placement, j.Placement) || limitsIn(old).same(limitsIn(j))):
			at = before.Limits[j.Work]
		case !limitsIn(j).none() && !now.IsZero() && begun(j.Work):
			at = now.UTC().Format(time.RFC3339)
		}
		if at == "" {
			continue
		}
		if f.Limits == nil {
			f.Limits = map[plan.Digest]string{}
		}
		f.Limits[j.Work] = at
	}
}

// statedLimits are the limits of an accepted job that crossing stops, as they are stored.
type statedLimits struct {
	Wall json.RawMessage `json:"limits.wall"`
	Paid json.RawMessage `json:"limits.paid"`
}

func (l statedLimits) none() bool { return len(l.Wall)+len(l.Paid) == 0 }

func (l statedLimits) same(o statedLimits) bool {
	return bytes.Equal(l.Wall, o.Wall) && bytes.Equal(l.Paid, o.Paid)
}

func limitsIn(j *plan.AcceptedJob) (l statedLimits) {
	_ = json.Unmarshal(j.Placement, &l) // it was decoded before, or was just made
	return l
}

// limitsHeld is how long the limits of a work have been what they are, by the store's time; ok false: from its first launch on, as
// far as is known. What claims to come from the future says nothing.
func (f *inForce) limitsHeld(w plan.Digest, now time.Time) (held time.Duration, ok bool) {
	if f == nil {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339, f.Limits[w])
	if err != nil || now.Sub(at) < -clockSlack {
		return 0, false
	}
	return max(now.Sub(at), 0), true
}
