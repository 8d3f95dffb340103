package witness

import (
	"fmt"

	"github.com/headway-run/headway/runners/record"
)

// Move names one transition of a witness.
type Move string

const (
	MoveCreate  Move = "create"  // absent → held, attempt 1
	MoveBar     Move = "bar"     // absent → revoked: a stop before any capture, or a repair
	MoveCapture Move = "capture" // yielded, revoked → held, attempt + 1
	MoveRenew   Move = "renew"   // held → held
	MoveAdvance Move = "advance" // held → held, resume pointer forward
	MoveYield   Move = "yield"   // held → yielded
	MoveRevoke  Move = "revoke"  // held → revoked; floor may rise
	MoveStop    Move = "stop"    // yielded, revoked → revoked with a higher floor
	MoveFinish  Move = "finish"  // held → finished
)

// The next functions are the whole protocol as pure functions: a record and a wish in, the following record or a
// refusal out. The write nonce is filled in by the resolver, once per logical write.

func nextCreate(work string, dispatch int64, holder string, l Lease) Record {
	return Record{Protocol: record.Protocol, Work: work, Rev: 1, Attempt: 1, Holder: holder, Dispatch: dispatch,
		State: Held, Lease: l}
}

func nextCapture(old Record, dispatch int64, holder string, l Lease) (Record, *Refusal) {
	switch {
	case old.State == Finished:
		return old, refuse(AlreadyFinished, old.Work, &old, "finished by attempt %d: nothing to do", old.Attempt)
	case old.State == Held:
		return old, refuse(SpawnedElsewhere, old.Work, &old, "held by attempt %d of dispatch %d", old.Attempt, old.Dispatch)
	case dispatch < old.Floor:
		return old, refuse(BelowFloor, old.Work, &old, "dispatch %d was stopped: the floor is %d", dispatch, old.Floor)
	}
	r := old
	r.Rev++
	r.Attempt++
	r.Holder, r.Dispatch, r.State, r.Lease, r.Reason = holder, dispatch, Held, l, ""
	r.Progress = Progress{}
	if r.Resume != nil {
		r.Progress.Step = r.Resume.Step
	}
	return r, nil
}

// held is what every move of a holder starts from.
func held(old Record, holder string) (Record, *Refusal) {
	if old.State != Held || old.Holder != holder {
		return old, refuse(NotHolder, old.Work, &old, "the lease is %s at attempt %d", old.State, old.Attempt)
	}
	r := old
	r.Rev++
	return r, nil
}

func nextRenew(old Record, holder string, p Progress, l Lease) (Record, *Refusal) {
	r, no := held(old, holder)
	r.Progress, r.Lease = p, l
	return r, no
}

func nextAdvance(old Record, holder string, to record.Pointer, p Progress, l Lease) (Record, *Refusal) {
	r, no := held(old, holder)
	if no != nil {
		return r, no
	}
	if to.Attempt != old.Attempt {
		return old, refuse(BadPointer, old.Work, &old, "milestone of attempt %d, but attempt %d holds the lease", to.Attempt, old.Attempt)
	}
	if err := forward(old.Resume, &to); err != nil {
		return old, refuse(BadPointer, old.Work, &old, "%s", err)
	}
	r.Progress, r.Lease, r.Resume = p, l, &to
	return r, nil
}

func nextYield(old Record, holder, reason string) (Record, *Refusal) {
	r, no := held(old, holder)
	r.State, r.Holder, r.Reason = Yielded, "", reason
	return r, no
}

func nextFinish(old Record, holder string, f FinishedPointer, p Progress) (Record, *Refusal) {
	r, no := held(old, holder)
	r.State, r.Holder, r.Finished, r.Progress, r.Reason = Finished, "", &f, p, ""
	return r, no
}

// nextRevoke ends the lease that was judged. A lease that is over already is not revoked again.
func nextRevoke(old Record, reason string) (Record, *Refusal) {
	if old.State != Held {
		return old, refuse(NotHolder, old.Work, &old, "already %s", old.State)
	}
	r := old
	r.Rev++
	r.State, r.Holder, r.Reason = Revoked, "", reason
	return r, nil
}

// nextStop ends the lease, if there is one, and bars every dispatch below floor, and the last one that captured.
// done says that nothing has to be written.
func nextStop(old Record, floor int64, reason string) (r Record, done bool) {
	floor = max(floor, old.Dispatch+1)
	if old.State == Finished || old.State != Held && old.Floor >= floor {
		return old, true
	}
	r = old
	r.Rev++
	r.State, r.Holder, r.Floor, r.Reason = Revoked, "", max(floor, old.Floor), reason
	return r, false
}

func nextBar(work string, attempt, floor int64, resume *record.Pointer, reason string) Record {
	return Record{Protocol: record.Protocol, Work: work, Rev: 1, Attempt: attempt, Floor: floor, State: Revoked,
		Resume: resume, Reason: reason}
}

// forward says why to is not ahead of from, as a sentence.
func forward(from, to *record.Pointer) error {
	switch {
	case from == nil:
		return nil
	case to.Attempt < from.Attempt:
		return fmt.Errorf("the pointer would go back from attempt %d to %d", from.Attempt, to.Attempt)
	case to.Step < from.Step:
		return fmt.Errorf("the pointer would go back from step %d to %d", from.Step, to.Step)
	case to.Attempt == from.Attempt && to.Milestone <= from.Milestone:
		return fmt.Errorf("the pointer would go back from milestone %d to %d", from.Milestone, to.Milestone)
	}
	return nil
}

// CheckMove says which move leads from old (nil: absent) to next, or why none does. It is the one table of allowed
// transitions: held against before every write of this package, and by whoever replays a history.
func CheckMove(old *Record, next Record) (Move, error) {
	if err := next.valid(next.Work); err != nil {
		return "", fmt.Errorf("the new record %w", err)
	}
	if old == nil {
		return checkFirst(next)
	}
	switch {
	case old.State == Finished:
		return "", fmt.Errorf("finished is terminal")
	case next.Work != old.Work:
		return "", fmt.Errorf("the work changed from %s to %s", old.Work, next.Work)
	case next.Rev != old.Rev+1:
		return "", fmt.Errorf("rev went from %d to %d; it grows by one", old.Rev, next.Rev)
	case next.Write == old.Write:
		return "", fmt.Errorf("the write nonce was used again")
	case next.Floor < old.Floor:
		return "", fmt.Errorf("the floor fell from %d to %d", old.Floor, next.Floor)
	case next.State != Revoked && next.Floor != old.Floor:
		return "", fmt.Errorf("only a stop raises the floor")
	}
	if old.State != Held && next.State == Held {
		return checkCapture(old, next)
	}
	return checkSame(old, next)
}

func checkFirst(next Record) (Move, error) {
	switch {
	case next.Rev != 1:
		return "", fmt.Errorf("the first rev is 1, found %d", next.Rev)
	case next.State == Revoked:
		return MoveBar, nil
	case next.State != Held:
		return "", fmt.Errorf("a first record is held or revoked, found %s", next.State)
	case next.Attempt != 1 || next.Resume != nil || next.Floor != 0:
		return "", fmt.Errorf("a first capture is attempt 1 without a resume pointer and without a floor")
	}
	return MoveCreate, nil
}

func checkCapture(old *Record, next Record) (Move, error) {
	switch {
	case next.Attempt != old.Attempt+1:
		return "", fmt.Errorf("a capture made attempt %d of %d; it adds one", next.Attempt, old.Attempt)
	case !samePointer(old.Resume, next.Resume):
		return "", fmt.Errorf("a capture carries the resume pointer over unchanged")
	}
	return MoveCapture, nil // dispatch ≥ floor: valid has seen to it
}

// checkSame is for all moves that stay within one attempt.
func checkSame(old *Record, next Record) (Move, error) {
	same := samePointer(old.Resume, next.Resume)
	switch {
	case next.Attempt != old.Attempt || next.Dispatch != old.Dispatch:
		return "", fmt.Errorf("only a capture changes attempt and dispatch")
	case next.State == Held:
		if next.Holder != old.Holder {
			return "", fmt.Errorf("the holder changed without a capture")
		}
		if same {
			return MoveRenew, nil
		}
		if next.Resume == nil || next.Resume.Attempt != next.Attempt {
			return "", fmt.Errorf("the resume pointer moves only to a milestone of the holder's own attempt")
		}
		if err := forward(old.Resume, next.Resume); err != nil {
			return "", err
		}
		return MoveAdvance, nil
	case !same:
		return "", fmt.Errorf("only the holder moves the resume pointer, and only while it holds")
	case old.State == Held && next.State == Yielded:
		return MoveYield, nil
	case old.State == Held && next.State == Finished:
		return MoveFinish, nil
	case old.State == Held && next.State == Revoked:
		return MoveRevoke, nil
	case next.State == Revoked && next.Floor > old.Floor:
		return MoveStop, nil
	}
	return "", fmt.Errorf("no move leads from %s to %s", old.State, next.State)
}

func samePointer(a, b *record.Pointer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Stopped reports whether a person (or a plan) ended the last capture for good, rather than a take-over: its own
// dispatch may not capture again.
func (r Record) Stopped() bool { return r.State == Revoked && r.Floor > r.Dispatch }
