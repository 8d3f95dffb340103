package witness

import "fmt"

// Why names the reason of a [Refusal]. A closed set: every switch over it names all of them.
type Why uint8

const (
	// AlreadyFinished: the work is done; there is nothing to do, now or later.
	AlreadyFinished Why = iota + 1
	// SpawnedElsewhere: somebody holds the lease, however old it is. A worker never judges another's silence.
	SpawnedElsewhere
	// BelowFloor: this dispatch was stopped before it started.
	BelowFloor
	// UnknownHistory: the witness is absent beside objects of an earlier life, or an attempt's prefix is reserved by
	// somebody else. Never a fresh work.
	UnknownHistory
	// StoreViolation: the store broke its word (a record went back, vanished, or contradicts the answer to a write).
	StoreViolation
	// Unsettled: the write got no verdict in time. It may have landed or may land still; nothing may be built on it.
	Unsettled
	// NotHolder: the lease is over for this holder (yielded, finished, deposed).
	NotHolder
	// NotOpened: the attempt's prefix is not reserved yet, so nothing under it may be named.
	NotOpened
	// BadPointer: the pointer goes back, belongs to another attempt, or what it names is missing, incomplete or not
	// grown from the pointer it replaces.
	BadPointer
	// BadMove: the move is not in the table of transitions: a defect of the caller.
	BadMove
)

// String returns the reason's name.
func (w Why) String() string {
	names := [...]string{"", "AlreadyFinished", "SpawnedElsewhere", "BelowFloor", "UnknownHistory", "StoreViolation",
		"Unsettled", "NotHolder", "NotOpened", "BadPointer", "BadMove"}
	if int(w) < len(names) && w > 0 {
		return names[w]
	}
	return fmt.Sprintf("Why(%d)", uint8(w))
}

// Refusal is a move that was not made, and why. Nothing was written, except that an Unsettled one may have been.
type Refusal struct {
	Why  Why
	Work string
	Text string  // one sentence for people
	By   *Record // what was read, when that is the reason; nil otherwise
	Err  error   // cause; may be nil
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("witness of %s: %s: %s", clip(r.Work, 12), r.Why, r.Text)
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

func refuse(why Why, work string, by *Record, format string, args ...any) *Refusal {
	return &Refusal{Why: why, Work: work, By: by, Text: fmt.Sprintf(format, args...)}
}
