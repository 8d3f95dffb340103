package reconcile

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// kin is a runner of a family.
type kin struct {
	runners.Runner
	family runners.Family
}

func (k kin) Family() runners.Family { return k.family }

// taught is a reconciler whose book holds these observations of platform p.
func taught(list ...record.Observation) *Reconciler {
	r := &Reconciler{book: &goodput.Book{}}
	for i, o := range list {
		o.Protocol, o.Platform, o.GPU, o.Mode, o.Family = record.Protocol, "p", "cpu", "none", "f"
		o.Work, o.Dispatch, o.Time = strings.Repeat("a", 64), int64(i)+1, "2026-01-02T03:04:05Z"
		if !r.book.Add(o) {
			panic("an observation that no dispatcher writes") // can't happen: this test made it
		}
	}
	return r
}

func captured(s, warm float64) record.Observation {
	return record.Observation{Captured: true, CaptureS: s, StartS: s, FirstStepS: warm, PaidS: 1000, Class: "finished"}
}

func (r *Reconciler) timersOn(p plan.Platform, run runners.Runner, j plan.Job, was past) Timers {
	p.Name = "p"
	return r.timersOf(&j, &platform{conf: p, runner: run}, was)
}

// TestBeforeAnyData: every number is its start value before anything was learnt; milestones are Young's by the family's prior.
func TestBeforeAnyData(t *testing.T) {
	r := taught()
	got := r.timersOn(plan.Platform{}, nil, plan.Job{}, past{stepS: 3})
	var terms record.Terms
	got.apply(&terms)
	if got.window() != 2*time.Minute || terms.LeaseK != witness.DefaultK || terms.MilestoneS != 2700 || !terms.MilestoneAssumed || terms.WarmS != 0 || got.Lease.Value != 150 {
		t.Errorf("%+v, terms %+v", got, terms)
	}
	for family, want := range map[runners.Family]time.Duration{runners.OwnProcess: 2 * time.Minute, runners.ForeignRuntime: 20 * time.Minute, runners.BareContainer: 35 * time.Minute} {
		if got := r.timersOn(plan.Platform{}, kin{family: family}, plan.Job{}, past{}).window(); got != want {
			t.Errorf("%s: %s, want %s", family, got, want)
		}
	}
	for family, want := range map[runners.Family]string{
		runners.OwnProcess:     "milestones every 2700 s: by Young 2277 s, rounded: no snapshot of this job was measured yet, so one is assumed to block the loop for 30 s (30 GB at 1 GB/s); something is lost every 86400 s",
		runners.ForeignRuntime: "milestones every 1200 s: by Young 1138 s, rounded: no snapshot of this job was measured yet, so one is assumed to block the loop for 30 s (30 GB at 1 GB/s); something is lost every 21600 s",
	} {
		timers := r.timersOn(plan.Platform{}, kin{family: family}, plan.Job{}, past{})
		if lines := strings.Join(timers.Lines(), "\n"); timers.Milestone.Rule != patience.RulePrior || !strings.Contains(lines, want) {
			t.Errorf("%s: %s\nwant %s", family, lines, want)
		}
	}
}

// TestTheCaptureWindowIsLearnt: the brief's example, its bounds, and that the plan wins.
func TestTheCaptureWindowIsLearnt(t *testing.T) {
	var list []record.Observation
	for _, s := range []float64{180, 240, 210, 420, 300} {
		list = append(list, captured(s, 0))
	}
	bare := kin{family: runners.BareContainer}
	got := taught(list...).timersOn(plan.Platform{}, bare, plan.Job{}, past{})
	if math.Abs(got.Capture.Value-925.08) > .1 || got.Capture.Why != "prediction bound of 5 captures (median 258 s) blended with the prior of bare containers" {
		t.Errorf("%+v", got.Capture)
	}
	if got := taught(list...).timersOn(plan.Platform{Capture: time.Minute}, bare, plan.Job{}, past{}); got.window() != time.Minute || got.Capture.Rule != patience.RulePlan {
		t.Errorf("the plan says a minute: %+v", got.Capture)
	}
	quick, never := make([]record.Observation, 40), make([]record.Observation, 300)
	for i := range quick {
		quick[i] = captured(.5, 0)
	}
	for i := range never {
		never[i] = record.Observation{Class: "no_capture", CaptureS: 120}
	}
	if got := taught(quick...).timersOn(plan.Platform{}, nil, plan.Job{}, past{}); got.window() != time.Minute || !strings.Contains(got.Capture.Why, "60 s at least") {
		t.Errorf("half a second each: %+v", got.Capture)
	}
	never[0] = captured(100, 0)
	if got := taught(never...).timersOn(plan.Platform{}, nil, plan.Job{}, past{}); got.window() > 8*time.Minute || got.window() < 2*time.Minute {
		t.Errorf("launches that are dead for good: %+v", got.Capture)
	}
}

// TestTheWarmUpIsLearnt and is never less than what a worker promises of its start by itself.
func TestTheWarmUpIsLearnt(t *testing.T) {
	for warm, least := range map[float64]float64{1: 45, 300: 300, 1e6: 3600} {
		var list []record.Observation
		for range 10 {
			list = append(list, captured(1, warm))
		}
		got := taught(list...).timersOn(plan.Platform{}, nil, plan.Job{}, past{})
		var terms record.Terms
		got.apply(&terms)
		if terms.WarmS < least || terms.WarmS > 3600 {
			t.Errorf("ten warm-ups of %v s: %+v", warm, got.Warm)
		}
	}
}

// steady is an attempt of so many steps without an incident.
func steady(n int64) record.Observation {
	o := captured(1, 1)
	o.All.Ratios.Done = map[int]int64{record.BinOf(1): n}
	return o
}

// TestTheLeaseIsLearntFromAbove: one revision for each attempt, for slow steps only; raised at once by a worker that was
// written off alive; the job's own lease.k wins, and so does the floor.
func TestTheLeaseIsLearntFromAbove(t *testing.T) {
	slow := past{stepS: 60}
	list := []record.Observation{steady(50_000)}
	for _, want := range []float64{35, 24.5} {
		if got := taught(list...).timersOn(plan.Platform{}, nil, plan.Job{}, slow); math.Abs(got.K.Value-want) > 1e-3 || got.Lease.Value != got.K.Value*60 {
			t.Errorf("after %d attempts: %+v, want %v steps", len(list), got.K, want)
		}
		list = append(list, steady(50_000))
	}
	if got := taught(list...).timersOn(plan.Platform{}, nil, plan.Job{}, past{stepS: .2}); got.K.Value != 50 || got.Lease.Value != 15 {
		t.Errorf("fast steps have nothing to gain: %+v", got)
	}
	if got := taught(list...).timersOn(plan.Platform{}, nil, plan.Job{}, past{stepS: 60, k: 50}); got.K.Value < 35 {
		t.Errorf("the job's last attempt had 50 steps: %+v", got.K)
	}
	j := plan.Job{}
	j.Lease.K, j.Lease.Floor = 7, time.Hour
	if got := taught(list...).timersOn(plan.Platform{}, nil, j, slow); got.K.Value != 7 || got.Lease.Value != 3600 || got.K.Rule != patience.RulePlan {
		t.Errorf("the job says 7 steps and an hour: %+v", got)
	}
	woke := steady(100)
	woke.Class, woke.All.Ratios.Censored = "silent", map[int]int64{record.BinOf(40): 1}
	got := taught(append(list, woke)...).timersOn(plan.Platform{}, nil, plan.Job{}, slow)
	if survives := got.K.Value * 2 / 3; survives < 1.5*40 || got.K.Rule != patience.RuleFalse {
		t.Errorf("written off alive at 40 medians: %+v", got.K)
	}
}

// TestMilestonesAreAdvisedOnceMeasured: by what is assumed until a snapshot was, the job's own word always.
func TestMilestonesAreAdvisedOnceMeasured(t *testing.T) {
	r := taught()
	was := past{stepS: 1, snapshots: patience.Snapshots{Blocked: 30, Upload: 60, N: 4}}
	if got := r.timersOn(plan.Platform{}, nil, plan.Job{}, was); got.Milestone.Value != 2700 || got.Milestone.Rule != patience.RuleYoungDaly { // Daly of 30 s and a day: 2257 s
		t.Errorf("%+v", got.Milestone)
	}
	was.snapshots.Upload = 3000
	if got := r.timersOn(plan.Platform{}, nil, plan.Job{}, was); got.Milestone.Value < 6000 {
		t.Errorf("an upload of 3000 s: %+v", got.Milestone)
	}
	for _, j := range []plan.Job{{Milestones: plan.Milestones{Steps: 10}}, {Milestones: plan.Milestones{Every: time.Minute}}} {
		got := r.timersOn(plan.Platform{}, nil, j, was)
		terms := record.Terms{MilestoneSteps: j.Milestones.Steps}
		got.apply(&terms)
		if got.Milestone.Rule != patience.RulePlan || terms.MilestoneSteps != j.Milestones.Steps || terms.MilestoneS != j.Milestones.Every.Seconds() {
			t.Errorf("the job says %+v: %+v", j.Milestones, terms)
		}
	}
}

// TestTimersAreSane: whatever strangers' workers wrote, every number stays within its bounds and says where it is from.
func TestTimersAreSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []record.Observation
		for range rapid.IntRange(0, 12).Draw(t, "observations") {
			o := captured(rapid.Float64Range(0, 1e9).Draw(t, "capture"), rapid.Float64Range(0, 1e9).Draw(t, "warm"))
			o.Captured = rapid.Bool().Draw(t, "captured")
			o.Class = rapid.SampledFrom([]string{"silent", "finished", "yielded"}).Draw(t, "class")
			o.All.Ratios.Done = map[int]int64{rapid.IntRange(0, record.MaxBin).Draw(t, "bin"): rapid.Int64Range(0, 1e15).Draw(t, "n")}
			if rapid.Bool().Draw(t, "cut") {
				o.All.Ratios.Censored = map[int]int64{rapid.IntRange(0, record.MaxBin).Draw(t, "cut bin"): rapid.Int64Range(0, 1e15).Draw(t, "cuts")}
			}
			list = append(list, o)
		}
		was := past{stepS: rapid.Float64Range(0, 1e9).Draw(t, "step"), k: rapid.Float64Range(0, patience.MostK).Draw(t, "k"),
			snapshots: patience.Snapshots{Blocked: rapid.Float64Range(0, 1e9).Draw(t, "blocked"), Upload: rapid.Float64Range(0, 1e9).Draw(t, "upload"), N: rapid.Int64Range(0, 9).Draw(t, "snapshots")}}
		got := taught(list...).timersOn(plan.Platform{}, nil, plan.Job{}, was)
		for name, row := range map[string]struct {
			d           patience.Derived
			least, most float64
		}{"capture": {got.Capture, 60, 480}, "warm-up": {got.Warm, 45, 3600}, "k": {got.K, 3, 1.5 * patience.MostK}, "milestones": {got.Milestone, 1, 6 * 3600},
			"lease": {got.Lease, 15, math.Inf(1)}} {
			if !(row.d.Value >= row.least && row.d.Value <= row.most) || row.d.Why == "" || row.d.Rule == "" {
				t.Fatalf("%s: %+v", name, row.d)
			}
		}
		for _, line := range got.Lines() {
			if strings.Contains(line, "NaN") || strings.Contains(line, "Inf") {
				t.Fatal(line)
			}
		}
	})
}

// TestIntervalAndLeaseAreDerivedTogether: on a platform whose steps have a real tail the interval reckons with the workers
// that the lease writes off alive, and the lease with the interval: both as the bare formulas settle (science.md §4.7).
func TestIntervalAndLeaseAreDerivedTogether(t *testing.T) {
	const step, blocked, upload, n = 2.0, 30.0, 120.0, 1_000_000
	o := steady(n - 16_000)
	o.PaidS = 4e6
	for ratio, count := range map[float64]int64{2.1: 9000, 5: 4000, 20: 2000, 45: 1000} { // one step of a thousand takes 45
		o.All.Ratios.Done[record.BinOf(ratio)] += count
	}
	r := taught(slices.Repeat([]record.Observation{o}, 6)...)
	l := r.lessonsOf(&platform{conf: plan.Platform{Name: "p"}})
	got := r.timersOn(plan.Platform{}, nil, plan.Job{}, past{stepS: step, snapshots: patience.Snapshots{Blocked: blocked, Upload: upload, N: 4}})
	tail, ok := patience.Read(l.ratios).Tail(true)
	if !ok {
		t.Fatal("no tail")
	}
	start := patience.Survives(witness.DefaultK, renewShare())
	k, every := start, 0.0
	for range 50 {
		every = patience.Round(patience.Daly(blocked, 1/(l.deaths+tail.A*math.Pow(k, -tail.Alpha)/step)))
		k = min(start, patience.Balance{Step: step, Loss: every/2 + upload + l.restart, Deaths: l.deaths}.Best(tail))
	}
	alone := patience.Round(patience.Daly(blocked, 1/l.deaths))
	if got.Milestone.Value != every || every >= alone/2 {
		t.Errorf("every %v s (%s), want %v; without false write-offs it were %v", got.Milestone.Value, got.Milestone.Why, every, alone)
	}
	if survives := patience.Survives(got.K.Value, renewShare()); math.Abs(survives-k) > 1e-3*k {
		t.Errorf("a lease that survives %v medians (%s), want %v", survives, got.K.Why, k)
	}
}
