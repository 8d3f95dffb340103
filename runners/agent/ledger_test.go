package agent

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
)

const sec = time.Second

// at is a ledger with its clock.
type at struct {
	ledger
	now time.Time
}

func ledgerFor(t record.Terms) *at {
	now := time.Unix(1000, 0)
	return &at{newLedger(t, now), now}
}

func (a *at) after(d time.Duration) time.Time { a.now = a.now.Add(d); return a.now }

func (a *at) step(d time.Duration) { a.stepped(a.after(d), 1, outlay{}) }

// One attempt with a bit of everything: each second is in exactly one of the sums, or was spent at the agent's counter.
func TestEverySecondIsBookedOnce(t *testing.T) {
	a := ledgerFor(record.Terms{FLOPsPerStep: 3})
	a.after(30 * sec) // fetching, starting
	a.greet(a.now)
	a.step(40 * sec) // compiles
	a.step(25 * sec) // and again
	for range 10 {
		a.step(2 * sec)
	}
	a.turn(a.after(sec), inEval) // half of a step
	a.turn(a.after(7*sec), inStep)
	a.step(sec)
	a.stepped(a.after(5*sec), 1, outlay{wait: 2 * sec, save: sec})
	a.skip(a.after(9 * sec)) // waited for the store
	a.saving(a.after(3 * sec))
	a.saved(a.after(4 * sec))
	a.step(2 * sec)
	got := a.sums(a.after(sec)) // of a step that has not ended
	want := &record.Sums{Steps: 15, Work: 45, WarmS: 95, StepS: 26, WaitS: 2, SaveS: 8, EvalS: 7, Wait: record.WaitSplit, Median: 2,
		Ratios: record.Histogram{Done: map[int]int64{8: 13}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
}

// The steps of warm-up are none of the ratios', however many there are; their work counts.
func TestWarmUpIsNoStep(t *testing.T) {
	a := ledgerFor(record.Terms{FLOPsPerStep: 1})
	if s := a.sums(a.after(5 * sec)); s.WarmS != 5 || s.Steps != 0 || s.Median != 0 {
		t.Errorf("before the first step: %+v", s)
	}
	for _, d := range []time.Duration{300 * sec, 90 * sec, 20 * sec, sec, sec, sec, sec, sec, 3 * sec} {
		a.step(d)
	}
	s := a.sums(a.now)
	if s.WarmS != 415 || s.StepS != 8 || s.Steps != 9 || s.Work != 9 {
		t.Errorf("%+v", s)
	}
	if d := cmp.Diff(map[int]int64{8: 5, record.BinOf(3): 1}, s.Ratios.Done); d != "" {
		t.Error(d)
	}
	for range warmUp {
		a.step(sec)
	}
	a.step(sec / 4) // so late it is a fast step, and no dawn
	if s := a.sums(a.now); s.WarmS != 415 {
		t.Errorf("warm-up of %v s, want 415", s.WarmS)
	}
}

// A line that stands for many short steps does not thin out a hang among them, and a few ordinary ones are no hang.
func TestAHangAmongShortSteps(t *testing.T) {
	a := ledgerFor(record.Terms{})
	a.step(sec)
	for range 20 {
		a.stepped(a.after(together+20*time.Millisecond), 13, outlay{}) // 20.8 ms each
	}
	a.stepped(a.after(10*sec), 9, outlay{}) // the last of these hung
	s := a.sums(a.now)
	median := (together + 20*time.Millisecond).Seconds() / 13
	want := map[int]int64{8: 20 * 13, record.BinOf(0.25 / 8 / median): 8, record.BinOf(9.75 / median): 1}
	if d := cmp.Diff(want, s.Ratios.Done); d != "" {
		t.Error(d)
	}
}

// The step during which the lease was lost is counted where it had come to; a declared phase is no step, and nothing is
// booked behind the end.
func TestTheLastStepIsCutOff(t *testing.T) {
	for _, c := range []struct {
		name string
		mode mode
		want map[int]int64
	}{{"in a step", inStep, map[int]int64{record.BinOf(40): 1}}, {"in a phase", inEval, nil}} {
		a := ledgerFor(record.Terms{})
		for range 12 {
			a.step(sec)
		}
		a.turn(a.now, c.mode)
		a.lost(a.after(40 * sec))
		before := a.sums(a.now)
		a.step(sec)
		a.lost(a.after(sec))
		a.saving(a.after(sec))
		if d := cmp.Diff(c.want, before.Ratios.Censored); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if d := cmp.Diff(before, a.sums(a.after(sec))); d != "" {
			t.Errorf("%s, booked behind the end: %s", c.name, d)
		}
	}
}

// A second program of the same attempt compiles anew: that is no steady step.
func TestASecondLoopStartsCold(t *testing.T) {
	a := ledgerFor(record.Terms{})
	a.greet(a.now)
	for range 10 {
		a.step(sec)
	}
	a.greet(a.after(50 * sec))
	a.step(60 * sec)
	a.step(sec)
	if s := a.sums(a.now); s.StepS != 10 || s.Steps != 12 || s.WarmS != 1 {
		t.Errorf("%+v", s)
	}
}

// In watch mode a file stands for the steps that its name says; of single steps nothing is known.
func TestWatchedStepsHaveNoRatios(t *testing.T) {
	a := ledgerFor(record.Terms{WatchPath: "*.pt", FLOPsPerStep: 2})
	for range 4 {
		a.stepped(a.after(600*sec), 100, outlay{})
		a.skip(a.now)
	}
	want := &record.Sums{Steps: 400, Work: 800, WarmS: 600, StepS: 1800, Wait: record.WaitMerged}
	if d := cmp.Diff(want, a.sums(a.now)); d != "" {
		t.Error(d)
	}
}

// Whatever a program and its terms say, the account is one that Check accepts, no second is booked twice, and JSON takes it.
func TestAnyAccountIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flops := rapid.SampledFrom([]float64{0, 1, 2e13, math.Inf(1), math.MaxFloat64, -1, math.NaN()}).Draw(t, "flops")
		a := ledgerFor(record.Terms{FLOPsPerStep: flops})
		began := a.now
		times := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "ns")) })
		for range rapid.IntRange(0, 120).Draw(t, "events") {
			now := a.after(times.Draw(t, "passed"))
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1, 2:
				a.stepped(now, rapid.Int64Range(0, 1<<40).Draw(t, "n"), outlay{times.Draw(t, "wait"), times.Draw(t, "save"), times.Draw(t, "ago")})
			case 3:
				a.turn(now, mode(rapid.IntRange(0, 2).Draw(t, "mode")))
			case 4:
				a.saving(now)
				a.saved(a.after(times.Draw(t, "copied")))
			case 5:
				a.skip(now)
			case 6:
				a.greet(now)
			case 7:
				if rapid.IntRange(0, 20).Draw(t, "lost") == 0 {
					a.lost(now)
				}
			}
		}
		s := a.sums(a.now)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if all := s.StepS + s.WarmS + s.WaitS + s.SaveS + s.EvalS; all > a.now.Sub(began).Seconds()+1e-3 {
			t.Fatalf("%v s booked of %v: %+v", all, a.now.Sub(began), s)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAStepAllocatesNothing(t *testing.T) {
	d := newDesk(terms(), func(string, int64, string) {})
	d.closing = true // no write is due
	n := int64(0)
	if got := testing.AllocsPerRun(2000, func() { n++; d.stepped(n) }); got != 0 {
		t.Errorf("%v allocations a step, want none", got)
	}
}
