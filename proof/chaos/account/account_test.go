package account_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/proof/chaos/account"
	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var work = strings.Repeat("ab", 32)

// story is a work of 40 steps with a milestone every 10, whose first attempt was killed at step 17: it is told so that
// tests can spoil a sentence of it.
type story struct {
	leases []witness.Record
	work   account.Work
	acked  time.Duration // when all versions of the lease were written
	sent   []int64       // milestones of attempt 1 of which something went to the store
}

func pointer(attempt, milestone, step int64) *record.Pointer {
	return &record.Pointer{Attempt: attempt, Milestone: milestone, Step: step, Manifest: record.MilestoneManifestKey(work, attempt, milestone), SHA256: strings.Repeat("c", 64)}
}

func trace(from, to int64) []byte {
	var b []byte
	for n := from; n <= to; n++ {
		b = fmt.Appendf(b, "%d\n", n)
	}
	return b
}

func told() *story {
	held := func(attempt int64, resume *record.Pointer) witness.Record {
		return witness.Record{State: witness.Held, Attempt: attempt, Dispatch: attempt, Holder: strings.Repeat(fmt.Sprint(attempt), 32), Lease: witness.Lease{Seconds: 15}, Resume: resume}
	}
	gone := held(1, pointer(1, 1, 10))
	gone.State, gone.Holder = witness.Revoked, ""
	done := held(2, pointer(2, 1, 30))
	done.State, done.Holder = witness.Finished, ""
	done.Finished = &witness.FinishedPointer{Attempt: 2, Manifest: record.ResultManifestKey(work, 2), SHA256: strings.Repeat("d", 64)}
	return &story{
		leases: []witness.Record{held(1, nil), held(1, pointer(1, 1, 10)), gone, held(2, pointer(1, 1, 10)), held(2, pointer(2, 1, 30)), done},
		work: account.Work{Job: "job", Work: work, Steps: 40, Trace: map[int64][]byte{1: trace(1, 17), 2: trace(11, 40)},
			Opens: map[int64]record.Open{1: {Attempt: 1}, 2: {Attempt: 2, Resume: pointer(1, 1, 10)}},
			Every: 10, Staged: map[int64][]byte{1: []byte("10\n"), 2: []byte("20\n30\n")}, Ends: map[int64]time.Duration{1: time.Minute, 2: 2 * time.Minute}},
	}
}

func (s *story) of(t *testing.T) (account.Sum, []string) {
	t.Helper()
	var entries []history.Entry
	for i, r := range s.leases {
		r.Protocol, r.Work, r.Rev, r.Write = 1, work, int64(i+1), fmt.Sprintf("%032x", i+1)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := witness.Decode(work, b); err != nil {
			t.Fatalf("version %d of the story: %v", i+1, err)
		}
		entries = append(entries, history.Entry{At: s.acked, Op: history.Put, Key: record.WitnessKey(work), Body: b},
			history.Entry{Op: history.Put, Key: record.WitnessKey(work), Body: []byte("nobody took this"), Refused: true})
	}
	for _, n := range s.sent {
		entries = append(entries, history.Entry{Op: history.Put, Key: record.MilestoneManifestKey(work, 1, n)},
			history.Entry{Op: history.Put, Key: record.MilestoneManifestKey(strings.Repeat("e", 64), 1, n+1)})
	}
	return account.Of(s.work, entries)
}

// A milestone of which nothing was ever sent, though a newer one went up, gave way: it is not on its way. What is newer
// than all that was sent still waits.
func TestWhatGaveWayIsNotOnItsWay(t *testing.T) {
	s := told()
	s.work.Trace[1], s.work.Staged[1] = trace(1, 38), []byte("10\n15\n20\n25\n30\n35\n")
	s.sent = []int64{1, 3, 5}
	sum, broken := s.of(t)
	if len(broken) > 0 || sum.Waiting != 3 || sum.Gave != 2 || sum.Cost != 28 {
		t.Errorf("%+v, %q", sum, broken)
	}
	s.sent = []int64{1, 2, 3, 5} // the second was sent, and never named
	if _, broken := s.of(t); !strings.Contains(strings.Join(broken, "\n"), "handed over 4 milestones that the lease does not name") {
		t.Errorf("got %q", broken)
	}
}

func TestSum(t *testing.T) {
	got, broken := told().of(t)
	if diff := cmp.Diff(account.Sum{Attempts: 2, Milestones: 2, Trained: 47, Repeated: 7, Largest: 7, Reached: 1, Cost: 7}, got); diff != "" || len(broken) > 0 {
		t.Errorf("(-want +got):\n%s%q", diff, broken)
	}
	s := account.Sum{Attempts: 1, Largest: 9, Waiting: 2, Cost: 3}
	s.Add(got)
	if diff := cmp.Diff(account.Sum{Attempts: 3, Milestones: 2, Trained: 47, Repeated: 7, Largest: 9, Reached: 1, Cost: 7, Waiting: 2}, s); diff != "" {
		t.Errorf("added up (-want +got):\n%s", diff)
	}
}

// Whatever breaks the promise is said.
func TestEachBrokenPromiseIsNamed(t *testing.T) {
	for want, spoil := range map[string]func(s *story){
		"attempt 2 took the lease with the pointer at nothing, but step 10": func(s *story) { s.leases[3].Resume = nil },
		"attempt 2 says that it starts from nothing, but step 10":           func(s *story) { s.work.Opens[2] = record.Open{Attempt: 2} },
		"the pointer went back from step 10":                                func(s *story) { s.leases[4].Resume = pointer(2, 1, 5) },
		"it is not finished: held at attempt 2":                             func(s *story) { s.leases = s.leases[:5] },
		"its program did step 1 after step 10":                              func(s *story) { s.work.Trace[2] = trace(1, 40) },
		"its program did step 14 after step 12":                             func(s *story) { s.work.Trace[2] = append(trace(11, 12), trace(14, 40)...) },
		"39 of its 40 steps were trained":                                   func(s *story) { s.work.Trace[2] = trace(11, 39) },
		"attempt 3 trained, and never took the lease":                       func(s *story) { s.work.Trace[3] = trace(11, 12) },
		"the end of attempt 1 at step 32 cost 22 steps: with 1 milestones on their way, 0 that gave way and one every 10 steps it may cost 20": func(s *story) {
			s.work.Trace[1], s.work.Staged[1] = trace(1, 32), []byte("10\n20\n")
		},
		"handed over 4 milestones that the lease does not name": func(s *story) { s.work.Staged[1] = []byte("10\n11\n12\n13\n14\n") },
		`a line of its trace is "x"`:                            func(s *story) { s.work.Trace[2] = []byte("x\n") },
	} {
		t.Run(want, func(t *testing.T) {
			s := told()
			spoil(s)
			_, broken := s.of(t)
			if !strings.Contains(strings.Join(broken, "\n"), want) {
				t.Errorf("got %q", broken)
			}
		})
	}
}

// What a fault kept from the store is no breach, however much it cost; a fault that was over long before, or met another
// dispatch, is no excuse.
func TestWhoWasCutOffFromTheStore(t *testing.T) {
	acked := 10 * time.Second // the first attempt's only milestone; its program ended at a minute
	for _, c := range []struct {
		dispatch int64
		cut      account.Span
		excused  bool
	}{
		{1, account.Span{From: 20 * time.Second, To: 30 * time.Second}, true},
		{0, account.Span{From: 20 * time.Second, To: 30 * time.Second}, true},
		{1, account.Span{From: time.Second, To: 6 * time.Second}, true}, // its effect lasts on
		{1, account.Span{From: time.Minute, To: 2 * time.Minute}, true},
		{2, account.Span{From: 20 * time.Second, To: 30 * time.Second}, false},
		{1, account.Span{From: 61 * time.Second, To: 2 * time.Minute}, false},
		{1, account.Span{From: -10 * time.Second, To: -time.Second}, false},
	} {
		s := told()
		s.acked = acked
		s.work.Trace[1] = trace(1, 35)
		s.work.Cut = map[int64][]account.Span{c.dispatch: {c.cut}}
		sum, broken := s.of(t)
		if (len(broken) == 0) != c.excused || (sum.Reached == 0) != c.excused || sum.Largest != 25 {
			t.Errorf("%+v: %+v, %q", c, sum, broken)
		}
	}
}
