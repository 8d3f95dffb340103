package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// The tests of gates*_test.go are the release gates of the lease protocol, each by its name; DESIGN.md lists them.

// passFor passes for a time.
func (r *rig) passFor(rec *reconcile.Reconciler, d *reconcile.Desired, long time.Duration, each func(*reconcile.Report)) {
	for start := time.Now(); time.Since(start) < long; {
		rep := r.pass(rec, d)
		if each != nil {
			each(rep)
		}
		<-time.After(rep.Next)
	}
}

// Given a platform that answers nothing for six hours (list, launch, release), a worker that renews, and another that hangs,
// was stopped, and whose release is open.
// Then nothing is revoked and nothing launched, and its end is learned from the store, while the platform is still dead.
func TestGateControlChannelDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, script: "worker 2 hang 3; release 1 not_yet", model: sim.Model{Step: time.Minute, Steps: 5 * 60, Milestone: 30}})
		rec := r.reconciler(nil)
		a := job("a", func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps = 5*60, 30 })
		b := job("b", func(j *plan.Job) { j.FLOPs.Steps = 10 })
		gone := job("gone", func(j *plan.Job) { j.OnDelete = plan.Revoke })
		r.until(rec, r.desired("c1", a), time.Hour, stateIs(a.Work, plan.StateHeld))
		r.until(rec, r.desired("c2", a, gone), time.Hour, stateIs(gone.Work, plan.StateHeld))
		<-time.After(4 * time.Minute) // it hangs: nobody but its platform can end it
		r.until(rec, r.desired("c3", a), time.Hour, func(*reconcile.Report) bool { return r.sim.Meter().Calls[sim.OpRelease] > 0 })
		r.seen = nil
		r.sim.Cut(true)
		before := r.sim.Meter()
		finished := time.Duration(0)
		cut := time.Now()
		r.passFor(rec, r.desired("c4", a, b), 6*time.Hour, func(rep *reconcile.Report) {
			switch s := rep.States[a.Work].State; {
			case s == plan.StateFinished && finished == 0:
				finished = time.Since(cut)
			case s != plan.StateFinished && s != plan.StateHeld:
				t.Fatalf("a is %s: %s", s, rep.States[a.Work].Reason)
			}
		})
		dead := r.sim.Meter()
		for _, op := range []sim.Op{sim.OpLaunch, sim.OpList, sim.OpRelease} {
			if dead.Calls[op] == before.Calls[op] {
				t.Errorf("the dead channel was never tried: %s", op)
			}
		}
		if finished == 0 || finished > 5*time.Hour+5*time.Minute {
			t.Errorf("its end was learned after %v of the outage, want about five hours", finished)
		}
		if n := r.acts(reconcile.WriteOff) + r.acts(reconcile.Stop); n != 0 || dead.Started != before.Started {
			t.Errorf("%d revokes and %d launches, want none", n, dead.Started-before.Started)
		}
		r.wholeResult(a.Work, 5*60)
		r.sim.Cut(false)
		r.until(rec, r.desired("c4", a, b), 2*time.Hour, func(rep *reconcile.Report) bool {
			_, leaves := rep.States[gone.Work]
			return !leaves && allFinished(rep)
		})
		r.wholeResult(b.Work, 10)
		if n := r.sim.Meter().Live; n != 0 {
			t.Errorf("%d instances are paid for after the outage", n)
		}
	})
}

// Given 25 polls that fail at random within 19 hours, in series of one to four, while a worker renews.
// Then nothing is relaunched; each series is over with the next poll that succeeds; and when its machine dies at last,
// that is found as soon as if no poll had ever failed.
func TestGateFailedPolls(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) { failedPolls(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func failedPolls(t *testing.T, rng *rand.Rand) {
	r := newRig(t, rigConfig{slots: 2, script: fmt.Sprintf("worker 1 die %d", 19*60), model: sim.Model{Step: time.Minute, Steps: 20 * 60, Milestone: 30}})
	shaky := faulty.New(r.store, 7)
	rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = shaky })
	j := job("a", func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps = 20*60, 30 })
	d := r.desired("c1", j)
	r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
	start := time.Now()
	var series []time.Duration // when each begins
	for range 25 {
		series = append(series, time.Duration(rng.Int64N(int64(18*time.Hour))))
	}
	slices.Sort(series)
	ways := []faulty.Rule{
		{Effect: faulty.Refuse, Code: bucket.Unknown},
		{Op: "get", Key: record.WitnessPrefix + "*", Effect: faulty.Refuse, Code: bucket.Throttled},
		{Op: "get", Key: record.WitnessPrefix + "*", Effect: faulty.Truncate},
		{Op: "list", Effect: faulty.Refuse, Code: bucket.Denied},
	}
	failed, inRow, worst := 0, 0, 0
	for failed < 25 || time.Since(start) < 18*time.Hour+55*time.Minute {
		next := 5 * time.Second // as the program does
		if failed < 25 && (time.Since(start) >= series[failed] || inRow > 0 && rng.IntN(2) == 0) {
			shaky.Add(ways[rng.IntN(len(ways))])
			if rep, err := rec.Pass(t.Context(), d); err == nil && len(rep.Errors) == 0 {
				t.Fatal("a poll without a store did not fail")
			}
			shaky.Clear()
			failed, inRow = failed+1, inRow+1
			worst = max(worst, inRow)
		} else {
			rep := r.pass(rec, d)
			if s := rep.States[j.Work]; s.State != plan.StateHeld || len(rep.Errors) > 0 || strings.Contains(s.Reason, "silent") {
				t.Fatalf("after %d failed polls, %d in a row: %v, errors %v", failed, inRow, s, rep.Errors)
			}
			next, inRow = rep.Next, 0
		}
		<-time.After(next)
	}
	if m := r.sim.Meter(); m.Started != 1 || r.acts(reconcile.WriteOff) != 0 || worst < 2 {
		t.Errorf("%d launches, %d write-offs after %d failed polls, at most %d in a row", m.Started, r.acts(reconcile.WriteOff), failed, worst)
	}
	lease := r.lease(j.Work)
	died := 19*time.Hour - time.Since(start)
	r.until(rec, d, died+lease.Lease.Length()+10*time.Minute, func(*reconcile.Report) bool { return r.acts(reconcile.WriteOff) == 1 })
	r.until(rec, d, 3*time.Hour, allFinished)
	r.wholeResult(j.Work, 20*60)
	if m := r.sim.Meter(); m.Fired[sim.Die] != 1 || m.Started != 2 {
		t.Errorf("%d deaths and %d launches, want 1 and 2", m.Fired[sim.Die], m.Started)
	}
}

// parked reads what the store says of the rig's platform.
func (r *rig) parked() (series int, park time.Duration) {
	o, err := r.store.Get(r.t.Context(), record.PlatformKey("here"), bucket.Range{})
	if err != nil {
		return 0, 0
	}
	defer o.Body.Close()
	var p struct {
		Series int     `json:"series"`
		ParkS  float64 `json:"park_s"`
	}
	if err := json.NewDecoder(o.Body).Decode(&p); err != nil {
		r.t.Fatal(err)
	}
	return p.Series, time.Duration(p.ParkS * float64(time.Second))
}

// The same gate, of the series that count: failures of a platform in a row, and attempts in a row that came no further.
// Then a series is over with the next success, and none is carried over to what comes after it.
func TestGateSeriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "launch 1..4 drop; launch 6 drop; worker 1 die 35"})
		j := job("a")
		var seen []string
		r.until(r.reconciler(nil), r.desired("c1", j), 6*time.Hour, func(rep *reconcile.Report) bool {
			series, park := r.parked()
			if s := fmt.Sprint(series); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
			if series == 1 && park > 23*time.Second {
				t.Errorf("the first failure of a series parks for %v", park)
			}
			return allFinished(rep)
		})
		if got := strings.Join(seen, " "); got != "1 2 3 4 0 1 0" || r.sim.Meter().Fired[sim.Drop] != 5 {
			t.Errorf("series %s after %d failures, want 1 2 3 4 0 1 0", got, r.sim.Meter().Fired[sim.Drop])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2, script: "worker 1..5 die 5; worker 6 die 35; worker 7 die 37"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 20 })
		r.until(r.reconciler(nil), r.desired("c1", j), 6*time.Hour, allFinished)
		var at []time.Time
		for n := range int64(8) {
			o, err := r.store.Get(t.Context(), record.ClaimKey(string(j.Work), n+1), bucket.Range{})
			if err != nil {
				t.Fatal(err)
			}
			o.Body.Close()
			at = append(at, o.Modified)
		}
		if got := r.sim.Meter().Fired[sim.Die]; got != 7 {
			t.Fatalf("%d deaths, want 7", got)
		}
		if gap := at[5].Sub(at[4]); gap < 40*time.Second {
			t.Errorf("%v between the fifth attempt that came no further and the next: the series does not count", gap)
		}
		for i := 6; i < 8; i++ {
			if gap := at[i].Sub(at[i-1]); gap > 30*time.Second {
				t.Errorf("%v between attempts %d and %d: a series that is over still counts", gap, i, i+1)
			}
		}
	})
}

// unreceipted is a store as a process uses it that is killed before it writes a receipt.
type unreceipted struct {
	bucket.Bucket
	dies bool
}

func (u unreceipted) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if u.dies && strings.HasSuffix(key, ".receipt.json") {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Denied}
	}
	return u.Bucket.Put(ctx, key, body, c)
}

// Given a worker that finishes and whose machine vanishes, and a reconciler that was away for three hours, with and
// without the receipt of its launch. Then: finished, and nothing is launched.
func TestGateFinishedWhileAway(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed before the receipt %v", dies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{script: "list * hide"})
				j := job("a")
				d := r.desired("c1", j)
				first := r.reconciler(func(c *reconcile.Config) { c.Bucket = unreceipted{r.store, dies} })
				r.pass(first, d)
				<-time.After(3 * time.Hour)
				if in := r.sim.Truth(); len(in) != 1 || in[0].Live || in[0].End != "finished" {
					t.Fatalf("the machine has not finished and vanished: %+v", in)
				}
				if _, err := r.store.Get(t.Context(), record.ReceiptKey(string(j.Work), 1), bucket.Range{}); (err != nil) != dies {
					t.Fatalf("the receipt: %v", err)
				}
				rep := r.pass(r.reconciler(nil), d)
				if rep.States[j.Work].State != plan.StateFinished || r.sim.Meter().Started != 1 || r.claims(j.Work) != 1 {
					t.Errorf("state %v after %d launches, %d claims", rep.States[j.Work], r.sim.Meter().Started, r.claims(j.Work))
				}
			})
		})
	}
}

// meeting is a store at which two processes wait for each other before each claim.
type meeting struct {
	bucket.Bucket
	m *meet
}

type meet struct {
	mu   sync.Mutex
	at   map[string]chan struct{}
	both int
}

func (m meeting) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if p, ok := record.Parse(key); ok && p.Dispatch == 1 && p.Rest == "json" {
		m.m.mu.Lock()
		there := m.m.at[key]
		if there == nil {
			there = make(chan struct{})
			m.m.at[key] = there
		} else {
			m.m.both++
			close(there)
		}
		m.m.mu.Unlock()
		select {
		case <-there:
		case <-time.After(20 * time.Second):
		}
	}
	return m.Bucket.Put(ctx, key, body, c)
}

// asking counts the launches that one process asks for.
type asking struct {
	runners.Runner
	mu sync.Mutex
	n  int
}

func (a *asking) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
	return a.Runner.Launch(ctx, jobs)
}

// Given two reconcilers that see the same diff and both are about to write the same claim, for twenty works.
// Then one claim of each work wins, and the loser spends nothing: no call, no number, no retry.
func TestGateTwoReconcilers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40})
		jobs := numbered(20)
		d := r.desired("c1", jobs...)
		m := &meet{at: map[string]chan struct{}{}}
		var wg sync.WaitGroup
		calls := make([]*asking, 2)
		lost := make([]int, 2)
		for i, id := range []string{"one", "two"} {
			calls[i] = &asking{Runner: r.sim}
			rec := r.reconciler(func(c *reconcile.Config) {
				c.ID, c.Bucket, c.Runners = id, meeting{r.store, m}, map[string]runners.Runner{"here": calls[i]}
			})
			wg.Go(func() {
				rep, err := rec.Pass(t.Context(), d)
				if err != nil {
					t.Error(err)
					return
				}
				for _, a := range rep.Actions {
					if f, ok := a.Err.(*runners.Failure); ok && a.Kind == reconcile.Launch && f.Class == runners.SpawnedElsewhere {
						lost[i]++
					}
				}
			})
		}
		wg.Wait()
		if m.both != len(jobs) {
			t.Fatalf("both were about to claim %d of %d works", m.both, len(jobs))
		}
		if lost[0]+lost[1] != len(jobs) || calls[0].n+lost[0] != len(jobs) || calls[1].n+lost[1] != len(jobs) {
			t.Errorf("calls %d and %d, lost %v: each work has one winner, and a loser that asks nobody", calls[0].n, calls[1].n, lost)
		}
		rec := r.reconciler(nil)
		r.until(rec, d, time.Hour, allFinished)
		for _, j := range jobs {
			if n, spent := r.claims(j.Work), r.explain(rec, j).Spent; n != 1 || spent != 0 {
				t.Errorf("%s: %d claims, %d retries spent", j.Name, n, spent)
			}
			r.wholeResult(j.Work, 100)
		}
	})
}

// Given a worker that hangs inside one step, on a platform that says it runs, or says nothing at all.
// Then it is found within its lease, one poll and the store's resolution; what the platform says is not asked.
func TestGateHangingStep(t *testing.T) {
	for _, c := range []struct {
		step time.Duration
		dead bool
	}{{100 * time.Millisecond, false}, {100 * time.Millisecond, true}, {20 * time.Second, false}, {20 * time.Second, true}} {
		t.Run(fmt.Sprintf("steps of %v, platform dead %v", c.step, c.dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hangs(t, c.step, c.dead) })
		})
	}
}

func hangs(t *testing.T, step time.Duration, dead bool) {
	r := newRig(t, rigConfig{slots: 2, script: "worker 1 hang 47", model: sim.Model{Step: step}})
	rec, j := r.reconciler(nil), job("a")
	d := r.desired("c1", j)
	r.until(rec, d, time.Hour, stateIs(j.Work, plan.StateHeld))
	r.sim.Cut(dead)
	var version bucket.Version
	var last time.Time // of the last renewal, by the bubble's clock
	var lease witness.Lease
	found := time.Duration(0)
	r.until(rec, d, 2*time.Hour, func(rep *reconcile.Report) bool {
		seen, err := witness.Read(t.Context(), r.store, string(j.Work))
		if err != nil {
			t.Fatal(err)
		}
		if seen.Record.State == witness.Held && seen.Record.Dispatch == 1 && seen.Version != version {
			version, last, lease = seen.Version, seen.Modified, seen.Record.Lease
		}
		if r.acts(reconcile.WriteOff) > 0 {
			found = time.Since(last)
		}
		return found > 0
	})
	if in := r.sim.Truth()[0]; in.Step != 46 || !in.Live && in.End != "killed" || r.sim.Meter().Fired[sim.Hang] != 1 {
		t.Fatalf("it did not hang in its step: %+v", in)
	}
	if bound := lease.Length() + min(lease.Length()/3, time.Minute) + 2*time.Second; found > bound || found < lease.Length() {
		t.Errorf("found %v after its last renewal, its lease is %v: want at most %v", found, lease.Length(), bound)
	}
	r.sim.Cut(false)
	r.until(rec, d, 2*time.Hour, allFinished)
	r.wholeResult(j.Work, 100)
}
