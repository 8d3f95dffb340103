// Package runnertest is the one conformance suite for every runner. It asks the platform for its ground truth, never
// the plugin for its belief: each check ends with what really runs. A plugin passes when it loses nothing that it
// started, ends what it is told to end, admits what it does not know, and survives hostile handles.
package runnertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Setup is one fresh platform.
type Setup struct {
	Runner   runners.Runner
	Bucket   bucket.Bucket
	Store    string // URL that launches carry
	Platform string
	Slots    int // launches that it takes at a time, however many jobs each of them carries; at least 3

	// Truth lists what really runs as "<work> <dispatch>", sorted, without asking the plugin. Required.
	Truth func() []string
	// Reopen returns a second plugin on the same platform, as another dispatcher (or the next one) has it; nil: the
	// platform lives in the plugin.
	Reopen func() runners.Runner
	// Cut makes the platform unreachable; nil: it cannot be.
	Cut func()
	// Broken prepares a launch that the platform refuses for good; nil: it refuses none.
	Broken func(*runners.Launch)
	// Fails prepares a launch whose worker cannot be started, which shows only once those before it in the call were; nil:
	// there is no such thing.
	Fails func(*runners.Launch)
	// Cards says for each that really runs ("<work> <dispatch>") on which cards of the platform it is, without asking the
	// plugin; nil: the platform has none.
	Cards func() map[string][]string
	// Expires: it ends a launch by itself at Launch.Within.
	Expires bool
	// Says makes the platform refuse every launch with these words from now on, "" ends that, and Sentences is the plugin's table
	// of those that it knows; nil: its refusals are no words of somebody else's.
	Says      func(words string)
	Sentences []runners.Sentence
	// Hostile are further handles that no receipt ever carried, such as those of somebody else's things.
	Hostile []string
}

// Platform says how to open a fresh one. Its launches must run until they are released.
type Platform struct {
	Open   func(t *testing.T) Setup
	Bubble bool // it lives in a synctest bubble
}

// Run runs the suite.
func Run(t *testing.T, p Platform) {
	for _, check := range []struct {
		name string
		do   func(*testing.T, *suite)
	}{
		{"declarations", declarations},
		{"launch and release", launchAndRelease},
		{"lost create answer", lostAnswer},
		{"release while unreachable", unreachable},
		{"errors are failures with a class", classes},
		{"words of the platform", words},
		{"a bound that a launch carries", expires},
		{"all or nothing", allOrNothing},
		{"siblings of a released job", siblings},
		{"full is NoSlots", full},
		{"hostile handles", hostile},
		{"ended context", endedContext},
		{"another dispatcher sees the same", reopened},
		{"one that cannot start ends the others", oneFails},
		{"a card for each", cards},
	} {
		t.Run(check.name, func(t *testing.T) {
			do := func(t *testing.T) {
				s := p.Open(t)
				check.do(t, &suite{Setup: s, d: runners.Dispatcher{Bucket: s.Bucket}})
			}
			if p.Bubble {
				synctest.Test(t, do)
			} else {
				do(t)
			}
		})
	}
}

// suite is a setup with what the checks share.
type suite struct {
	Setup
	d runners.Dispatcher
}

// work is the k-th work of a check.
func work(k int) string { return record.Hash([]byte(fmt.Sprintf("work %d", k))) }

func (s *suite) launch(w string, n int64) runners.Launch {
	return runners.Launch{Work: w, Dispatch: n, Job: "job", Store: s.Store,
		Spec: record.Spec{Protocol: record.Protocol, Work: w, Kind: "train", Argv: []string{"true"}},
		Claim: record.Claim{Protocol: record.Protocol, Work: w, Dispatch: n, Nonce: record.Nonce(), Dispatcher: "suite",
			Platform: s.Platform, Runner: s.Platform}}
}

// start launches through the dispatcher and expects success.
func (s *suite) start(t *testing.T, r runners.Runner, orders ...runners.Launch) {
	t.Helper()
	for _, l := range s.d.Launch(t.Context(), r, orders) {
		if l.Err != nil || l.Noted != nil {
			t.Fatalf("launch of %s %d: %v, receipt: %v", l.Work[:12], l.Dispatch, l.Err, l.Noted)
		}
	}
}

// runs expects the ground truth to become what is wanted.
func (s *suite) runs(t *testing.T, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	var got []string
	for range 500 {
		if got = s.Truth(); slices.Equal(got, want) {
			return
		}
		<-time.After(10 * time.Millisecond) // until the fact is there, at most five seconds
	}
	t.Fatalf("what really runs (-want +got):\n%s", cmp.Diff(want, got))
}

func is(w string, n int64) string { return fmt.Sprintf("%s %d", w, n) }

// closed releases through the dispatcher and expects the last word.
func (s *suite) closed(t *testing.T, r runners.Runner, w string, n int64) {
	t.Helper()
	a, err := s.d.Release(t.Context(), r, w, n)
	if err != nil || a.Settlement != runners.Closed {
		t.Fatalf("release of %s %d: %+v, %v", w[:12], n, a, err)
	}
}

// failure expects an error that keeps the contract.
func (s *suite) failure(t *testing.T, err error, want ...runners.Class) {
	t.Helper()
	f, ok := errors.AsType[*runners.Failure](err)
	switch {
	case !ok:
		t.Fatalf("%v is no *Failure", err)
	case f.Class.Advice() == "":
		t.Fatalf("class %q is none of ours: %v", f.Class, err)
	case len(want) > 0 && !slices.Contains(want, f.Class):
		t.Fatalf("class %s, expected one of %v: %v", f.Class, want, err)
	case f.Hint == "" || f.Platform != s.Platform || f.Op == "":
		t.Fatalf("a failure without hint, platform or operation: %+v", f)
	}
}

func declarations(t *testing.T, s *suite) {
	if n := s.Runner.Capacity(); n < 1 || n > 10_000 || n != s.Runner.Capacity() {
		t.Errorf("capacity %d, then %d", n, s.Runner.Capacity())
	}
	kinds := s.Runner.JobKinds()
	for i, k := range kinds {
		if k == "" || k != strings.TrimSpace(k) || slices.Contains(kinds[:i], k) {
			t.Errorf("job kinds %q", kinds)
		}
	}
	s.runs(t)
}

func launchAndRelease(t *testing.T, s *suite) {
	w := work(1)
	s.start(t, s.Runner, s.launch(w, 1))
	s.runs(t, is(w, 1))
	s.agrees(t, s.Runner)
	list, err := s.d.ReadClaims(t.Context(), w, 0, 10)
	if err != nil || len(list) != 1 || list[0].Receipt == nil || !list[0].Receipt.OK || list[0].Receipt.Text == "" {
		t.Fatalf("the claim and its receipt: %+v, %v", list, err)
	}
	h := list[0].Receipt.Handle
	for range 2 { // straight at the plugin: the dispatcher remembers that it was closed
		a, err := s.Runner.Release(t.Context(), h)
		if err != nil || a.Settlement != runners.Closed {
			t.Fatalf("release: %+v, %v", a, err)
		}
		s.runs(t)
	}
	s.closed(t, s.Runner, w, 1)
	s.agrees(t, s.Runner)
}

// agrees holds the plugin's list, where it has one, against the ground truth.
func (s *suite) agrees(t *testing.T, r runners.Runner) {
	t.Helper()
	l, ok := r.(runners.Lister)
	if !ok {
		return
	}
	list, err := l.Running(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		if !json.Valid(e.Handle) {
			t.Errorf("a listed handle is no JSON: %q", e.Handle)
		}
		got = append(got, is(e.Work, e.Dispatch))
	}
	slices.Sort(got)
	if diff := cmp.Diff(s.Truth(), got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
		t.Errorf("the list (-truth +listed):\n%s", diff)
	}
}

// losing applies launches and loses the answers.
type losing struct{ runners.Runner }

func (l losing) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	if _, err := l.Runner.Launch(ctx, jobs); err != nil {
		return nil, err
	}
	return nil, &runners.Failure{Class: runners.Unreachable, Platform: jobs[0].Claim.Platform, Op: "launch", Err: errors.New("the answer was lost")}
}

// The list is asked of the plugin itself.
func (l losing) Running(ctx context.Context) ([]runners.Running, error) {
	lister, ok := l.Runner.(runners.Lister)
	if !ok {
		return nil, nil
	}
	return lister.Running(ctx)
}

func lostAnswer(t *testing.T, s *suite) {
	w := work(1)
	out := s.d.Launch(t.Context(), losing{s.Runner}, []runners.Launch{s.launch(w, 1)})
	s.failure(t, out[0].Err, runners.Unreachable)
	s.runs(t, is(w, 1))
	s.agrees(t, s.Runner)
	if _, ok := s.Runner.(runners.Lister); !ok {
		a, err := s.d.Release(t.Context(), s.Runner, w, 1)
		if err != nil || a.Settlement != runners.Pending {
			t.Errorf("a lost launch of a platform that cannot list: %+v, %v", a, err)
		}
		return
	}
	// The number is taken for ever: a second launch of it is another's.
	again := s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(w, 1)})
	s.failure(t, again[0].Err, runners.SpawnedElsewhere)
	s.runs(t, is(w, 1))
	a, err := s.d.Release(t.Context(), s.Runner, w, 1)
	if err != nil || a.Settlement != runners.Closed {
		t.Errorf("a lost launch is found and ended: %+v, %v", a, err)
	}
	s.runs(t)
}

func unreachable(t *testing.T, s *suite) {
	w := work(1)
	s.start(t, s.Runner, s.launch(w, 1))
	s.runs(t, is(w, 1))
	if s.Cut != nil {
		s.Cut()
		a, err := s.d.Release(t.Context(), s.Runner, w, 1)
		if a.Settlement == runners.Closed {
			t.Fatalf("nobody could be asked and it is called closed: %+v, %v", a, err)
		}
		if err != nil {
			s.failure(t, err, runners.Unreachable, runners.NoSlots)
		}
		s.runs(t, is(w, 1))
		next := s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(w, 2)})
		s.failure(t, next[0].Err)
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	handle := s.handle(t, w)
	a, err := s.Runner.Release(ctx, handle)
	if err != nil {
		s.failure(t, err)
	} else if truth := s.Truth(); a.Settlement == runners.Closed && len(truth) > 0 {
		t.Fatalf("called closed while %v runs", truth)
	}
	s.closed(t, s.Runner, w, 1)
	s.runs(t)
}

// handle is what the receipt of a work's first dispatch carries.
func (s *suite) handle(t *testing.T, w string) json.RawMessage {
	t.Helper()
	list, err := s.d.ReadClaims(t.Context(), w, 0, 1)
	if err != nil || len(list) == 0 || list[0].Receipt == nil {
		t.Fatal(list, err)
	}
	return list[0].Receipt.Handle
}

func classes(t *testing.T, s *suite) {
	if s.Broken == nil {
		return
	}
	l := s.launch(work(1), 1)
	s.Broken(&l)
	out := s.d.Launch(t.Context(), s.Runner, []runners.Launch{l})
	s.failure(t, out[0].Err, runners.Rejected)
	if out[0].Receipt == nil || out[0].Receipt.OK || out[0].Receipt.Class != string(runners.Rejected) || out[0].Receipt.Text == "" {
		t.Errorf("the refusal is not in the receipt: %+v", out[0].Receipt)
	}
	s.runs(t)
	a, err := s.d.Release(t.Context(), s.Runner, l.Work, 1)
	if err != nil || a.Settlement != runners.Closed {
		t.Errorf("a refused launch has nothing to release: %+v, %v", a, err)
	}
	// A plugin with one good and one bad launch starts neither.
	if s.Runner.Capacity() > 1 {
		bad := s.launch(work(3), 1)
		s.Broken(&bad)
		for _, o := range s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(work(2), 1), bad}) {
			s.failure(t, o.Err)
		}
		s.runs(t)
	}
}

// A launch of several that finds no place starts none of them.
func allOrNothing(t *testing.T, s *suite) {
	var want []string
	for i := range s.Slots {
		s.start(t, s.Runner, s.launch(work(i), 1))
		want = append(want, is(work(i), 1))
	}
	s.runs(t, want...)
	for _, o := range s.d.Launch(t.Context(), s.Runner, s.launches(100, s.Runner.Capacity())) {
		s.failure(t, o.Err, runners.NoSlots)
	}
	s.runs(t, want...)
	s.agrees(t, s.Runner)
}

// launches are n of them, from one work on.
func (s *suite) launches(from, n int) (out []runners.Launch) {
	for i := range n {
		out = append(out, s.launch(work(from+i), 1))
	}
	return out
}

// The jobs of one launch share a machine and nothing else: the release of one leaves the others running, in whatever
// order it is asked for, twice too, and the machine takes one slot until its last job is over.
func siblings(t *testing.T, s *suite) {
	n := s.Runner.Capacity()
	if n < 2 {
		return
	}
	orders := s.launches(0, n)
	s.start(t, s.Runner, orders...)
	left := map[string]bool{}
	for _, o := range orders {
		left[is(o.Work, 1)] = true
	}
	s.runs(t, slices.Collect(maps.Keys(left))...)
	s.agrees(t, s.Runner)
	for i := range s.Slots - 1 { // each launch takes one slot, whatever it carries
		s.start(t, s.Runner, s.launch(work(100+i), 1))
		left[is(work(100+i), 1)] = true
	}
	for k := range n {
		i := (k + 1) % n // the second first, the first last
		if k > 0 {       // the machine is still taken by the others
			for _, o := range s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(work(200+k), 1)}) {
				s.failure(t, o.Err, runners.NoSlots)
			}
		}
		for range 2 {
			s.closed(t, s.Runner, orders[i].Work, 1)
			delete(left, is(orders[i].Work, 1))
			s.runs(t, slices.Collect(maps.Keys(left))...)
		}
		s.agrees(t, s.Runner)
	}
	s.start(t, s.Runner, s.launch(work(300), 1))
	left[is(work(300), 1)] = true
	s.runs(t, slices.Collect(maps.Keys(left))...)
}

func full(t *testing.T, s *suite) {
	var want []string
	for i := range s.Slots {
		s.start(t, s.Runner, s.launch(work(i), 1))
		want = append(want, is(work(i), 1))
	}
	out := s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(work(99), 1)})
	s.failure(t, out[0].Err, runners.NoSlots, runners.QuotaExhausted)
	s.runs(t, want...)
	// One leaves, and its slot is free at once.
	s.closed(t, s.Runner, work(0), 1)
	s.start(t, s.Runner, s.launch(work(99), 2))
	s.runs(t, append(want[1:], is(work(99), 2))...)
}

// hostileHandles are handles that no plugin ever wrote: a table of values.
func hostileHandles() []string {
	return []string{``, `null`, `{}`, `[]`, `0`, `-1`, `""`, `"x"`, `{`, "\x00", `{"pid":0}`, `{"pid":-1,"start":1,"boot":"x","dir":"/"}`,
		`{"pid":1,"start":1,"boot":"","dir":""}`, `{"instance":0}`, `{"instance":-5}`, `{"instance":1e99}`, `{"id":{"id":{"id":[]}}}`,
		`{"id":"` + strings.Repeat("9", 4000) + `"}`, strings.Repeat("[", 5000), "\xff\xfe"}
}

func hostile(t *testing.T, s *suite) {
	w := work(1)
	s.start(t, s.Runner, s.launch(w, 1))
	s.runs(t, is(w, 1))
	for _, h := range append(hostileHandles(), s.Hostile...) {
		a, err := s.Runner.Release(t.Context(), json.RawMessage(h))
		switch {
		case err != nil:
			s.failure(t, err)
		case a.Settlement > runners.Closed:
			t.Errorf("handle %.60q: settlement %s", h, a.Settlement)
		case a.Settlement == runners.Closed && !json.Valid([]byte(h)):
			t.Errorf("handle %.60q says nothing and is called closed", h)
		}
	}
	s.runs(t, is(w, 1))
	s.closed(t, s.Runner, w, 1)
}

// A launch whose caller has gone away already is either made and known, or not made.
func endedContext(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := work(1)
	receipts, err := s.Runner.Launch(ctx, []runners.Launch{s.launch(w, 1)})
	if err != nil {
		s.failure(t, err)
		if runners.ClassOf(err) != runners.Unreachable {
			s.runs(t)
		}
		return
	}
	s.runs(t, is(w, 1))
	a, err := s.Runner.Release(t.Context(), receipts[0].Handle)
	if err != nil || a.Settlement != runners.Closed {
		t.Errorf("release: %+v, %v", a, err)
	}
	s.runs(t)
}

func reopened(t *testing.T, s *suite) {
	if s.Reopen == nil {
		return
	}
	var want []string
	for i := range s.Slots {
		s.start(t, s.Runner, s.launch(work(i), 1))
		want = append(want, is(work(i), 1))
	}
	other := s.Reopen()
	s.agrees(t, other)
	out := s.d.Launch(t.Context(), other, []runners.Launch{s.launch(work(99), 1)})
	s.failure(t, out[0].Err, runners.NoSlots)
	s.closed(t, other, work(0), 1)
	s.runs(t, want[1:]...)
	s.start(t, other, s.launch(work(99), 2))
	out = s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(work(98), 1)})
	s.failure(t, out[0].Err, runners.NoSlots)
}
