// Package witness is the lease: the one mutable object of a work, changed by single-key conditional writes alone.
// README.md beside this file is the specification of the record and of the protocol; testdata/vectors holds what
// every implementation must accept and refuse.
//
// What it guarantees, given a store whose conditional writes on one key are linearizable: attempt numbers only grow,
// at most one holder per version, the resume pointer moves only forward and only by the holder, finished is
// terminal. No clock takes part in any of that. What it does not guarantee: that nothing runs twice, or anything
// outside the record. Decisions are pure functions of records; I/O is apart from them.
package witness

import (
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// MaxRecord bounds a witness at read and at write, bytes.
const MaxRecord = 4 << 10

// State of a lease.
type State string

const (
	Held     State = "held"
	Yielded  State = "yielded"
	Revoked  State = "revoked"
	Finished State = "finished"
)

// Record is the lease record of a work (design.md §5).
type Record struct {
	Protocol int              `json:"protocol"`
	Work     string           `json:"work"`
	Rev      int64            `json:"rev"`   // grows by one on every write, whoever makes it
	Write    string           `json:"write"` // random, fresh on every write: whose write this is, whoever made it
	Attempt  int64            `json:"attempt"`
	Holder   string           `json:"holder,omitempty"` // random, fresh at every capture; empty unless held
	Dispatch int64            `json:"dispatch"`         // of the last capture
	Floor    int64            `json:"floor"`            // lowest dispatch number that may capture
	State    State            `json:"state"`
	Lease    Lease            `json:"lease"`
	Progress Progress         `json:"progress"`
	Resume   *record.Pointer  `json:"resume,omitempty"`
	Finished *FinishedPointer `json:"finished,omitempty"`
	Reason   string           `json:"reason,omitempty"` // why yielded or revoked, one sentence, for people
}

// Lease is what the holder promised. Seconds is the only field that a reader acts on.
type Lease struct {
	Seconds float64 `json:"seconds"`
	K       float64 `json:"k"`
	StepS   float64 `json:"step_s"`
	Phase   string  `json:"phase,omitempty"` // declared long silence: eval, compile, save
}

// Progress is how far the holder is, by its own account.
type Progress struct {
	Step int64   `json:"step"`
	Work float64 `json:"work"` // FLOPs
}

// FinishedPointer names the result.
type FinishedPointer struct {
	ExitCode int    `json:"exit_code"`
	Attempt  int64  `json:"attempt"`
	Manifest string `json:"manifest"`
	SHA256   string `json:"sha256"`
}

// Seen is one successful read of a witness: the record, its version, and the store's own two stamps of that answer.
type Seen struct {
	Record   Record
	Version  bucket.Version
	Modified time.Time // store's stamp of the last write
	Date     time.Time // store's clock at the answer; zero when the store has none
}

// Outcome of a conditional write, after the resolver is done. A closed set.
type Outcome uint8

const (
	// Unknown: no verdict before the deadline. Harmless for a renewal; a pointer or a claim stays unsettled.
	Unknown Outcome = iota
	// Won: the write is in the history, whether or not its answer arrived.
	Won
	// Lost: somebody else wrote a later version; Verdict.By is what was read.
	Lost
	// Gone: the witness vanished. Never "free to create": a store violation until a human looks.
	Gone
	// Refused: the transition is not allowed from the record that was read (finished, below the floor, held by another).
	Refused
)
