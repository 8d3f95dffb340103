package model

import "fmt"

// Bounds of an exploration. The largest world has 3 attempts, 3 milestones and 5 workers.
type Bounds struct {
	Attempts   int // captures
	Milestones int // snapshots that make the work done
	Dups       int // workers beyond one for each attempt: launches that the platform starts twice, or late
	Lost       int // conditional writes whose answer is lost
	Claims     int // dispatch numbers; 0: as many as attempts

	Cancel bool // an operator stops the work, once, at any moment
	Delete bool // somebody deletes the witness, once, at any moment; a person may repair it
	Crash  bool // workers crash at any step (for safety that is the same as never being scheduled again)

	Only string // look for this broken invariant alone; empty: for the first of any
	Max  int    // states; 0: all of them
}

const (
	maxA    = 3
	maxM    = 3
	maxW    = 5
	columns = maxM + 1
)

func (b Bounds) fit() error {
	if b.Attempts < 1 || b.Attempts > maxA || b.Milestones < 1 || b.Milestones > maxM || b.Dups < 0 || b.Attempts+b.Dups > maxW || b.Claims > 7 || b.Lost > 7 {
		return fmt.Errorf("bounds %+v; expected 1 to %d attempts, 1 to %d milestones, at most %d workers in all, 7 claims and 7 lost answers", b, maxA, maxM, maxW)
	}
	return nil
}

// pc is where a worker is. What it is about to send is not told apart from what it has sent: a write that is slow, or
// whose sender has died meanwhile, is the same step taken later.
type pc uint8

const (
	idle      pc = iota // no worker in this slot
	started             // for dispatch d; will look
	looked              // may capture the version that it looked at
	unsure              // the capture got no answer
	captured            // will reserve its prefix
	training            // at pointer from
	uploading           // half of the next snapshot is stored
	uploaded            // all of it is
	asked               // PTR_APART: was told that it still holds
	unmoved             // the move of the pointer got no answer
	resulted            // the result is stored
	out                 // for good
)

type worker struct {
	pc      pc
	a, d, m uint8 // attempt, dispatch, milestones behind it
	from    uint8 // point that it grows from
	creator bool  // its capture created the witness: a twin of that request may arrive later
}

// cell is one snapshot, or a result in column 0, with ghosts that only the invariants look at.
type cell struct {
	part  uint8 // 0 nothing, 1 half, 2 complete
	wrote uint8 // by whom
	par   uint8
	late  bool // completed by a worker already deposed, and not named since
	named bool // a witness has named it
}

// state is the whole world; it is comparable and has no pointers.
type state struct {
	st                              State
	att, own, disp, floor, ptr      uint8
	ndisp, gfloor, lost             uint8
	done, cancelled, deleted, fixed bool
	fresh                           uint8 // bit i: worker i knows the newest version
	ptrFresh                        uint8 // PTR_APART: of the pointer
	w                               [maxW]worker
	cells                           [maxA * columns]cell
	opened                          [maxA + 1]uint8
}

func pack(p Point) uint8 { return uint8(p.A<<2 | p.M) }

func unpack(b uint8) Point { return Point{int32(b >> 2), int32(b & 3)} }

// world is a state that moves are made in. It is the explorer's World, and holds every move against the invariants.
type world struct {
	b      Bounds
	off    Mutation
	s      state
	moves  [kinds]int
	broken string // invariant
	why    string
	writes *[]Move // when not nil, what the store takes is noted here
}

var _ World = (*world)(nil)

func (x *world) fail(invariant, format string, args ...any) {
	if x.broken == "" && (x.b.Only == "" || x.b.Only == invariant) {
		x.broken, x.why = invariant, fmt.Sprintf(format, args...)
	}
}

// do makes a move. With nothing removed, each must be one that Allowed lets pass: the follower uses the same table.
func (x *world) do(m Move) {
	if x.off == Whole {
		if err := Allowed(x, m); err != nil {
			x.fail("MODEL", "the explorer made a move that is none: %v", err)
		}
	}
	Apply(x, m)
	x.wrote(m)
}

func (x *world) wrote(m Move) {
	x.moves[m.Kind]++
	if x.writes != nil {
		*x.writes = append(*x.writes, m)
	}
}

func (x *world) Lease() Lease {
	s := &x.s
	return Lease{s.st, int32(s.att), int32(s.own), int32(s.disp), int32(s.floor), unpack(s.ptr)}
}

func (x *world) Claims() int32        { return int32(x.s.ndisp) }
func (x *world) Claimed(n int32) bool { return n > 0 && n <= int32(x.s.ndisp) }

func (x *world) Took(by, attempt int32) bool {
	if attempt == 0 { // a slot whose worker left before its first byte is another identity afterwards
		for _, o := range x.s.opened {
			if int32(o) == by {
				return true
			}
		}
		return int32(x.s.own) == by
	}
	w := &x.s.w[by-1]
	return int32(w.a) == attempt && w.pc >= captured
}

func (x *world) Opened(attempt int32) int32 { return int32(x.s.opened[attempt]) }

func (x *world) at(p Point) *cell {
	a := p.A
	if x.off == SharedPrefix && p.M > 0 {
		a = 1
	}
	return &x.s.cells[(a-1)*columns+p.M]
}

func (x *world) Stored(p Point) Part {
	if p.A == 0 {
		return Part{}
	}
	c := x.at(p)
	return Part{c.part > 0, c.part == 2, unpack(c.par)}
}

func (x *world) SetClaim(n int32) { x.s.ndisp = uint8(n) }

func (x *world) SetOpened(attempt, by int32) { x.s.opened[attempt] = uint8(by) }

// SetStored is I1 and I1b.
func (x *world) SetStored(p Point, part Part, m Move) {
	c := x.at(p)
	n := uint8(1)
	if part.Complete {
		n = 2
	}
	if c.wrote != 0 && int32(c.wrote) != m.By {
		x.fail("I1", "%s is written by worker %d and by worker %d", p, c.wrote, m.By)
	}
	if c.named && n != c.part {
		x.fail("I1b", "worker %d changes %s after the witness named it", m.By, p)
	}
	c.part, c.wrote, c.par = n, uint8(m.By), pack(m.Parent)
	if part.Complete {
		c.late = int32(x.s.own) != m.By
	}
}

// SetLease is what the lease must never do.
func (x *world) SetLease(l Lease, m Move) {
	old := x.Lease()
	if x.s.done {
		x.fail("I5", "%s by worker %d on a finished work", m.Kind, m.By)
	}
	switch m.Kind {
	case Create, Capture:
		if old.State == Held {
			x.fail("I6", "worker %d takes a lease that worker %d holds", m.By, old.Holder)
		}
		if m.Dispatch < int32(x.s.gfloor) {
			x.fail("I8", "worker %d captures for dispatch %d of a work that was stopped below %d", m.By, m.Dispatch, x.s.gfloor)
		}
	case Advance:
		x.moved(old, m)
		x.at(m.At).named, x.at(m.At).late = true, false // its holder says so: it is deposed no more, whatever was between
	case Finish:
		if !x.Stored(m.At).Complete {
			x.fail("I3", "the result of attempt %d is not complete", m.At.A)
		}
		if old.Holder != m.By {
			x.fail("I6", "worker %d finishes, but worker %d holds", m.By, old.Holder)
		}
		x.s.done = true
	case Yield:
		if old.Holder != m.By {
			x.fail("I6", "worker %d yields, but worker %d holds", m.By, old.Holder)
		}
	case Bar, Revoke, Stop, Delete, Repair, Renew, Claim, Open, Half, Complete:
	}
	s := &x.s
	s.st, s.att, s.own, s.disp, s.floor, s.ptr = l.State, uint8(l.Attempt), uint8(l.Holder), uint8(l.Dispatch), uint8(l.Floor), pack(l.Pointer)
	s.fresh = 0
}

// moved is I2 and I3 for one step of the pointer.
func (x *world) moved(old Lease, m Move) {
	c := x.at(m.At)
	if c.part != 2 {
		x.fail("I3", "the pointer names %s, which is not complete", m.At)
	}
	if old.State != Held || old.Holder != m.By {
		x.fail("I2", "worker %d moves the pointer to %s, but the lease is %s by worker %d", m.By, m.At, old.State, old.Holder)
	}
	if unpack(c.par) != old.Pointer && !(x.off == MoveFirst && c.part != 2) {
		x.fail("I2", "worker %d moves the pointer to %s, which grew from %s, while it is at %s", m.By, m.At, unpack(c.par), old.Pointer)
	}
	if !old.Pointer.ahead(m.At) {
		x.fail("I2", "worker %d moves the pointer from %s to %s", m.By, old.Pointer, m.At)
	}
}

// resumed is I3 and I4 for where a capture starts from.
func (x *world) resumed(i int32, from Point) {
	if from == (Point{}) || x.off == SharedPrefix {
		return
	}
	c := x.at(from)
	if c.part != 2 {
		x.fail("I3", "worker %d resumes from %s, which is not complete", i, from)
	}
	if c.late {
		x.fail("I4", "worker %d resumes from %s, which worker %d completed after it was deposed", i, from, c.wrote)
	}
}
