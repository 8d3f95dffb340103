package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func byName(t *testing.T, name string) named {
	t.Helper()
	for _, p := range policies() {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("no policy %q", name)
	return named{}
}

// Ours writes nobody off whose promise has not run out, and notices a death within the lease and one poll; only what the
// dispatcher could not read itself, and the grace and the brake after that, may add to it.
func TestOursOverAThousandTraces(t *testing.T) {
	p, s := byName(t, "ours"), usual()
	var sum total
	for seed := range uint64(1000) {
		sc := replay(draw(s, seed), p)
		sum.add(sc)
		if why := late(s, sc); why != "" {
			t.Errorf("seed %d: %s", seed, why)
		}
	}
	if len(sum.detect) < 500 || len(sum.blind) < 10 || sum.silent == 0 {
		t.Errorf("the traces are too kind: %d deaths in sight, %d beside blindness, %d workers cut off for a lease", len(sum.detect), len(sum.blind), sum.silent)
	}
	t.Logf("deaths in sight: %s; beside blindness: %s", spread(sum.detect), spread(sum.blind))
}

// Given the 19 hours of skypilot#10155: 25 questions without an answer, nothing else. Then ours, and whoever counts from
// the last answer, leave the worker alone; the clock that is never set back rebuilds it 24 times, as reported.
func TestTwentyFiveTimeouts(t *testing.T) {
	s := usual()
	s.cuts = 0
	got := map[string]int{}
	for _, p := range policies() {
		tr := draw(s, 1)
		for i := range tr.faults { // apart, so that each is a failure of its own
			tr.faults[i].at = time.Duration(i+1) * 40 * time.Minute
		}
		got[p.name] = replay(tr, p).unreachable
	}
	want := map[string]int{"60 s, clock never set back": 24, "60 s unreachable": 0, "2 min unreachable": 0, "15 min unreachable": 0, "ours": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("false write-offs (-want +got):\n%s", diff)
	}
}

// The table can tell: one who believes half of a promise, and one who looks once in an hour, are found out.
func TestWhoBreaksThePromiseIsFoundOut(t *testing.T) {
	s := usual()
	ours := byName(t, "ours")
	changed := func(change func(seen) (seen, time.Duration)) named {
		p := ours
		p.make = func() func() policy {
			attempt := ours.make()
			return func() policy {
				judge := attempt()
				return func(l seen) (bool, time.Duration) {
					l, next := change(l)
					off, usual := judge(l)
					return off, max(next, usual)
				}
			}
		}
		return p
	}
	hasty := changed(func(l seen) (seen, time.Duration) { l.promise /= 2; return l, 0 })
	found := map[string]int{}
	for seed := range uint64(20) {
		if strings.Contains(late(s, replay(draw(s, seed), hasty)), "had not run out") {
			found["hasty"]++
		}
		slow := s
		slow.poll = time.Hour
		sc := replay(draw(slow, seed), ours)
		if strings.Contains(late(s, sc), "later than") {
			found["slow"]++
		}
	}
	if found["hasty"] == 0 || found["slow"] == 0 {
		t.Errorf("not found out: %v", found)
	}
}

func TestOneSeedIsOneTrace(t *testing.T) {
	for _, p := range policies() {
		if a, b := replay(draw(usual(), 7), p), replay(draw(usual(), 7), p); a != b {
			t.Errorf("%s: %+v and %+v", p.name, a, b)
		}
	}
	var a, b strings.Builder
	if bad := printTable(&a, usual(), 3, 2); bad != "" {
		t.Error(bad)
	}
	printTable(&b, usual(), 3, 2)
	if diff := cmp.Diff(a.String(), b.String()); diff != "" {
		t.Error(diff)
	}
}
