package model

// act names a step of the explored world: who does what, and how the store answers.
type act uint8

const (
	aClaim act = iota + 1
	aStart
	aLook
	aGiveUp // looked, and may not capture
	aMistake
	aCapture
	aCaptureLost
	aCaptureRefused
	aCaptureRefusedLost
	aCaptureRead
	aOpen
	aOpenRefused
	aBegin // NO_OPEN: without a reservation
	aHalf
	aComplete
	aRenew
	aRenewRefused
	aAsk
	aAdvance
	aAdvanceLost
	aAdvanceRefused
	aAdvanceRefusedLost
	aAdvanceRead
	aResult
	aFinish
	aFinishRefused
	aYield
	aCrash
	aRevoke
	aStop
	aDelete
	aRepair
	aTwin
	aTwinLate
	acts
)

// step is one edge: worker i (0: a dispatcher, an operator, somebody); n is a dispatch, or a point.
type step struct {
	act  act
	i, n uint8
}

// next calls emit with every state that one step leads to from s. The world it is given is reused.
func (x *world) next(s *state, emit func(step)) {
	try := func(st step, change func(x *world)) {
		x.s, x.broken, x.why = *s, "", ""
		change(x)
		emit(st)
	}
	x.dispatchers(s, try)
	x.faults(s, try)
	for i := uint8(1); int(i) <= x.b.Attempts+x.b.Dups; i++ {
		switch w := &s.w[i-1]; w.pc {
		case idle, out:
		case started, looked, unsure, captured:
			x.capturing(s, i, try)
		case training, uploading, uploaded, asked, unmoved, resulted:
			x.holding(s, i, try)
		}
		if s.w[i-1].creator && s.st == Absent && s.deleted {
			x.twin(s, i, try)
		}
	}
}

type tryer func(step, func(*world))

func (x *world) dispatchers(s *state, try tryer) {
	claims := x.b.Claims
	if claims == 0 {
		claims = x.b.Attempts
	}
	if int(s.ndisp) < claims {
		try(step{aClaim, 0, s.ndisp + 1}, func(x *world) { x.do(Move{Kind: Claim, Dispatch: int32(s.ndisp) + 1}) })
	}
	for i := range x.b.Attempts + x.b.Dups { // a platform may start any claimed dispatch at any time, any number of times
		if s.w[i].pc != idle {
			continue
		}
		for n := uint8(1); n <= s.ndisp; n++ {
			try(step{aStart, uint8(i + 1), n}, func(x *world) { x.s.w[i] = worker{pc: started, d: n} })
		}
		break // slots are alike: the first free one
	}
	if s.st == Held && int(s.att) < x.b.Attempts && x.off != NoRenewTimer {
		try(step{aRevoke, 0, s.att}, func(x *world) { x.do(Move{Kind: Revoke}) })
	}
}

// faults are the operator, and whoever deletes a witness and whoever repairs it.
func (x *world) faults(s *state, try tryer) {
	if x.b.Cancel && !s.cancelled && s.st != Finished && !s.done {
		floor := max(s.ndisp, s.disp) + 1
		try(step{aStop, 0, floor}, func(x *world) {
			x.s.cancelled, x.s.gfloor = true, floor
			switch {
			case x.off == NoFloor:
				if s.st == Held {
					x.do(Move{Kind: Revoke})
				}
			case s.st == Absent:
				x.do(Move{Kind: Bar, Floor: int32(floor)})
			default:
				x.do(Move{Kind: Stop, Floor: int32(floor)})
			}
		})
	}
	if x.b.Delete && !s.deleted && s.st != Absent && s.st != Finished {
		try(step{act: aDelete}, func(x *world) { x.s.deleted, x.s.gfloor = true, 0; x.do(Move{Kind: Delete}) })
	}
	if !s.deleted || s.fixed || s.st != Absent {
		return
	}
	highest := uint8(0)
	for a, by := range s.opened {
		if by != 0 {
			highest = uint8(a)
		}
	}
	if highest == 0 || int(highest) >= x.b.Attempts {
		return
	}
	try(step{aRepair, 0, 0}, func(x *world) { x.s.fixed = true; x.do(Move{Kind: Repair, Attempt: int32(highest)}) })
	for k := range s.cells {
		if p := (Point{int32(k/columns) + 1, int32(k % columns)}); s.cells[k].named && p.M > 0 && p.A <= int32(highest) {
			try(step{aRepair, 0, pack(p)}, func(x *world) { x.s.fixed = true; x.do(Move{Kind: Repair, Attempt: int32(highest), At: p}) })
		}
	}
}

// twin: the request that created the witness arrives a second time, after the witness was deleted. Its bytes are those
// of the first version, and so is its version: a holder that has written nothing since is fresh again.
func (x *world) twin(s *state, i uint8, try tryer) {
	again := Move{Kind: Create, By: int32(i), Dispatch: int32(s.w[i-1].d)}
	try(step{aTwinLate, i, 0}, func(x *world) { x.do(again) })
	if w := s.w[i-1]; w.m == 0 && (w.pc == captured || w.pc == training || w.pc == uploading || w.pc == uploaded) {
		try(step{aTwin, i, 0}, func(x *world) { x.do(again); x.s.fresh = 1 << (i - 1) })
	}
}

func (s *state) isFresh(i uint8) bool { return s.fresh>>(i-1)&1 == 1 }

func (s *state) read(i uint8) { s.fresh |= 1 << (i - 1) }

// leave empties a slot whose worker has written nothing that anybody could see.
func (s *state) leave(i uint8) {
	s.w[i-1] = worker{}
	s.fresh &^= 1 << (i - 1)
}

// freshStart is the absent rule: what a worker must find beside an absent witness before it creates one. It is looked at
// once, before the write: by the time that the write lands it need not be true any more.
func freshStart(f Facts, attempts int, d int32) bool {
	for a := int32(1); a <= int32(attempts); a++ {
		if f.Opened(a) != 0 {
			return false
		}
		for m := int32(0); m <= maxM; m++ {
			if f.Stored(Point{a, m}).Files {
				return false
			}
		}
	}
	return f.Claimed(d) && f.Claims() == d
}

func (x *world) capturing(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	switch w.pc {
	case started:
		x.look(s, i, try)
	case looked:
		x.capture(s, i, try)
	case unsure:
		try(step{aCaptureRead, i, 0}, func(x *world) {
			if x.mine(&w, i) {
				x.s.read(i)
				x.s.w[i-1].pc = captured
				return
			}
			x.s.w[i-1] = worker{pc: started, d: w.d} // decides afresh, with another nonce
		})
		if x.b.Crash && (int(w.a) < x.b.Attempts || s.own != i) {
			try(step{aCrash, i, 0}, func(x *world) { x.s.w[i-1].pc = out; x.free(i) })
		}
	case captured:
		if x.off == NoOpen {
			try(step{aBegin, i, w.a}, func(x *world) { x.s.w[i-1].pc = training })
			return
		}
		if by := s.opened[w.a]; by != 0 && by != i {
			try(step{aOpenRefused, i, w.a}, func(x *world) { x.s.w[i-1].pc = out })
			return
		}
		try(step{aOpen, i, w.a}, func(x *world) {
			if s.opened[w.a] == 0 {
				x.do(Move{Kind: Open, By: int32(i), Attempt: int32(w.a)})
			}
			x.s.w[i-1].pc = training
		})
		x.crash(s, i, try)
	}
}

// free gives a slot back when nothing in the store tells of its worker.
func (x *world) free(i uint8) {
	if x.s.own == i {
		return
	}
	for _, by := range x.s.opened {
		if by == i {
			return
		}
	}
	x.s.leave(i)
}

// mine is what a worker asks of the version that it reads back: is that me?
func (x *world) mine(w *worker, i uint8) bool {
	if x.off == NoNonce {
		return x.s.st == Held && x.s.att == w.a
	}
	return x.s.own == i
}

func (x *world) crash(s *state, i uint8, try tryer) {
	if x.b.Crash && int(s.w[i-1].a) < x.b.Attempts {
		try(step{aCrash, i, 0}, func(x *world) { x.s.w[i-1].pc = out })
	}
}

// look decides from the newest version whether to capture.
func (x *world) look(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	x.s = *s
	ok := false
	switch {
	case x.off == DoneElsewhere && s.done:
	case s.st == Absent:
		ok = freshStart(x, x.b.Attempts, int32(w.d))
	case s.st == Held && x.off == NoNonce && s.disp == w.d:
		try(step{aMistake, i, 0}, func(x *world) {
			x.s.w[i-1] = worker{pc: training, d: w.d, a: s.att, from: s.ptr, m: s.ptr & 3}
			x.s.read(i)
		})
		return
	default:
		ok = (s.st == Yielded || s.st == Revoked) && int(s.att) < x.b.Attempts && w.d >= s.floor
	}
	if !ok {
		try(step{aGiveUp, i, 0}, func(x *world) { x.s.leave(i) })
		return
	}
	try(step{aLook, i, 0}, func(x *world) {
		x.s.w[i-1] = worker{pc: looked, d: w.d, a: s.att + 1, from: s.ptr, m: s.ptr & 3}
		x.s.read(i)
	})
}

// capture lands the write, or is refused.
func (x *world) capture(s *state, i uint8, try tryer) {
	if !s.isFresh(i) && x.off != BlindCapture {
		try(step{aCaptureRefused, i, 0}, func(x *world) { x.s.w[i-1] = worker{pc: started, d: s.w[i-1].d} })
		if s.lost > 0 {
			try(step{aCaptureRefusedLost, i, 0}, func(x *world) { x.s.lost--; x.s.w[i-1].pc = unsure })
		}
		return
	}
	try(step{aCapture, i, s.w[i-1].a}, func(x *world) { x.landCapture(i); x.s.w[i-1].pc = captured; x.s.read(i) })
	if s.lost > 0 {
		try(step{aCaptureLost, i, s.w[i-1].a}, func(x *world) { x.landCapture(i); x.s.lost--; x.s.w[i-1].pc = unsure })
	}
}

func (x *world) landCapture(i uint8) {
	w := &x.s.w[i-1]
	m := Move{Kind: Capture, By: int32(i), Dispatch: int32(w.d)}
	switch {
	case x.off == BlindCapture: // a remembered copy
		if x.s.st == Absent {
			m.Kind = Create
		}
		x.SetLease(Lease{Held, int32(w.a), int32(i), int32(w.d), int32(x.s.floor), unpack(w.from)}, m)
		x.wrote(m)
	case x.s.st == Absent:
		m.Kind, w.creator = Create, x.b.Delete
		x.do(m)
	default:
		x.do(m)
	}
	if x.off == ListExists || x.off == ListComplete {
		best := x.furthest(x.off == ListComplete)
		x.s.ptr, w.from, w.m = pack(best), pack(best), uint8(best.M) // the listing is the pointer
	}
	if x.off == PointerApart {
		x.s.ptrFresh |= 1 << (i - 1)
	}
	x.resumed(int32(i), unpack(w.from))
}

// furthest is what a listing shows as the snapshot that is furthest on.
func (x *world) furthest(complete bool) (best Point) {
	for k, c := range x.s.cells {
		p := Point{int32(k/columns) + 1, int32(k % columns)}
		if p.M > 0 && p.M >= best.M && (c.part == 2 || c.part == 1 && !complete) {
			best = p
		}
	}
	return best
}
