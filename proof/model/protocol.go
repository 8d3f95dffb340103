// Package model is the lease protocol as an explicit state machine, small enough to be looked at from all sides. One table
// of guards and effects (Allowed, Apply) serves two readers: Explore walks every interleaving of a bounded world, whole
// or with one protection removed, and finds the shortest way to a broken invariant; Follow takes the writes of a real
// history and says which of them is no action of the model. So neither the model nor the code can drift alone.
//
// README.md says what is modelled, what is left out and why, and how it compares with the older Promela model. No bytes
// and no clocks are in it: silence may be judged at any moment, rightly or wrongly.
package model

import "fmt"

// Kind names an action: a write that a store can see.
type Kind uint8

const (
	Claim    Kind = iota + 1 // dispatch/<n>.json, created if absent
	Create                   // a witness where none was: attempt 1
	Bar                      // a stop before any capture
	Capture                  // attempt + 1 of a free lease
	Open                     // attempt/<n>/open.json, created if absent
	Half                     // a file of a snapshot or a result
	Complete                 // its manifest
	Renew                    //
	Advance                  // the pointer moves
	Yield                    //
	Revoke                   //
	Stop                     // ends the lease, if there is one, and raises the floor
	Finish                   //
	Delete                   // the witness, by hand: a fault
	Repair                   // a witness after that, by a person
	kinds
)

// String returns the action's name.
func (k Kind) String() string {
	names := [...]string{"", "Claim", "Create", "Bar", "Capture", "Open", "Half", "Complete", "Renew", "Advance", "Yield", "Revoke", "Stop", "Finish", "Delete", "Repair"}
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Kinds are all actions.
func Kinds() (out []Kind) {
	for k := Claim; k < kinds; k++ {
		out = append(out, k)
	}
	return out
}

// State of a lease.
type State uint8

const (
	Absent State = iota
	Held
	Yielded
	Revoked
	Finished
)

// String returns the state's name.
func (s State) String() string {
	names := [...]string{"absent", "held", "yielded", "revoked", "finished"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Point is a snapshot: the attempt that wrote it and its number. The zero value is none; M 0 is an attempt's result.
type Point struct{ A, M int32 }

func (p Point) String() string {
	switch {
	case p == Point{}:
		return "nothing"
	case p.M == 0:
		return fmt.Sprintf("the result of attempt %d", p.A)
	}
	return fmt.Sprintf("attempt %d milestone %d", p.A, p.M)
}

// ahead reports whether q may replace p as the pointer.
func (p Point) ahead(q Point) bool { return q.A > p.A || q.A == p.A && q.M > p.M }

// Lease is a version of the witness as far as the protocol looks at it.
type Lease struct {
	State    State
	Attempt  int32
	Holder   int32 // identity of a capture (a nonce, in words of the code); 0: nobody
	Dispatch int32 // of the last capture
	Floor    int32
	Pointer  Point
}

// Part is how much of a snapshot is stored.
type Part struct {
	Files    bool  // some of it
	Complete bool  // all files and the manifest
	Parent   Point // what the manifest says it grew from
}

// Move is one action with its arguments. Fields that a kind does not need are zero.
type Move struct {
	Kind     Kind
	By       int32 // identity of the capture whose holder (or former holder) acts; of a capture: the new one
	Dispatch int32 // Claim, Create, Capture; Repair: that the record names
	Attempt  int32 // Open; Bar and Repair: that the record names
	Floor    int32 // Bar, Stop
	At       Point // Half, Complete, Advance, Finish (M 0), Repair
	Parent   Point // Complete
}

// Facts is the store as the guards see it.
type Facts interface {
	Lease() Lease
	Claims() int32                    // the highest claimed number, 0: none
	Took(by, attempt int32) bool      // the identity captured this attempt; attempt 0: any
	Opened(attempt int32) int32       // who reserved the prefix; 0: nobody
	Stored(p Point) Part              // of a snapshot
	Claimed(dispatch int32) (is bool) //
}

// World is a store that actions change.
type World interface {
	Facts
	SetLease(Lease, Move)
	SetClaim(dispatch int32)
	SetOpened(attempt, by int32)
	SetStored(Point, Part, Move)
}

// Allowed says why a move is none that the protocol makes when it lands on this store, as a sentence part; nil: it is.
// A conditional write lands only on the version that its writer decided from, so guards on the lease are also what was
// decided. Guards on everything else are facts that stay true once they are true. What can change between a look and
// a write is not here but in the explorer's looks (freshStart).
func Allowed(f Facts, m Move) error {
	l := f.Lease()
	switch m.Kind {
	case Claim:
		if last := f.Claims(); m.Dispatch != last+1 {
			return fmt.Errorf("claims dispatch %d after %d", m.Dispatch, last)
		}
	case Create, Bar, Repair:
		return allowedFirst(f, l, m)
	case Capture:
		return allowedCapture(f, l, m)
	case Open, Half, Complete:
		return allowedUpload(f, m)
	case Renew, Advance, Yield, Finish:
		if l.State != Held || l.Holder != m.By {
			return fmt.Errorf("%s, but the lease is %s by another or nobody (attempt %d)", m.Kind, l.State, l.Attempt)
		}
		return allowedTarget(f, l, m)
	case Revoke:
		if l.State != Held {
			return fmt.Errorf("revokes a lease that is %s", l.State)
		}
	case Stop:
		if l.State == Absent || l.State == Finished || m.Floor <= l.Floor || m.Floor <= l.Dispatch {
			return fmt.Errorf("stops with the floor %d a lease that is %s, with floor %d, captured by dispatch %d", m.Floor, l.State, l.Floor, l.Dispatch)
		}
	case Delete:
		if l.State == Absent {
			return fmt.Errorf("deletes what is not there")
		}
	default:
		return fmt.Errorf("no action of the protocol")
	}
	return nil
}

func allowedFirst(f Facts, l Lease, m Move) error {
	switch {
	case l.State != Absent:
		return fmt.Errorf("%s where a lease is %s", m.Kind, l.State)
	case m.Kind == Create && !f.Claimed(m.Dispatch):
		return fmt.Errorf("captures for dispatch %d, which nobody claimed", m.Dispatch)
	case m.Kind == Bar && m.Floor < 1:
		return fmt.Errorf("bars nothing")
	case m.Kind == Repair && (f.Opened(m.Attempt) == 0 || f.Opened(m.Attempt+1) != 0):
		return fmt.Errorf("repairs at attempt %d, which is not the highest that left a byte", m.Attempt)
	case m.Kind == Repair && m.At != Point{} && !f.Stored(m.At).Complete:
		return fmt.Errorf("repairs with %s, which is not complete", m.At)
	}
	return nil
}

func allowedCapture(f Facts, l Lease, m Move) error {
	switch {
	case l.State != Yielded && l.State != Revoked:
		return fmt.Errorf("captures a lease that is %s", l.State)
	case m.Dispatch < l.Floor:
		return fmt.Errorf("captures for dispatch %d, below the floor %d", m.Dispatch, l.Floor)
	case !f.Claimed(m.Dispatch):
		return fmt.Errorf("captures for dispatch %d, which nobody claimed", m.Dispatch)
	case f.Took(m.By, 0):
		return fmt.Errorf("captures with an identity that captured before")
	}
	return nil
}

func allowedUpload(f Facts, m Move) error {
	if m.Kind == Open {
		switch by := f.Opened(m.Attempt); {
		case by != 0:
			return fmt.Errorf("reserves attempt %d, which is reserved", m.Attempt)
		case !f.Took(m.By, m.Attempt):
			return fmt.Errorf("reserves attempt %d without having captured it", m.Attempt)
		}
		return nil
	}
	if by := f.Opened(m.At.A); by == 0 || by != m.By {
		return fmt.Errorf("writes %s, whose prefix is not its own", m.At)
	}
	return nil
}

// allowedTarget is for what a holder's write names.
func allowedTarget(f Facts, l Lease, m Move) error {
	if m.Kind != Advance && m.Kind != Finish {
		return nil
	}
	p := f.Stored(m.At)
	switch {
	case f.Opened(l.Attempt) != m.By:
		return fmt.Errorf("names %s without having reserved attempt %d", m.At, l.Attempt)
	case m.At.A != l.Attempt:
		return fmt.Errorf("names %s, but holds attempt %d", m.At, l.Attempt)
	case !p.Complete:
		return fmt.Errorf("names %s, which is not complete", m.At)
	case m.Kind == Finish && p.Parent != Point{} && p.Parent != l.Pointer, m.Kind == Advance && p.Parent != l.Pointer:
		return fmt.Errorf("names %s, which grew from %s, but the pointer is at %s", m.At, p.Parent, l.Pointer)
	case m.Kind == Advance && !l.Pointer.ahead(m.At):
		return fmt.Errorf("moves the pointer from %s to %s, which is not forward", l.Pointer, m.At)
	}
	return nil
}

// After is the lease that a move leaves behind.
func (l Lease) After(m Move) Lease {
	switch m.Kind {
	case Create:
		return Lease{State: Held, Attempt: 1, Holder: m.By, Dispatch: m.Dispatch}
	case Bar:
		return Lease{State: Revoked, Floor: m.Floor}
	case Repair:
		return Lease{State: Revoked, Attempt: m.Attempt, Dispatch: m.Dispatch, Floor: m.Floor, Pointer: m.At}
	case Capture:
		l.State, l.Attempt, l.Holder, l.Dispatch = Held, l.Attempt+1, m.By, m.Dispatch
	case Advance:
		l.Pointer = m.At
	case Yield:
		l.State, l.Holder = Yielded, 0
	case Revoke:
		l.State, l.Holder = Revoked, 0
	case Stop:
		l.State, l.Holder, l.Floor = Revoked, 0, m.Floor
	case Finish:
		l.State, l.Holder = Finished, 0
	case Delete:
		return Lease{}
	case Claim, Open, Half, Complete, Renew:
	}
	return l
}

// Apply does what a move does, allowed or not.
func Apply(w World, m Move) {
	switch m.Kind {
	case Claim:
		w.SetClaim(m.Dispatch)
	case Open:
		w.SetOpened(m.Attempt, m.By)
	case Half:
		p := w.Stored(m.At)
		p.Files = true
		w.SetStored(m.At, p, m)
	case Complete:
		w.SetStored(m.At, Part{Files: true, Complete: true, Parent: m.Parent}, m)
	default:
		w.SetLease(w.Lease().After(m), m)
	}
}
