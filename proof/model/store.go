package model

// store is a World without bounds: what a follower knows of a real store.
type store struct {
	lease  Lease
	claims map[int32]bool
	last   int32
	took   map[[2]int32]bool // identity, attempt; and identity, 0
	opened map[int32]int32
	stored map[Point]Part
}

var _ World = (*store)(nil)

func newStore() *store {
	return &store{claims: map[int32]bool{}, took: map[[2]int32]bool{}, opened: map[int32]int32{}, stored: map[Point]Part{}}
}

func (s *store) Lease() Lease                { return s.lease }
func (s *store) Claims() int32               { return s.last }
func (s *store) Claimed(n int32) bool        { return s.claims[n] }
func (s *store) Took(by, attempt int32) bool { return s.took[[2]int32{by, attempt}] }
func (s *store) Opened(attempt int32) int32  { return s.opened[attempt] }
func (s *store) Stored(p Point) Part         { return s.stored[p] }
func (s *store) SetOpened(attempt, by int32) { s.opened[attempt] = by }
func (s *store) SetStored(p Point, t Part, _ Move) {
	if s.stored[p].Complete && !t.Complete {
		return // a file that arrives again
	}
	s.stored[p] = t
}

func (s *store) SetClaim(n int32) {
	s.claims[n] = true
	s.last = max(s.last, n)
}

func (s *store) SetLease(l Lease, m Move) {
	s.lease = l
	if m.Kind == Create || m.Kind == Capture {
		s.took[[2]int32{m.By, l.Attempt}], s.took[[2]int32{m.By, 0}] = true, true
	}
}
