package witness

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// lease is the witness as a sequential object, written from README.md and not from the code: every operation happens at
// one moment between its call and its return, or, where its answer was lost, at any later one or not at all.
func lease() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{view{}} },
		Step: func(state, input, _ any) []any {
			s, o := state.(view), input.(op)
			var out []any
			for _, next := range after(s, o) {
				out = append(out, next)
			}
			return out
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}

// after is what may lie there after an operation that began at s and gave this answer; none: it can't have.
func after(s view, o op) []view {
	unchanged := func(ok bool) []view {
		if ok {
			return []view{s}
		}
		return nil
	}
	mine := s.State == Held && o.Holder == s.Holder
	switch o.Answer {
	case done:
		if o.Kind == moveRead {
			same := o.Seen
			if sameHolder(s.Holder, same.Holder) {
				same.Holder = s.Holder
			}
			return unchanged(s == same)
		}
		next, ok := applied(s, o)
		if o.Kind == MoveCapture {
			next.Holder = o.Seen.Holder
		}
		if ok && next == o.Seen {
			return []view{next}
		}
	case unknown:
		out := []view{s}
		if next, ok := applied(s, o); ok {
			out = append(out, next)
		}
		return out
	case deposed:
		return unchanged(!mine)
	case elsewhere:
		return unchanged(s.State == Held)
	case terminal:
		return unchanged(s.State == Finished)
	case below:
		return unchanged((s.State == Yielded || s.State == Revoked) && o.Dispatch < s.Floor)
	case renewed:
		return unchanged(s.State == Held && sameHolder(s.Holder, o.Judged.Holder) && s.Rev > o.Judged.Rev)
	case overBy:
		if o.Kind == MoveStop {
			return unchanged(s.State == Finished || s.State != Held && s.Rev > 0 && s.Floor >= max(o.Floor, s.Dispatch+1))
		}
		return unchanged(o.Judged.State != Held || s.State != Held || s.Holder != o.Judged.Holder)
	case nothing:
		return []view{s}
	case violation:
	}
	return nil
}

// applied is the move itself; false: it is not allowed from s.
func applied(s view, o op) (view, bool) {
	next := s
	next.Rev++
	mine := s.State == Held && s.Holder == o.Holder
	switch o.Kind {
	case MoveCapture:
		next.Attempt++
		next.State, next.Dispatch, next.Holder, next.Step = Held, o.Dispatch, fmt.Sprint(lost, o.Client, "/", o.Dispatch), s.From
		return next, s.Rev == 0 || (s.State == Yielded || s.State == Revoked) && o.Dispatch >= s.Floor
	case MoveRenew:
		next.Step = o.Step
		return next, mine
	case MoveAdvance:
		next.Step, next.At, next.Milestone, next.From = o.Step, s.Attempt, o.Number, o.Step
		return next, mine
	case MoveYield:
		next.State, next.Holder = Yielded, ""
		return next, mine
	case MoveFinish:
		next.State, next.Holder, next.Step = Finished, "", o.Step
		return next, mine
	case MoveRevoke:
		next.State, next.Holder = Revoked, ""
		return next, s.State == Held && s.Rev == o.Judged.Rev
	case MoveStop:
		floor := max(o.Floor, s.Dispatch+1)
		next.State, next.Holder, next.Floor = Revoked, "", max(floor, s.Floor)
		return next, s.Rev == 0 || s.State == Held || s.State != Finished && s.Floor < floor
	case MoveCreate, MoveBar:
	}
	return s, false
}

// asHistory is what the checker takes. Who never learned the answer is another client from then on: its operation has
// no end.
func asHistory(ops []op) []porcupine.Operation {
	out := make([]porcupine.Operation, 0, len(ops))
	for i, o := range ops {
		p := porcupine.Operation{ClientId: o.Client, Input: o, Call: o.From, Return: o.To, Output: o.Answer}
		switch {
		case o.Ghost:
			p.ClientId = 1000 + i
		case o.Answer == unknown:
			p.ClientId, p.Return = 1000+i, math.MaxInt64
		}
		out = append(out, p)
	}
	return out
}
