package goodput

import (
	"math"

	"github.com/headway-run/headway/runners/record"
)

// CalmSteps is how many steady steps must pass without a false write-off before a lease may come down once more.
const CalmSteps = 10_000

// Calm is what passed on a key since its last false write-off: the clock of its leases (science.md §4.6). A false
// write-off is one whose worker told afterwards how far its step had come: it was alive.
type Calm struct {
	Steps     int64   `json:"steps"`               // steady steps since the last revision, or the last false write-off
	Revisions int64   `json:"revisions,omitempty"` // since then: one attempt allows one at most, however long it was
	Falses    int64   `json:"falses,omitempty"`    // false write-offs ever
	Reached   float64 `json:"reached,omitempty"`   // largest ratio to the median step that one of them had reached
}

// Reached is the ratio that the step of a worker had come to which was written off alive; false: none was.
func Reached(o record.Observation) (ratio float64, alive bool) {
	if o.Class != "silent" {
		return 0, false
	}
	top := -1
	for bin, n := range o.All.Ratios.Censored {
		if n > 0 {
			top = max(top, bin)
		}
	}
	if top < 0 {
		return 0, false
	}
	return record.BinFloor(top + 1), true // the upper edge of its bin
}

// after is the clock once an observation is folded.
func (c Calm) after(o record.Observation) Calm {
	if r, alive := Reached(o); alive {
		return Calm{Falses: c.Falses + 1, Reached: max(c.Reached, r)}
	}
	if o.Late {
		return c // its steps were counted
	}
	done, _ := o.All.Ratios.N()
	c.Steps += done
	if c.Steps >= CalmSteps {
		c.Revisions, c.Steps = c.Revisions+1, 0
	}
	return c
}

func (c Calm) check() bool {
	return sane(1e18, float64(c.Steps), float64(c.Revisions), float64(c.Falses)) && sane(2*record.BinFloor(record.MaxBin), c.Reached) && !math.IsNaN(c.Reached)
}

// Calm is the clock of a platform, over all its cards. Where one of them saw a false write-off, only what such cards have
// seen since counts: the others' revisions may be older.
func (b *Book) Calm(platform string) Calm {
	var all, shaken Calm
	some := false
	for _, c := range b.of(platform) {
		k := c.Calm
		all.Steps, all.Revisions = min(all.Steps+k.Steps, 1e18), min(all.Revisions+k.Revisions, 1e18)
		if k.Falses == 0 {
			continue
		}
		if !some {
			shaken.Steps, shaken.Revisions = k.Steps, k.Revisions
		}
		some = true
		shaken = Calm{min(shaken.Steps, k.Steps), min(shaken.Revisions, k.Revisions), min(shaken.Falses+k.Falses, 1e18), max(shaken.Reached, k.Reached)}
	}
	if some {
		return shaken
	}
	return all
}
