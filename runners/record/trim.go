package record

// TrimPrefix holds what retention has taken away, one record for each work that it took anything from.
const TrimPrefix = "trim/"

// TrimKey is the record of what retention has taken from a work.
func TrimKey(work string) string { return TrimPrefix + work }

// Trim says what of a work's line may be missing because retention let it go, so that whatever else is missing is still a
// loss. It is written before the first object goes, by compare-and-swap, and only grows: the one record of this package
// that is written more than once.
type Trim struct {
	Protocol  int    `json:"protocol"`
	Work      string `json:"work"`
	Write     string `json:"write"`     // random, fresh on every write
	Attempt   int64  `json:"attempt"`   // milestones of the line before this attempt …
	Milestone int64  `json:"milestone"` // … or of this attempt and before this milestone may be gone
	Time      string `json:"time"`      // RFC 3339, for people
}

// Line reports whether a snapshot of the line may be gone.
func (t Trim) Line(p Pointer) bool {
	return p.Attempt < t.Attempt || p.Attempt == t.Attempt && p.Milestone < t.Milestone
}

// Covers reports whether t allows everything that o does.
func (t Trim) Covers(o Trim) bool {
	return t.Attempt > o.Attempt || t.Attempt == o.Attempt && t.Milestone >= o.Milestone
}

// Join is what allows exactly all that t and o allow.
func (t Trim) Join(o Trim) Trim {
	if !t.Covers(o) {
		t.Attempt, t.Milestone = o.Attempt, o.Milestone
	}
	return t
}
