package timeline_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/timeline"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var work = strings.Repeat("ab", 32)

// past writes records one second apart, as a work's dispatchers and workers would have.
type past struct {
	t *testing.T
	b bucket.Bucket
}

func (p past) put(key string, v any) {
	p.t.Helper()
	body, err := record.Encode(v)
	if err != nil {
		p.t.Fatal(err)
	}
	p.raw(key, body)
}

func (p past) raw(key string, body []byte) {
	p.t.Helper()
	time.Sleep(time.Second)
	if _, err := p.b.Put(p.t.Context(), key, bytes.NewReader(body), bucket.Always()); err != nil {
		p.t.Fatal(err)
	}
}

func (p past) claim(n int64, before *record.Before) {
	p.put(record.ClaimKey(work, n), record.Claim{Protocol: 1, Work: work, Dispatch: n, Dispatcher: "d1", Platform: "here", Commit: fmt.Sprintf("%d%s", n, strings.Repeat("c", 39)), Reason: fmt.Sprintf("launch %d", n), Before: before})
}

func (p past) receipt(n int64, class string) {
	p.put(record.ReceiptKey(work, n), record.Receipt{Protocol: 1, Work: work, Dispatch: n, OK: class == "", Class: class, Text: "says the platform"})
}

func (p past) milestone(a, m, step int64, parent *record.Pointer) *record.Pointer {
	p.put(record.MilestoneManifestKey(work, a, m), record.Manifest{Protocol: 1, Work: work, Attempt: a, Milestone: m, Step: step, Parent: parent, Files: []record.File{{Path: "x", Size: 7}}})
	return &record.Pointer{Attempt: a, Milestone: m, Step: step, Manifest: record.MilestoneManifestKey(work, a, m), SHA256: strings.Repeat("0", 64)}
}

func (p past) lease(r witness.Record) {
	p.t.Helper()
	r.Protocol, r.Work, r.Rev, r.Write, r.Lease = 1, work, 1, strings.Repeat("0", 32), witness.Lease{Seconds: 15, K: 8, StepS: 1}
	if r.State == witness.Held {
		r.Holder = strings.Repeat("1", 32)
	}
	p.put(record.WitnessKey(work), r)
}

// lines are a timeline as people would read it, without its times.
func lines(tl *timeline.Timeline) (out []string) {
	for _, e := range tl.Events {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s d%d a%d %s %s step %d: %s", e.What, e.Dispatch, e.Attempt, e.Platform, e.Class, e.Step, e.Reason)))
	}
	return out
}

func read(t *testing.T, r *timeline.Reader) *timeline.Timeline {
	t.Helper()
	tl, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// TestAWorkThatDiesAndGoesOn: everything that befell it, in order, and a second look that costs only what may be new.
func TestAWorkThatDiesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		p := past{t, store}
		counted := counting.New(readonly.New(store)) // a write would fail the test
		r := timeline.New(counted, work)
		if got := lines(read(t, r)); len(got) != 0 {
			t.Errorf("of a work that nobody has touched: %q", got)
		}
		p.put(record.SpecKey(work), record.Spec{Protocol: 1, Work: work})
		p.claim(1, nil)
		p.receipt(1, "no_slots")
		p.claim(2, nil)
		p.receipt(2, "")
		p.put(record.OpenKey(work, 1), record.Open{Protocol: 1, Work: work, Attempt: 1, Dispatch: 2, Platform: "here"})
		one := p.milestone(1, 1, 20, nil)
		_ = p.milestone(1, 2, 40, one) // acknowledged by nobody: on no line
		p.lease(witness.Record{Attempt: 1, Dispatch: 2, State: witness.Revoked, Progress: witness.Progress{Step: 45}, Resume: one, Reason: "silent"})
		off, _ := witness.Read(t.Context(), store, work)
		began := lines(read(t, r))
		p.claim(3, &record.Before{Attempt: 1, Dispatch: 2, Step: 45, Kept: 20, Off: true, State: "revoked", Reason: "silent", At: off.Modified.Format(time.RFC3339Nano)})
		p.receipt(3, "")
		p.put(record.OpenKey(work, 2), record.Open{Protocol: 1, Work: work, Attempt: 2, Dispatch: 3, Platform: "here", Resume: one})
		two := p.milestone(2, 1, 60, one)
		p.put(record.EndKey(work, 2), record.End{Protocol: 1, Work: work, Attempt: 2, Class: "finished", Step: 80, Text: "all done"})
		p.put(record.ResultManifestKey(work, 2), record.Manifest{Protocol: 1, Work: work, Attempt: 2, Step: 80, Parent: two})
		p.lease(witness.Record{Attempt: 2, Dispatch: 3, State: witness.Finished, Progress: witness.Progress{Step: 80}, Resume: two,
			Finished: &witness.FinishedPointer{Attempt: 2, Manifest: record.ResultManifestKey(work, 2), SHA256: strings.Repeat("0", 64)}})
		p.put(record.ReleaseKey(work, 3, 1), record.Release{Protocol: 1, Work: work, Dispatch: 3, Settlement: "closed", Text: "gone"})
		want := []string{"submitted d0 a0   step 0: commit 1ccccccccccc asked for it",
			"claimed d1 a0 here  step 0: launch 1", "refused d1 a0  no_slots step 0: says the platform",
			"claimed d2 a0 here  step 0: launch 2", "launched d2 a0   step 0: says the platform",
			"captured d2 a1 here  step 0: from the beginning", "milestone d2 a1   step 20: snapshot 1, 7 bytes in 1 file", "revoked d2 a1   step 45: silent"}
		if diff := cmp.Diff(want, began); diff != "" {
			t.Errorf("while it is written off:\n%s", diff)
		}
		want = append(want, "claimed d3 a0 here  step 0: launch 3", "launched d3 a0   step 0: says the platform",
			"captured d3 a2 here  step 20: resumed from step 20 of attempt 1", "milestone d3 a2   step 60: snapshot 1, 7 bytes in 1 file",
			"ended d3 a2  finished step 80: all done", "finished d3 a2   step 80: its result is whole", "released d3 a0  closed step 0: gone")
		tl := read(t, r)
		if diff := cmp.Diff(want, lines(tl)); diff != "" {
			t.Errorf("in the end:\n%s", diff)
		}
		for _, e := range tl.Events {
			if e.What == timeline.Revoked && !e.Time.Equal(off.Modified) {
				t.Errorf("revoked at %v, its lease says %v", e.Time, off.Modified)
			}
		}
		if !tl.Over {
			t.Error("a finished work is not over")
		}
		before := counted.Counts()
		read(t, r)
		if n := counted.Counts().Minus(before).Requests(); n > 4 {
			t.Errorf("a look at nothing new asks the store %d times", n)
		}
	})
}

// TestHowALeaseWasLost: the claim after it tells why and when, in the words and with the stamp that the lease had; a claim of an
// older version tells what it can, and a stamp that cannot be is none.
func TestHowALeaseWasLost(t *testing.T) {
	revoked := "its lease had been taken away before the next claim: it was silent, or somebody revoked it"
	for name, c := range map[string]struct {
		before       record.Before
		what, reason string
		told         bool // its own stamp
	}{
		"silent":          {record.Before{Off: true, State: "revoked", Reason: "silent for 40s"}, timeline.Revoked, "silent for 40s", true},
		"stopped":         {record.Before{State: "revoked", Reason: "by ann: stop"}, timeline.Revoked, "by ann: stop", true},
		"without a word":  {record.Before{Off: true, State: "revoked"}, timeline.Revoked, revoked, true},
		"yielded":         {record.Before{State: "yielded", Reason: "yielded: asked to leave"}, timeline.Yielded, "yielded: asked to leave", true},
		"old, off":        {record.Before{Off: true}, timeline.Revoked, revoked, false},
		"old, at a limit": {record.Before{Stopped: "limits.wall: 6h"}, timeline.Revoked, "limits.wall: 6h", false},
		"old, yielded":    {record.Before{}, timeline.Yielded, "it had given its place back before the next claim", false},
		"no time":         {record.Before{Off: true, At: "soon"}, timeline.Revoked, revoked, false},
		"year one":        {record.Before{Off: true, At: "0001-01-01T00:00:00+23:00"}, timeline.Revoked, revoked, false},
		"after its claim": {record.Before{Off: true, At: "9999-01-01T00:00:00Z"}, timeline.Revoked, revoked, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mem.New()
				p := past{t, store}
				lost := time.Now().Add(1500 * time.Millisecond).UTC()
				b := c.before
				if b.Attempt, b.Dispatch, b.Step = 1, 1, 7; c.told {
					b.At = lost.Format(time.RFC3339Nano)
				}
				p.claim(1, nil)
				p.put(record.OpenKey(work, 1), record.Open{Protocol: 1, Work: work, Attempt: 1, Dispatch: 1})
				p.claim(2, &b)
				claimed := time.Now()
				p.put(record.OpenKey(work, 2), record.Open{Protocol: 1, Work: work, Attempt: 2, Dispatch: 2})
				p.lease(witness.Record{Attempt: 2, Dispatch: 2, State: witness.Held})
				at := claimed
				if c.told {
					at = lost
				}
				var got []timeline.Event
				for _, e := range read(t, timeline.New(readonly.New(store), work)).Events {
					if e.What == timeline.Revoked || e.What == timeline.Yielded {
						got = append(got, e)
					}
				}
				if diff := cmp.Diff([]timeline.Event{{Time: at, What: c.what, Dispatch: 1, Attempt: 1, Step: 7, Reason: c.reason}}, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestHostileRecords: damaged, too large, of another work, a line that goes in circles, texts that would write on the
// terminal: nothing breaks, and everything is bounded.
func TestHostileRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		p := past{t, store}
		p.raw(record.SpecKey(work), []byte("{"))
		p.raw(record.ClaimKey(work, 1), []byte("[]"))
		p.raw(record.ClaimKey(work, 2), bytes.Repeat([]byte(" "), record.MaxRecord+1))
		p.put(record.ClaimKey(work, 3), record.Claim{Protocol: 1, Work: strings.Repeat("cd", 32), Dispatch: 3})
		p.put(record.ClaimKey(work, 4), record.Claim{Protocol: 1, Work: work, Dispatch: 4, Dispatcher: "\x1b[2J\n", Platform: strings.Repeat("p", 1000), Reason: "\x1b]0;x\a" + strings.Repeat("r", 9999) + " ghp_abcdefghijklmnopqrstuvwxyz0123"})
		p.raw(record.DispatchPrefix(work)+"00000004.odd.json", []byte("x"))
		p.put(record.ReceiptKey(work, 4), record.Receipt{Protocol: 99, Work: work, Dispatch: 4})
		p.raw(record.OpenKey(work, 1), []byte("nonsense"))
		p.put(record.EndKey(work, 1), record.End{Protocol: 1, Work: work, Attempt: 1, Class: "user_code", Error: "Traceback\r\nboom"})
		a, b := &record.Pointer{Attempt: 1, Milestone: 1}, &record.Pointer{Attempt: 1, Milestone: 2}
		p.milestone(1, 1, 1, b)
		p.milestone(1, 2, 2, a)
		p.lease(witness.Record{Attempt: 1, Dispatch: 4, State: witness.Revoked, Resume: &record.Pointer{Attempt: 1, Milestone: 2, Step: 2, Manifest: record.MilestoneManifestKey(work, 1, 2), SHA256: strings.Repeat("0", 64)}})
		tl := read(t, timeline.New(readonly.New(store), work))
		kinds := map[string]int{}
		for _, e := range tl.Events {
			kinds[e.What]++
			for _, s := range []string{e.Reason, e.Platform, e.By, e.Class} {
				if len(s) > 500 || strings.ContainsAny(s, "\x1b\n\r\a") || strings.Contains(s, "ghp_") {
					t.Errorf("%s: %q", e.What, s)
				}
			}
		}
		want := map[string]int{timeline.Submitted: 1, timeline.Unreadable: 6, timeline.Claimed: 1, timeline.Ended: 1, timeline.Milestone: 2, timeline.Revoked: 1}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("%s\n%s", diff, strings.Join(lines(tl), "\n"))
		}
	})
}

// The sentence of an end quotes the program's last line, which is told once; a line that it does not quote follows it.
func TestAnEndIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		p := past{t, store}
		p.claim(1, nil)
		for a := int64(1); a <= 2; a++ {
			p.put(record.OpenKey(work, a), record.Open{Protocol: 1, Work: work, Attempt: a, Dispatch: 1, Platform: "here"})
		}
		p.lease(witness.Record{Attempt: 2, Dispatch: 1, State: witness.Yielded})
		p.put(record.EndKey(work, 1), record.End{Protocol: 1, Work: work, Attempt: 1, Class: "user_code", Text: "the program was ended by signal 9 (killed): step 10", Error: "step 10"})
		p.put(record.EndKey(work, 2), record.End{Protocol: 1, Work: work, Attempt: 2, Class: "no_result", Text: "the program ended without a result", Error: "no loss"})
		var ends []string
		for _, e := range read(t, timeline.New(readonly.New(store), work)).Events {
			if e.What == timeline.Ended {
				ends = append(ends, e.Reason)
			}
		}
		want := []string{"the program was ended by signal 9 (killed): step 10", "the program ended without a result: no loss"}
		if diff := cmp.Diff(want, ends); diff != "" {
			t.Error(diff)
		}
	})
}

// TestALongPastIsBounded: 1,000 launches and a line of 500 milestones are read in a bounded number of requests, and what is
// left out is said.
func TestALongPastIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		p := past{t, store}
		var at *record.Pointer
		for n := range int64(1000) {
			p.claim(n+1, nil)
			p.put(record.OpenKey(work, n+1), record.Open{Protocol: 1, Work: work, Attempt: n + 1, Dispatch: n + 1})
			at = p.milestone(n+1, 1, n, at)
		}
		p.lease(witness.Record{Attempt: 1000, Dispatch: 1000, State: witness.Held, Resume: at})
		counted := counting.New(store)
		tl := read(t, timeline.New(counted, work))
		if tl.Earlier != 900 || !tl.Gone || len(tl.Events) != timeline.MaxDispatches*2+timeline.MaxMilestones {
			t.Errorf("%d earlier, %d events, gone %v", tl.Earlier, len(tl.Events), tl.Gone)
		}
		if n := counted.Counts().Requests(); n > 3*timeline.MaxDispatches+timeline.MaxMilestones+10 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestAStoreThatIsAwayIsAnError: an outage is never an empty past.
func TestAStoreThatIsAwayIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		p := past{t, store}
		p.claim(1, nil)
		p.lease(witness.Record{Attempt: 1, Dispatch: 1, State: witness.Held})
		for _, rule := range []faulty.Rule{{Op: "get", Key: "witness/*"}, {Op: "list"}, {Op: "get", Key: "*/dispatch/*"}, {Op: "get", Key: "*/attempt/*"}, {Op: "get", Key: "*/spec.json"}} {
			rule.Code = bucket.Unknown
			if tl, err := timeline.New(faulty.New(store, 1, rule), work).Read(t.Context()); err == nil {
				t.Errorf("%+v: %q", rule, lines(tl))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := timeline.New(store, work).Read(ctx); err == nil {
			t.Error("a reading that was cancelled is whole")
		}
	})
}
