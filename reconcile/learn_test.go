package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/gc"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// observations reads all raw ones in the store.
func (r *rig) observations() (out []record.Observation) {
	r.t.Helper()
	p, err := r.store.List(r.t.Context(), record.StatsPrefix, "", 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, it := range p.Items {
		k, ok := record.ParseStats(it.Key)
		if !ok {
			r.t.Errorf("%s is no key of statistics", it.Key)
		}
		if k.Day == "" {
			continue
		}
		var o record.Observation
		if err := record.Decode([]byte(r.read(it.Key)), record.MaxRecord, &o); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// Given a launch that brings no worker, one whose worker dies and one that finishes, seen by two dispatchers.
// Then each leaves one observation, with what is known of it and no more.
func TestEveryEndIsWrittenDownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4, script: "launch 1 no_start\nworker 1 die 55"})
		j := job("a", func(j *plan.Job) { j.Group = "family"; j.FLOPs.PerStep = 1e9 })
		d := r.desired("c1", j)
		one, two := r.reconciler(nil), r.reconciler(func(c *reconcile.Config) { c.ID = "two" })
		r.until(one, d, time.Hour, func(rep *reconcile.Report) bool {
			r.pass(two, d)
			return allFinished(rep)
		})
		for range 15 {
			<-time.After(time.Minute)
			r.pass(one, d)
			r.pass(two, d)
		}
		one.Wait()
		two.Wait()
		got := map[int64]record.Observation{}
		for _, o := range r.observations() {
			if _, twice := got[o.Dispatch]; twice {
				t.Errorf("dispatch %d was written down twice", o.Dispatch)
			}
			got[o.Dispatch] = o
		}
		want := map[int64]record.Observation{
			1: {Protocol: 1, Platform: "here", GPU: "unknown", Mode: "none", Family: "family", Work: string(j.Work), Dispatch: 1, Class: "no_capture", Runner: "sim"},
			2: {Protocol: 1, Platform: "here", GPU: "unknown", Mode: "none", GPUs: 1, Family: "family", Work: string(j.Work), Dispatch: 2, Attempt: 1, Class: "silent", Runner: "sim", Captured: true, WorkKept: 50e9, Env: record.Environment{Price: "USD"}},
			3: {Protocol: 1, Platform: "here", GPU: "unknown", Mode: "none", GPUs: 1, Family: "family", Work: string(j.Work), Dispatch: 3, Attempt: 2, Class: "finished", Runner: "sim", Captured: true, WorkKept: 50e9, Env: record.Environment{Price: "USD"}},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record.Observation{}, "CaptureS", "StartS", "FirstStepS", "PaidS", "StepKeptS", "LostS", "TailS", "All", "Time", "Price")); diff != "" {
			t.Errorf("observations (-want +got):\n%s", diff)
		}
		for n, o := range got {
			if o.CaptureS <= 0 || o.Captured && (o.PaidS <= 0 || o.StepKeptS <= 0 || o.StepKeptS > o.PaidS) || o.PaidOpen {
				t.Errorf("dispatch %d: %+v", n, o)
			}
		}
		if o := got[2]; o.TailS < 15 || o.TailS > o.PaidS {
			t.Errorf("the one that died was silent for %v s", o.TailS)
		}
	})
}

// Given a store with observations, raw and folded, that is then tidied and checked.
// Then neither gc nor doctor --deep finds anything about them, and a pass that may not write writes none.
func TestStatisticsDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 80})
		d := r.desired("c1", numbered(80)...)
		rec := r.reconciler(nil)
		r.until(rec, d, time.Hour, allFinished)
		for range 75 {
			<-time.After(time.Minute)
			r.pass(rec, d)
		}
		rec.Wait()
		if _, err := r.store.Get(t.Context(), record.CompactKey("here", "unknown", "none"), bucket.Range{}); err != nil {
			t.Fatalf("nothing was folded: %v", err)
		}
		if n := len(r.observations()); n != 0 {
			t.Errorf("%d raw observations are left, want none", n)
		}
		rep, err := audit.Check(t.Context(), r.store, audit.Options{Deep: true})
		if err != nil || !rep.OK() {
			t.Errorf("doctor --deep: %v %v", rep.Findings, err)
		}
		g, err := gc.Plan(t.Context(), r.store, gc.Options{})
		if err != nil || strings.Contains(strings.Join(prefixes(g), " "), "stats/") {
			t.Errorf("gc: %v %v", prefixes(g), err)
		}
		count := counting.New(r.store)
		dry := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Dry = readonly.New(count), true })
		r.pass(dry, d)
		dry.Wait()
		if n := count.Counts(); n.Put != 0 || n.Delete != 0 {
			t.Errorf("a dry pass wrote: %v", n)
		}
	})
}

func prefixes(g gc.Report) (out []string) {
	for _, it := range g.Items {
		out = append(out, it.Prefix)
	}
	return out
}

// Given a machine that is taken after six hours with half of the work committed. Then no retry is spent.
// With a third of it kept by no milestone a retry is spent, though something was kept: goodput decides, not the pointer.
func TestASpotTakenAfterSixHoursCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 die 361", model: sim.Model{Step: time.Minute}})
		j := job("a", func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps, j.Limits.Retries = 720, 200, 1 })
		r.until(r.reconciler(nil), r.desired("c1", j), 48*time.Hour, stateIs(j.Work, plan.StateFinished))
		if e := r.explain(r.reconciler(nil), j); e.Spent != 1 || len(e.Lines) != 2 || e.Lines[0].Kept != 200 || !e.Lines[0].Spent {
			t.Errorf("200 of 361 steps kept: %d spent: %+v", e.Spent, e.Lines)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 die 361", model: sim.Model{Step: time.Minute, Milestone: 30}})
		j := job("a", func(j *plan.Job) { j.FLOPs.Steps, j.Limits.Retries = 720, 1 })
		r.until(r.reconciler(nil), r.desired("c1", j), 48*time.Hour, stateIs(j.Work, plan.StateFinished))
		e := r.explain(r.reconciler(nil), j)
		if e.Spent != 0 || len(e.Lines) != 2 || e.Lines[0].Kept != 360 || e.Lines[0].Spent {
			t.Errorf("%d spent: %+v", e.Spent, e.Lines)
		}
		g := e.Lines[0].Goodput
		if g == nil || g.Share == nil || *g.Share < 0.7 || g.MFU != nil || g.Goodput != nil || !strings.HasPrefix(g.String(), "unknown = MFU unknown × share 0.8") {
			t.Errorf("goodput %v", g)
		}
	})
}

// Given a machine that is taken after five minutes, five times, with nothing kept. Then retries are spent, from the second time on,
// and the work goes one rung down.
func TestASpotTakenAfterFiveMinutesFiveTimesMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1..5 die 30", model: sim.Model{Step: 10 * time.Second, Milestone: 100}})
		there := r.second("", 1)
		j := job("a", ladder("here", "there"), func(j *plan.Job) { j.FLOPs.Steps, j.Milestones.Steps, j.Limits.Retries = 200, 100, 5 })
		r.until(r.reconciler(both(there, r)), r.desired("c1", j), 48*time.Hour, stateIs(j.Work, plan.StateFinished))
		e := r.explain(r.reconciler(both(there, r)), j)
		var spent []bool
		for _, l := range e.Lines {
			if l.Platform == "here" {
				spent = append(spent, l.Spent)
			}
		}
		if len(spent) < 2 || spent[0] || !spent[1] || there.Meter().Started != 1 {
			t.Errorf("spent on the first rung: %v; %d started on the next one; %+v", spent, there.Meter().Started, e.Lines)
		}
	})
}

// Given an attempt that was judged by the threshold, and a claim that carries it. Then what is learnt of the platform afterwards
// changes nothing of it, for a dispatcher that knows nothing but the store.
func TestAVerdictStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "worker 1 die 181; worker 2 hang 200", model: sim.Model{Step: time.Minute, Milestone: 60}})
		j := job("a", func(j *plan.Job) { j.FLOPs.Steps = 400 })
		d := r.desired("c1", j)
		rec := r.reconciler(nil)
		r.until(rec, d, 24*time.Hour, func(rep *reconcile.Report) bool { return rep.States[j.Work].Attempt == 2 })
		before := r.explain(r.reconciler(nil), j).Lines[0]
		if before.Spent || before.Goodput == nil || before.Goodput.Bound == nil || *before.Goodput.Bound != 0.7 {
			t.Fatalf("%+v %v", before, before.Goodput)
		}
		for n := range int64(40) { // a platform on which every other attempt is perfect
			at := time.Now().Add(-10 * time.Hour)
			o := record.Observation{Protocol: 1, Platform: "here", GPU: "unknown", Mode: "none", Family: "a", Work: record.Hash(nil), Dispatch: n + 1, Attempt: n + 1,
				Class: "finished", Captured: true, CaptureS: 1, PaidS: 1000, StepKeptS: 999, Time: at.UTC().Format(time.RFC3339)}
			r.raw(record.ObservationKey(o, at), o)
		}
		if diff := cmp.Diff(before, r.explain(r.reconciler(nil), j).Lines[0]); diff != "" {
			t.Errorf("an attempt that was judged is judged again (-before +after):\n%s", diff)
		}
	})
}

// Given a platform that is unreachable, and one without room, again and again. Then no retry is spent, whatever is known.
func TestNoRoomIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1, script: "launch 1..20 no_slots\nlaunch 21..24 drop"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 1 })
		rec := r.reconciler(nil)
		r.until(rec, r.desired("c1", j), 48*time.Hour, stateIs(j.Work, plan.StateFinished))
		rec.Wait() // it is written beside the passes
		if e := r.explain(r.reconciler(nil), j); e.Spent != 0 {
			t.Errorf("%d spent: %+v", e.Spent, e.Lines)
		}
		if n := len(r.observations()); n != 1 {
			t.Errorf("%d observations, want that of the launch that happened", n)
		}
	})
}
