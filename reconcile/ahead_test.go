package reconcile_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// called notes what a store was asked before a platform was first called.
type called struct {
	runners.Runner
	store *listed
	first func()
}

func (c *called) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	if c.first != nil {
		c.first()
		c.first = nil
	}
	return c.Runner.Launch(ctx, jobs)
}

// listed counts the listings of leases.
type listed struct {
	bucket.Bucket
	leases int
}

func (l *listed) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if prefix == record.WitnessPrefix {
		l.leases++
	}
	return l.Bucket.List(ctx, prefix, after, limit)
}

// What a commit brings is launched, and what it drops is stopped, before the leases of all others are looked at.
func TestACommitIsActedOnAheadOfThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 400, model: sim.Model{Step: time.Minute, Steps: 100}})
		store := &listed{Bucket: counting.New(r.store)}
		platform := &called{Runner: r.sim, store: store}
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bucket, c.Runners = store, map[string]runners.Runner{"here": platform}
		})
		jobs := numbered(300, func(j *plan.Job) { j.OnDelete = plan.Revoke })
		r.pass(rec, r.desired("c1", jobs...))
		<-time.After(10 * time.Second)
		r.pass(rec, r.desired("c1", jobs...))
		gone := jobs[7]
		jobs = slices.Clone(jobs)
		jobs[7] = job("new")
		leases, at, before := store.leases, -1, store.Bucket.(*counting.Bucket).Counts()
		var asked counting.Counts
		platform.first = func() { at, asked = store.leases, store.Bucket.(*counting.Bucket).Counts() }
		rep := r.pass(rec, r.desired("c2", jobs...))
		if at != leases || store.leases == leases {
			t.Errorf("%d listings of leases before the launch, %d in the pass", at-leases, store.leases-leases)
		}
		if n := asked.Get + asked.List + asked.Put - before.Get - before.List - before.Put; n > 16 {
			t.Errorf("%d requests before the launch", n)
		}
		if got := r.lease(gone.Work).State; got != "revoked" || !rep.Accepted || len(rep.States) < 300 {
			t.Errorf("the work that left is %s; accepted: %v; %d states", got, rep.Accepted, len(rep.States))
		}
		if n := r.acts(reconcile.Launch); n != 301 {
			t.Errorf("%d launches are in the reports", n)
		}
	})
}

// edit is one commit of a series: what it does to each job.
type edit struct {
	what  []string // per job: "", add, drop, seed, priority, suspend, need
	after time.Duration
}

func drawEdits(rt *rapid.T, jobs int) []edit {
	out := make([]edit, rapid.IntRange(2, 6).Draw(rt, "commits"))
	for i := range out {
		out[i].what = make([]string, jobs)
		for range rapid.IntRange(0, 3).Draw(rt, "edits") {
			out[i].what[rapid.IntRange(0, jobs-1).Draw(rt, "job")] = rapid.SampledFrom([]string{"add", "drop", "seed", "priority", "suspend", "need", "name"}).Draw(rt, "what")
		}
		out[i].after = time.Duration(rapid.IntRange(0, 25).Draw(rt, "seconds")) * time.Second
	}
	return out
}

// play follows a series of commits and says how everything stands in the end. Cold: by a process that has just begun, each
// time; it knows nothing that it could go ahead by.
func play(t *testing.T, edits []edit, slots int, cold bool) (end string, ahead int) {
	r := newRig(t, rigConfig{slots: slots, model: sim.Model{Start: 100 * time.Millisecond, Step: time.Second, Steps: 12, Milestone: 4}})
	const most = 12
	seeds, on, names := make([]int64, most), make([]bool, most), make([]string, most)
	prio, suspend, need := make([]int, most), make([]bool, most), make([]bool, most)
	for i := range on {
		on[i], names[i] = i%3 > 0, fmt.Sprintf("j%02d", i)
	}
	said := &aheads{}
	log := func(c *reconcile.Config) { c.Log = slog.New(said) }
	rec := r.reconciler(log)
	works := map[plan.Digest]bool{}
	var d *reconcile.Desired
	for n, e := range append([]edit{{what: make([]string, most)}}, edits...) {
		for i, what := range e.what {
			switch what {
			case "add", "drop":
				on[i] = what == "add"
			case "seed":
				seeds[i]++
			case "priority":
				prio[i]++
			case "suspend":
				suspend[i] = !suspend[i]
			case "need":
				need[i] = !need[i]
			case "name":
				names[i] += "x"
			}
		}
		var jobs []plan.Job
		for i := range on {
			if !on[i] {
				continue
			}
			jobs = append(jobs, job(names[i], steps(12, 4), func(j *plan.Job) {
				j.Seed, j.Priority, j.Suspend, j.OnDelete = seeds[i], prio[i], suspend[i], []plan.OnDelete{plan.Drain, plan.Revoke, plan.Orphan}[i%3]
				j.Argv, j.Run = []string{"train", fmt.Sprint(i)}, "train" // its name is not part of its work
				if need[i] && len(jobs) > 0 {
					j.Inputs = []plan.Input{{Job: jobs[len(jobs)-1].Name, Work: jobs[len(jobs)-1].Work}}
				}
			}))
			works[jobs[len(jobs)-1].Work] = true
		}
		if cold {
			rec.Wait()
			rec = r.reconciler(log)
		}
		d = r.desired(fmt.Sprintf("c%d", n), jobs...)
		rep := r.pass(rec, d)
		for end := time.Now().Add(e.after); time.Now().Before(end); rep = r.pass(rec, d) {
			<-time.After(min(rep.Next, time.Until(end)))
		}
	}
	for end := time.Now().Add(3 * time.Hour); time.Now().Before(end); {
		<-time.After(r.pass(rec, d).Next)
	}
	return r.standing(rec, d, works, slots < most), int(said.n.Load())
}

// aheads counts how often a log says that a commit was acted on ahead of the pass.
type aheads struct {
	slog.Handler
	n atomic.Int64
}

func (a *aheads) Enabled(context.Context, slog.Level) bool { return true }
func (a *aheads) WithAttrs([]slog.Attr) slog.Handler       { return a }
func (a *aheads) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "ahead of the pass") {
		a.n.Add(1)
	}
	return nil
}

// standing is everything that must not depend on the way: what is in force, how each work stands, how often it was launched.
// Where works wait for each other's places, a tenth of a second decides who is first, and so what has begun when a commit
// suspends it or lets it go: then it is what is in force, that what is wanted has finished, and that nothing else runs.
func (r *rig) standing(rec *reconcile.Reconciler, d *reconcile.Desired, works map[plan.Digest]bool, crowded bool) string {
	rep := r.pass(rec, d)
	force, err := rec.Accepted(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	lines := []string{fmt.Sprintf("%s %v %v %v", rep.Commit, rep.Accepted, rep.Refusals, rep.Errors)}
	for _, j := range force.Jobs {
		state := rep.States[j.Work].State
		if at := slices.IndexFunc(d.Plan.Jobs, func(o plan.Job) bool { return o.Work == j.Work }); crowded && (at < 0 || d.Plan.Jobs[at].Suspend || len(d.Plan.Jobs[at].Inputs) > 0) {
			state = "any"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s", j.Name, j.Work.Short(), j.Placement, j.Metadata, state))
	}
	var all []plan.Digest
	for w := range works {
		all = append(all, w)
	}
	seen, err := rec.Observe(r.t.Context(), all, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	o := seen.Observed()
	for _, w := range slices.Sorted(maps.Keys(works)) {
		if crowded {
			lines = append(lines, fmt.Sprintf("%s runs: %v", w.Short(), o[w].State == plan.StateHeld || o[w].State == plan.StateClaimed))
			continue
		}
		step := fmt.Sprint(o[w].Step)
		if o[w].State == plan.StateRevoked {
			step = "any" // whether it was stopped before its first milestone or drained to it is a matter of tenths of a second
		}
		lines = append(lines, fmt.Sprintf("%s %s at step %s, %d launches", w.Short(), o[w].State, step, r.claims(w)))
	}
	return strings.Join(lines, "\n")
}

// Whether a process goes ahead with what a commit changes or looks at everything first, all ends the same.
func TestAheadEndsAsAColdPassDoes(t *testing.T) {
	wentAhead := 0
	checks := flag.Lookup("rapid.checks").Value
	asked := checks.String()
	defer func() { _ = checks.Set(asked) }()
	_ = checks.Set("50") // each plays hours, twice
	rapid.Check(t, func(rt *rapid.T) {
		edits := drawEdits(rt, 12)
		slots := rapid.SampledFrom([]int{2, 100}).Draw(rt, "slots")
		var warm, cold string
		synctest.Test(t, func(t *testing.T) {
			var n int
			warm, n = play(t, edits, slots, false)
			wentAhead += n
		})
		synctest.Test(t, func(t *testing.T) { cold, _ = play(t, edits, slots, true) })
		if d := cmp.Diff(cold, warm); d != "" {
			rt.Fatalf("(-cold +ahead):\n%s", d)
		}
	})
	if wentAhead < 20 {
		t.Errorf("a commit was acted on ahead of the pass %d times", wentAhead)
	}
}
