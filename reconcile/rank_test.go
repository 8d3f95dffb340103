package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// after makes a job that needs others.
func after(name string, needs []plan.Job, change ...func(*plan.Job)) plan.Job {
	return job(name, append(change, func(j *plan.Job) {
		for _, n := range needs {
			j.Inputs = append(j.Inputs, plan.Input{Job: n.Name, Work: n.Work})
		}
	})...)
}

// hours says how much a job computes, in units that are the same for all.
func hours(h float64) func(*plan.Job) { return func(j *plan.Job) { j.FLOPs.Total = h * 1e15 } }

// order is in which order the jobs were launched.
func (r *rig) order(jobs []plan.Job) string { return strings.Join(r.crews(jobs), ", ") }

// science.md P4 on one machine: the critical path goes first, whatever the names say. On machines of two places D fills
// the place beside C.
func TestTheCriticalPathGoesFirst(t *testing.T) {
	prep := job("z-prep", hours(.5))
	a, b := after("y-a", []plan.Job{prep}, hours(6)), after("x-b", []plan.Job{prep}, hours(5.5))
	c, d := after("w-c", []plan.Job{prep}, hours(5)), after("a-d", []plan.Job{prep}, hours(3))
	ens := after("v-ens", []plan.Job{a, b, c}, hours(2))
	bt := after("u-bt", []plan.Job{ens, d}, hours(1))
	for capacity, want := range map[int]string{1: "z-prep, y-a, x-b, w-c, a-d, v-ens, u-bt", 2: "z-prep, y-a x-b, w-c a-d, v-ens, u-bt"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 1, capacity: capacity})
			jobs := []plan.Job{prep, a, b, c, d, ens, bt}
			r.until(r.reconciler(nil), r.desired("c1", jobs...), time.Hour, allFinished)
			if diff := cmp.Diff(want, r.order(jobs)); diff != "" {
				t.Errorf("capacity %d (-want +got):\n%s", capacity, diff)
			}
		})
	}
}

// chain is three jobs that need one another, and one beside them.
func chain(beside plan.Job, each func(*plan.Job)) []plan.Job {
	one := job("n-1", each)
	two := after("n-2", []plan.Job{one}, each)
	return []plan.Job{beside, one, two, after("n-3", []plan.Job{two}, each)}
}

// Priority goes before rank, rank before length, length before the name; without any work stated all weigh alike, and only
// the graph counts.
func TestWhoGoesFirst(t *testing.T) {
	urgent := func(j *plan.Job) { j.Priority = 1 }
	root := job("m-root")
	t4 := func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"T4"}, Count: 1, DType: "fp16"} }
	a100 := func(j *plan.Job) { j.GPU = plan.GPU{Any: []string{"A100-SXM4-80GB"}, Count: 1, DType: "fp16"} }
	for want, jobs := range map[string][]plan.Job{
		"z, a, b":           {job("a"), job("b"), job("z", urgent)},
		"m-root, a, n-leaf": {job("a"), root, after("n-leaf", []plan.Job{root})},
		// The longest of all waits for a chain that is longer: by length alone it would go first.
		"n-1, n-2, a-side, n-3": chain(job("a-side", hours(3)), hours(2)),
		"long, short":           {job("short", hours(1)), job("long", hours(2))},
		"b, c, a":               {job("a", hours(1)), job("b"), job("c", hours(9))}, // what is not known weighs as the median
		"on-t4, on-a100":        {job("on-a100", hours(3), a100), job("on-t4", hours(2), t4)},
		"same-a, same-b":        {job("same-b", hours(1)), job("same-a", hours(1))},
		"z-now, m-root, a-2":    {after("a-2", []plan.Job{root}, hours(9)), root, job("z-now", urgent)},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 1})
			r.until(r.reconciler(nil), r.desired("c1", jobs...), time.Hour, allFinished)
			if got := r.order(jobs); got != want {
				t.Errorf("launched %q, want %q", got, want)
			}
		})
	}
}

// What was taken away near its end is shorter than what is whole: by its whole work it would go first.
func TestWhatIsLeftDecidesWhoGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1})
		taken, whole := job("a-taken", hours(4)), job("b-whole", hours(2))
		p := record.Pointer{Attempt: 1, Milestone: 1, Step: 75, Manifest: record.MilestoneManifestKey(string(taken.Work), 1, 1), SHA256: record.Hash(nil)}
		r.raw(record.WitnessKey(string(taken.Work)), witness.Record{Protocol: 1, Work: string(taken.Work), Rev: 3, Write: record.Nonce(), Attempt: 1, Dispatch: 1,
			State: witness.Yielded, Lease: witness.LeaseFor(0, time.Second, 0), Resume: &p, Progress: witness.Progress{Step: 75}})
		rep := r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry = true }), r.desired("c1", taken, whole))
		for _, a := range rep.Actions {
			if first := a.Kind == reconcile.Launch; first != (a.Work == whole.Work) {
				t.Errorf("%s: %s, %s", a.Job, a.Kind, a.Reason)
			}
		}
	})
}

// A diamond: what failed blocks what needs it, and neither its sibling nor anything else.
func TestAFailureBlocksWhatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 2 fail 5\nworker 4 fail 5"})
		top := job("top")
		left, right := after("a-left", []plan.Job{top}), after("right", []plan.Job{top})
		bottom := after("bottom", []plan.Job{left, right})
		below, aside := after("below", []plan.Job{bottom}), job("z-aside")
		jobs := []plan.Job{top, left, right, bottom, below, aside}
		rep := r.until(r.reconciler(nil), r.desired("c1", jobs...), 3*time.Hour, func(rep *reconcile.Report) bool {
			return rep.States[left.Work].State == plan.StateFailed && rep.States[right.Work].State == plan.StateFinished && rep.States[aside.Work].State == plan.StateFinished
		})
		for _, j := range []plan.Job{bottom, below} {
			if s := rep.States[j.Work]; s.State != plan.StateAbsent || !strings.Contains(s.Reason, "needs ") || !strings.Contains(s.Reason, "which failed") {
				t.Errorf("%s: %+v", j.Name, s)
			}
			if n := r.claims(j.Work); n != 0 {
				t.Errorf("%s was launched", j.Name)
			}
		}
	})
}

// Random graphs with random ends: a work is blocked exactly when one that it needs, however far up, failed; it is launched
// exactly when all that it needs are finished; nothing else keeps it.
func TestFailuresBlockWhatNeedsThem(t *testing.T) {
	graphs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if graphs++; graphs > 1000 {
			return // a thousand of them are enough
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 100})
			n := rapid.IntRange(2, 12).Draw(rt, "jobs")
			jobs, state := make([]plan.Job, n), make([]string, n)
			needs := make([][]int, n)
			for i := range jobs {
				var in []plan.Job
				whole, broken := true, false
				if i > 0 {
					needs[i] = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, 3, rapid.ID[int]).Draw(rt, "needs")
				}
				for _, k := range needs[i] {
					in = append(in, jobs[k])
					whole, broken = whole && state[k] == "finished", broken || state[k] == "failed" || state[k] == "blocked"
				}
				jobs[i] = after(fmt.Sprintf("job-%02d", i), in)
				switch {
				case broken:
					state[i] = "blocked"
				case !whole:
					state[i] = "waits"
				default:
					state[i] = rapid.SampledFrom([]string{"finished", "failed", "due"}).Draw(rt, "end")
				}
				if state[i] == "finished" || state[i] == "failed" {
					r.over(jobs[i], state[i] == "failed")
				}
			}
			rep := r.pass(r.reconciler(func(c *reconcile.Config) { c.Dry = true }), r.desired("c1", slices.Clone(jobs)...))
			kinds := map[plan.Digest]reconcile.Kind{}
			for _, a := range rep.Actions {
				kinds[a.Work] = a.Kind
			}
			want := map[string]reconcile.Kind{"finished": reconcile.None, "failed": reconcile.None, "blocked": reconcile.Blocked, "waits": reconcile.Wait, "due": reconcile.Launch}
			for i, j := range jobs {
				if kinds[j.Work] != want[state[i]] {
					rt.Fatalf("%s needs %v and is to be %s (all: %v): %v, %+v", j.Name, needs[i], state[i], state, kinds[j.Work], rep.States[j.Work])
				}
			}
		})
	})
	if graphs < 1000 {
		t.Errorf("%d graphs", graphs)
	}
}

// over writes the lease of a work that has finished, with an exit code of one if it failed.
func (r *rig) over(j plan.Job, failed bool) {
	work := string(j.Work)
	fin := &witness.FinishedPointer{Attempt: 1, Manifest: record.ResultManifestKey(work, 1), SHA256: record.Hash(nil)}
	if failed {
		fin.ExitCode = 1
	}
	r.raw(record.WitnessKey(work), witness.Record{Protocol: 1, Work: work, Rev: 3, Write: record.Nonce(), Attempt: 1, Dispatch: 1, State: witness.Finished,
		Lease: witness.LeaseFor(0, time.Second, 0), Finished: fin})
}
