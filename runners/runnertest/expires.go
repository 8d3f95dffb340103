package runnertest

import (
	"testing"
	"time"
)

// A launch ends at the bound that it carries though nobody ever asks for that, also where its worker has been forgotten; what carries
// none stays. Who comes back later hears that it is over.
func expires(t *testing.T, s *suite) {
	if !s.Expires {
		return
	}
	short, free := s.launch(work(1), 1), s.launch(work(2), 1)
	short.Within = 2 * time.Second
	s.start(t, s.Runner, short)
	s.start(t, s.Runner, free)
	s.runs(t, is(work(2), 1))
	s.agrees(t, s.Runner)
	s.closed(t, s.Runner, work(1), 1)
	s.start(t, s.Runner, s.launch(work(3), 1)) // its place is free
	s.runs(t, is(work(2), 1), is(work(3), 1))
}
