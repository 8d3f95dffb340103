package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// Rows of the fault matrix that no other test shows by itself; DESIGN.md lists which test shows which row.

// unplugged is a process that is killed at one write, before or after it took effect.
type unplugged struct {
	bucket.Bucket
	kill   context.CancelFunc
	match  func(key string) bool
	before bool
	struck bool
}

func (u *unplugged) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if ctx.Err() != nil || u.struck {
		return "", dead("put", key)
	}
	if !u.match(key) {
		return u.Bucket.Put(ctx, key, body, c)
	}
	u.struck = true
	u.kill()
	if !u.before {
		_, _ = u.Bucket.Put(context.WithoutCancel(ctx), key, body, c)
	}
	return "", dead("put", key)
}

// C1 to C4: a dispatcher dies before its claim, between claim and call, between call and receipt, and between a
// write-off and the next launch. Its successor goes on, and nothing is spent.
func TestADispatcherDiesAroundItsCall(t *testing.T) {
	claim := func(key string) bool { return strings.HasSuffix(key, "/dispatch/00000001.json") }
	receipt := func(key string) bool { return strings.HasSuffix(key, "/00000001.receipt.json") }
	for _, c := range []struct {
		name    string
		match   func(string) bool
		before  bool
		script  string
		claims  int
		started int
		least   time.Duration // before the work can be over
	}{
		{"C1 before the claim", claim, true, "", 1, 1, 0},
		{"C2 after the claim", claim, false, "", 2, 1, 2 * time.Minute},
		{"C3 after the call", receipt, true, "", 1, 1, 0},
		{"C4 after the write-off", nil, false, "worker 1 die 47", 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 3, script: c.script})
				j := job("a")
				d := r.desired("c1", j)
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				u := &unplugged{Bucket: r.store, kill: kill, match: c.match, before: c.before}
				if c.match == nil { // the reconciler writes a lease only to end it
					u.match = func(key string) bool { return strings.HasPrefix(key, record.WitnessPrefix) }
				}
				first := r.reconciler(func(c *reconcile.Config) { c.Bucket = u })
				start := time.Now()
				for ctx.Err() == nil && time.Since(start) < time.Hour {
					if _, err := first.Pass(ctx, d); err == nil {
						<-time.After(time.Second)
					}
				}
				if !u.struck {
					t.Fatal("it was never killed")
				}
				rec := r.reconciler(nil)
				r.until(rec, d, time.Hour, allFinished)
				r.wholeResult(j.Work, 100)
				if n, m := r.claims(j.Work), r.sim.Meter(); n != c.claims || m.Started != c.started || time.Since(start) < c.least {
					t.Errorf("%d claims, %d launches after %v, want %d and %d after %v at least", n, m.Started, time.Since(start), c.claims, c.started, c.least)
				}
				if e := r.explain(rec, j); e.Spent != 0 {
					t.Errorf("%d retries spent", e.Spent)
				}
			})
		})
	}
}

// C5: a worker dies before it takes the lease. The platform is charged a failed launch, the work is not.
func TestAWorkerThatDiesBeforeItsCaptureIsThePlatforms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 die 0"})
		j, rec, most := job("a", func(j *plan.Job) { j.Limits.Retries = 1 }), r.reconciler(nil), 0
		r.until(rec, r.desired("c1", j), time.Hour, func(rep *reconcile.Report) bool {
			series, _ := r.parked()
			most = max(most, series)
			return allFinished(rep)
		})
		if e := r.explain(rec, j); most != 1 || e.Spent != 0 || r.sim.Meter().Fired[sim.Die] != 1 {
			t.Errorf("series of the platform %d, %d retries spent", most, e.Spent)
		}
	})
}

// skewed is a store whose clock differs from this process' by a constant: to each it is the other that is wrong.
type skewed struct {
	bucket.Bucket
	by time.Duration
}

func (s skewed) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, key, r)
	if err == nil {
		o.Modified, o.Date = o.Modified.Add(s.by), o.Date.Add(s.by)
	}
	return o, err
}

func (s skewed) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := s.Bucket.List(ctx, prefix, after, limit)
	if err == nil {
		p.Date = p.Date.Add(s.by)
		for i := range p.Items {
			p.Items[i].Modified = p.Items[i].Modified.Add(s.by)
		}
	}
	return p, err
}

// T6: the dispatcher's clock is wrong by an hour, either way, and differs from one dispatcher to the next. A dead worker
// is found as soon, a living one is left alone, and a parked platform is tried again in time.
func TestADispatchersClockMayBeWrong(t *testing.T) {
	took := map[time.Duration]time.Duration{}
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 3, script: "launch 1 no_slots; launch 2 late 100s; worker 1 die 47", model: sim.Model{Step: time.Second}})
			d := r.desired("c1", job("a"), job("b"))
			start := time.Now()
			for time.Since(start) < time.Hour { // a new process every half minute: nothing but the stamps tells it an age
				rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = skewed{r.store, by} })
				life := time.Now()
				done := false
				for time.Since(life) < 30*time.Second && !done {
					rep := r.pass(rec, d)
					done = allFinished(rep)
					<-time.After(rep.Next)
				}
				if by = -by; done {
					break
				}
			}
			took[by] = time.Since(start)
			if m := r.sim.Meter(); r.acts(reconcile.WriteOff) != 1 || m.Started != 3 || m.Fired[sim.NoSlots] != 1 {
				t.Errorf("clock off by %v: %d write-offs, %d launches", by, r.acts(reconcile.WriteOff), m.Started)
			}
		})
	}
	for by, t0 := range took {
		if t0 > 8*time.Minute {
			t.Errorf("with a clock that is off by %v it took %v: %v", by, t0, took)
		}
	}
}

// S12: the bucket is deleted while works run. Every pass says so; nothing is launched, revoked or called dead.
func TestADeletedBucketIsLoudAndHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 5, model: sim.Model{Step: time.Minute}})
		gone := faulty.New(r.store, 1)
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = gone })
		j := job("a")
		r.until(rec, r.desired("c1", j), time.Minute, stateIs(j.Work, plan.StateHeld))
		before := r.sim.Meter().Calls
		gone.Add(faulty.Rule{Name: "deleted", Effect: faulty.Refuse, Code: bucket.NoBucket})
		for range 120 {
			rep, err := rec.Pass(t.Context(), r.desired("c2", j, job("b")))
			if e, ok := errors.AsType[*bucket.Error](err); !ok || e.Code != bucket.NoBucket || rep != nil {
				t.Fatalf("a pass without a bucket: %v, %v", rep, err)
			}
			<-time.After(time.Minute)
		}
		if now := r.sim.Meter().Calls; now[sim.OpLaunch] != before[sim.OpLaunch] || now[sim.OpRelease] != before[sim.OpRelease] || gone.Fired("deleted") < 120 {
			t.Errorf("platform calls %v, before %v", now, before)
		}
	})
}

// S14: listings lag. A lease that is not listed yet is not absent: nothing is launched twice.
func TestAListingThatLagsLaunchesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40, script: "worker 3..5 die 47"})
		lag := faulty.New(r.store, 5, faulty.Rule{Name: "lag", Op: "list", Effect: faulty.Lag, Probability: 0.5})
		jobs := numbered(20)
		r.until(r.reconciler(func(c *reconcile.Config) { c.Bucket = lag }), r.desired("c1", jobs...), time.Hour, allFinished)
		if m := r.sim.Meter(); m.Started != 23 || m.Fired[sim.Die] != 3 || lag.Fired("lag") < 10 {
			t.Errorf("%d launches, %d deaths, %d listings that lagged", m.Started, m.Fired[sim.Die], lag.Fired("lag"))
		}
		for _, j := range jobs {
			r.wholeResult(j.Work, 100)
		}
	})
}

// forgetful lists no lease, or after a while some of them not: the worst that a listing can do.
type forgetful struct {
	bucket.Bucket
	now func() bool
}

func (f forgetful) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := f.Bucket.List(ctx, prefix, after, limit)
	if err == nil && prefix == record.WitnessPrefix && f.now() {
		p.Items = nil
	}
	return p, err
}

// S14: leases are missing from listings for longer than the capture window, from the start or later on. What was not seen is
// asked for by GET before a claim; what was seen is never called absent again.
func TestALeaseThatNoListingShows(t *testing.T) {
	for name, from := range map[string]time.Duration{"from the start": 0, "after a while": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 40, model: sim.Model{Step: 10 * time.Second}})
				start, hidden := time.Now(), 0
				f := forgetful{r.store, func() bool {
					if time.Since(start) < from {
						return false
					}
					hidden++
					return true
				}}
				jobs, held := numbered(20), map[plan.Digest]bool{}
				r.until(r.reconciler(func(c *reconcile.Config) { c.Bucket = f }), r.desired("c1", jobs...), time.Hour, func(rep *reconcile.Report) bool {
					for w, s := range rep.States {
						if held[w] && s.State == plan.StateAbsent {
							t.Fatalf("%s was held, and is absent now", w.Short())
						}
						held[w] = held[w] || s.State == plan.StateHeld
					}
					return allFinished(rep)
				})
				if m := r.sim.Meter(); m.Started != 20 || r.claims(jobs[0].Work) != 1 || hidden < 5 {
					t.Errorf("%d launches, %d claims of the first, %d listings without them", m.Started, r.claims(jobs[0].Work), hidden)
				}
			})
		})
	}
}

// G11: the store is full. Nothing is launched, and it is said; what runs goes on while its renewals work.
func TestAFullStoreLaunchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, model: sim.Model{Step: 10 * time.Second}})
		full := faulty.New(r.store, 1)
		rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = full })
		a, b := job("a"), job("b") // b waits for the place of a
		d := r.desired("c1", a, b)
		r.until(rec, d, time.Minute, stateIs(a.Work, plan.StateHeld))
		full.Add(faulty.Rule{Name: "full", Op: "put", Effect: faulty.Refuse, Code: bucket.Full})
		said := 0
		r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) {
			for _, err := range rep.Errors {
				if bucket.Is(err, bucket.Full) && strings.Contains(err.Error(), "launch b") {
					said++
				}
			}
		})
		if m := r.sim.Meter(); m.Started != 1 || said < 3 || full.Fired("full") == 0 || r.acts(reconcile.WriteOff) != 0 {
			t.Errorf("%d launches, said %d times, %d write-offs", m.Started, said, r.acts(reconcile.WriteOff))
		}
		r.wholeResult(a.Work, 100)
		full.Clear()
		r.until(rec, d, time.Hour, allFinished)
	})
}

// liar says that a release is closed and ends nothing.
type liar struct {
	*sim.Runner
	asked *atomic.Int64
}

func (l liar) Release(context.Context, json.RawMessage) (runners.Release, error) {
	l.asked.Add(1)
	return runners.Release{Settlement: runners.Closed, Text: "gone"}, nil
}

// P12: a platform says that a machine is gone and goes on with it. It is reported, with its age, as long as it is listed,
// and asked about again.
func TestAClosedReleaseThatGoesOnIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newRig(t, rigConfig{slots: 3, script: "worker 1 hang 47"})
		rec := r.reconciler(func(c *reconcile.Config) { c.Runners = map[string]runners.Runner{"here": liar{r.sim, &asked}} })
		j := job("a")
		d := r.desired("c1", j)
		r.until(rec, d, time.Hour, allFinished)
		var last *reconcile.Report
		r.passFor(rec, d, time.Hour, func(rep *reconcile.Report) { last = rep })
		if len(last.Orphans) != 1 || last.Orphans[0].Age < 50*time.Minute || last.Orphans[0].Dispatch != 1 || last.Orphans[0].Price != "1.00 USD per hour" || r.lease(j.Work).State != witness.Finished {
			t.Errorf("orphans %+v", last.Orphans)
		}
		if asked.Load() < 3 {
			t.Errorf("asked %d times in an hour", asked.Load())
		}
	})
}
