// Package account adds up what a round's records say: attempts, milestones, what was trained and what was trained
// again. And it holds them against the promise that nothing is lost but the steps since the last milestone, in two figures.
// Always: the store has said yes to a milestone when a version of the lease that names it was written, and whoever takes
// the lease next starts from exactly there. And where the store was not out of an attempt's reach: the pointer is not
// far behind, see Most.
package account

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Work is one training of a round.
type Work struct {
	Job   string
	Work  string
	Steps int64                 // of the whole run
	Trace map[int64][]byte      // attempt → a line for each step that its program has finished
	Opens map[int64]record.Open // attempt → its open.json, as it is stored

	Every  int64                   // steps between milestones
	Staged map[int64][]byte        // attempt → a line for each milestone, by its step, that its agent has taken over
	Ends   map[int64]time.Duration // attempt → when its program noted its last step, in the history's time
	Cut    map[int64][]Span        // dispatch → when faults stood between its agent and the store; of 0: between all agents and the store
}

// Span is a time of the history.
type Span struct{ From, To time.Duration }

// Most is how many milestones of an attempt may be on their way, handed over and not yet named by the lease, when no fault
// stood between it and the store from the last acknowledged one to its end: one whose pointer is on its way, one that goes
// up, and one that waits for it. An older one that waits gives way, and is never sent: on a machine that uploads more
// slowly than the program makes milestones there are any number of these. With as many as there were of both, and the one
// under way in the program, each worth the steps between two milestones, such an end costs at most one interval more.
const Most = 3

// after is when what a fault has done to requests is over: pauses between tries grow no longer than the fault has lasted, nor
// than 5 s; and a second for the request itself.
func (f Span) after() time.Duration {
	return f.To + min(max(f.To-f.From, 0), 5*time.Second) + time.Second
}

// Sum is what the records of one or more rounds add up to.
type Sum struct {
	Attempts   int
	Milestones int   // acknowledged: the lease named them
	Trained    int64 // steps
	Repeated   int64 // steps that were trained before
	Largest    int64 // most steps that one end of an attempt has cost: trained beyond the last acknowledged pointer

	Reached int   // ends of attempts that no fault had kept from the store since their last acknowledged pointer
	Cost    int64 // most steps that one of these has cost
	Waiting int   // most milestones that one of these had on their way, see Most
	Gave    int   // milestones of all of these that gave way to newer ones since the last acknowledged pointer
}

// Add adds another sum.
func (s *Sum) Add(o Sum) {
	s.Attempts += o.Attempts
	s.Milestones += o.Milestones
	s.Trained += o.Trained
	s.Repeated += o.Repeated
	s.Largest = max(s.Largest, o.Largest)
	s.Reached += o.Reached
	s.Cost = max(s.Cost, o.Cost)
	s.Waiting = max(s.Waiting, o.Waiting)
	s.Gave += o.Gave
}

// Of adds up one work and returns a sentence for each thing that breaks the promise.
func Of(w Work, entries []history.Entry) (s Sum, broken []string) {
	fail := func(format string, args ...any) {
		broken = append(broken, w.Job+": "+fmt.Sprintf(format, args...))
	}
	starts, acks := map[int64]int64{}, map[int64]ack{} // starts: attempt → step it starts from
	up := sent{}
	last, found := witness.Record{}, false
	for _, e := range entries {
		up.note(w.Work, e)
		if e.Key != record.WitnessKey(w.Work) || !e.Applied() || e.Op != history.Put {
			continue
		}
		r, err := witness.Decode(w.Work, e.Body)
		if err != nil {
			fail("a version of the lease cannot be read: %v", err)
			return s, broken
		}
		switch {
		case r.Attempt != last.Attempt:
			starts[r.Attempt], acks[r.Attempt] = step(r.Resume), ack{e.At, r.Dispatch}
			if found && !same(r.Resume, last.Resume) {
				fail("attempt %d took the lease with the pointer at %s, but %s was acknowledged before", r.Attempt, place(r.Resume), place(last.Resume))
			}
			if o, opened := w.Opens[r.Attempt]; opened && !same(o.Resume, last.Resume) {
				fail("attempt %d says that it starts from %s, but %s was acknowledged before", r.Attempt, place(o.Resume), place(last.Resume))
			}
		case !same(r.Resume, last.Resume):
			s.Milestones++
			acks[r.Attempt] = ack{e.At, r.Dispatch}
			if step(r.Resume) < step(last.Resume) {
				fail("the pointer went back from %s to %s", place(last.Resume), place(r.Resume))
			}
		}
		last, found = r, true
	}
	if !found || last.State != witness.Finished {
		fail("it is not finished: %s at attempt %d", last.State, last.Attempt)
		return s, broken
	}
	s.Attempts = int(last.Attempt)
	done := map[int64]bool{}
	for _, n := range slices.Sorted(maps.Keys(w.Trace)) {
		from, taken := starts[n]
		if !taken {
			fail("attempt %d trained, and never took the lease", n)
			continue
		}
		at, err := read(w.Trace[n], from)
		if err != nil {
			fail("attempt %d: %v", n, err)
			continue
		}
		s.Trained += at - from
		for i := from + 1; i <= at; i++ {
			if done[i] {
				s.Repeated++
			}
			done[i] = true
		}
		if next, more := starts[n+1]; more {
			s.Largest = max(s.Largest, at-next)
			if why := s.reached(w, n, at, next, acks[n], up[n]); why != "" {
				fail("%s", why)
			}
		}
	}
	if int64(len(done)) != w.Steps {
		fail("%d of its %d steps were trained", len(done), w.Steps)
	}
	return s, broken
}

// ack is when the store took the last pointer of an attempt, or its capture, and of which dispatch that was.
type ack struct {
	at       time.Duration
	dispatch int64
}

// sent says of which milestones anything was sent to the store: attempt → their numbers.
type sent map[int64]map[int64]bool

// note notes what an entry sends, whatever came of it.
func (s sent) note(work string, e history.Entry) {
	k, ok := record.Parse(e.Key)
	if !ok || k.Work != work || e.Op != history.Put {
		return
	}
	rest, is := strings.CutPrefix(k.Rest, "milestone/")
	num, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(num, 10, 64)
	if !is || err != nil {
		return
	}
	if s[k.Attempt] == nil {
		s[k.Attempt] = map[int64]bool{}
	}
	s[k.Attempt][n] = true
}

// reached counts the end of an attempt at a step, where the store was within its reach, and says what is wrong with it.
func (s *Sum) reached(w Work, n, at, next int64, a ack, sent map[int64]bool) string {
	end, known := w.Ends[n]
	cut := func(f Span) bool { return f.From <= end && f.after() >= a.at }
	if !known || slices.ContainsFunc(w.Cut[0], cut) || slices.ContainsFunc(w.Cut[a.dispatch], cut) {
		return ""
	}
	waiting, gave, newest := 0, 0, slices.Max(append(slices.Collect(maps.Keys(sent)), 0))
	number := int64(0) // the agent numbers what it takes over from 1 on
	for line := range bytes.Lines(w.Staged[n]) {
		number++
		if step, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64); err != nil || step <= next {
			continue
		}
		if number < newest && !sent[number] {
			gave++
		} else {
			waiting++
		}
	}
	s.Reached++
	s.Cost = max(s.Cost, at-next)
	s.Waiting = max(s.Waiting, waiting)
	s.Gave += gave
	switch {
	case waiting > Most:
		return fmt.Sprintf("attempt %d had the store within reach, and handed over %d milestones that the lease does not name: at most %d may be on their way", n, waiting, Most)
	case at-next > w.Every*int64(1+waiting+gave):
		return fmt.Sprintf("the end of attempt %d at step %d cost %d steps: with %d milestones on their way, %d that gave way and one every %d steps it may cost %d", n, at, at-next, waiting, gave, w.Every, w.Every*int64(1+waiting+gave))
	}
	return ""
}

// read returns the last step of a trace, whose first one must follow on from. A line that was cut is a step that had not
// been noted.
func read(trace []byte, from int64) (at int64, err error) {
	at = from
	lines := bufio.NewScanner(bytes.NewReader(trace))
	for lines.Scan() {
		n, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			return at, fmt.Errorf("a line of its trace is %.40q", lines.Text())
		}
		if n != at+1 {
			return at, fmt.Errorf("its program did step %d after step %d", n, at)
		}
		at = n
	}
	return at, lines.Err()
}

func step(p *record.Pointer) int64 {
	if p == nil {
		return 0
	}
	return p.Step
}

func same(a, b *record.Pointer) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func place(p *record.Pointer) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("step %d (attempt %d, milestone %d)", p.Step, p.Attempt, p.Milestone)
}
