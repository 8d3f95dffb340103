package plan

import (
	"math"
	"strconv"
	"time"
)

// Forever is a duration that nothing outlives: what is kept that long is never deleted.
const Forever time.Duration = math.MaxInt64

// MaxKept bounds retention.milestones.
const MaxKept = 1000

// Retention says what of the store's past headway gc keeps. It is no identity and no placement: changing it disturbs
// nothing that runs. Results are not in it: a finished work never runs again, so its result is never deleted.
type Retention struct {
	Milestones int           // of a line that goes on, kept behind the resume pointer; 0 keeps the pointer's alone
	Finished   time.Duration // how long after its end a finished work keeps its milestones and its launch records
	Logs       time.Duration // how long the log and the events of an attempt that is over are kept after their last byte
}

// DefaultRetention is what holds where headway.yaml says nothing.
func DefaultRetention() Retention {
	return Retention{Milestones: 3, Finished: 30 * 24 * time.Hour, Logs: Forever}
}

func (d *decoder) retention(n *node, f *Field, r *Retention) {
	known := []string{"milestones", "finished", "logs"}
	d.pairs(n, f, func(k, v *node) {
		f := &Field{Name: "retention." + k.Value}
		switch k.Value {
		case "milestones":
			if n, ok := d.ranged(v, f, 0, MaxKept); ok {
				r.Milestones = int(n)
			}
		case "finished":
			d.keep(v, f, &r.Finished)
		case "logs":
			d.keep(v, f, &r.Logs)
		default:
			d.unknown(k, "retention", known)
		}
	})
}

// keep reads a duration or the word forever.
func (d *decoder) keep(n *node, f *Field, into *time.Duration) {
	s, _, ok := d.scalar(n, f, "a duration or forever")
	if !ok {
		return
	}
	v, why := ParseKeep(s)
	if why != "" {
		d.refuse(n, "BadDuration", f.Name+" is "+show(s), "a duration such as 30d or 36h, or forever", why)
		return
	}
	*into = v
}

// ParseKeep reads how long something is kept: a duration as plan files write it, or forever. why says what is wrong;
// empty: nothing.
func ParseKeep(s string) (keep time.Duration, why string) {
	if s == "forever" {
		return Forever, ""
	}
	return parseDuration(s)
}

// FormatKeep is the form that ParseKeep reads, in the largest units that are exact.
func FormatKeep(keep time.Duration) string {
	if keep == Forever {
		return "forever"
	}
	for _, u := range durationUnits {
		if keep >= u.unit && keep%u.unit == 0 {
			return strconv.FormatInt(int64(keep/u.unit), 10) + u.name
		}
	}
	return keep.String()
}
