package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// begun is a run whose program ends with code 3 at once: CodeUserCode says that it took the lease and started.
func (w *world) begun(ctx context.Context, b bucket.Bucket, life context.Context) (Exit, time.Duration) {
	w.Helper()
	w.claim(1)
	start := time.Now()
	exit := Run(ctx, Config{Bucket: b, Work: w.work, Dispatch: 1, Scratch: w.scratch, Environ: []string{"MY_SECRET=correct horse"},
		Inside: &Inside{Life: life, Program: func(context.Context, Program) int { return 3 }}})
	return exit, time.Since(start)
}

// starts are the requests of an agent before it has the lease.
var starts = []faulty.Rule{
	{Name: "claim", Op: "get", Key: "work/*/dispatch/*"},
	{Name: "spec", Op: "get", Key: "work/*/spec.json"},
	{Name: "lease", Op: "get", Key: "witness/*"},
	{Name: "history", Op: "list"},
	{Name: "capture", Op: "put", Key: "witness/*"},
}

// TestAStoreThatIsAwayAtTheStart: eight seconds without a usable answer, at whichever request and in whichever way, cost
// no launch.
func TestAStoreThatIsAwayAtTheStart(t *testing.T) {
	for _, rule := range starts {
		for name, how := range map[string]faulty.Rule{"refused": {Effect: faulty.Refuse}, "slow down": {Effect: faulty.Refuse, Code: bucket.Throttled},
			"raced": {Effect: faulty.Refuse, Code: bucket.Raced}, "lost": {Effect: faulty.Lose}, "cut": {Effect: faulty.Truncate}, "held": {Effect: faulty.Hold}} {
			if how.Effect == faulty.Truncate && rule.Op != "get" {
				continue
			}
			t.Run(rule.Name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMemWorld(t, nil)
					w.window = 20
					if rule.Name == "lease" { // one that can be cut
						yielded(t, w)
					}
					gate := make(chan struct{})
					rule.Effect, rule.Code, rule.Release = how.Effect, how.Code, gate
					f := faulty.New(w.b, 1, rule)
					time.AfterFunc(8*time.Second, func() { close(gate); f.Clear() })
					exit, took := w.begun(t.Context(), f, nil)
					if exit.Code != CodeUserCode || took < 8*time.Second && how.Effect != faulty.Lose || took > 14*time.Second {
						t.Errorf("%+v after %s", exit, took)
					}
				})
			})
		}
	}
}

// yielded leaves a lease that is free.
func yielded(t *testing.T, w *world) {
	t.Helper()
	w.claim(1)
	h, err := witness.Capture(t.Context(), w.b, witness.CaptureRequest{Work: w.work, Dispatch: 1, Lease: witness.Lease{Seconds: 60}})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Yield(t.Context(), "for the test"); v.Outcome != witness.Won {
		t.Fatal(v)
	}
}

// TestPatienceEnds: two thirds of the capture window, and ninety seconds while the claim is not known; nothing is written.
func TestPatienceEnds(t *testing.T) {
	for _, c := range []struct {
		rule   faulty.Rule
		window float64
		want   time.Duration
	}{{starts[0], 20, 90 * time.Second}, {starts[1], 0, 80 * time.Second}, {starts[1], 30, 20 * time.Second}, {starts[2], 60, 40 * time.Second},
		{starts[3], 60, 40 * time.Second}, {starts[4], 60, 40 * time.Second}, {starts[2], 86400, longestPatience}} {
		t.Run(c.rule.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newMemWorld(t, nil)
				w.window = c.window
				f := faulty.New(w.b, 1, c.rule)
				exit, took := w.begun(t.Context(), f, nil)
				if exit.Code != CodeStore || exit.Class != "store" || !strings.Contains(exit.Text, "injected fault") || took < c.want || took > c.want+time.Second {
					t.Errorf("%+v after %s", exit, took)
				}
				if seen := w.witness(); seen.Record.Attempt != 0 || f.Fired(c.rule.Name) < 5 {
					t.Errorf("attempt %d, asked %d times", seen.Record.Attempt, f.Fired(c.rule.Name))
				}
			})
		})
	}
}

// TestAClaimThatIsReadTooLate: its window has passed, and the launch that follows is not to be spoiled.
func TestAClaimThatIsReadTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.window = 20
		f := faulty.New(w.b, 1, starts[0])
		time.AfterFunc(30*time.Second, f.Clear)
		exit, took := w.begun(t.Context(), f, nil)
		if exit.Code != CodeStore || !strings.Contains(exit.Text, "within 20s") || took > 40*time.Second || w.witness().Record.Attempt != 0 {
			t.Errorf("%+v after %s", exit, took)
		}
	})
}

// TestASlowMachineStillCaptures: patience bounds what is asked again, not a first try.
func TestASlowMachineStillCaptures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.window = 20
		f := faulty.New(w.b, 1, faulty.Rule{Name: "slow", Op: "get", Key: "work/*/spec.json", Effect: faulty.Slow, Delay: 900 * time.Millisecond})
		if exit, _ := w.begun(t.Context(), f, nil); exit.Code != CodeUserCode {
			t.Errorf("%+v", exit)
		}
		p := newPatience(nil, nil)
		time.Sleep(time.Minute)
		if err := p.claimed(&record.Claim{CaptureS: 20}); err != nil {
			t.Error(err)
		}
		c, done := p.capturing(t.Context(), t.Context(), time.Second)
		defer done()
		if d, _ := c.Deadline(); time.Until(d) < 5*time.Second {
			t.Errorf("a first try has %s", time.Until(d))
		}
	})
}

// TestDefiniteAnswersEndTheStartAtOnce: asking again would not change them.
func TestDefiniteAnswersEndTheStartAtOnce(t *testing.T) {
	for _, rule := range starts[:4] {
		for code, want := range map[bucket.Code]int{bucket.Denied: CodeStore, bucket.NoBucket: CodeStore, bucket.BadKey: CodeStore} {
			t.Run(rule.Name+" "+code.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMemWorld(t, nil)
					rule.Effect, rule.Code = faulty.Refuse, code
					f := faulty.New(w.b, 1, rule)
					if exit, took := w.begun(t.Context(), f, nil); exit.Code != want || took > 0 || f.Fired(rule.Name) != 1 {
						t.Errorf("%+v after %s, asked %d times", exit, took, f.Fired(rule.Name))
					}
				})
			})
		}
	}
	for name, c := range map[string]struct {
		before func(*testing.T, *world)
		want   int
	}{
		"held":           {func(t *testing.T, w *world) { w.claim(1); _ = take(t, w) }, CodeNothingToDo},
		"another's spec": {func(_ *testing.T, w *world) { w.work = strings.Repeat("0", 64) }, CodeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newMemWorld(t, nil)
				c.before(t, w)
				if exit, took := w.begun(t.Context(), w.b, nil); exit.Code != c.want || took > 0 {
					t.Errorf("%+v after %s", exit, took)
				}
			})
		})
	}
}

func take(t *testing.T, w *world) *witness.Holder {
	t.Helper()
	h, err := witness.Capture(t.Context(), w.b, witness.CaptureRequest{Work: w.work, Dispatch: 1, Lease: witness.Lease{Seconds: 60}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestNoticeEndsTheWaiting: SIGTERM, or the loss of the machine, while the store is asked again. A capture that is under
// way has a third of the grace for its verdict.
func TestNoticeEndsTheWaiting(t *testing.T) {
	for _, rule := range starts {
		for _, lost := range []bool{false, true} {
			t.Run(rule.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMemWorld(t, nil)
					w.terms.GraceS = 6
					notice, leave := context.WithCancel(t.Context())
					life, die := context.WithCancel(t.Context())
					defer leave()
					defer die()
					end, want, within := leave, CodeYielded, time.Duration(0)
					if lost {
						end, want = die, CodeStore
					}
					if rule.Op == "put" {
						want, within = CodeStore, 2*time.Second
					}
					time.AfterFunc(3100*time.Millisecond, end)
					f := faulty.New(w.b, 1, rule)
					exit, took := w.begun(notice, f, life)
					if exit.Code != want || took > 3100*time.Millisecond+within || took < 3*time.Second || w.witness().Record.Attempt != 0 {
						t.Errorf("%+v after %s", exit, took)
					}
				})
			})
		}
	}
}
