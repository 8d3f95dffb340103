package runners

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class says what a failure means for the dispatcher. A closed set: the one table that reads it names every class.
type Class string

const (
	NoSlots          Class = "no_slots"          // park the platform; no budget is spent
	QuotaExhausted   Class = "quota_exhausted"   // a NoSlots that knows when: Until
	SpawnedElsewhere Class = "spawned_elsewhere" // another dispatcher or worker was first; nothing is spent
	Unreachable      Class = "unreachable"       // back off; the launch may have happened
	Rejected         Class = "rejected"          // the platform refuses this launch; budget is spent
	ProtocolError    Class = "protocol_error"    // garbage or a panic: fatal for the platform until a human looks
	UserCode         Class = "user_code"         // the program failed; the same error at the same step twice ends the job
)

// advice is what people are told for each class when the runner gave no better hint: a table of values, and the list
// of all classes.
var advice = map[Class]string{
	NoSlots:          "the platform is full: it is asked again later, nothing is spent",
	QuotaExhausted:   "the platform's quota is used up: it is parked until the quota resets, nothing is spent",
	SpawnedElsewhere: "somebody else was first: nothing to do",
	Unreachable:      "the platform did not answer: it is asked again with growing pauses; look whether it is up",
	Rejected:         "the platform refuses this launch: read its words and mend the job or the platform's options",
	ProtocolError:    "the platform answered nonsense: nothing more is launched there until somebody has looked; please report it",
	UserCode:         "the program itself failed: read the end of its log (headway log <job>)",
}

// Advice is one sentence that says what the class means for people; empty for a class that is none of ours.
func (c Class) Advice() string { return advice[c] }

// Failure is every error of a Runner.
type Failure struct {
	Class    Class
	Platform string
	Op       string    // launch, release, list
	Until    time.Time // QuotaExhausted: when it resets
	Hint     string    // what to do next, for people
	Raw      string    // the platform's own words, bounded; hostile text. Error quotes the first line of it, unless Err says it
	Stack    string    // of a runner that panicked, for the log
	Err      error
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("%s: %s: %s", f.Platform, f.Op, f.Class)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	first, _, _ := strings.Cut(strings.TrimSpace(f.Raw), "\n")
	if first = strings.TrimSpace(first); first != "" && !strings.Contains(s, Bound(first, maxText)) {
		s += fmt.Sprintf(": %q", Bound(first, maxText))
	}
	hint := f.Hint
	if hint == "" {
		hint = f.Class.Advice()
	}
	if hint != "" {
		s += " (" + hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ClassOf returns the class of a runner's error; an error that is no Failure, or one of a class that is none of
// ours, breaks the contract: ProtocolError.
func ClassOf(err error) Class {
	if f, ok := errors.AsType[*Failure](err); ok && f.Class.Advice() != "" {
		return f.Class
	}
	return ProtocolError
}

func asFailure(err error) (*Failure, bool) { return errors.AsType[*Failure](err) }
