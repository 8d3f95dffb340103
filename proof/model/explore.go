package model

import (
	"hash/maphash"
)

// Result is what an exploration found.
type Result struct {
	States    int
	Depth     int          // steps of the longest shortest way
	Edges     int          // steps taken, also those that lead to a known state
	Taken     map[Kind]int // how often each action was
	Complete  bool         // every state within the bounds was seen
	Violation string       // the invariant that broke; empty: none
	Text      string       // how
	Trace     []string     // the shortest way to it, in words
	Writes    []Move       // the writes on it, lost and refused ones left out: what a follower would see
}

// noParent marks the first state.
const noParent = ^uint32(0)

// explorer is the set of states seen, in the order in which they were.
type explorer struct {
	x      *world
	states []state
	parent []uint32
	table  []uint32 // open addressing: index + 1
	seed   maphash.Seed
}

// Explore walks every interleaving within the bounds, breadth first, with at most one protection removed, and stops at
// the first broken invariant: its trace is a shortest one. The order is always the same.
func Explore(b Bounds, off Mutation) (Result, error) {
	if err := b.fit(); err != nil {
		return Result{}, err
	}
	e := newExplorer(b, off)
	r := Result{}
	level := 1 // states known at the begin of this depth
	var bad step
	for at := 0; at < len(e.states) && r.Violation == ""; at++ {
		if at == level {
			r.Depth, level = r.Depth+1, len(e.states)
		}
		if b.Max > 0 && len(e.states) >= b.Max {
			return e.done(r, false), nil
		}
		s := e.states[at]
		e.x.next(&s, func(st step) {
			r.Edges++
			if r.Violation != "" {
				return
			}
			if e.x.broken != "" {
				r.Violation, r.Text, bad = e.x.broken, e.x.why, st
			}
			e.add(&e.x.s, uint32(at))
		})
		if r.Violation != "" {
			e.tell(&r, uint32(at), bad)
		}
	}
	return e.done(r, r.Violation == ""), nil
}

func newExplorer(b Bounds, off Mutation) *explorer {
	e := &explorer{x: &world{b: b, off: off}, seed: maphash.MakeSeed(), table: make([]uint32, 1<<12)}
	e.add(&state{lost: uint8(b.Lost)}, noParent)
	return e
}

func (e *explorer) done(r Result, complete bool) Result {
	r.States, r.Complete, r.Taken = len(e.states), complete, map[Kind]int{}
	for k, n := range e.x.moves {
		if n > 0 {
			r.Taken[Kind(k)] = n
		}
	}
	return r
}

// add notes a state unless it is known, and returns its index.
func (e *explorer) add(s *state, parent uint32) uint32 {
	if len(e.states)*2 >= len(e.table) {
		e.grow()
	}
	mask := uint64(len(e.table) - 1)
	for at := maphash.Comparable(e.seed, *s) & mask; ; at = (at + 1) & mask {
		switch k := e.table[at]; {
		case k == 0:
			e.states, e.parent = append(e.states, *s), append(e.parent, parent)
			e.table[at] = uint32(len(e.states))
			return uint32(len(e.states) - 1)
		case e.states[k-1] == *s:
			return k - 1
		}
	}
}

func (e *explorer) grow() {
	e.table = make([]uint32, 4*len(e.table))
	mask := uint64(len(e.table) - 1)
	for i := range e.states {
		at := maphash.Comparable(e.seed, e.states[i]) & mask
		for e.table[at] != 0 {
			at = (at + 1) & mask
		}
		e.table[at] = uint32(i + 1)
	}
}

// tell writes down the way to the state at, and the step from there that broke something.
func (e *explorer) tell(r *Result, at uint32, bad step) {
	var way []uint32
	for k := at; k != noParent; k = e.parent[k] {
		way = append(way, k)
	}
	for k := len(way) - 1; k >= 0; k-- {
		from, told := e.states[way[k]], false
		var writes []Move
		e.x.writes = &writes
		e.x.next(&from, func(st step) {
			if !told && (k > 0 && e.x.s == e.states[way[k-1]] || k == 0 && st == bad && e.x.broken == r.Violation) {
				told = true
				r.Trace = append(r.Trace, words(st, &from, &e.x.s))
				r.Writes = append(r.Writes, writes...)
			}
			writes = writes[:0]
		})
		e.x.writes = nil
	}
}

// Stuck explores with crashes, and counts the states from which no way leads to a finished work although nothing was
// stopped and no witness deleted: I7, under the assumption that what can happen for ever does at last. The trace leads
// to the first of them.
func Stuck(b Bounds, off Mutation) (stuck int, r Result, err error) {
	b.Crash, b.Only = true, "I7"
	if err := b.fit(); err != nil {
		return 0, r, err
	}
	e := newExplorer(b, off)
	var from, to []uint32
	for at := 0; at < len(e.states); at++ {
		s := e.states[at]
		e.x.next(&s, func(step) {
			k := e.add(&e.x.s, uint32(at))
			if k != uint32(at) {
				from, to = append(from, uint32(at)), append(to, k)
			}
		})
	}
	r.Edges = len(from)
	r = e.done(r, true)
	good := e.backwards(from, to)
	for i := range e.states {
		if s := &e.states[i]; good[i] || s.cancelled || s.deleted {
			continue
		}
		if stuck++; stuck == 1 {
			r.Violation, r.Text = "I7", "from here the work cannot finish any more"
			e.tell(&r, uint32(i), step{})
		}
	}
	return stuck, r, nil
}

// backwards marks every state from which a finished one can be reached.
func (e *explorer) backwards(from, to []uint32) []bool {
	first := make([]uint32, len(e.states)+1)
	for _, k := range to {
		first[k+1]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	into := make([]uint32, len(to))
	fill := append([]uint32(nil), first...)
	for i, k := range to {
		into[fill[k]] = from[i]
		fill[k]++
	}
	good := make([]bool, len(e.states))
	var queue []uint32
	for i := range e.states {
		if e.states[i].st == Finished || e.states[i].done {
			good[i] = true
			queue = append(queue, uint32(i))
		}
	}
	for len(queue) > 0 {
		k := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range into[first[k]:first[k+1]] {
			if !good[p] {
				good[p] = true
				queue = append(queue, p)
			}
		}
	}
	return good
}
