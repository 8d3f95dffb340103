package reconcile_test

import (
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// TestMain asks for thousands of cases of each property: they are pure and cost microseconds.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(cases)
	}
	goleak.VerifyTestMain(m)
}

// rig is one store with one simulated platform. It lives in a synctest bubble: hours pass in milliseconds.
type rig struct {
	t     *testing.T
	store *mem.Bucket
	sim   *sim.Runner
	conf  plan.Config
	seen  []reconcile.Action // everything that any pass did
}

type rigConfig struct {
	slots    int
	capacity int // jobs of one launch
	script   string
	model    sim.Model
	store    bucket.Bucket // what the workers use; nil: the rig's own
}

func newRig(t *testing.T, c rigConfig) *rig {
	t.Helper()
	r := &rig{t: t, store: mem.New()}
	script, err := sim.ParseScript(c.script)
	if err != nil {
		t.Fatal(err)
	}
	if c.store == nil {
		c.store = r.store
	}
	c.slots = max(c.slots, 1)
	if r.sim, err = sim.New(sim.Config{Platform: "here", Slots: c.slots, Capacity: c.capacity, Bucket: c.store, Model: c.model, Script: script, Price: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.sim.Close)
	r.conf = plan.Config{Platforms: map[string]plan.Platform{"here": {Name: "here", Runner: "sim", Slots: c.slots}}, Guard: plan.Guard{Prune: 0.2}}
	return r
}

// reconciler returns one more reconciler on the rig's store.
func (r *rig) reconciler(change func(*reconcile.Config)) *reconcile.Reconciler {
	r.t.Helper()
	c := reconcile.Config{Bucket: r.store, StoreURL: "mem:", Runners: map[string]runners.Runner{"here": r.sim}, ID: "test", Log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&c)
	}
	rec, err := reconcile.New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// job makes a job on the rig's platform.
func job(name string, change ...func(*plan.Job)) plan.Job {
	j := plan.Job{Name: name, Group: name, Kind: "train", Argv: []string{"train", name}, Run: "train " + name, On: []string{"here"},
		Limits: plan.Limits{Retries: 5}, Milestones: plan.Milestones{Steps: 10}, FLOPs: flops.Work{Steps: 100}, OnDelete: plan.Drain, Generation: 1}
	for _, f := range change {
		f(&j)
	}
	j.Work = j.Digest()
	return j
}

// desired is a clean read of a commit with these jobs.
func (r *rig) desired(commit string, jobs ...plan.Job) *reconcile.Desired {
	slices.SortFunc(jobs, func(a, b plan.Job) int { return strings.Compare(a.Name, b.Name) })
	return &reconcile.Desired{Plan: &plan.Plan{Config: r.conf, Jobs: jobs, Files: []string{"plans/a.yaml"}}, Commit: commit,
		Fresh: true, Complete: true, AllowStops: -1}
}

// until passes, and waits as long as each pass says, until done or until limit has passed.
func (r *rig) until(rec *reconcile.Reconciler, d *reconcile.Desired, limit time.Duration, done func(*reconcile.Report) bool) *reconcile.Report {
	r.t.Helper()
	start := time.Now()
	for {
		rep := r.pass(rec, d)
		if done(rep) {
			return rep
		}
		if time.Since(start) > limit {
			r.t.Fatalf("not done after %v; states: %v; errors: %v", limit, rep.States, rep.Errors)
		}
		<-time.After(rep.Next)
	}
}

func (r *rig) pass(rec *reconcile.Reconciler, d *reconcile.Desired) *reconcile.Report {
	r.t.Helper()
	rep, err := rec.Pass(r.t.Context(), d)
	if err != nil {
		r.t.Fatal(err)
	}
	r.seen = append(r.seen, rep.Actions...)
	return rep
}

// acts counts what was really done of a kind.
func (r *rig) acts(k reconcile.Kind) (n int) {
	for _, a := range r.seen {
		if a.Kind == k && a.Done {
			n++
		}
	}
	return n
}

func allFinished(rep *reconcile.Report) bool {
	for _, s := range rep.States {
		if s.State != plan.StateFinished {
			return false
		}
	}
	return len(rep.States) > 0
}

func stateIs(w plan.Digest, state string) func(*reconcile.Report) bool {
	return func(rep *reconcile.Report) bool { return rep.States[w].State == state }
}

// lease reads a witness.
func (r *rig) lease(w plan.Digest) witness.Record {
	r.t.Helper()
	seen, err := witness.Read(r.t.Context(), r.store, string(w))
	if err != nil {
		r.t.Fatal(err)
	}
	return seen.Record
}

// wholeResult checks that a result holds every step exactly once.
func (r *rig) wholeResult(w plan.Digest, steps int64) {
	r.t.Helper()
	rec := r.lease(w)
	if rec.State != witness.Finished {
		r.t.Fatalf("work %s is %s", w.Short(), rec.State)
	}
	got := r.read(record.ResultPrefix(string(w), rec.Attempt) + sim.StateFile)
	want := sim.Expect(string(w), steps)
	if !strings.Contains(got, want.Chain) {
		r.t.Errorf("result of %s is %s, want chain %s", w.Short(), got, want.Chain)
	}
}

func (r *rig) read(key string) string {
	r.t.Helper()
	o, err := r.store.Get(r.t.Context(), key, bucket.Range{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer o.Body.Close()
	b := make([]byte, o.Size)
	n, _ := o.Body.Read(b)
	return string(b[:n])
}

// claims lists the dispatch numbers of a work that are claimed.
func (r *rig) claims(w plan.Digest) int {
	r.t.Helper()
	list, err := runners.Dispatcher{Bucket: r.store}.ReadClaims(r.t.Context(), string(w), 0, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list)
}

func (r *rig) explain(rec *reconcile.Reconciler, j plan.Job) *reconcile.Explanation {
	r.t.Helper()
	e, err := rec.Explain(r.t.Context(), &j, &r.conf)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

func numbered(n int, change ...func(*plan.Job)) []plan.Job {
	out := make([]plan.Job, n)
	for i := range out {
		out[i] = job(fmt.Sprintf("job-%05d", i), change...)
	}
	return out
}
