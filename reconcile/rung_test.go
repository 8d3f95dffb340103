package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// taken is a history of attempts on platforms that were taken away, each judged by its goodput.
func taken(retries int, on []string, judged func(i int) *record.Verdict, change func(i int, a *Attempt)) Facts {
	f := Facts{Work: "w", Name: "a", Job: &plan.Job{Name: "a", Work: "w", On: []string{"spot", "next"}, Limits: plan.Limits{Retries: retries}},
		Lease: Lease{State: witness.Revoked, Attempt: int64(len(on)), Dispatch: int64(len(on))}, Rungs: []Rung{{Platform: "spot"}, {Platform: "next"}}}
	for i, p := range on {
		n := int64(i + 1)
		a := Attempt{N: n, Dispatch: n, Platform: p, Off: true, Judged: judged(i)}
		if change != nil {
			change(i, &a)
		}
		f.History.Attempts = append(f.History.Attempts, a)
		f.History.Dispatches = append(f.History.Dispatches, Dispatch{N: n, Platform: p, Answered: true, OK: true, Captured: true, Age: 30 * 24 * time.Hour, Window: time.Minute, Settled: "closed"})
	}
	f.History.Last = int64(len(on))
	return f
}

func repeat(name string, n int) []string {
	return strings.Split(strings.TrimSuffix(strings.Repeat(name+" ", n), " "), " ")
}

func TestSpotTakenFiveTimesAfterFiveMinutesIsLeft(t *testing.T) {
	poor := func(i int) *record.Verdict {
		return &record.Verdict{Attempt: int64(i + 1), Known: true, Spent: i > 0, Why: "0.00 of its usual share", Platform: "spot"}
	}
	f := taken(5, repeat("spot", 5), poor, nil)
	a := Decide(f)
	if a.Kind != Launch || a.Platform != "next" {
		t.Errorf("%s on %q: %s; want the next rung", a.Kind, a.Platform, a.Reason)
	}
	if n := Spent(f.History, account(f.History)); n != 4 {
		t.Errorf("%d retries spent, want 4", n)
	}
	f.Job.Limits.Retries = 3
	if a := Decide(f); a.Kind != Fail {
		t.Errorf("with 3 retries: %s, want the end", a.Kind)
	}
}

// D5: three times in less than ten minutes. No counter of preemptions takes part: the account of the attempts does.
func TestAPlatformThatPreemptsEarlyIsLeftWithoutACounter(t *testing.T) {
	early := func(i int) *record.Verdict { return &record.Verdict{Attempt: int64(i + 1), Known: true, Spent: i > 0} }
	f := taken(5, repeat("spot", 3), early, func(_ int, a *Attempt) { a.Gained = true }) // it kept something each time: too little
	if a := Decide(f); a.Kind != Launch || a.Platform != "next" {
		t.Errorf("%s on %q, want a launch on next", a.Kind, a.Platform)
	}
	usual := func(i int) *record.Verdict { return &record.Verdict{Attempt: int64(i + 1), Known: true} }
	f = taken(5, repeat("spot", 3), usual, nil) // whether the pointer moved says nothing where goodput is known
	if a := Decide(f); a.Kind != Launch || a.Platform != "spot" {
		t.Errorf("%s on %q: attempts that committed their usual share leave nothing", a.Kind, a.Platform)
	}
}

func TestUserCodeNeverWalksDownTheLadder(t *testing.T) {
	f := taken(5, repeat("spot", 4), func(int) *record.Verdict { return nil }, func(i int, a *Attempt) {
		a.Off, a.End, a.Step, a.Error = false, string(runners.UserCode), int64(i), "boom"
	})
	if a := Decide(f); a.Kind != Launch || a.Platform != "spot" {
		t.Errorf("%s on %q, want the same rung", a.Kind, a.Platform)
	}
}

// Behind the last rung the work waits for the least spent one, and does not fail while retries remain.
func TestBehindTheLastRungItWaits(t *testing.T) {
	poor := func(i int) *record.Verdict { return &record.Verdict{Attempt: int64(i + 1), Known: true, Spent: true} }
	f := taken(5, []string{"spot", "next"}, poor, nil)
	for i := range f.Rungs {
		f.Rungs[i].Parked, f.Rungs[i].Why = time.Duration(2-i)*time.Hour, "the platform had no room"
	}
	if a := Decide(f); a.Kind != Wait || a.Until != time.Hour {
		t.Errorf("%s for %s, want to wait for the first that is there: %s", a.Kind, a.Until, a.Reason)
	}
	f.Rungs[0].Parked, f.Rungs[1].Parked = 0, 0
	if a := Decide(f); a.Kind != Launch || a.Platform != "spot" {
		t.Errorf("%s on %q, want to begin at the first rung again", a.Kind, a.Platform)
	}
}

func TestAParkIsAPromiseOrAGuess(t *testing.T) {
	for _, c := range []struct {
		park park
		rest time.Duration
		want time.Duration
	}{
		{park{Series: 1, Class: string(runners.QuotaExhausted), ParkS: 84 * 3600}, 80 * time.Hour, 0},
		{park{Series: 1, Class: string(runners.NoSlots), ParkS: 15}, 5 * time.Second, 10 * time.Second},
		{park{Series: 3, Class: string(runners.NoSlots), ParkS: 60}, time.Minute, 45 * time.Second},
		{park{Series: 3, Class: string(runners.QuotaExhausted), ParkS: 60}, time.Minute, 45 * time.Second},
		{park{Series: 500, Class: string(runners.NoSlots), ParkS: 900}, 15 * time.Minute, 123*time.Hour + 30*time.Minute + 45*time.Second},
	} {
		if got := c.park.guessed(c.rest); got != c.want {
			t.Errorf("%+v with %s left: parked in vain for %s, want %s", c.park, c.rest, got, c.want)
		}
	}
	if got := (park{Series: 1 << 40, Class: string(runners.NoSlots), ParkS: 900}).guessed(0); got > 40*24*time.Hour || got < 30*24*time.Hour {
		t.Errorf("an absurd series gives %s, want about a month", got)
	}
}

// Where a job goes is said rung by rung, and the sentence of the decision holds no number that passes: it is said once.
func TestADecisionSaysWhyNotOnTheRungsAbove(t *testing.T) {
	f := taken(5, nil, nil, nil)
	f.History, f.Lease = History{}, Lease{State: leaseAbsent}
	f.Rungs = []Rung{{Platform: "kaggle", Parked: 3*time.Hour + 12*time.Minute, Why: "the weekly quota is used up"}, {Platform: "vast", Price: &record.Price{PerHour: 0.45, Unit: "USD"}}}
	a := Decide(f)
	if a.Kind != Launch || a.Platform != "vast" || a.Reason != "first launch; not on kaggle: parked: the weekly quota is used up" {
		t.Errorf("%s on %s: %s", a.Kind, a.Platform, a.Reason)
	}
	want := "kaggle: parked 3 h 12 min: the weekly quota is used up; not waited for, since the work that is left is not known; vast: would wait 0 s, costs 0.45 USD/h"
	if got := ladder.Text(a.Rungs); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.Rungs[0].Parked -= time.Minute
	if b := Decide(f); b.Reason != a.Reason {
		t.Errorf("a minute later it says %q, before %q", b.Reason, a.Reason)
	}
	f.Rungs[1].Parked, f.Rungs[1].Why = time.Minute, "no slots"
	for i := range 3 {
		f.Rungs[1].Parked += time.Duration(i) * time.Second
		if b := Decide(f); b.Kind != Wait || b.Reason != fmt.Sprintf("no platform can take it now: kaggle: parked: %s; vast: parked: no slots", f.Rungs[0].Why) {
			t.Errorf("%s: %s", b.Kind, b.Reason)
		}
	}
}
