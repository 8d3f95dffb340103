package runnertest

import (
	"slices"
	"testing"

	"github.com/headway-run/headway/runners"
)

// One worker of a launch cannot be started, after the others were: they are ended, each job has the same failure, and
// the place is free again.
func oneFails(t *testing.T, s *suite) {
	n := s.Runner.Capacity()
	if s.Fails == nil || n < 2 {
		return
	}
	for i := range s.Slots - 1 {
		s.start(t, s.Runner, s.launch(work(i), 1))
	}
	before := s.Truth()
	orders := s.launches(100, n)
	s.Fails(&orders[n-1])
	out := s.d.Launch(t.Context(), s.Runner, orders)
	for _, o := range out {
		s.failure(t, o.Err)
		if runners.ClassOf(o.Err) != runners.ClassOf(out[0].Err) || o.Receipt == nil || o.Receipt.OK {
			t.Errorf("one failure for all of a launch: %v, receipt %+v", o.Err, o.Receipt)
		}
	}
	s.runs(t, before...)
	s.agrees(t, s.Runner)
	s.start(t, s.Runner, s.launches(200, n)...)
	s.apart(t)
}

// Each worker has cards that no other worker has, whoever launched it; those of a launch that still has a job are nobody
// else's, and a job that needs several has as many.
func cards(t *testing.T, s *suite) {
	n := s.Runner.Capacity()
	if s.Cards == nil || n < 2 {
		return
	}
	whole := s.launch(work(0), 1)
	whole.Cards = n
	s.start(t, s.Runner, whole)
	if got := s.apart(t)[is(whole.Work, 1)]; len(got) != n {
		t.Errorf("a job on %d cards was given %v", n, got)
	}
	first := s.launches(10, n)
	s.start(t, s.Runner, first...)
	theirs := s.apart(t)
	other := s.Runner
	if s.Reopen != nil {
		other = s.Reopen()
	}
	s.closed(t, other, first[0].Work, 1) // its card is free, and not for another launch
	s.start(t, other, s.launches(20, n)...)
	for who, now := range s.apart(t) {
		for _, c := range theirs[is(first[0].Work, 1)] {
			if slices.Contains(now, c) {
				t.Errorf("card %s of a launch that still has jobs was given to %s", c, who)
			}
		}
	}
	for _, o := range first[1:] {
		s.closed(t, other, o.Work, 1)
	}
	s.start(t, other, s.launches(30, n)...)
	s.apart(t)
	s.closed(t, other, whole.Work, 1)
	more := s.launch(work(40), 1)
	more.Cards = n + 1
	out := s.d.Launch(t.Context(), s.Runner, []runners.Launch{more})
	s.failure(t, out[0].Err, runners.Rejected)
	s.apart(t)
}

// apart expects that no card is two workers', and returns who has which.
func (s *suite) apart(t *testing.T) map[string][]string {
	t.Helper()
	if s.Cards == nil {
		return nil
	}
	got, owner := s.Cards(), map[string]string{}
	for who, cards := range got {
		if len(cards) == 0 {
			t.Errorf("%s has no card", who)
		}
		for _, c := range cards {
			if owner[c] != "" {
				t.Fatalf("card %s is used by %s and by %s", c, owner[c], who)
			}
			owner[c] = who
		}
	}
	return got
}
