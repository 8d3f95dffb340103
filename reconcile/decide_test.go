package reconcile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func classesOf(keep func(Rule) bool) []string {
	var out []string
	for _, r := range budget {
		if keep == nil || keep(r) {
			out = append(out, r.Class)
		}
	}
	return out
}

func drawFacts(t *rapid.T) Facts {
	job := &plan.Job{Name: "a", Work: "w", On: []string{"p", "q"}, Suspend: rapid.IntRange(0, 9).Draw(t, "suspend") == 0,
		Limits: plan.Limits{Retries: rapid.IntRange(0, 6).Draw(t, "retries")}}
	f := Facts{Job: job, Work: "w", Name: "a", Wish: rapid.SampledFrom([]Wish{Wanted, Wanted, Wanted, Wanted, Frozen, Leaving}).Draw(t, "wish"),
		OnDelete: rapid.SampledFrom([]plan.OnDelete{plan.Drain, plan.Revoke, plan.Orphan}).Draw(t, "on_delete"),
		Drain:    10 * time.Minute, Drained: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "drained"),
		Brake: rapid.Bool().Draw(t, "brake")}
	if rapid.IntRange(0, 9).Draw(t, "crowded") == 0 {
		f.Crowded = "crowded"
	}
	if rapid.IntRange(0, 9).Draw(t, "no secret") == 0 {
		f.Unready = "no secret"
	}
	if rapid.IntRange(0, 9).Draw(t, "hurdle") == 0 {
		f.Hurdle = Hurdle{Text: "a link in its folder", Left: rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "left"), Passing: rapid.Bool().Draw(t, "passing")}
	}
	f.Lease = drawLease(t)
	f.History = drawHistory(t, f.Lease)
	for i := range rapid.IntRange(0, 2).Draw(t, "inputs") {
		n := Need{Job: string(rune('x' + i)), Finished: rapid.IntRange(0, 9).Draw(t, "input") > 0}
		if n.Finished {
			n.Exit = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1}).Draw(t, "exit")
		} else if rapid.Bool().Draw(t, "stuck") {
			n.Failed = "it failed"
		}
		f.Inputs = append(f.Inputs, n)
	}
	for _, name := range job.On {
		r := Rung{Platform: name}
		switch rapid.IntRange(0, 7).Draw(t, "rung") {
		case 0:
			r.Refused = "refused"
		case 1:
			r.Fatal = "fatal"
		case 2:
			r.Parked, r.Why = time.Minute, "parked"
		case 3:
			r.Full = "full"
		}
		f.Rungs = append(f.Rungs, r)
	}
	return f
}

func drawLease(t *rapid.T) Lease {
	l := Lease{State: rapid.SampledFrom([]witness.State{leaseAbsent, leaseUnknown, witness.Held, witness.Yielded, witness.Revoked, witness.Revoked, witness.Yielded, witness.Revoked, witness.Finished}).Draw(t, "state")}
	if l.State == leaseAbsent || l.State == leaseUnknown {
		return l
	}
	l.Version, l.Attempt = "v", rapid.Int64Range(1, 4).Draw(t, "attempt")
	l.Dispatch = l.Attempt + rapid.Int64Range(0, 2).Draw(t, "skipped")
	l.Suspect = l.State == witness.Held && rapid.Bool().Draw(t, "suspect")
	if l.State == witness.Revoked {
		l.Floor = rapid.Int64Range(0, l.Dispatch+3).Draw(t, "floor")
	}
	if rapid.Bool().Draw(t, "pointer") {
		l.Resume = &record.Pointer{Attempt: l.Attempt, Milestone: 1}
	}
	return l
}

func drawHistory(t *rapid.T, l Lease) History {
	h := History{Floor: l.Floor}
	for a := int64(1); a <= l.Attempt; a++ {
		at := Attempt{N: a, Dispatch: max(a, l.Dispatch-l.Attempt+a), Platform: "p", Gained: rapid.IntRange(0, 3).Draw(t, "gained") > 0,
			Live: a == l.Attempt && l.State == witness.Held, Yielded: a == l.Attempt && l.State == witness.Yielded}
		if rapid.Bool().Draw(t, "ended") {
			at.End = rapid.SampledFrom(append(classesOf(nil), "something_new")).Draw(t, "end")
			at.Step, at.Error = rapid.Int64Range(0, 2).Draw(t, "step"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "error")
		}
		h.Attempts = append(h.Attempts, at)
	}
	h.Last = l.Dispatch + rapid.Int64Range(0, 4).Draw(t, "more")
	captured := map[int64]bool{}
	for _, a := range h.Attempts {
		captured[a.Dispatch] = true
	}
	for n := int64(1); n <= h.Last; n++ {
		d := Dispatch{N: n, Platform: "p", Captured: captured[n], Window: 2 * time.Minute,
			Age:     rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, time.Hour, time.Hour}).Draw(t, "age"),
			Settled: rapid.SampledFrom([]string{"", "", "", "pending", "bounded", "closed"}).Draw(t, "settled")}
		if d.Answered = rapid.Bool().Draw(t, "answered"); d.Answered {
			if d.OK = rapid.Bool().Draw(t, "ok"); !d.OK {
				d.Class = string(rapid.SampledFrom([]runners.Class{runners.NoSlots, runners.QuotaExhausted, runners.SpawnedElsewhere,
					runners.Unreachable, runners.Rejected, runners.ProtocolError}).Draw(t, "class"))
			}
		}
		h.Dispatches = append(h.Dispatches, d)
	}
	return h
}

func TestDecideIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		a := Decide(f)
		if diff := cmp.Diff(a, Decide(f)); diff != "" {
			t.Fatalf("the same facts gave another action:\n%s", diff)
		}
		if a.Reason == "" || a.Work != f.Work {
			t.Fatalf("an action without a reason or a work: %+v", a)
		}
		switch a.Kind {
		case Launch:
			checkLaunch(t, f, a)
		case WriteOff:
			if f.Lease.State != witness.Held || !f.Lease.Suspect || f.Brake || a.Version != f.Lease.Version {
				t.Fatalf("wrote off %+v with brake %v", f.Lease, f.Brake)
			}
		case Stop:
			if f.Wish != Leaving || f.OnDelete == plan.Orphan || f.Lease.State == witness.Finished || f.Lease.State == leaseUnknown {
				t.Fatalf("stopped a work that does not leave: %+v", f)
			}
			if f.OnDelete == plan.Drain && f.Lease.State == witness.Held && !f.Lease.Suspect && !moved(f.Pointer, f.Lease.Resume) && f.Drained < f.Drain {
				t.Fatal("a drain stopped a live attempt before its milestone and its time")
			}
			if a.Floor <= f.History.Last {
				t.Fatalf("a stop to floor %d lets dispatch %d start", a.Floor, f.History.Last)
			}
		case Fail, Blocked:
			if f.Lease.State == witness.Held || f.Wish != Wanted {
				t.Fatalf("%s while %s", a.Kind, f.Lease.State)
			}
		case None, Wait:
		case Release:
			t.Fatal("releases are decided apart")
		default:
			t.Fatalf("an action outside of the set: %s", a.Kind)
		}
	})
}

// checkLaunch holds every promise about launches against one.
func checkLaunch(t *rapid.T, f Facts, a Action) {
	switch f.Lease.State {
	case witness.Finished, witness.Held, leaseUnknown:
		t.Fatalf("launched a work whose lease is %s", f.Lease.State)
	}
	if f.Wish != Wanted || f.Job.Suspend || f.Crowded != "" || f.Unready != "" {
		t.Fatalf("launched what must not be: %+v", f)
	}
	if a.Dispatch <= f.History.Last || a.Dispatch <= f.Lease.Dispatch || a.Dispatch < f.Lease.Floor || a.Dispatch < 1 {
		t.Fatalf("dispatch %d: last %d, captured %d, floor %d", a.Dispatch, f.History.Last, f.Lease.Dispatch, f.Lease.Floor)
	}
	for _, d := range f.History.Dispatches {
		if d.inFlight(f.Lease.Floor) {
			t.Fatalf("launched while dispatch %d may still start", d.N)
		}
	}
	for _, n := range f.Inputs {
		if !n.Finished || n.Exit != 0 {
			t.Fatalf("launched before its input %s finished well", n.Job)
		}
	}
	i := slices.IndexFunc(f.Rungs, func(r Rung) bool { return r.Platform == a.Platform })
	if i < 0 || f.Rungs[i].Refused+f.Rungs[i].Fatal+f.Rungs[i].Full != "" || f.Rungs[i].Parked > 0 {
		t.Fatalf("launched on %s of %+v", a.Platform, f.Rungs)
	}
	if f.Hurdle.Left > 0 {
		t.Fatal("launched, and what kept the last launch from its claim is not over")
	}
	failures := map[string]int{}
	if f.Job.Limits.Retries == 0 && f.Demand == nil && (len(f.History.Attempts) > 0 || slices.ContainsFunc(f.History.Dispatches, func(d Dispatch) bool { return d.Captured || !ruleOf(d.rawClass()).Unbegun })) {
		t.Fatal("retries: 0, and a launch may have happened: never again by itself")
	}
	for _, at := range f.History.Attempts {
		if ruleOf(at.class()).Program {
			key := at.class() + at.Error + string(rune('0'+at.Step))
			if failures[key]++; failures[key] > 1 {
				t.Fatal("the program failed twice in the same way: never again")
			}
		}
	}
}

func TestOnlyWhatTheBudgetNamesEndsAJob(t *testing.T) {
	free := classesOf(func(r Rule) bool { return r.Spend == SpendNever && r.Class != classNoCapture })
	rapid.Check(t, func(t *rapid.T) {
		var h History
		n := rapid.Int64Range(1, 60).Draw(t, "dispatches")
		for i := int64(1); i <= n; i++ {
			d := Dispatch{N: i, Platform: "p", Answered: true, Class: rapid.SampledFrom(free).Draw(t, "class"), Age: time.Hour, Window: time.Minute}
			if d.Class == classUncalled {
				d.Answered, d.Class = false, ""
			}
			h.Dispatches = append(h.Dispatches, d)
		}
		h.Last = n
		charges := account(h)
		if why := failed(h, charges, rapid.IntRange(1, 5).Draw(t, "retries")); why != "" {
			t.Fatalf("%d dispatches that cost nothing ended the job: %s", n, why)
		}
		if len(charges) != int(n) {
			t.Fatalf("%d dispatches made %d charges", n, len(charges))
		}
	})
}

func TestAnAttemptThatCameFurtherSpendsNothing(t *testing.T) {
	h := History{}
	for i := int64(1); i <= 30; i++ {
		h.Attempts = append(h.Attempts, Attempt{N: i, Dispatch: i, Platform: "p", Gained: true})
		h.Dispatches = append(h.Dispatches, Dispatch{N: i, Platform: "p", Answered: true, OK: true, Captured: true, Age: time.Hour, Window: time.Minute})
	}
	h.Last = 30
	if n := Spent(h, account(h)); n != 0 {
		t.Errorf("%d retries spent, want 0", n)
	}
	if d := workDelay("w", account(h)); d != 0 {
		t.Errorf("backs off for %v after an attempt that came further", d)
	}
}

func TestLaunchesThatBringNoWorkerCountAsRefusedAfterThree(t *testing.T) {
	h := History{}
	for i := int64(1); i <= 7; i++ {
		h.Dispatches = append(h.Dispatches, Dispatch{N: i, Platform: "p", Answered: true, OK: true, Age: time.Hour, Window: time.Minute})
	}
	h.Last = 7
	charges := account(h)
	var got []string
	for _, c := range charges {
		got = append(got, c.Class)
	}
	want := []string{classNoCapture, classNoCapture, classUnstarted, classNoCapture, classNoCapture, classUnstarted, classNoCapture}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if n := Spent(h, charges); n != 2 {
		t.Errorf("%d retries spent, want 2", n)
	}
}

func TestTheBudgetNamesEveryClass(t *testing.T) {
	all := []runners.Class{runners.NoSlots, runners.QuotaExhausted, runners.SpawnedElsewhere, runners.Unreachable,
		runners.Rejected, runners.ProtocolError, runners.UserCode}
	names := classesOf(nil)
	for _, c := range all {
		if !slices.Contains(names, string(c)) {
			t.Errorf("class %s is not in the budget table", c)
		}
		if c.Advice() == "" {
			t.Errorf("class %s is none of runners'", c)
		}
	}
	for _, c := range []string{"finished", "no_result", "out_of_memory", "yielded", "deposed", "lease_lost", "revoked", "nothing_to_do",
		"refused", "store", "store_refused", "snapshot_unreadable", "disk_full", "internal"} { // what a worker writes at its end
		if !slices.Contains(names, c) {
			t.Errorf("class %s of a worker is not in the budget table", c)
		}
	}
	if h := (History{Attempts: []Attempt{{N: 1, Dispatch: 1, End: "store_refused", Gained: true}}}); failed(h, account(h), 0) == "" || failed(h, account(h), 1) != "" {
		t.Error("a store that refuses a result for good costs exactly one retry, whatever the attempt achieved before")
	}
	for i, c := range names {
		if slices.Contains(names[:i], c) {
			t.Errorf("class %s is in the table twice", c)
		}
		if ruleOf(c).Why == "" {
			t.Errorf("class %s has no reason", c)
		}
	}
	for _, free := range []runners.Class{runners.NoSlots, runners.QuotaExhausted, runners.SpawnedElsewhere, runners.Unreachable} {
		if ruleOf(string(free)).Spend != SpendNever {
			t.Errorf("%s spends budget", free)
		}
	}
	if r := ruleOf("a class of tomorrow\x1b[31m"); r.Spend != SpendBelow || strings.ContainsRune(r.Why, 0x1b) {
		t.Errorf("an unknown class is read as %+v", r)
	}
}

func TestDelayGrowsIsBoundedAndComesFromTheRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(1, 200).Draw(t, "series"), rapid.String().Draw(t, "seed")
		d := delay(backoffBase, n, seed)
		if d < backoffBase/2 || d > backoffCap*3/2 {
			t.Fatalf("delay of series %d is %v", n, d)
		}
		if d != delay(backoffBase, n, seed) {
			t.Fatal("the same record gave another delay")
		}
		if n > 2 && delay(backoffBase, n-2, seed) > d {
			t.Fatal("a longer series waits less")
		}
	})
	if delay(backoffBase, 0, "x") != 0 {
		t.Error("nothing failed, and it waits")
	}
}

func TestReleasesAreAskedOnlyForWhatWasCutOff(t *testing.T) {
	ok := func(n int64, change func(*Dispatch)) Dispatch {
		d := Dispatch{N: n, Platform: "p", Answered: true, OK: true, Captured: true, Age: time.Hour, Window: time.Minute}
		if change != nil {
			change(&d)
		}
		return d
	}
	f := Facts{Work: "w", Lease: Lease{State: witness.Revoked, Dispatch: 5}, History: History{Last: 6, Dispatches: []Dispatch{
		ok(1, nil), // cut off
		ok(2, func(d *Dispatch) { d.Ended = true }),
		ok(3, func(d *Dispatch) { d.Settled = "closed" }),
		ok(4, func(d *Dispatch) { d.Settled, d.Captured = "pending", false }),
		ok(5, nil), // the one that was just written off
		ok(6, func(d *Dispatch) { d.Captured, d.Age = false, time.Second }), // may still come
	}}}
	var got []int64
	for _, a := range releases(f) {
		got = append(got, a.Dispatch)
	}
	if diff := cmp.Diff([]int64{1, 4, 5}, got); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
}
