package reconcile

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

// Two failures are alike where only numbers differ: sizes, process ids, addresses. Words count.
func TestAlike(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"Tried to allocate 20.00 MiB. GPU 0 has 14.74 GiB", "Tried to allocate 1024 MiB. GPU 7 has 79.1 GiB", true},
		{"fault at 0x7f3a00beef in pid 12", "fault at 0x0 in pid 99999", true},
		{"loss is nan", "loss is inf", false},
		{"no module x", "no module y", false},
		{"exit 1.", "exit 22.", true},
		{"abc", "abd", false},
		{"", "", true},
		{"7", "", false},
		{"0x", "0", true},
	} {
		if got := alike(c.a) == alike(c.b); got != c.same {
			t.Errorf("%q and %q: %v (%q, %q)", c.a, c.b, got, alike(c.a), alike(c.b))
		}
	}
}

// A policy follows from an attempt that failed, and from no other: not from one that runs, finished, left when it was asked
// to, or was stopped on purpose. Where a hang may be behind the line the platform is left, and the job goes on.
func TestWhatAPolicyFollowsFrom(t *testing.T) {
	matched := func(then, end string) History {
		return History{Attempts: []Attempt{{N: 3, Platform: "here", End: end, Policy: record.Match{Policy: record.Policy{Log: "x+", Then: then}, Line: "axx"}}}}
	}
	var stops, leaves []string
	for _, r := range budget {
		if stopped(matched(record.ThenStop, r.Class)) != "" {
			stops = append(stops, r.Class)
		}
		if len(excluded(matched(record.ThenExclude, r.Class))) > 0 {
			leaves = append(leaves, r.Class)
		}
		if stopped(matched(record.ThenExclude, r.Class)) != "" || len(excluded(matched(record.ThenStop, r.Class))) > 0 || stopped(matched("a word of tomorrow", r.Class)) != "" {
			t.Errorf("%s: one word does what another does", r.Class)
		}
	}
	if d := cmp.Diff([]string{"user_code", "no_result", "out_of_memory", "snapshot_unreadable", "retryable"}, stops); d != "" {
		t.Error(d)
	}
	for _, no := range []string{"finished", "yielded", "revoked", "nothing_to_do", "store", "store_refused", "moved", "no_slots", "unreachable"} {
		if slices.Contains(leaves, no) {
			t.Errorf("%s leaves the platform", no)
		}
	}
	for _, yes := range append(stops, "silent", "deposed", "no_step", "internal") {
		if !slices.Contains(leaves, yes) {
			t.Errorf("%s does not leave the platform", yes)
		}
	}
	live := matched(record.ThenStop, "user_code")
	live.Attempts[0].Live = true
	if why := stopped(live); why != "" {
		t.Error(why)
	}
	if d := cmp.Diff([]string{"here"}, slices.Collect(maps.Keys(excluded(matched(record.ThenExclude, "user_code"))))); d != "" {
		t.Error(d)
	}
	h := matched(record.ThenExclude, "user_code")
	if nowhere([]string{"here", "there"}, h) != "" || !strings.Contains(nowhere([]string{"here"}, h), `printed "axx"`) || nowhere(nil, History{}) != "" {
		t.Error(nowhere([]string{"here"}, h))
	}
}

// What an end.json says of a policy is a stranger's text.
func TestAHostileMatch(t *testing.T) {
	m := matchOf(&record.End{Policy: &record.Match{Policy: record.Policy{Log: strings.Repeat("x", 1<<16), Then: "stop\x1b[2J"}, Line: "\x1b]0;evil\x07\r\n\u202e" + strings.Repeat("y", 1<<16)}})
	if len(m.Log) > 600 || len(m.Line) > 600 || strings.ContainsAny(m.Line+m.Then, "\x1b\x07\r\n\u202e") || m.Then == record.ThenStop {
		t.Errorf("%.100q", m)
	}
	if matchOf(&record.End{}) != (record.Match{}) {
		t.Error("a match of nothing")
	}
}

// Spot notices, each with a program that was killed because it did not leave (137): whatever it says in the end, however
// often and at whatever step, that is not the program's, spends nothing, and ends no job that has retries (cases/jobs.md, D14).
func TestASpotNoticeIsNotThePrograms(t *testing.T) {
	var h History
	for n := range int64(7) {
		h.Attempts = append(h.Attempts, Attempt{N: n + 1, Dispatch: n + 1, Platform: "spot", End: "yielded", Exit: 137, Error: "Killed", Step: 40, Stepped: 40, From: 40})
	}
	charges := account(h)
	for _, c := range charges {
		if c.Spent || c.Class != "yielded" || c.Why == "" {
			t.Errorf("%+v", c)
		}
	}
	if why := failed(h, charges, 1); why != "" || len(charges) != 7 {
		t.Errorf("%d charges; %s", len(charges), why)
	}
}
