package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// dying is a store or platform whose process is killed at the n-th call: that call may or may not have been applied,
// and nothing is heard of it again.
type dying struct {
	bucket.Bucket
	r      runners.Runner
	kill   context.CancelFunc
	mu     sync.Mutex
	left   int
	before bool // the call is not applied
}

func (d *dying) strike() (dead, apply bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	switch {
	case d.left > 0:
		return false, true
	case d.left == 0:
		d.kill()
		return true, !d.before
	}
	return true, false
}

func dead(op, key string) error { return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown} }

func (d *dying) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if gone, _ := d.strike(); gone {
		return nil, dead("get", key)
	}
	return d.Bucket.Get(ctx, key, r)
}

func (d *dying) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if gone, _ := d.strike(); gone {
		return nil, dead("list", prefix)
	}
	return d.Bucket.List(ctx, prefix, after, limit)
}

func (d *dying) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	gone, apply := d.strike()
	if !apply {
		return "", dead("put", key)
	}
	v, err := d.Bucket.Put(context.WithoutCancel(ctx), key, body, c)
	if gone {
		return "", dead("put", key)
	}
	return v, err
}

func (d *dying) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	gone, apply := d.strike()
	if !apply {
		return nil, context.Canceled
	}
	got, err := d.r.Launch(context.WithoutCancel(ctx), jobs)
	if gone {
		return nil, context.Canceled
	}
	return got, err
}

// The process is killed at its n-th call, for each n of a road with a death in it, before and after the call took
// effect; a successor that knows nothing but the store finishes the work, and never are two launches given one number.
func TestKilledBetweenAnyTwoCalls(t *testing.T) {
	for _, before := range []bool{false, true} {
		for n := 1; ; n++ {
			reached := false
			t.Run(fmt.Sprintf("call %d before %v", n, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { reached = killAt(t, n, before) })
			})
			if !reached {
				if n < 25 {
					t.Fatalf("the road has only %d calls", n)
				}
				break
			}
		}
	}
}

type dyingRunner struct{ *dying }

func (d dyingRunner) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	return d.dying.Launch(ctx, jobs)
}

func (d dyingRunner) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	return d.dying.r.Release(ctx, h)
}

func (d dyingRunner) JobKinds() []string { return nil }
func (d dyingRunner) Capacity() int      { return 1 }

// killAt reports whether the road has an n-th call at all.
func killAt(t *testing.T, n int, before bool) (reached bool) {
	r := newRig(t, rigConfig{slots: 5, script: "worker 1 die 47"})
	j := job("a")
	d := r.desired("c1", j)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dy := &dying{Bucket: r.store, r: r.sim, kill: kill, left: n, before: before}
	first := r.reconciler(func(c *reconcile.Config) {
		c.Bucket, c.ID, c.Runners = dy, "first", map[string]runners.Runner{"here": dyingRunner{dy}}
	})
	for ctx.Err() == nil {
		rep, err := first.Pass(ctx, d)
		if err == nil && allFinished(rep) {
			break
		}
		next := time.Second
		if rep != nil {
			next = rep.Next
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
	reached = ctx.Err() != nil
	r.until(r.reconciler(func(c *reconcile.Config) { c.ID = "second" }), d, time.Hour, allFinished)
	r.wholeResult(j.Work, 100)
	seen := map[int64]int{}
	for _, in := range r.sim.Truth() {
		seen[in.Dispatch]++
		if in.Live {
			t.Errorf("instance %d still runs", in.ID)
		}
	}
	for number, times := range seen {
		if times > 1 {
			t.Errorf("dispatch %d was launched %d times", number, times)
		}
	}
	if len(seen) > 3 {
		t.Errorf("%d launches: one death and one kill explain three", len(seen))
	}
	return reached
}

// The process is killed at random, again and again, with works in every state; no work is worse off for it.
func TestKilledAgainAndAgain(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killedAgain(t, seed) })
		})
	}
}

func killedAgain(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var script strings.Builder
	for i := 1; i <= 60; i++ {
		switch rng.IntN(12) {
		case 0:
			fmt.Fprintf(&script, "worker %d die %d\n", i, rng.IntN(100))
		case 1:
			fmt.Fprintf(&script, "launch %d lost\n", i)
		case 2:
			fmt.Fprintf(&script, "launch %d twice\n", i)
		case 3:
			fmt.Fprintf(&script, "worker %d hang %d\n", i, 12+rng.IntN(80))
		case 4:
			fmt.Fprintf(&script, "launch %d late 3m\n", i)
		}
	}
	r := newRig(t, rigConfig{slots: 30, script: script.String()})
	jobs := numbered(25, func(j *plan.Job) { j.Limits.Retries = 20 })
	d := r.desired("c1", jobs...)
	for i := range 50 {
		ctx, kill := context.WithCancel(t.Context())
		dy := &dying{Bucket: r.store, r: r.sim, kill: kill, left: 1 + rng.IntN(150), before: rng.IntN(2) == 0}
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bucket, c.ID, c.Runners = dy, fmt.Sprint("life ", i), map[string]runners.Runner{"here": dyingRunner{dy}}
		})
		for ctx.Err() == nil {
			next := time.Second
			rep, err := rec.Pass(ctx, d)
			if err == nil && allFinished(rep) {
				kill()
				break
			}
			if rep != nil {
				next = rep.Next
			}
			select {
			case <-ctx.Done():
			case <-time.After(next):
			}
		}
		kill()
		<-time.After(time.Duration(rng.IntN(90)) * time.Second)
	}
	r.until(r.reconciler(nil), d, 3*time.Hour, allFinished)
	numbers := map[string]int{}
	for _, in := range r.sim.Truth() {
		if in.Attempt > 0 {
			numbers[fmt.Sprintf("%s/%d", in.Work[:12], in.Attempt)]++
		}
	}
	for at, n := range numbers {
		if n > 1 {
			t.Errorf("attempt %s was captured %d times", at, n)
		}
	}
	for _, j := range jobs {
		r.wholeResult(j.Work, 100)
	}
}
