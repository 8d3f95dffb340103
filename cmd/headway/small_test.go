package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

func TestBar(t *testing.T) {
	var out bytes.Buffer
	e := env{stdout: &out, getenv: func(string) string { return "" }}
	b := e.bar("train", 20)
	for step := int64(0); step <= 25; step += 5 {
		b.at(step, step/10*10)
	}
	b.end()
	want := "  train step 5/20\n  train step 10/20  milestone 10\n  train step 15/20  milestone 10\n  train step 20/20  milestone 20\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("a line for each tenth that is new (-want +got):\n%s", diff)
	}
	out.Reset()
	e.tty = true
	b = e.bar("train", 0)
	b.at(0, 0)
	b.at(3, 0)
	b.end()
	if got := out.String(); strings.Count(got, "\r") != 2 || !strings.HasSuffix(got, "] step 1/1 \n") || !strings.Contains(got, strings.Repeat("#", 40)) {
		t.Errorf("on a terminal: %q", got)
	}
}

// What waits says for how long where that is known, and nothing else does.
func TestAWaitSaysHowLong(t *testing.T) {
	for want, a := range map[string]reconcile.Action{
		"backing off: it died; 40s at most, then it is looked at again": {Kind: reconcile.Wait, Reason: "backing off: it died", Until: 40 * time.Second},
		"needs prep": {Kind: reconcile.Wait, Reason: "needs prep"},
		"its end":    {Kind: reconcile.Release, Reason: "its end", Until: time.Minute},
	} {
		if got := reasonOf(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 42 * time.Second: "42s", 200 * time.Second: "3m20s", time.Hour: "1h00m", 47*time.Hour + 59*time.Minute: "47h59m", 100 * time.Hour: "4d",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%s) = %s, want %s", d, got, want)
		}
	}
}

// closed is a standard output that takes n bytes and no more.
type closed struct{ n int }

func (c *closed) Write(b []byte) (int, error) {
	if c.n -= len(b); c.n < 0 {
		return 0, errors.New("no space left")
	}
	return len(b), nil
}

func TestNothingPrinted(t *testing.T) {
	for _, verb := range []string{"schema", "--help", "--version"} {
		for _, room := range []int{0, 3} {
			var stderr bytes.Buffer
			e := env{args: []string{verb}, stdout: &closed{room}, stderr: &stderr, getenv: func(string) string { return "" }, dir: t.TempDir()}
			if code := run(t.Context(), e); code != exitError || !strings.Contains(stderr.String(), "no space left") {
				t.Errorf("%s with room for %d bytes: %d, %q", verb, room, code, stderr.String())
			}
			e.stdout = &closed{1 << 20}
			if code := run(t.Context(), e); code != exitOK {
				t.Errorf("%s: %d", verb, code)
			}
		}
	}
}

// A line of a program that is longer than what is shown says how much was left out.
func TestLongLine(t *testing.T) {
	var out bytes.Buffer
	(&printer{to: &out}).print([]runners.Line{{Data: []byte(strings.Repeat("x", 4096+904) + "\n")}, {Data: []byte("next\n")}})
	if want := strings.Repeat("x", 4096) + "… (904 bytes more)\nnext\n"; out.String() != want {
		t.Errorf("%d bytes: …%s", out.Len(), out.String()[max(0, out.Len()-60):])
	}
}

// A line that has not ended goes on where it stopped, also in the next chunk; a machine that vanished leaves it as it is, and what
// another attempt printed, or what is said of it, begins a line of its own.
func TestALineThatNeverEnds(t *testing.T) {
	var out bytes.Buffer
	p := printer{to: &out}
	p.print([]runners.Line{{Attempt: 1, Data: []byte("step 1\n")}, {Attempt: 1, Data: []byte("st")}})
	p.print([]runners.Line{{Attempt: 1, Data: []byte("ep 2\n")}, {Attempt: 1, Data: []byte("step 3")}})
	p.print([]runners.Line{{Attempt: 2, Data: []byte("step 2\n")}, {Attempt: 2, Data: []byte("step")}, {Attempt: 2, Offset: 11, Missing: 5}, {Attempt: 3, Data: []byte("step 4\n")}})
	if want := "step 1\nstep 2\nstep 3\nstep 2\nstep\n[5 bytes are missing here: a segment of attempt 2 never arrived]\nstep 4\n"; out.String() != want {
		t.Errorf("got %q", &out)
	}
}

func TestVerdict(t *testing.T) {
	held := map[plan.Digest]reconcile.Standing{"w": {State: plan.StateHeld}}
	revoked := map[plan.Digest]reconcile.Standing{"w": {State: plan.StateRevoked}}
	for _, c := range []struct {
		name   string
		kinds  []reconcile.Kind
		states map[plan.Digest]reconcile.Standing
		code   int
		over   bool
	}{
		{"nothing", nil, nil, exitOK, true},
		{"finished", []reconcile.Kind{reconcile.None}, nil, exitOK, true},
		{"runs", []reconcile.Kind{reconcile.None}, held, exitOK, false},
		{"waits", []reconcile.Kind{reconcile.Fail, reconcile.Wait}, nil, exitOK, false},
		{"failed", []reconcile.Kind{reconcile.None, reconcile.Fail}, nil, exitFailed, true},
		{"parked", []reconcile.Kind{reconcile.Blocked}, nil, exitParked, true},
		{"failed before parked", []reconcile.Kind{reconcile.Blocked, reconcile.Fail}, nil, exitFailed, true},
		{"stopped by a person", []reconcile.Kind{reconcile.None}, revoked, exitCancelled, true},
	} {
		r := &reconcile.Report{States: c.states}
		for _, k := range c.kinds {
			r.Actions = append(r.Actions, reconcile.Action{Kind: k})
		}
		if code, over := verdict(r); code != c.code || over != c.over {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, code, over, c.code, c.over)
		}
	}
}

// That all which was in force is over is no success of a commit that trouble kept from coming into force.
func TestUnfollowed(t *testing.T) {
	trouble, refused := []error{errors.New("the store is read-only")}, []reconcile.Refusal{{Code: "EmptyPlan"}}
	for _, c := range []struct {
		r    reconcile.Report
		want bool
	}{
		{reconcile.Report{Errors: trouble}, true},
		{reconcile.Report{Errors: trouble, Accepted: true}, false},
		{reconcile.Report{Errors: trouble, Refusals: refused}, false}, // which has an exit code of its own
		{reconcile.Report{}, false},
	} {
		if got := unfollowed(&c.r); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

func TestWithoutSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"dir:///a/b":                      "dir:///a/b",
		"s3://key:secret@bucket/p":        "s3://bucket/p",
		"s3://bucket/p?endpoint=https://": "s3://bucket/p?endpoint=https://",
		"embedded":                        "embedded",
	} {
		if got := withoutSecrets(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	a, b := plan.Digest(strings.Repeat("a", 64)), plan.Digest(strings.Repeat("b", 64))
	p := &project{plan: &plan.Plan{Jobs: []plan.Job{{Name: "new", Work: a}, {Name: "same", Work: a}}}}
	accepted := &plan.Accepted{Jobs: []plan.AcceptedJob{{Name: "old", Work: b}, {Name: "same", Work: b}}}
	for name, want := range map[string]plan.Digest{"new": a, "old": b, "same": b, "bbbbbb": b, string(a): a} {
		if _, work, err := p.named(t.Context(), nil, name, accepted); err != nil || work != want {
			t.Errorf("%s: %s, %v; want %s", name, work.Short(), err, want.Short())
		}
	}
	for _, name := range []string{"nobody", "bbbbb", "cccccc", ""} {
		_, _, err := p.named(t.Context(), nil, name, accepted)
		x, ok := errors.AsType[*exit](err)
		if !ok || x.hint != "known jobs: new, old, same" {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.plan = &plan.Plan{}
	if _, _, err := p.named(t.Context(), nil, "x", nil); err == nil || !strings.Contains(err.(*exit).hint, "no jobs") {
		t.Errorf("an empty plan: %v", err)
	}
}

// holes is a tree in which something cannot be read.
type holes struct{ err error }

func (h holes) Entries(string) ([]plan.Entry, error)     { return nil, h.err }
func (h holes) Read(string, int64) (b []byte, err error) { return nil, h.err }

func TestHonestTree(t *testing.T) {
	missing := &repo.Error{Class: repo.MissingObject, Text: "an object is missing"}
	for _, c := range []struct {
		err, want error
	}{
		{fs.ErrNotExist, nil}, // a file that is not there is a fact about the plan
		{&repo.Error{Class: repo.NotAllowed, Text: "a link"}, nil},
		{&repo.Error{Class: repo.TooLarge, Text: "large"}, nil},
		{missing, missing},
		{fmt.Errorf("read: %w", missing), missing},
	} {
		for _, ask := range []func(*honest){func(h *honest) { _, _ = h.Entries("") }, func(h *honest) { _, _ = h.Read("x", 1) }} {
			h := &honest{tree: holes{c.err}}
			ask(h)
			if got := h.failed(); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("%v: %v, want %v", c.err, got, c.want)
			}
		}
	}
}

func TestFail(t *testing.T) {
	full := &bucket.Error{Op: "put", Key: "k", Code: bucket.Full, Hint: "make room", Err: errors.New("disk\x1b[31m")}
	for _, c := range []struct {
		err  error
		hint string
		want string
	}{
		{errors.New("plain"), "", "error: plain\n"},
		{errors.New("plain"), "do", "error: plain\nhint: do\n"},
		{fmt.Errorf("write: %w", full), "", "error: write: store: put k: Full: disk\\x1b[31m\nhint: make room\n"},
		{fmt.Errorf("write: %w", full), "mine", "error: write: store: put k: Full: disk\\x1b[31m\nhint: mine\n"},
		{&repo.Error{Class: repo.Offline, Remote: "host/x", Text: "no answer", Hint: "try later"}, "", "error: git remote host/x: no answer\nhint: try later\n"},
	} {
		var out bytes.Buffer
		fail(env{stderr: &out}, c.err, c.hint)
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestColor(t *testing.T) {
	for _, c := range []struct {
		tty  bool
		vars map[string]string
		want bool
	}{
		{true, nil, true}, {false, nil, false}, {true, map[string]string{"NO_COLOR": "1"}, false}, {true, map[string]string{"TERM": "dumb"}, false},
	} {
		e := env{tty: c.tty, getenv: func(k string) string { return c.vars[k] }}
		if got := e.paint(red, "x") != "x"; got != c.want {
			t.Errorf("terminal %v, %v: coloured %v", c.tty, c.vars, got)
		}
	}
}

func TestTold(t *testing.T) {
	c := &plan.Change{Op: plan.OpCreate, On: []string{"here", "there"}}
	launch := reconcile.Action{Kind: reconcile.Launch, Platform: "here", Dispatch: 1, Reason: "first launch"}
	if !told(c, launch) {
		t.Error("a first launch on the first rung is what the line says already")
	}
	launch.Platform = "there"
	if told(c, launch) || nextOf(launch) != "launch on there: first launch" {
		t.Errorf("a launch elsewhere must be said: %q", nextOf(launch))
	}
	for kind, want := range map[reconcile.Kind]string{
		reconcile.None: "", reconcile.Blocked: "nothing, until somebody helps: why", reconcile.Fail: "nothing, it was given up: why", reconcile.Wait: "wait: why",
		reconcile.Stop: "stop: why", reconcile.Move: "why", reconcile.WriteOff: "write off: why", reconcile.Release: "release: why",
	} {
		if got := nextOf(reconcile.Action{Kind: kind, Reason: "why"}); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

func TestStale(t *testing.T) {
	change := func(op plan.Op, job string) plan.Change {
		return plan.Change{Op: op, Job: job, NewWork: plan.Digest(job)}
	}
	ends := func(attempt, step int64) plan.Change {
		c := change(plan.OpRemove, "b")
		c.Leaving = &plan.Observed{State: plan.StateHeld, Attempt: attempt, Dispatch: attempt, Step: step}
		return c
	}
	of := func(base string, list ...plan.Change) plan.Changes {
		return plan.Changes{Commit: "c2", Base: base, Changes: list}
	}
	a := change(plan.OpCreate, "a")
	was := of("c1", a, ends(7, 10))
	for _, c := range []struct {
		now  plan.Changes
		want string
	}{
		{was, ""},
		{of("c1", a, ends(7, 500), change(plan.OpWaiting, "w")), ""},
		{of("c2"), "PlanAlreadyApplied: the saved plan was applied already"},
		{of("c1", a), "stale: it would no longer - b"},
		{of("c1", change(plan.OpReplace, "c"), a, ends(7, 10)), "stale: it would now ± c"},
		{of("", a, ends(7, 10)), "stale: commit none is in force now, it was c1"},
		{of("c1", a, ends(8, 10)), "stale: what leaves with b is held, attempt 8 of dispatch 8 now, it was held, attempt 7 of dispatch 7"},
		{of("c1", a, change(plan.OpRemove, "b")), "stale: what leaves with b is none now"},
	} {
		err := stale(&was, &c.now)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || err.(*exit).code != exitStale) {
			t.Errorf("%+v: %v, want %q", c.now, err, c.want)
		}
	}
}

// A group is one line: how many are in which state, how much of their steps is done, what most of them wait for.
func TestAGroupIsOneLine(t *testing.T) {
	row := func(group, state string, step, steps int64, why string) statusRow {
		return statusRow{Job: group + "-x", Group: group, Work: strings.Repeat("a", 64), State: state, Step: step, Steps: steps, Reason: why, Platform: "here"}
	}
	five := []statusRow{row("g", plan.StateFinished, 0, 100, ""), row("g", plan.StateFinished, 100, 100, ""), row("g", plan.StateFinished, 100, 100, ""),
		row("g", plan.StateHeld, 4, 100, "said at its launch"), row("g", plan.StateHeld, 1, 100, "")}
	for want, rows := range map[string][]statusRow{
		"3 of 5 finished, 2 held, 61 %":   five,
		"1 of 2 finished, 1 absent":       {five[0], row("g", plan.StateAbsent, 0, 0, "")},
		"1 held, 1 failed":                {row("g", plan.StateHeld, 0, 100, ""), row("g", plan.StateFailed, 0, 100, "")},
		"1 of 1 finished, 100 %":          five[:1],
		"1 claimed, 1 revoked, 1 unknown": {row("g", plan.StateClaimed, 0, 0, ""), row("g", plan.StateUnknown, 0, 0, ""), row("g", plan.StateRevoked, 9, 0, "")},
	} {
		if got := stateOfGroup(rows); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	waits := []statusRow{row("w", plan.StateAbsent, 0, 0, "parked"), row("w", plan.StateAbsent, 0, 0, "parked"), row("w", plan.StateFailed, 0, 0, "spent"), row("w", plan.StateHeld, 0, 0, "x")}
	if got := whyOfGroup(waits) + whyOfGroup(waits[:2]) + whyOfGroup(five); got != "1: spent2: parked" {
		t.Error(got)
	}
	var out bytes.Buffer
	doc := &statusDoc{Jobs: append([]statusRow{row("few", plan.StateHeld, 0, 0, "")}, five...)}
	for all, lines := range map[bool]int{false: 3, true: 7} {
		out.Reset()
		if doc.all = all; printStatus(env{stdout: &out}, doc) != nil || strings.Count(out.String(), "\n") != lines {
			t.Errorf("all %v:\n%s", all, out.String())
		}
	}
}

// TestADrainIsSaidOnce: a wait is said where nothing was said before; that a job drains is said over what was, once, until
// something else is.
func TestADrainIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	l := &loop{p: &project{env: env{stdout: &out, getenv: func(string) string { return "" }}}, said: map[plan.Digest]string{}, drains: map[plan.Digest]bool{}}
	runs := reconcile.Action{Kind: reconcile.None, Job: "long", Work: "w", Reason: "attempt 1 holds the lease"}
	slow := reconcile.Action{Kind: reconcile.Wait, Job: "long", Work: "w", Reason: "its earlier dispatch is being released", Until: time.Second}
	drain := reconcile.Action{Kind: reconcile.Wait, Job: "long", Work: "w", Until: time.Second,
		Reason: "limits.wall: 1h0m0s since the first launch; attempt 1 stops after its next milestone, or in 20m0s if there is none"}
	for _, a := range []reconcile.Action{runs, slow, drain, drain, slow, drain, runs, drain} {
		l.say(&reconcile.Report{Actions: []reconcile.Action{a}})
	}
	first, then := "long: none: "+runs.Reason+"\n", "long: wait: "+drain.Reason+"\n"
	if d := cmp.Diff(first+then+first+then, out.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
