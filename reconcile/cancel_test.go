package reconcile_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/operate"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// cancel cancels works through a store and the rig's platform.
func (r *rig) cancel(b bucket.Bucket, timeout time.Duration, jobs ...plan.Job) []*operate.Cancelled {
	r.t.Helper()
	var targets []operate.Target
	for _, j := range jobs {
		targets = append(targets, operate.Target{Job: j.Name, Work: string(j.Work)})
	}
	d := operate.Desk{Bucket: b, Runners: map[string]runners.Runner{"here": r.sim}}
	return d.Cancel(r.t.Context(), targets, "cancelled", timeout)
}

// A cancel is acknowledged only when the release of every launch that may still run is closed or bounded.
func TestCancelIsAcknowledgedOnlyWhenSettled(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		done    bool
		least   time.Duration // it takes at least that long
		settled runners.Settlement
		text    string
		runs    int // machines that go on
	}{
		"closed at once":               {"", true, 0, runners.Closed, "", 0},
		"pending three times":          {"release 1..3 not_yet", true, time.Second, runners.Closed, "", 0},
		"bounded":                      {"release * bounded 1h", true, 0, runners.Bounded, "", 1},
		"pending for ever":             {"release * not_yet", false, 2 * time.Minute, runners.Pending, "", 1},
		"the platform is not reached":  {"release * drop", false, 2 * time.Minute, runners.Pending, "could not be asked", 1},
		"it does not answer":           {"release * hang", false, 2 * time.Minute, runners.Pending, "could not be asked", 1},
		"the answer is lost":           {"release 1 lost", true, 0, runners.Closed, "", 0},
		"two were started":             {"launch 1 twice", true, 0, runners.Closed, "", 0},
		"the launch's answer was lost": {"launch 1 lost", true, 0, runners.Closed, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: c.script, model: sim.Model{Step: time.Hour}})
				j := job("a")
				rec := r.reconciler(nil)
				r.until(rec, r.desired("c1", j), time.Hour, stateIs(j.Work, plan.StateHeld))
				began := time.Now()
				got := r.cancel(r.store, 2*time.Minute, j)[0]
				if took := time.Since(began); took < c.least || got.Done() != c.done || got.Stop.Answer != witness.Ended || len(got.Dispatches) != 1 {
					t.Fatalf("after %v: %+v", took, got)
				}
				if d := got.Dispatches[0]; d.Settlement != c.settled || !strings.Contains(d.Text, c.text) || c.settled == runners.Bounded && d.Until.Before(began) {
					t.Errorf("%+v", d)
				}
				if !c.done && (got.Dispatches[0].Price == nil || got.Dispatches[0].Price.PerHour != 1) {
					t.Errorf("pending, and its price is not said: %+v", got.Dispatches[0])
				}
				if m := r.sim.Meter(); m.Live != c.runs {
					t.Errorf("%d machines go on, want %d", m.Live, c.runs)
				}
				if l := r.lease(j.Work); l.State != witness.Revoked || l.Floor != 2 {
					t.Errorf("lease %+v", l)
				}
			})
		})
	}
}

// C6: cancel comes between the launch call and its answer. It is not acknowledged before the answer is known and the machine
// is closed; the worker cannot take the lease.
func TestCancelBetweenTheCallAndItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		least  time.Duration
		done   bool
	}{
		"the answer comes":                       {"launch 1 delay 40s", 30 * time.Second, true},
		"the answer comes too late":              {"launch 1 delay 100s", time.Minute, false},
		"the answer comes, the machine later":    {"launch 1 late 40s", 0, true},
		"the answer does not come, it is listed": {"launch 1 lost", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: c.script, model: sim.Model{Step: time.Minute}})
				j := job("a")
				rec := r.reconciler(nil)
				r.pass(rec, r.desired("c1", j))
				began := time.Now()
				got := r.cancel(r.store, time.Minute, j)[0]
				if took := time.Since(began); took < c.least || got.Done() != c.done {
					t.Errorf("after %v: %+v", took, got)
				}
				rec.Wait()
				if !c.done {
					if got = r.cancel(r.store, time.Minute, j)[0]; !got.Done() {
						t.Errorf("asked again: %+v", got)
					}
				}
				<-time.After(time.Hour)
				if l := r.lease(j.Work); l.Attempt != 0 || r.sim.Meter().Live != 0 {
					t.Errorf("attempt %d, %d machines", l.Attempt, r.sim.Meter().Live)
				}
			})
		})
	}
}

// A dispatcher that died between its claim and the call leaves a claim that nothing answers: a cancel waits for its capture
// window, and is over when the platform lists nothing of it by then.
func TestCancelOfAClaimWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "launch 1 drop"})
		j := job("a")
		r.pass(r.reconciler(nil), r.desired("c1", j))
		if got := r.cancel(r.store, 10*time.Second, j)[0]; got.Done() {
			t.Errorf("within its window: %+v", got)
		}
		<-time.After(time.Hour)
		if got := r.cancel(r.store, 10*time.Second, j)[0]; !got.Done() || !strings.Contains(got.Dispatches[0].Text, "lists nothing of it") {
			t.Errorf("behind its window: %+v", got)
		}
	})
}

// busy counts requests and how many are open at once.
type busy struct {
	bucket.Bucket
	n, open, most atomic.Int64
}

func (b *busy) begin() func() {
	b.n.Add(1)
	now := b.open.Add(1)
	for most := b.most.Load(); now > most && !b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	<-time.After(10 * time.Millisecond)
	return func() { b.open.Add(-1) }
}

func (b *busy) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	defer b.begin()()
	return b.Bucket.Get(ctx, key, r)
}

func (b *busy) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	defer b.begin()()
	return b.Bucket.Put(ctx, key, body, c)
}

func (b *busy) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	defer b.begin()()
	return b.Bucket.List(ctx, prefix, after, limit)
}

// F2: a thousand jobs are cancelled with a fixed number of requests for each, 64 at a time, and one list of the platform.
func TestCancelOfAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		r := newRig(t, rigConfig{slots: n, model: sim.Model{Step: time.Hour}})
		jobs, rec := numbered(n, steps(5000, 100)), r.reconciler(nil)
		held := 0
		for start := time.Now(); held < n; <-time.After(time.Second) {
			held = 0
			for _, s := range r.pass(rec, r.desired("c1", jobs...)).States {
				if s.State == plan.StateHeld {
					held++
				}
			}
			if time.Since(start) > time.Hour {
				t.Fatalf("%d run", held)
			}
		}
		lists := r.sim.Meter().Calls[sim.OpList]
		b := &busy{Bucket: r.store}
		began := time.Now()
		for _, c := range r.cancel(b, 2*time.Minute, jobs...) {
			if !c.Done() || c.Stop.Answer != witness.Ended || c.Dispatches[0].Settlement != runners.Closed {
				t.Fatalf("%+v", c)
			}
		}
		took, m := time.Since(began), r.sim.Meter()
		t.Logf("%d requests, %d at once at most, %v at 10 ms each", b.n.Load(), b.most.Load(), took)
		if b.n.Load() > 16*n || b.most.Load() > operate.AtOnce || b.most.Load() < operate.AtOnce/2 || m.Live != 0 || m.Calls[sim.OpList]-lists != 1 {
			t.Errorf("%d requests, %d at once, %d lists, %d machines go on", b.n.Load(), b.most.Load(), m.Calls[sim.OpList]-lists, m.Live)
		}
	})
}
