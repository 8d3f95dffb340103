package model

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// more is how to explore larger worlds: go test ./proof/model -run Bounds -bounds 3,2,1,1,cancel
var more = flag.String("bounds", "", "table of values: also explore attempts,milestones,duplicates,lost answers[,cancel][,delete][,live]")

func explored(t *testing.T, b Bounds, off Mutation) Result {
	t.Helper()
	began := time.Now()
	r, err := Explore(b, off)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d states, depth %d, %d steps taken, all of them seen: %v, in %.1f s", short(b), r.States, r.Depth, r.Edges, r.Complete, time.Since(began).Seconds())
	return r
}

func short(b Bounds) string {
	s := fmt.Sprintf("%d attempts, %d milestones, %d duplicates, %d lost answers", b.Attempts, b.Milestones, b.Dups, b.Lost)
	switch {
	case b.Cancel:
		s += ", an operator stops"
	case b.Delete:
		s += ", the witness is deleted"
	case b.Crash:
		s += ", crashes"
	}
	return s
}

func sound(t *testing.T, b Bounds) Result {
	t.Helper()
	r := explored(t, b, Whole)
	if r.Violation != "" || !r.Complete {
		t.Errorf("%s: %s\n%s", r.Violation, r.Text, strings.Join(r.Trace, "\n"))
	}
	return r
}

// TestNothingRemoved: no interleaving of the small worlds breaks an invariant, and every action takes place in one.
func TestNothingRemoved(t *testing.T) {
	taken := map[Kind]int{}
	for _, b := range []Bounds{
		{Attempts: 2, Milestones: 2, Dups: 1, Lost: 1},
		{Attempts: 2, Milestones: 2, Dups: 1, Lost: 1, Cancel: true},
		{Attempts: 2, Milestones: 1, Dups: 1, Lost: 1, Delete: true},
		{Attempts: 2, Milestones: 1, Dups: 1, Lost: 1, Crash: true},
	} {
		for k, n := range sound(t, b).Taken {
			taken[k] += n
		}
	}
	for _, k := range Kinds() {
		if taken[k] == 0 {
			t.Errorf("no explored world takes %s: it is in no proof", k)
		}
	}
}

// TestRemovals: the test of the test. Each protection that is removed breaks what it protects.
func TestRemovals(t *testing.T) {
	for _, m := range Removals() {
		t.Run(string(m.Off)+m.Bounds.Only, func(t *testing.T) {
			r := explored(t, m.Bounds, m.Off)
			if r.Violation != m.Breaks {
				t.Fatalf("broke %q, want %s", r.Violation, m.Breaks)
			}
			t.Logf("%s after %d steps: %s\n%s", r.Violation, len(r.Trace), r.Text, strings.Join(r.Trace, "\n"))
			for _, line := range r.Trace {
				if strings.Contains(line, "unknown") || strings.Contains(line, "Kind(") {
					t.Errorf("a step without words: %s", line)
				}
			}
		})
	}
}

// TestLeftAlone is I7: as long as nobody stops it, a work can finish from wherever it is.
func TestLeftAlone(t *testing.T) {
	for _, b := range []Bounds{{Attempts: 2, Milestones: 1, Dups: 1, Lost: 1}, {Attempts: 2, Milestones: 2, Lost: 1}, {Attempts: 2, Milestones: 1, Dups: 1, Lost: 1, Cancel: true}} {
		live(t, b)
	}
}

// TestNobodyJudgesSilence: without the renewal timer a crashed holder blocks its work for ever, and that is all that breaks.
func TestNobodyJudgesSilence(t *testing.T) {
	b := Bounds{Attempts: 2, Milestones: 1, Dups: 1, Lost: 1}
	n, r, err := Stuck(b, NoRenewTimer)
	if err != nil || n == 0 || r.Violation != "I7" || !strings.HasSuffix(strings.Join(r.Trace, "\n"), "crashes") {
		t.Fatalf("%d stuck, %s, %v\n%s", n, r.Violation, err, strings.Join(r.Trace, "\n"))
	}
	t.Logf("%d of %d states lead nowhere, the first after %d steps:\n%s", n, r.States, len(r.Trace), strings.Join(r.Trace, "\n"))
	b.Crash = true
	if r := explored(t, b, NoRenewTimer); r.Violation != "" {
		t.Error(r.Violation, r.Text)
	}
}

func live(t *testing.T, b Bounds) {
	t.Helper()
	n, r, err := Stuck(b, Whole)
	if err != nil || n > 0 {
		t.Errorf("%s: %d of %d states lead nowhere (%v)\n%s", short(b), n, r.States, err, strings.Join(r.Trace, "\n"))
	}
	t.Logf("%s: %d states, and from each that was not stopped the work can finish", short(b), r.States)
}

// TestSameTwice: an exploration repeats itself, trace and all.
func TestSameTwice(t *testing.T) {
	b := Bounds{Attempts: 2, Milestones: 1, Dups: 1, Lost: 1}
	first, err := Explore(b, BlindRetry)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Explore(b, BlindRetry)
	if diff := cmp.Diff(first, second); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestBoundsRefused(t *testing.T) {
	for _, b := range []Bounds{{}, {Attempts: 4, Milestones: 1}, {Attempts: 1, Milestones: 4}, {Attempts: 3, Milestones: 1, Dups: 3}, {Attempts: 1, Milestones: 1, Lost: 8}} {
		if _, err := Explore(b, Whole); err == nil || !strings.Contains(err.Error(), "expected 1 to 3 attempts") {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// TestBounds explores what -bounds asks for.
func TestBounds(t *testing.T) {
	if *more == "" {
		return
	}
	var b Bounds
	live4 := false
	words := strings.Split(*more, ",")
	if _, err := fmt.Sscan(strings.Join(words[:min(4, len(words))], " "), &b.Attempts, &b.Milestones, &b.Dups, &b.Lost); err != nil {
		t.Fatalf("-bounds %s: %v; expected four numbers, then cancel, delete or live", *more, err)
	}
	for _, w := range words[4:] {
		switch w {
		case "cancel":
			b.Cancel = true
		case "delete":
			b.Delete = true
		case "live":
			live4 = true
		default:
			t.Fatalf("-bounds: %q; expected cancel, delete or live", w)
		}
	}
	if live4 {
		live(t, b)
		return
	}
	sound(t, b)
}
