package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

// TestEventsOf: what is worth a message, and under which key: the same for every dispatcher, another for another event.
func TestEventsOf(t *testing.T) {
	r := &reconcile.Report{
		States: map[plan.Digest]reconcile.Standing{
			"w1": {State: plan.StateFailed, Final: reconcile.Fail, Job: "a", Attempt: 2, Dispatch: 5},
			"w2": {State: plan.StateFinished, Attempt: 1, Dispatch: 3}, "w3": {State: plan.StateAbsent, Final: reconcile.Blocked},
			"w4": {State: plan.StateHeld}, "w5": {State: plan.StateClaimed}, "w6": {State: plan.StateAbsent},
		},
		Platforms: []reconcile.PlatformState{
			{Name: "well"}, {Name: "full", Parked: time.Minute, Class: "no_slots", Series: 500, Spell: "s"}, {Name: "odd", Closed: true, Series: 1, Spell: "s"},
			{Name: "worse", Closed: true, Series: 4, Spell: "u"}, // told of as away before, by its spell: this is news
			{Name: "used-up", Parked: time.Hour, Class: "quota_exhausted", Series: 1, Spell: "q"}, {Name: "once", Parked: time.Minute, Class: "unreachable", Series: 1, Spell: "u"},
			{Name: "away", Parked: time.Minute, Class: "unreachable", Series: 3, Spell: "u"}, {Name: "back", Class: "unreachable", Series: 3, Spell: "u"},
		},
		Orphans: []reconcile.Orphan{{Platform: "p", Work: "w9", Dispatch: 4, Text: "i-1", End: "headway release w9 --dispatch 4"}},
	}
	var got []string
	for _, e := range eventsOf(r, nil) {
		got = append(got, e.What+" "+e.Key)
		if e.What == "orphan" && !strings.Contains(e.Reason, "headway release w9 --dispatch 4") {
			t.Errorf("an orphan's message does not say how to end it: %s", e.Reason)
		}
	}
	slices.Sort(got)
	want := []string{"blocked w3/0/0", "failed w1/2/5", "finished w2/1", "orphan p/w9/4/i-1", "parked away/u", "parked odd/s", "parked used-up/q", "parked worse/u/closed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsFresh: what a pass launched, or saw of a work that it accepted itself, is no older than the pass; the rest is.
func TestWhatIsFresh(t *testing.T) {
	stuck := reconcile.Standing{State: plan.StateAbsent, Final: reconcile.Blocked}
	gone := reconcile.Standing{State: plan.StateFailed, Final: reconcile.Fail, Attempt: 1, Dispatch: 1}
	r := &reconcile.Report{
		States:    map[plan.Digest]reconcile.Standing{"stuck-new": stuck, "stuck-old": stuck, "refused": gone, "failed-old": gone},
		Platforms: []reconcile.PlatformState{{Name: "p", Closed: true, Spell: "s"}, {Name: "q", Closed: true, Spell: "s"}},
		Actions:   []reconcile.Action{{Kind: reconcile.Launch, Work: "refused", Platform: "p", Err: errors.New("no")}, {Kind: reconcile.Launch, Work: "failed-old", Platform: "q"}},
	}
	before := &plan.Accepted{Jobs: []plan.AcceptedJob{{Work: "stuck-old"}, {Work: "failed-old"}}}
	var got []string
	for _, e := range eventsOf(r, before) {
		if e.Fresh {
			got = append(got, e.Key)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"p/s", "refused/1/1", "stuck-new/0/0"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestAPlaceThatCannotBeUsedIsSaid, once for each variable, and never its value.
func TestAPlaceThatCannotBeUsedIsSaid(t *testing.T) {
	var out bytes.Buffer
	e := env{stderr: &out, hidden: &hidden{}, getenv: func(name string) string {
		return map[string]string{"PLAIN": "http://example.com/verysecretkey", "GOOD": "https://example.com/verysecretkey"}[name]
	}}
	rules := []plan.Notify{{Secret: "UNSET"}, {Secret: "UNSET", Form: "slack"}, {Secret: "PLAIN"}, {Secret: "GOOD"}}
	for _, unset := range []bool{true, false} {
		out.Reset()
		warnOfPlaces(e, rules, unset)
		s := out.String()
		if strings.Contains(s, "verysecretkey") || strings.Contains(s, "GOOD") || !strings.Contains(s, "warning: notify: the URL in PLAIN is neither https nor on this machine") ||
			strings.Count(s, "the variable UNSET is not set") != map[bool]int{true: 1}[unset] {
			t.Errorf("%v: %s", unset, s)
		}
	}
}
