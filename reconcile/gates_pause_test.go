package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// sleeper is all the input and output of one process, which is stopped for an hour at its at-th call: just before the
// call goes out, or just after it took effect and before its answer is heard. While it is stopped nothing else of it
// goes on either. It hears of no deadline by itself (a process that wakes may well act before its timers do).
type sleeper struct {
	bucket.Bucket
	r     *sim.Runner
	at    int
	only  string // count calls of this kind alone; "": all
	after bool
	nap   time.Duration

	mu     sync.Mutex
	n      int
	where  string        // the call at which it was stopped
	asleep chan struct{} // closed: it sleeps
	awake  chan struct{} // closed: it woke
	landed []string      // its writes that the store took after it woke
	called []string      // its calls to the platform after it woke
	made   []string      // keys of the accounts of those that it made before
}

func newSleeper(r *rig, at int, after bool) *sleeper {
	return &sleeper{Bucket: r.store, r: r.sim, at: at, after: after, nap: time.Hour, asleep: make(chan struct{}), awake: make(chan struct{})}
}

// enter counts a call and reports whether it is the one. Just before a question is as good as just after the call before
// it, so only writes are stopped before they go out.
func (s *sleeper) enter(op, key string) (mine bool) {
	s.mu.Lock()
	if (s.after || op == "put") && (s.only == "" || s.only == op) {
		s.n++
		mine = s.n == s.at
	}
	if mine {
		s.where = op + " " + key
		close(s.asleep)
	}
	sleeping := closed(s.asleep) && !closed(s.awake)
	s.mu.Unlock()
	switch {
	case mine && !s.after:
		s.sleep()
	case sleeping && !mine:
		<-s.awake
	}
	return mine
}

func (s *sleeper) leave(mine bool) {
	if mine && s.after {
		s.sleep()
	}
}

func (s *sleeper) sleep() {
	<-time.After(s.nap)
	close(s.awake)
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *sleeper) note(list *[]string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if closed(s.awake) {
		*list = append(*list, text)
	}
}

func (s *sleeper) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	mine := s.enter("get", key)
	defer s.leave(mine)
	return s.Bucket.Get(context.WithoutCancel(ctx), key, r)
}

func (s *sleeper) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	mine := s.enter("list", prefix)
	defer s.leave(mine)
	return s.Bucket.List(context.WithoutCancel(ctx), prefix, after, limit)
}

func (s *sleeper) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	mine := s.enter("put", key)
	defer s.leave(mine)
	v, err := s.Bucket.Put(context.WithoutCancel(ctx), key, body, c)
	if err == nil {
		s.note(&s.landed, key)
	}
	return v, err
}

// sleepyRunner is the platform as the sleeper calls it. Stopping it between its last look at the clock and the call is
// the one thing that nobody can notice: there it is stopped only after the call.
type sleepyRunner struct{ *sleeper }

func (s sleepyRunner) call(op string) (mine bool) {
	s.note(&s.called, op)
	return s.enter(op, "")
}

// record notes a call that went out before it slept: its account may come late, and is worth keeping then.
func (s sleepyRunner) record(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !closed(s.awake) {
		s.made = append(s.made, key)
	}
}

func (s sleepyRunner) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	mine := s.call("launch")
	s.record(record.ReceiptKey(jobs[0].Work, jobs[0].Dispatch))
	defer s.leave(mine)
	return s.r.Launch(context.WithoutCancel(ctx), jobs)
}

func (s sleepyRunner) Release(ctx context.Context, h json.RawMessage) (runners.Release, error) {
	mine := s.call("release")
	s.record("release")
	defer s.leave(mine)
	return s.r.Release(context.WithoutCancel(ctx), h)
}

func (s sleepyRunner) Running(ctx context.Context) ([]runners.Running, error) {
	mine := s.enter("running", "") // a question that changes nothing
	defer s.leave(mine)
	return s.r.Running(context.WithoutCancel(ctx))
}

func (s sleepyRunner) JobKinds() []string { return nil }
func (s sleepyRunner) Capacity() int      { return 1 }

// pauseWorld is what both reconcilers see to: a is launched, then b, whose worker hangs and is replaced, then c, which
// a later commit leaves out and d, which a still later one leaves out and names again.
type pauseWorld struct {
	r          *rig
	start      time.Time
	a, b, c, d plan.Job
}

func newPauseWorld(t *testing.T) *pauseWorld {
	r := newRig(t, rigConfig{slots: 20, script: "worker 2 hang 30", model: sim.Model{Step: 200 * time.Millisecond}})
	fifty := func(j *plan.Job) { j.FLOPs.Steps = 50 }
	endless := func(j *plan.Job) { j.FLOPs.Steps, j.OnDelete = 1<<40, plan.Revoke }
	return &pauseWorld{r: r, start: time.Now(), a: job("a", fifty), b: job("b", fifty), c: job("c", endless),
		d: job("d", func(j *plan.Job) { j.OnDelete = plan.Revoke })}
}

// desired is what Git says at this moment.
func (w *pauseWorld) desired() *reconcile.Desired {
	switch at := time.Since(w.start); {
	case at < 4*time.Second:
		return w.r.desired("c1", w.a)
	case at < 8*time.Second:
		return w.r.desired("c2", w.a, w.b)
	case at < 12*time.Second:
		return w.r.desired("c3", w.a, w.b, w.c)
	case at < 16*time.Second:
		return w.r.desired("c4", w.a, w.b)
	case at < 20*time.Second:
		return w.r.desired("c5", w.a, w.b, w.d)
	case at < 24*time.Second:
		return w.r.desired("c6", w.a, w.b)
	}
	return w.r.desired("c7", w.a, w.b, w.d)
}

// pass reconciles once, as the program does: the commit is held against the one in force, then the pass is made.
func (w *pauseWorld) pass(ctx context.Context, rec *reconcile.Reconciler) (*reconcile.Report, error) {
	d := w.desired()
	accepted, err := rec.Accepted(ctx, "")
	if err != nil {
		return nil, err
	}
	over := ""
	if accepted != nil {
		over = accepted.Commit
	}
	if d.Over = &over; over > d.Commit {
		d.Refusals = append(d.Refusals, reconcile.Refusal{Code: "WentBack", Text: "the branch went back"})
	}
	return rec.Pass(ctx, d)
}

// over: all that the last commit names is finished, and nothing of the others runs.
func (w *pauseWorld) over(rep *reconcile.Report) bool {
	for _, j := range []plan.Job{w.a, w.b, w.d} {
		if rep.States[j.Work].State != plan.StateFinished {
			return false
		}
	}
	_, leaves := rep.States[w.c.Work]
	return !leaves && time.Since(w.start) > 24*time.Second && w.r.sim.Meter().Live == 0
}

// run is the loop of one process, until all is over or ctx has ended.
func (w *pauseWorld) run(ctx context.Context, t *testing.T, rec *reconcile.Reconciler) {
	for ctx.Err() == nil {
		rep, err := w.pass(context.WithoutCancel(ctx), rec)
		next := 5 * time.Second
		if err == nil {
			if next = rep.Next; w.over(rep) {
				return
			}
		}
		if time.Since(w.start) > 50*time.Minute && ctx.Err() == nil {
			t.Errorf("not over after 50 minutes: %v", rep)
			return
		}
		<-time.After(min(next, 2*time.Second))
	}
}

// inForce is the plan in force, as a third process reads it.
func (w *pauseWorld) inForce(t *testing.T) *plan.Accepted {
	a, err := w.r.reconciler(nil).Accepted(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// leases are the versions of all witnesses.
func (w *pauseWorld) leases(t *testing.T) map[string]bucket.Version {
	p, err := w.r.store.List(t.Context(), record.WitnessPrefix, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bucket.Version{}
	for _, it := range p.Items {
		out[it.Key] = it.Version
	}
	return out
}

// pausedAt runs the world with one reconciler that is stopped for an hour at its at-th call, and another that takes
// over meanwhile. It reports where the first one was stopped; "": it has no such call.
func pausedAt(t *testing.T, at int, only string, after bool) string {
	w := newPauseWorld(t)
	s := newSleeper(w.r, at, after)
	s.only = only
	first := w.r.reconciler(func(c *reconcile.Config) {
		c.Bucket, c.ID, c.Runners = s, "first", map[string]runners.Runner{"here": sleepyRunner{s}}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx, t, first)
	}()
	select {
	case <-done:
		first.Wait()
		return ""
	case <-s.asleep:
	}
	stop()                        // its pass goes on when it wakes, and is its last one
	<-time.After(5 * time.Second) // what Git names for a moment only, the other one never sees
	w.run(t.Context(), t, w.r.reconciler(func(c *reconcile.Config) { c.ID = "second" }))
	<-time.After(time.Minute)
	t.Logf("stopped at %s", s.where)
	force := w.inForce(t)
	before, launches := w.leases(t), w.r.sim.Meter().Started
	<-s.awake
	<-s.awake
	<-done
	first.Wait()
	if len(s.called) > 0 {
		t.Errorf("after it woke it called the platform: %v", s.called)
	}
	for _, key := range s.landed {
		// That it was asked about a commit which is not followed any more is said once, whoever was asked.
		if key == "accepted/-" && cmp.Equal(force, w.inForce(t)) {
			continue
		}
		// What ended dispatches taught stays true: it is created if absent, or written over the version that was read just now.
		if strings.HasPrefix(key, record.StatsPrefix) {
			continue
		}
		// A spec or a claim that was on its way, and that nobody else has made meanwhile, has nobody to refuse it. It asks for
		// nothing any more.
		if s.where == "put "+key && (strings.HasSuffix(key, "/spec.json") || strings.HasSuffix(key, "/dispatch/00000001.json")) {
			continue
		}
		// The account of a call that went out an hour ago is worth keeping: it is how its machine is found and ended.
		if !slices.Contains(s.made, key) && !(strings.Contains(key, ".release.") && slices.Contains(s.made, "release")) {
			t.Errorf("after it woke the store took its write of %s", key)
		}
	}
	if diff := cmp.Diff(before, w.leases(t)); diff != "" {
		t.Errorf("leases changed when it woke (-before +after):\n%s", diff)
	}
	if n := w.r.sim.Meter().Started; n != launches {
		t.Errorf("%d launches, %d before it woke", n, launches)
	}
	w.holds(t)
	return s.where
}

// holds: everything is as if nobody had been stopped.
func (w *pauseWorld) holds(t *testing.T) {
	w.r.wholeResult(w.a.Work, 50)
	w.r.wholeResult(w.b.Work, 50)
	w.r.wholeResult(w.d.Work, 100)
	numbers := map[string]int{}
	for _, in := range w.r.sim.Truth() {
		numbers[fmt.Sprintf("%s/%d", in.Work[:12], in.Dispatch)]++
		if in.Live {
			t.Errorf("instance %d of dispatch %d still runs", in.ID, in.Dispatch)
		}
	}
	for at, n := range numbers {
		if n > 1 {
			t.Errorf("dispatch %s was launched %d times", at, n)
		}
	}
	if seen, err := witness.Read(t.Context(), w.r.store, string(w.c.Work)); err == nil && seen.Record.State != witness.Revoked {
		t.Errorf("c is %s", seen.Record.State)
	}
}

// Given a reconciler that is stopped for an hour, at every call of a road with first launches, a hang, a write-off, a
// release, a stop and a job that comes back, before and after the call took effect; and another that takes over.
// Then all that it writes afterwards is refused, and it calls no platform.
func TestGatePausedForAnHour(t *testing.T) {
	points := func(only string, after bool) (seen map[string]int, n int) {
		seen = map[string]int{}
		for ; ; n++ {
			where := ""
			t.Run(fmt.Sprintf("%s call %d after %v", only, n+1, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { where = pausedAt(t, n+1, only, after) })
			})
			if where == "" {
				t.Logf("%s after %v, at %d calls: %v", only, after, n, seen)
				return seen, n
			}
			op, key, _ := strings.Cut(where, " ")
			if p, ok := record.Parse(key); ok {
				if key = p.Rest; key == "json" {
					key = "claim.json"
				}
			}
			seen[strings.TrimSpace(op+" "+strings.SplitN(key, "/", 2)[0])]++
		}
	}
	if _, n := points("", true); n < 150 {
		t.Errorf("it was stopped after %d calls of the road, want 150 at least", n)
	}
	// Which of them the n-th is differs from run to run. These are the ones that spend, each of them once at least.
	for only, least := range map[string]int{"launch": 3, "release": 2} {
		if _, n := points(only, true); n < least {
			t.Errorf("it was stopped after %d calls of %s, want %d at least", n, only, least)
		}
	}
	for _, after := range []bool{false, true} {
		seen, n := points("put", after)
		for _, at := range []string{"put accepted", "put spec.json", "put claim.json", "put receipt.json", "put witness", "put release.00000001.json"} {
			if seen[at] == 0 {
				t.Errorf("after %v: it was never stopped at %s", after, at)
			}
		}
		if n < 25 {
			t.Errorf("after %v: it was stopped at %d writes, want 25 at least", after, n)
		}
	}
}
