package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
)

// ruled makes a plan of jobs on three platforms: one that its runner gives away, one with a price, one that says nothing.
func ruled(g plan.Guard, jobs ...plan.Job) *Desired {
	slices.SortFunc(jobs, func(a, b plan.Job) int { return strings.Compare(a.Name, b.Name) })
	return &Desired{Commit: "c2", Branch: "main", Plan: &plan.Plan{Jobs: jobs, Config: plan.Config{Guard: g, Platforms: map[string]plan.Platform{
		"own":   {Name: "own"},
		"cloud": {Name: "cloud", Price: plan.Money{Amount: 2, Unit: "USD"}, GPU: []string{"T4"}},
		"spot":  {Name: "spot", MaxPrice: plan.Money{Amount: 0.5, Unit: "USD"}},
		"dark":  {Name: "dark"},
		"other": {Name: "other", Price: plan.Money{Amount: 300, Unit: "credits"}},
	}}}}
}

func ruledJob(name string, on string, change ...func(*plan.Job)) plan.Job {
	j := plan.Job{Name: name, Group: name, Kind: "train", Argv: []string{"train", name}, On: strings.Fields(on), Generation: 1, OnDelete: plan.Drain,
		Pos: plan.Pos{File: "plans/" + name + ".yaml", Line: 2, Col: 3}}
	for _, f := range change {
		f(&j)
	}
	j.Work = j.Digest()
	return j
}

func paid(amount float64, unit string) func(*plan.Job) {
	return func(j *plan.Job) { j.Limits.Paid = plan.Money{Amount: amount, Unit: unit} }
}
func wall(d time.Duration) func(*plan.Job) { return func(j *plan.Job) { j.Limits.Wall = d } }
func hourly(amount float64) func(*plan.Job) {
	return func(j *plan.Job) { j.Limits.Price = plan.Money{Amount: amount, Unit: "USD"} }
}
func label(key, value string) func(*plan.Job) {
	return func(j *plan.Job) { j.Labels = map[string]string{key: value} }
}

// nothingRuns is a store in which nothing is; own is free.
func nothingRuns() known {
	no := func(plan.Digest) bool { return false }
	return known{live: no, finished: no, free: func(p string) bool { return p == "own" }, age: func(plan.Digest) (time.Duration, bool) { return 0, false }}
}

// Each rule of guard: what keeps it, what breaks it, and what is said then.
func TestRulesOfGuard(t *testing.T) {
	usd := func(v float64) plan.Money { return plan.Money{Amount: v, Unit: "USD"} }
	card := func(j *plan.Job) { // 1 h at the assumed MFU
		j.GPU = plan.GPU{Any: []string{"T4"}, Count: 1, DType: "fp16"}
		_, peak, _ := plan.Card(ruled(plan.Guard{}).Plan.Config.Platforms["cloud"], j.GPU)
		j.FLOPs = flops.Work{Total: peak * plan.AssumedMFULow * 3600}
	}
	for _, c := range []struct {
		name  string
		guard plan.Guard
		jobs  []plan.Job
		want  string // code: text; "": it is kept
	}{
		{"no rule", plan.Guard{}, []plan.Job{ruledJob("a", "dark cloud")}, ""},

		{"price: the platform's", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "own cloud")}, "GuardPrice: job a may run on cloud for 2.00 USD per hour, above guard.price of 1.00 USD per hour"},
		{"price: of several jobs", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "cloud"), ruledJob("b", "cloud"), ruledJob("c", "own"), ruledJob("d", "cloud")}, "GuardPrice: job a may run on cloud for 2.00 USD per hour, above guard.price of 1.00 USD per hour; likewise b, d"},
		{"price: free and capped", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "own spot")}, ""},
		{"price: the job's own limit", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "dark cloud", hourly(1))}, ""},
		{"price: nobody knows", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "spot dark")}, "GuardPrice: job a may run on dark at any price, and guard.price is 1.00 USD per hour"},
		{"price: in another unit", plan.Guard{Price: usd(1)}, []plan.Job{ruledJob("a", "other", hourly(1))}, ""},

		{"paid_per_job: limits.paid", plan.Guard{PaidPerJob: usd(10)}, []plan.Job{ruledJob("a", "cloud", paid(10, "USD")), ruledJob("b", "dark", paid(11, ""))}, "GuardPaidPerJob: job b may cost 11.00, above guard.paid_per_job of 10.00 USD"},
		{"paid_per_job: limits.wall", plan.Guard{PaidPerJob: usd(10)}, []plan.Job{ruledJob("a", "spot cloud", wall(6*time.Hour))}, "GuardPaidPerJob: job a may cost 12.00 USD, above guard.paid_per_job of 10.00 USD"},
		{"paid_per_job: limits.wall and limits.price", plan.Guard{PaidPerJob: usd(10)}, []plan.Job{ruledJob("a", "spot cloud", wall(6*time.Hour), hourly(1))}, ""},
		{"paid_per_job: estimated", plan.Guard{PaidPerJob: usd(1.9)}, []plan.Job{ruledJob("a", "cloud", card)}, "GuardPaidPerJob: job a may cost 2.00 USD, above guard.paid_per_job of 1.90 USD"},
		{"paid_per_job: free", plan.Guard{PaidPerJob: usd(1)}, []plan.Job{ruledJob("a", "own")}, ""},
		{"paid_per_job: no bound", plan.Guard{PaidPerJob: usd(10)}, []plan.Job{ruledJob("a", "cloud")}, "GuardPaidPerJob: job a may cost any amount, and guard.paid_per_job is 10.00 USD: it has no limits.paid"},
		{"paid_per_job: no price", plan.Guard{PaidPerJob: usd(10)}, []plan.Job{ruledJob("a", "dark", wall(time.Hour))}, "GuardPaidPerJob: job a may cost any amount, and guard.paid_per_job is 10.00 USD: it has no limits.paid"},

		{"paid: a sum", plan.Guard{Paid: usd(20)}, []plan.Job{ruledJob("a", "cloud", paid(8, "USD")), ruledJob("b", "cloud", paid(12.5, "USD")), ruledJob("c", "own")}, "GuardPaid: what is new may cost 20.50 USD, above guard.paid of 20.00 USD: b 12.50, a 8.00"},
		{"paid: just that", plan.Guard{Paid: usd(20.5)}, []plan.Job{ruledJob("a", "cloud", paid(8, "USD")), ruledJob("b", "cloud", paid(12.5, "USD"))}, ""},
		{"paid: one work twice", plan.Guard{Paid: usd(20)}, []plan.Job{ruledJob("a", "cloud", paid(12, "USD")), func() plan.Job { j := ruledJob("a", "cloud", paid(12, "USD")); j.Name = "b"; return j }()}, ""},
		{"paid: other units", plan.Guard{Paid: usd(20)}, []plan.Job{ruledJob("a", "cloud", paid(21, "USD")), ruledJob("b", "other", paid(900, "credits"))}, "GuardPaid: what is new may cost 21.00 USD, above guard.paid of 20.00 USD: a 21.00; not counted, since it is in other units: 1 job"},
		{"paid: no bound", plan.Guard{Paid: usd(20)}, []plan.Job{ruledJob("a", "cloud", paid(8, "USD")), ruledJob("b", "cloud"), ruledJob("c", "dark")}, "GuardPaid: what is new may cost any amount, and guard.paid is 20.00 USD: no limits.paid is given by b, c"},

		{"platforms: a label", plan.Guard{Platforms: map[string][]string{"cloud": {"team=a", "kind=backtest"}}}, []plan.Job{ruledJob("a", "own cloud", label("team", "a")), ruledJob("b", "own")}, ""},
		{"platforms: a kind", plan.Guard{Platforms: map[string][]string{"cloud": {"team=a", "kind=backtest"}}}, []plan.Job{ruledJob("a", "cloud", func(j *plan.Job) { j.Kind = "backtest" })}, ""},
		{"platforms: neither", plan.Guard{Platforms: map[string][]string{"cloud": {"team=a", "kind=backtest"}}}, []plan.Job{ruledJob("a", "own cloud", label("team", "b"))}, "GuardPlatforms: job a may not run on cloud: guard.platforms leaves that to team=a, kind=backtest"},

		{"pinned", plan.Guard{Pinned: []string{"main"}}, []plan.Job{ruledJob("a", "own", func(j *plan.Job) { j.Requires = map[string]string{"cuda": "12.4"} })}, ""},
		{"pinned: another branch", plan.Guard{Pinned: []string{"release/*"}}, []plan.Job{ruledJob("a", "own")}, ""},
		{"pinned: not", plan.Guard{Pinned: []string{"ma*"}}, []plan.Job{ruledJob("a", "own")}, "GuardPinned: job a pins nothing of its environment, and guard.pinned asks for that on branch main"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, b := range judge(ruled(c.guard, c.jobs...), nil, nothingRuns()) {
				got += b.code + ": " + b.text
				if b.hint == "" || b.pos.File == "" || b.rule == "" {
					t.Errorf("incomplete: %+v", b)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A rule that came later does not judge what was accepted before it; what a commit changes, it does.
func TestRulesHoldForWhatACommitBrings(t *testing.T) {
	g := plan.Guard{Price: plan.Money{Amount: 1, Unit: "USD"}, Pinned: []string{"main"}, Paid: plan.Money{Amount: 30, Unit: "USD"}}
	a := ruledJob("a", "cloud", paid(20, "USD"))
	before := &inForce{plan: plan.Accept(ruled(plan.Guard{}, a).Plan, "c1")}
	codes := func(d *Desired, force *inForce, k known) (out []string) {
		for _, b := range judge(d, force, k) {
			out = append(out, b.code)
		}
		return out
	}
	raised := ruledJob("a", "cloud", paid(200, "USD"))
	less := ruledJob("a", "cloud", paid(49, "USD"))
	moved := a
	moved.Name, moved.Group = "b", "b"
	other := ruledJob("a", "cloud", paid(20, "USD"), func(j *plan.Job) { j.Seed = 7 })
	for _, c := range []struct {
		name string
		d    *Desired
		k    known
		want []string
	}{
		{"the same", ruled(g, a), nothingRuns(), nil},
		{"renamed", ruled(g, moved), nothingRuns(), nil},
		{"a limit raised by more than guard.paid", ruled(g, raised), nothingRuns(), []string{CodeGuardPaid, CodeGuardPrice}},
		{"a limit raised by less", ruled(g, less), nothingRuns(), []string{CodeGuardPrice}},
		{"other work", ruled(g, other), nothingRuns(), []string{CodeGuardPrice, CodeGuardPinned}},
		{"other work that is finished", ruled(g, other), func() known { k := nothingRuns(); k.finished = func(plan.Digest) bool { return true }; return k }(), nil},
	} {
		if d := cmp.Diff(c.want, codes(c.d, before, c.k)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	leaves := &inForce{plan: plan.Accepted{Commit: "c1"}, Leaving: []departing{{Work: a.Work, Job: "a"}}}
	if d := cmp.Diff([]string{CodeGuardPrice}, codes(ruled(g, a), leaves, nothingRuns())); d != "" {
		t.Errorf("named again while it drains: %s", d)
	}
}

// On a branch that nobody knows, as in the checkout of a pull request, guard.pinned warns.
func TestPinnedWarnsWhereTheBranchIsNotKnown(t *testing.T) {
	d := ruled(plan.Guard{Pinned: []string{"main"}}, ruledJob("a", "own"))
	d.Branch = ""
	got := judge(d, nil, nothingRuns())
	if len(got) != 1 || !got[0].warn || !strings.Contains(got[0].text, "main (which branch this is, is not known here)") {
		t.Errorf("%+v", got)
	}
}

// What a rule says of a thousand jobs is a line.
func TestARuleNamesFewJobs(t *testing.T) {
	var jobs []plan.Job
	for i := range 1000 {
		jobs = append(jobs, ruledJob(fmt.Sprintf("j%04d", i), "dark"))
	}
	got := judge(ruled(plan.Guard{Price: plan.Money{Amount: 1}}, jobs...), nil, nothingRuns())
	if len(got) != 1 || !strings.HasSuffix(got[0].text, "; likewise j0001, j0002, j0003 and 996 more") {
		t.Errorf("%+v", got)
	}
}

// An age that is told beside a limit that it passed is never shorter than it.
func TestAnAgeIsNeverToldShorter(t *testing.T) {
	for age, want := range map[time.Duration]string{1100 * time.Millisecond: "2s", time.Second: "1s", time.Hour + time.Second: "1h1m0s", 59*time.Minute + time.Nanosecond: "59m1s", 6 * time.Hour: "6h0m0s"} {
		if got := atLeast(age); got != want {
			t.Errorf("%v: %s, want %s", age, got, want)
		}
	}
}
