package model

// holding are the steps of a worker that has captured and reserved. It goes on until its own conditional write fails:
// as a zombie, if it was deposed meanwhile.
func (x *world) holding(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	to := Point{int32(w.a), int32(w.m) + 1}
	set := func(p pc) func(*world) { return func(x *world) { x.s.w[i-1].pc = p } }
	switch w.pc {
	case training:
		x.trains(s, i, try)
	case uploading:
		if x.off == MoveFirst {
			x.advances(s, i, try)
			return
		}
		try(step{aComplete, i, pack(to)}, func(x *world) {
			x.do(Move{Kind: Complete, By: int32(i), At: to, Parent: unpack(w.from)})
			x.s.w[i-1].pc = uploaded
		})
		x.renews(s, i, try)
	case uploaded:
		switch {
		case x.off == MoveFirst: // only now
			try(step{aComplete, i, w.from}, func(x *world) {
				x.do(Move{Kind: Complete, By: int32(i), At: unpack(w.from), Parent: x.Stored(unpack(w.from)).Parent})
				x.s.w[i-1].pc = training
			})
		case x.off != PointerApart:
			x.advances(s, i, try)
		case s.isFresh(i):
			try(step{aAsk, i, 0}, set(asked))
		default:
			try(step{aAdvanceRefused, i, pack(to)}, set(out))
		}
	case asked:
		x.advances(s, i, try)
	case unmoved:
		x.reads(s, i, try)
	case resulted:
		x.finishes(s, i, try)
	}
	x.crash(s, i, try)
}

func (x *world) trains(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	if int(w.m) < x.b.Milestones {
		to := Point{int32(w.a), int32(w.m) + 1}
		try(step{aHalf, i, pack(to)}, func(x *world) {
			x.do(Move{Kind: Half, By: int32(i), At: to})
			x.s.w[i-1].pc = uploading
		})
	} else {
		result := Point{int32(w.a), 0}
		try(step{aResult, i, pack(result)}, func(x *world) {
			x.do(Move{Kind: Complete, By: int32(i), At: result, Parent: unpack(w.from)})
			x.s.w[i-1].pc = resulted
		})
	}
	if s.isFresh(i) && int(w.a) < x.b.Attempts {
		try(step{aYield, i, w.a}, func(x *world) {
			x.do(Move{Kind: Yield, By: int32(i)})
			x.s.w[i-1].pc = out
		})
	}
	x.renews(s, i, try)
}

// renews: a renewal that lands changes nothing that the protocol looks at but the version, and one that is refused is
// how the deposed learn of it.
func (x *world) renews(s *state, i uint8, try tryer) {
	if s.isFresh(i) {
		try(step{aRenew, i, s.w[i-1].a}, func(x *world) {
			x.do(Move{Kind: Renew, By: int32(i)})
			x.s.read(i)
		})
		return
	}
	try(step{aRenewRefused, i, s.w[i-1].a}, func(x *world) { x.s.w[i-1].pc = out })
}

// advances lands the move of the pointer, or is refused.
func (x *world) advances(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	to := Point{int32(w.a), int32(w.m) + 1}
	lands := s.isFresh(i)
	switch x.off {
	case BlindPointer:
		lands = true
	case PointerApart:
		lands = s.ptrFresh>>(i-1)&1 == 1
	}
	if !lands {
		try(step{aAdvanceRefused, i, pack(to)}, func(x *world) {
			x.s.w[i-1].pc = out
			if x.off == BlindRetry {
				x.s.w[i-1].pc = unmoved
			}
		})
		if s.lost > 0 && x.off != PointerApart {
			try(step{aAdvanceRefusedLost, i, pack(to)}, func(x *world) { x.s.lost--; x.s.w[i-1].pc = unmoved })
		}
		return
	}
	try(step{aAdvance, i, pack(to)}, func(x *world) { x.landAdvance(i, to); x.won(i, to) })
	if s.lost > 0 && x.off != PointerApart && x.off != MoveFirst {
		try(step{aAdvanceLost, i, pack(to)}, func(x *world) {
			x.landAdvance(i, to)
			x.s.lost--
			x.s.fresh &^= 1 << (i - 1)
			x.s.w[i-1].pc = unmoved
		})
	}
}

func (x *world) landAdvance(i uint8, to Point) {
	w := &x.s.w[i-1]
	m := Move{Kind: Advance, By: int32(i), At: to}
	switch x.off {
	case PointerApart: // the lease is not touched
		x.moved(x.Lease(), m)
		x.at(to).named = true
		x.s.ptr, x.s.ptrFresh = pack(to), 1<<(i-1)
		x.wrote(m)
		if x.s.done {
			x.fail("I5", "worker %d moves the pointer of a finished work", i)
		}
	case BlindPointer, BlindRetry: // a remembered copy
		x.SetLease(Lease{Held, int32(w.a), int32(i), int32(w.d), int32(x.s.floor), to}, m)
		x.wrote(m)
	default:
		x.do(m)
	}
}

// won: the pointer is known to have moved.
func (x *world) won(i uint8, to Point) {
	w := &x.s.w[i-1]
	x.s.read(i)
	if x.off == MoveFirst {
		x.at(to).par = w.from
		w.from, w.m = pack(to), w.m+1
		w.pc = uploaded
		return
	}
	w.from, w.m, w.pc = pack(to), w.m+1, training
}

// reads is the resolver: whose version is there now decides, and nothing else. One's own record of before the base, which
// only a deletion and a late twin of the creation can bring back, ends it as well.
func (x *world) reads(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	to := Point{int32(w.a), int32(w.m) + 1}
	try(step{aAdvanceRead, i, 0}, func(x *world) {
		switch mine := x.mine(&w, i); {
		case mine && s.ptr == pack(to):
			x.won(i, to)
		case mine && s.ptr == w.from, x.off == BlindRetry: // the same again; a mutant: whoever is there now
			x.s.read(i)
			x.s.w[i-1].pc = uploaded
		default: // somebody else's, or a record that went back
			x.s.w[i-1].pc = out
		}
	})
}

func (x *world) finishes(s *state, i uint8, try tryer) {
	w := s.w[i-1]
	result := Point{int32(w.a), 0}
	if x.off == DoneElsewhere {
		try(step{aFinish, i, pack(result)}, func(x *world) {
			x.s.done = true // the marker; then the lease is given back, if it still is this worker's
			x.s.w[i-1].pc = out
			if s.isFresh(i) {
				x.s.st, x.s.own, x.s.fresh = Yielded, 0, 0
			}
		})
		return
	}
	if !s.isFresh(i) {
		try(step{aFinishRefused, i, pack(result)}, func(x *world) { x.s.w[i-1].pc = out })
		return
	}
	try(step{aFinish, i, pack(result)}, func(x *world) {
		x.do(Move{Kind: Finish, By: int32(i), At: result})
		x.s.w[i-1].pc = out
	})
}
