package gc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// build makes a store by a random life of up to three works.
func build(rt *rapid.T, tb rapid.TB, steps int) *world {
	b := newClocked(mem.New())
	w := &world{Bucket: b, pass: b.pass, t: tb, ctx: rt.Context()}
	for i := range rapid.IntRange(1, 3).Draw(rt, "works") {
		w.add(i)
	}
	for range rapid.IntRange(1, steps).Draw(rt, "steps") {
		w.step(rt, w.works[rapid.IntRange(0, len(w.works)-1).Draw(rt, "work")])
	}
	return w
}

// step lets one thing happen to a work.
func (w *world) step(rt *rapid.T, j *job) {
	w.pass(time.Duration(rapid.IntRange(0, 30).Draw(rt, "hours")) * time.Hour)
	h := j.now()
	if h == nil {
		if n := len(j.holders); n == 0 || rapid.IntRange(0, 2).Draw(rt, "late") > 0 {
			if seen, err := witness.Read(w.ctx, w, j.id); err != nil || seen.Record.State != witness.Finished {
				w.capture(j)
			}
			return
		}
		h = j.holders[rapid.IntRange(0, len(j.holders)-1).Draw(rt, "who")] // a deposed worker that goes on by itself
		w.upload(h, rapid.Bool().Draw(rt, "complete"))
		return
	}
	switch rapid.SampledFrom([]string{"advance", "advance", "advance", "upload", "half", "log", "yield", "revoke", "result", "finish"}).Draw(rt, "what") {
	case "advance":
		w.advance(h)
	case "upload":
		p := w.upload(h, true)
		h.waits = &p
	case "half":
		w.upload(h, false)
	case "log":
		w.log(h, 0)
		w.log(h, 5)
	case "yield":
		w.yield(h)
	case "revoke":
		w.revoke(h)
	case "result":
		w.finish(h, false)
	case "finish":
		w.finish(h, true)
	}
}

func options(rt *rapid.T) Options {
	days := rapid.SampledFrom([]time.Duration{time.Nanosecond, 48 * time.Hour, 0})
	return Options{Apply: true, Milestones: rapid.IntRange(0, 3).Draw(rt, "milestones"), Finished: days.Draw(rt, "finished"),
		Logs: days.Draw(rt, "logs"), Grace: time.Duration(rapid.IntRange(1, 30).Draw(rt, "grace")) * time.Hour}
}

// TestNothingNeededGoes: whatever a store has been through, after a gc every check of it is clean, the line of every
// work that goes on is as long as retention says, results can be fetched, everybody goes on, nothing young went, and
// a second gc finds nothing.
func TestNothingNeededGoes(t *testing.T) {
	deleted := map[Reason]int{}
	rapid.Check(t, func(rt *rapid.T) {
		for _, total := range trial(rt, rt, off{}) {
			deleted[total.Reason] += total.Objects
		}
	})
	t.Logf("deleted: %v", deleted)
	for _, r := range Reasons() {
		if deleted[r] == 0 {
			t.Errorf("nothing was ever deleted for the reason %q: the worlds are too tame", r)
		}
	}
}

// trial is one world and one gc.
func trial(rt *rapid.T, tb rapid.TB, without off) []Total {
	w := build(rt, tb, 40)
	o := options(rt)
	o.off = without
	w.clean("before")
	before, lines, leases := w.keys(), w.lines(), w.leases()
	planned, err := Plan(w.ctx, w, o)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(before, w.keys()); diff != "" {
		tb.Fatalf("a plan changed the store: %s", diff)
	}
	did, err := Apply(w.ctx, w, o)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(planned.Items, did.Items); diff != "" {
		tb.Fatalf("planned and done differ (-planned +done):\n%s", diff)
	}
	if !without.grace && !without.held { // what a rule forbids is not needed to see what comes of it
		w.judge(o, before, w.keys(), did)
	}
	if diff := cmp.Diff(leases, w.leases()); diff != "" {
		tb.Fatalf("a lease changed:\n%s", diff)
	}
	w.clean("after")
	for work, had := range lines {
		if n := w.line(work); n < min(had, o.Milestones+1) {
			tb.Fatalf("the line of %.12s has %d snapshots, it had %d and %d behind the pointer are kept", work, n, had, o.Milestones)
		}
	}
	if again, err := Plan(w.ctx, w, o); err != nil || len(again.Items) > 0 {
		tb.Fatalf("a second run finds %+v, %v", again.Items, err)
	}
	w.usable()
	return did.Totals
}

// captured ends a trial at its first failure, which it keeps.
type captured struct {
	rapid.TB
	text string
}

func (c *captured) Helper() {}
func (c *captured) Fatal(args ...any) {
	c.text = fmt.Sprint(args...)
	panic(c) // unwinds to failure, which recovers
}
func (c *captured) Fatalf(format string, args ...any) { c.Fatal(fmt.Sprintf(format, args...)) }

// failure is how a trial without some protections fails, or "".
func failure(rt *rapid.T, without off) (text string) {
	c := &captured{TB: rt}
	defer func() {
		if r := recover(); r == c {
			text = c.text
		} else if r != nil {
			panic(r) // not ours: a draw that rapid gives up, or a defect of the test
		}
	}()
	trial(rt, c, without)
	return ""
}

// TestEachProtectionIsNeeded: without any one of them, some world loses what it needs.
func TestEachProtectionIsNeeded(t *testing.T) {
	for name, without := range map[string]off{"the line": {kept: true}, "the holder": {held: true}} {
		killed := ""
		for seed := 0; seed < 1000 && killed == ""; seed++ {
			killed = rapid.Custom(func(rt *rapid.T) string { return failure(rt, without) }).Example(seed)
		}
		if t.Logf("without %s: %.200s", name, killed); killed == "" {
			t.Errorf("without %s nothing breaks: the worlds are too tame", name)
		}
	}
}

// judge holds what is gone against the rules that do not need the decision itself to be known.
func (w *world) judge(o Options, before, after map[string]time.Duration, did Report) {
	gone := 0
	for key, age := range before {
		if _, there := after[key]; there {
			continue
		}
		gone++
		if age < max(o.Grace, MinGrace) {
			w.t.Fatalf("%s went at the age of %s, the grace is %s", key, age, o.Grace)
		}
		p, _ := record.Parse(key)
		switch last := p.Rest[strings.LastIndexByte(p.Rest, '/')+1:]; {
		case strings.HasPrefix(key, record.WitnessPrefix), last == "spec.json", last == "open.json", last == "end.json":
			w.t.Fatalf("%s went", key)
		}
		for _, j := range w.works {
			if h := j.now(); h != nil && strings.HasPrefix(key, record.AttemptPrefix(h.work, h.attempt)) {
				w.t.Fatalf("%s went, and its attempt holds the lease", key)
			}
		}
	}
	if sum := did.Sum(); sum.Objects != gone {
		w.t.Fatalf("%d objects went, %d were reported", gone, sum.Objects)
	}
}

// lines is how long the line of each work is that goes on.
func (w *world) lines() map[string]int {
	out := map[string]int{}
	for _, j := range w.works {
		if seen, err := witness.Read(w.ctx, w, j.id); err == nil && seen.Record.State != witness.Finished {
			out[j.id] = w.line(j.id)
		}
	}
	return out
}

func (w *world) leases() map[string]string {
	out := map[string]string{}
	for _, key := range slices.Collect(maps.Keys(w.keys())) {
		if strings.HasPrefix(key, record.WitnessPrefix) {
			out[key] = bytesOf(w.t, w.ctx, w, key)
		}
	}
	return out
}
