package model

// Mutation is one protection taken out of the protocol. The names are those of the older model.
type Mutation string

const (
	Whole         Mutation = ""               // nothing removed
	BlindPointer  Mutation = "BLIND_PTR"      // the pointer is moved by an unconditional write of a remembered copy
	PointerApart  Mutation = "PTR_APART"      // the pointer is an object of its own, swapped after a look at the lease
	BlindCapture  Mutation = "BLIND_CAPTURE"  // the lease is captured by an unconditional write
	SharedPrefix  Mutation = "SHARED_PREFIX"  // all attempts write under one prefix
	ListExists    Mutation = "LIST_EXISTS"    // no pointer: resume from the furthest snapshot of which anything exists
	ListComplete  Mutation = "LIST_COMPLETE"  // no pointer: resume from the furthest complete snapshot
	MoveFirst     Mutation = "MOVE_FIRST"     // the pointer moves before the snapshot is acknowledged
	BlindRetry    Mutation = "BLIND_RETRY"    // after a refusal or a lost answer: read a fresh version and write again
	NoOpen        Mutation = "NO_OPEN"        // an attempt's prefix is not reserved
	NoFloor       Mutation = "NO_FLOOR"       // a stop does not bar stragglers
	NoNonce       Mutation = "NO_NONCE"       // whoever runs the dispatch that holds takes itself for the holder
	DoneElsewhere Mutation = "DONE_ELSEWHERE" // the end is a marker beside the witness
)

// NoRenewTimer is for Stuck: nobody ever judges silence. It breaks nothing but I7.
const NoRenewTimer Mutation = "NO_RENEW_TIMER"

// Removal is one protection taken out, with the faults that bring it to light.
type Removal struct {
	Off    Mutation
	Bounds Bounds
	Breaks string // the invariant that breaks; the first one, unless Bounds.Only names it
}

// Removals are all of them, in the order of the older model's table. Where the first thing that breaks is another one than
// there, the older one's is listed too.
func Removals() []Removal {
	small := Bounds{Attempts: 2, Milestones: 2, Dups: 1, Lost: 1}
	deleted, stopped := small, small
	deleted.Delete, stopped.Cancel = true, true
	only := func(b Bounds, invariant string) Bounds {
		b.Only = invariant
		return b
	}
	return []Removal{
		{BlindPointer, small, "I2"},
		{PointerApart, small, "I2"},
		{BlindCapture, small, "I6"},
		{BlindCapture, only(small, "I5"), "I5"},
		{SharedPrefix, small, "I1"},
		{ListExists, small, "I3"},
		{ListComplete, small, "I4"},
		{MoveFirst, small, "I3"},
		{MoveFirst, only(small, "I1b"), "I1b"},
		{BlindRetry, small, "I2"},
		{NoOpen, deleted, "I1"},
		{NoFloor, stopped, "I8"},
		{NoNonce, small, "I6"},
		{NoNonce, only(small, "I1"), "I1"},
		{DoneElsewhere, small, "I5"},
	}
}
