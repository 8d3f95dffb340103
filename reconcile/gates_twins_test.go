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
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// ledger is every write to a store, with who asked for it, in the order in which the store decided.
type ledger struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	actor, key string
	body       []byte
	refused    bool
}

// written is a store as one actor uses it; at its nap-th call it is stopped for a while, before or after the call.
type written struct {
	bucket.Bucket
	log   *ledger
	actor string
	mu    sync.Mutex
	n     int
	nap   int
	after bool
	long  time.Duration
	slept bool
}

func (w *written) call(f func()) {
	w.mu.Lock()
	w.n++
	mine := w.n == w.nap
	w.slept = w.slept || mine
	w.mu.Unlock()
	if mine && !w.after {
		<-time.After(w.long)
	}
	f()
	if mine && w.after {
		<-time.After(w.long)
	}
}

func (w *written) Get(ctx context.Context, key string, r bucket.Range) (o *bucket.Object, err error) {
	w.call(func() { o, err = w.Bucket.Get(context.WithoutCancel(ctx), key, r) })
	return o, err
}

func (w *written) List(ctx context.Context, prefix, after string, limit int) (p *bucket.Page, err error) {
	w.call(func() { p, err = w.Bucket.List(context.WithoutCancel(ctx), prefix, after, limit) })
	return p, err
}

func (w *written) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (v bucket.Version, err error) {
	w.call(func() {
		b := make([]byte, body.Size())
		_, _ = body.ReadAt(b, 0)
		w.log.mu.Lock()
		defer w.log.mu.Unlock()
		v, err = w.Bucket.Put(context.WithoutCancel(ctx), key, body, c)
		w.log.rows = append(w.log.rows, row{w.actor, key, b, err != nil})
	})
	return v, err
}

// twins runs a work whose first worker is stopped for five minutes at its nap-th call, and goes on while the second one
// is at it. It reports whether it was, and how many writes of a lower attempt came after a higher one was captured.
func twins(t *testing.T, nap int, after bool) (reached bool, late int) {
	r := newRig(t, rigConfig{})
	log := &ledger{}
	first := &written{Bucket: r.store, log: log, actor: "here", nap: nap, after: after, long: 5 * time.Minute}
	second := &written{Bucket: r.store, log: log, actor: "there"}
	loop := &written{Bucket: r.store, log: log, actor: "loop"}
	notYet := []sim.Fault{{Op: sim.OpRelease, Effect: sim.NotYet}}
	var err error
	if r.sim, err = sim.New(sim.Config{Platform: "here", Bucket: first, Script: notYet}); err != nil {
		t.Fatal(err)
	}
	there, err := sim.New(sim.Config{Platform: "there", Slots: 9, Bucket: second, Model: sim.Model{Step: 9 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.sim.Close)
	t.Cleanup(there.Close)
	r.conf.Platforms["there"] = plan.Platform{Name: "there", Runner: "sim", Slots: 9}
	rec := r.reconciler(func(c *reconcile.Config) {
		c.Bucket, c.Runners = loop, map[string]runners.Runner{"here": r.sim, "there": there}
	})
	j := job("a", func(j *plan.Job) { j.On = []string{"here", "there"} })
	r.until(rec, r.desired("c1", j), 2*time.Hour, allFinished)
	<-time.After(10 * time.Minute) // whoever still sleeps wakes, and does its worst
	rec.Wait()
	synctest.Wait()
	r.wholeResult(j.Work, 100)
	return first.slept, log.judge(t, j.Work)
}

// judge holds the log against the rule: the prefix of an attempt and the lease belong to whoever captured it.
func (l *ledger) judge(t *testing.T, w plan.Digest) (late int) {
	owner := map[int64]string{}
	newest := int64(0)
	for _, e := range l.rows {
		if e.key == record.WitnessKey(string(w)) {
			rec, err := witness.Decode(string(w), e.body)
			if err != nil {
				t.Fatal(err)
			}
			if rec.Attempt < newest && e.actor != "loop" {
				late++
			}
			if e.refused {
				continue
			}
			switch {
			case rec.Attempt < newest:
				t.Errorf("%s wrote the lease for attempt %d after %d was captured", e.actor, rec.Attempt, newest)
			case rec.Attempt > newest:
				newest, owner[rec.Attempt] = rec.Attempt, e.actor
			case e.actor != owner[newest] && e.actor != "loop":
				t.Errorf("%s wrote the lease of attempt %d, which is %s's", e.actor, newest, owner[newest])
			}
			continue
		}
		if p, ok := record.Parse(e.key); ok && p.Attempt > 0 {
			if p.Attempt < newest {
				late++
			}
			if e.actor != owner[p.Attempt] {
				t.Errorf("%s wrote %s, and attempt %d is %q's", e.actor, e.key, p.Attempt, owner[p.Attempt])
			}
		}
	}
	return late
}

// Given attempts 1 and 2 of a work that are alive at once, for every call at which the first can have been stopped.
// Then the higher number wins, always, and no byte under its prefix is written by the other.
func TestGateTwoAttemptsAlive(t *testing.T) {
	late, both := 0, 0
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			reached, more := false, 0
			t.Run(fmt.Sprintf("call %d after %v", n, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { reached, more = twins(t, n, after) })
			})
			if !reached {
				break
			}
			both++
			late += more
		}
	}
	if both < 60 || late < both {
		t.Fatalf("%d roads on which the first was stopped, %d writes of it when the second had the lease: the two never met", both, late)
	}
	t.Logf("%d roads, %d late writes", both, late)
}

// Given a platform that loses the answer of 30 % of its launches, workers that die and hang, and machines that are paid
// for until they are released. Then every work finishes, at each moment what runs is explained by the store or listed as
// an orphan, and after a while nothing runs any more but what is not ours to end, which stays listed.
func TestGateLostAnswers(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lostAnswers(t, rand.New(rand.NewPCG(seed, 8))) })
		})
	}
}

func lossy(t *testing.T, rng *rand.Rand, b bucket.Bucket) *sim.Runner {
	var script strings.Builder
	for i := 2; i <= 120; i++ {
		switch rng.IntN(20) {
		case 0, 1, 2, 3, 4, 5:
			fmt.Fprintf(&script, "launch %d lost\n", i)
		case 6:
			fmt.Fprintf(&script, "launch %d twice\n", i)
		case 7:
			fmt.Fprintf(&script, "launch %d late 4m\n", i)
		}
		switch rng.IntN(10) {
		case 0, 1:
			fmt.Fprintf(&script, "worker %d hang %d\n", i, 12+rng.IntN(80))
		case 2:
			fmt.Fprintf(&script, "worker %d die %d\n", i, rng.IntN(100))
		case 3:
			fmt.Fprintf(&script, "worker %d mute\n", i)
		}
	}
	faults, err := sim.ParseScript("worker 1 mute\n" + script.String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Platform: "here", Slots: 200, Bucket: b, Script: faults, UntilReleased: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func lostAnswers(t *testing.T, rng *rand.Rand) {
	r := newRig(t, rigConfig{})
	r.sim = lossy(t, rng, r.store)
	r.conf.Platforms["here"] = plan.Platform{Name: "here", Runner: "sim", Slots: 200}
	// One instance of another team's store, under the same account.
	foreign := runners.Launch{Work: record.Hash([]byte("theirs")), Dispatch: 7, Job: "theirs"}
	if _, err := r.sim.Launch(t.Context(), []runners.Launch{foreign}); err != nil {
		t.Fatal(err)
	}
	jobs := numbered(30, func(j *plan.Job) { j.Limits.Retries = 20 })
	rec, d := r.reconciler(nil), r.desired("c1", jobs...)
	orphans := 0
	each := func(rep *reconcile.Report) bool {
		orphans += r.accounted(rec)
		return allFinished(rep)
	}
	r.until(rec, d, 6*time.Hour, each)
	var rep *reconcile.Report
	r.passFor(rec, d, 45*time.Minute, func(got *reconcile.Report) { rep = got; each(got) })
	for _, j := range jobs {
		r.wholeResult(j.Work, 100)
	}
	m := r.sim.Meter()
	if m.Fired[sim.Lost] < 5 || m.Fired[sim.Hang] == 0 || orphans == 0 {
		t.Fatalf("too little went wrong: %v, %d orphans seen", m.Fired, orphans)
	}
	if m.Live != 1 || !r.sim.Truth()[0].Live || len(rep.Orphans) != 1 {
		t.Fatalf("%d instances live, orphans %+v: want theirs alone", m.Live, rep.Orphans)
	}
	if o := rep.Orphans[0]; string(o.Work) != foreign.Work || o.Dispatch != 7 || o.Ours || !strings.Contains(o.End, "instance 1") {
		t.Errorf("orphan %+v", o)
	}
}

// accounted checks that each live instance is explained by a lease, a window or an open receipt, or listed as an orphan
// with its age and its end. It returns how many are.
func (r *rig) accounted(rec *reconcile.Reconciler) (orphans int) {
	r.t.Helper()
	synctest.Wait() // nobody moves between the two looks
	list, err := rec.Orphans(r.t.Context(), r.conf.Platforms)
	if err != nil {
		r.t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, o := range list {
		listed[fmt.Sprintf("%s/%d %s", o.Work, o.Dispatch, o.Text)] = true
		if o.End == "" || o.Why == "" || o.Ours && (o.Age <= 0 || (o.End != fmt.Sprintf("headway release %s --dispatch %d", o.Work.Short(), o.Dispatch) || !strings.HasPrefix(o.Job, "job-"))) {
			r.t.Errorf("an orphan that leaves something out: %+v", o)
		}
	}
	for _, in := range r.sim.Truth() {
		if in.Live && !r.explained(in) && !listed[fmt.Sprintf("%s/%d instance %d", in.Work, in.Dispatch, in.ID)] {
			r.t.Errorf("instance %d of dispatch %d runs, nothing explains it, and it is no orphan", in.ID, in.Dispatch)
		}
	}
	return len(list)
}

// explained is the test's own reading of the store, as an operator would do it by hand.
func (r *rig) explained(in sim.Instance) bool {
	list, err := runners.Dispatcher{Bucket: r.store}.ReadClaims(r.t.Context(), in.Work, in.Dispatch-1, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(list) == 0 || list[0].N != in.Dispatch {
		return false
	}
	seen, err := witness.Read(r.t.Context(), r.store, in.Work)
	l := seen.Record
	if err == nil && l.State == witness.Held && l.Dispatch == in.Dispatch && (in.Attempt == l.Attempt || in.Attempt == 0) {
		return true
	}
	var h struct{ Instance int }
	open := list[0].Receipt != nil && list[0].Receipt.OK && json.Unmarshal(list[0].Receipt.Handle, &h) == nil && h.Instance == in.ID &&
		(list[0].Release == nil || list[0].Release.Settlement != "closed")
	o, err := r.store.Get(r.t.Context(), record.ClaimKey(in.Work, in.Dispatch), bucket.Range{})
	if err != nil {
		r.t.Fatal(err)
	}
	o.Body.Close()
	// A stamp is of a whole second: who first saw the claim late in one counts its age up to a second less than we do here.
	// Until that has passed too, both are right.
	window := time.Duration(list[0].Claim.CaptureS*float64(time.Second)) + time.Second
	return open && l.State != witness.Finished || time.Since(o.Modified) < window && in.Dispatch > l.Dispatch
}
