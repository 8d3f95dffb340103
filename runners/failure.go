package runners

import (
	"errors"
	"fmt"
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

// Failure is every error of a Runner.
type Failure struct {
	Class    Class
	Platform string
	Op       string    // launch, release, list
	Until    time.Time // QuotaExhausted: when it resets
	Hint     string    // what to do next, for people
	Raw      string    // the platform's own words, bounded; hostile text
	Err      error
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("%s: %s: %s", f.Platform, f.Op, f.Class)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	if f.Raw != "" {
		s += fmt.Sprintf(": %q", f.Raw)
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ClassOf returns the class of a runner's error; an error that is no Failure breaks the contract: ProtocolError.
func ClassOf(err error) Class {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Class
	}
	return ProtocolError
}
