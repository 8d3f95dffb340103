package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// unlisted is a platform that cannot list, and keeps when it was asked to end the first instance that it was asked about, and
// what it said. Of the others, which have left by themselves, it says so: they are asked about as well, since of a platform that
// cannot list nobody knows who has left (TestATwinOnABlindPlatformIsEnded).
type unlisted struct {
	r     *sim.Runner
	mu    sync.Mutex
	first json.RawMessage
	at    []time.Time
	is    []runners.Settlement
}

func (u *unlisted) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	return u.r.Launch(ctx, jobs)
}

func (u *unlisted) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	u.mu.Lock()
	if u.first == nil {
		u.first = h
	}
	other := !bytes.Equal(u.first, h)
	u.mu.Unlock()
	if other {
		return runners.Release{Settlement: runners.Closed}, nil
	}
	at := time.Now()
	a, err := u.r.Release(ctx, h)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at, u.is = append(u.at, at), append(u.is, a.Settlement)
	return a, err
}

func (u *unlisted) JobKinds() []string { return nil }
func (u *unlisted) Capacity() int      { return 1 }

func (u *unlisted) config(c *reconcile.Config) {
	c.Runners = map[string]runners.Runner{"here": u}
}

// A platform promises that an instance ends by itself in a minute, five times, and it lives on. Then it is asked again once
// each promise has passed and never before, whoever looks, until it says closed: then nothing is paid for.
func TestAPromisedEndIsAskedAbout(t *testing.T) {
	for name, fresh := range map[string]bool{"one process": false, "a new process for each pass": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { promisedEnd(t, fresh) })
		})
	}
}

func promisedEnd(t *testing.T, fresh bool) {
	r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 47; release 1..5 bounded 1m"})
	u := &unlisted{r: r.sim}
	rec := r.reconciler(u.config)
	j := job("a", func(j *plan.Job) { j.OnDelete = plan.Revoke })
	r.until(rec, r.desired("c1", j), time.Hour, stateIs(j.Work, plan.StateHeld))
	start, told, passed := time.Now(), "", false
	d := r.desired("c2", job("b"))
	for r.sim.Meter().Live > 1 || len(u.is) < 6 {
		if time.Since(start) > 4*time.Hour {
			t.Fatalf("after %v it still lives; answers %v", time.Since(start), u.is)
		}
		if fresh {
			rec = r.reconciler(u.config)
		}
		rep := r.pass(rec, d)
		if s, ok := rep.States[j.Work]; ok && strings.Contains(s.Reason, "ends by itself at 20") {
			told = s.Reason
			x := r.explain(r.reconciler(u.config), j)
			passed = passed || strings.Contains(x.Lines[0].Ends, "has passed")
		} else if !ok && len(u.is) < 6 {
			t.Fatalf("it was forgotten after %v", u.is)
		}
		<-time.After(rep.Next)
	}
	for i := range u.at {
		if i == 5 {
			continue
		}
		if u.is[i] != runners.Bounded {
			t.Errorf("answer %d is %s", i+1, u.is[i])
		}
		if gap := u.at[i+1].Sub(u.at[i]); gap < time.Minute || gap > 8*time.Minute {
			t.Errorf("%v between question %d and the next, want one minute and somewhat more", gap, i+1)
		}
	}
	if n := len(u.is); n != 6 || u.is[5] != runners.Closed || told == "" || !passed && !fresh {
		t.Errorf("answers %v, told %q, that it has passed: %v", u.is, told, passed)
	}
	r.until(rec, d, time.Hour, allFinished)
	<-time.After(time.Hour)
	r.pass(rec, d)
	if len(u.is) != 6 {
		t.Errorf("what is closed was asked about again: %v", u.is)
	}
}

// A promise whose time is over is no reason to hold back the successor, and it is kept in mind while that one runs.
func TestAPromisedEndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 47; release 1 bounded 1m"})
		u := &unlisted{r: r.sim}
		rec := r.reconciler(u.config)
		j := job("a")
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return len(u.is) == 1 })
		bounded := time.Now()
		r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return r.sim.Meter().Started == 2 })
		if held := time.Since(bounded); held > time.Minute {
			t.Errorf("the successor was started %v after the promise", held)
		}
		r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return len(u.is) == 2 })
		r.until(rec, d, time.Hour, allFinished)
		if m := r.sim.Meter(); m.Live != 0 || u.is[1] != runners.Closed {
			t.Errorf("%d live, answers %v", m.Live, u.is)
		}
		r.wholeResult(j.Work, 100)
	})
}
