package ladder

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
)

// TestMain asks for thousands of cases of each property: they are pure and cost microseconds.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("5000")
	}
	os.Exit(m.Run())
}

const hour = time.Hour

func usd(x float64) *record.Price   { return &record.Price{PerHour: x, Unit: "USD"} }
func quota(x float64) *record.Price { return &record.Price{PerHour: x, Unit: QuotaUnit} }

// kaggle and vast are the rungs of the worked example in DESIGN.md: what is left takes 6 h on the first, 4 h on the second.
func kaggle() Rung {
	return Rung{Platform: "kaggle", Rate: 2e13, Start: 10 * time.Minute, Price: quota(1), Quota: &Quota{Left: 20 * hour, Whole: 30 * hour}}
}
func vast() Rung {
	return Rung{Platform: "vast", Rate: 3e13, Start: 30 * time.Minute, Price: usd(0.45)}
}

const left = 6 * 3600 * 2e13

func parked(r Rung, d time.Duration) Rung {
	r.Parked, r.Why = d, "the weekly quota resets"
	return r
}

func TestTheWorkedExample(t *testing.T) {
	for _, c := range []struct {
		name  string
		rungs []Rung
		job   Job
		kind  Kind
		on    string
		why   string // in the verdict of the first rung
	}{
		{"the first rung when it is free", []Rung{kaggle(), vast()}, Job{Left: left}, Launch, "kaggle", "would wait 0 s, costs 1 h of its quota an hour"},
		{"a free rung is waited for by the money it saves", []Rung{parked(kaggle(), 3*hour+12*time.Minute), vast()}, Job{Left: left}, Wait, "kaggle",
			"parked 3 h 12 min: the weekly quota resets; done in 9 h 22 min that way, in 4 h 30 min on vast and 2.02 USD cheaper: 2.08 times as long, up to 2.1 is worth it"},
		{"not for longer", []Rung{parked(kaggle(), 3*hour+30*time.Minute), vast()}, Job{Left: left}, Launch, "vast", "2.15 times as long, up to 2.1"},
		{"at the same price only the slack is left", []Rung{parked(vast(), 30*time.Minute), {Platform: "b", Rate: 3e13, Start: 30 * time.Minute, Price: usd(0.45)}}, Job{Left: left}, Launch, "b", "1.11 times as long, up to 1.1"},
		{"unlike units are not compared", []Rung{parked(vast(), 30*time.Minute), {Platform: "b", Rate: 3e13, Start: 30 * time.Minute, Price: &record.Price{PerHour: 900, Unit: "credits"}}}, Job{Left: left}, Launch, "b", "1.11 times as long, up to 1.1"},
		{"a quota that ends before the first milestone is none", []Rung{short(kaggle()), vast()}, Job{Left: left, Milestone: 10 * time.Minute}, Launch, "vast", "15 min left of its quota, and a start and a milestone take 20 min"},
		{"without numbers a parked rung is skipped", []Rung{parked(kaggle(), time.Minute), {Platform: "b"}}, Job{}, Launch, "b", "not waited for, since the work that is left is not known"},
		{"unless its park ends while the next one would start", []Rung{parked(kaggle(), 5*time.Minute), vast()}, Job{}, Wait, "kaggle", "vast would take as long to start (30 min)"},
		{"a full rung is skipped when nobody knows for how long", []Rung{{Platform: "a", Full: "all 4 slots are taken"}, vast()}, Job{Left: left}, Launch, "vast", "all 4 slots are taken; how long that takes is not known"},
		{"a batch is waited for", []Rung{{Platform: "a", Full: "launches go out in batches", Soon: true}, vast()}, Job{}, Wait, "a", "in a moment"},
		{"a rung that is barred is skipped with its reason", []Rung{{Platform: "a", Barred: "excluded: the log said \"no CUDA\""}, vast()}, Job{}, Launch, "vast", "no CUDA"},
		{"nothing but barred rungs needs a person", []Rung{{Platform: "a", Barred: "it takes no jobs of kind train"}}, Job{}, Blocked, "", "takes no jobs"},
		{"the first that is there again", []Rung{parked(kaggle(), 3*hour), parked(vast(), hour)}, Job{Left: left}, Wait, "vast", "parked 3 h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Choose(c.rungs, c.job)
			if got.Kind != c.kind || got.Platform != c.on {
				t.Errorf("%s on %q: %+v, want %s on %q", got.Kind, got.Platform, got.Rungs, c.kind, c.on)
			}
			if len(got.Rungs) == 0 || !strings.Contains(got.Rungs[0].Why, c.why) {
				t.Errorf("the first verdict is %+v, want %q in it", got.Rungs, c.why)
			}
		})
	}
}

func short(r Rung) Rung {
	r.Quota = &Quota{Left: 15 * time.Minute, Whole: 30 * hour}
	return r
}

// Where not even a whole quota is known to be enough, waiting for one would last for ever: the platform is asked.
func TestAQuotaThatIsNeverEnoughIsTried(t *testing.T) {
	for _, whole := range []time.Duration{0, 10 * time.Minute} {
		r := short(kaggle())
		r.Start, r.Quota.Whole = hour, whole
		if got := Choose([]Rung{r}, Job{Milestone: time.Minute}); got.Kind != Launch {
			t.Errorf("of %s: %+v", whole, got)
		}
	}
	r := short(kaggle())
	r.Start = hour
	if got := Choose([]Rung{r}, Job{Milestone: time.Minute}); got.Kind != Wait {
		t.Errorf("a reset brings enough: %+v", got)
	}
}

func TestBackUpTheLadder(t *testing.T) {
	on := func(left float64, lost time.Duration) Job { return Job{Left: left, On: "vast", Lost: lost} }
	little := kaggle()
	little.Quota = &Quota{Left: hour, Whole: 30 * hour}
	fast := kaggle()
	fast.Rate, fast.Price = 6e13, nil
	for _, c := range []struct {
		name string
		up   Rung
		job  Job
		kind Kind
		why  string
	}{
		{"slower, and it costs nothing", kaggle(), on(left, 0), Move, "a move gains 50 % of what is left and loses 4 %"},
		{"what is lost since the last milestone counts", kaggle(), on(left, hour), Stay, "loses 29 % by starting again; 58 % is worth it"},
		{"near its end a job stays", kaggle(), on(left/20, 0), Stay, "loses 83 %"},
		{"parked is not free", parked(kaggle(), hour), on(left, 0), Stay, "no better rung"},
		{"a rest of a quota is won only as far as it goes, and loses two restarts", little, on(left, 0), Stay, "gains 7 % of what is left and loses 17 %"},
		{"faster, and nothing is known of money", fast, on(left, 0), Move, "gains 50 % of what is left and loses 4 %"},
		{"an unknown speed moves nobody", Rung{Platform: "kaggle", Start: hour}, on(left, 0), Stay, "the speed of kaggle is not known"},
		{"an unknown start-up moves nobody", Rung{Platform: "kaggle", Rate: 9e13}, on(left, 0), Stay, "start-up of kaggle is not known"},
		{"a rung where more retries were spent is no better one", Rung{Platform: "kaggle", Rate: 9e13, Start: time.Second, Spent: 1}, on(left, 0), Stay, "on its best rung"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Choose([]Rung{c.up, vast()}, c.job)
			if got.Kind != c.kind || !strings.Contains(got.Reason, c.why) {
				t.Errorf("%s: %s, want %s with %q", got.Kind, got.Reason, c.kind, c.why)
			}
		})
	}
}

func TestSpentRetriesMoveOneRungDownAndBeginAgain(t *testing.T) {
	rungs := []Rung{{Platform: "a"}, {Platform: "b"}, {Platform: "c"}}
	var went []string
	for range 7 {
		c := Choose(rungs, Job{})
		went = append(went, c.Platform)
		rungs[slices.IndexFunc(rungs, func(r Rung) bool { return r.Platform == c.Platform })].Spent++
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "a", "b", "c", "a"}, went); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rungs = []Rung{{Platform: "a", Spent: 2, Barred: "excluded"}, {Platform: "b", Spent: 2, Parked: time.Hour}}
	if c := Choose(rungs, Job{}); c.Kind != Wait || c.Until != time.Hour {
		t.Errorf("behind the last rung: %+v, want a wait", c)
	}
}

// A platform that says "no slots" again and again parks for 15 minutes at most each time: taken one by one, each park is
// worth waiting for, and the job never leaves.
func TestAGuessThatWasWrongForLongIsNotWaitedFor(t *testing.T) {
	r := parked(kaggle(), 15*time.Minute)
	if c := Choose([]Rung{r, vast()}, Job{Left: left}); c.Kind != Wait {
		t.Fatalf("%+v, want a wait", c)
	}
	r.Waited = 125 * hour
	if c := Choose([]Rung{r, vast()}, Job{Left: left}); c.Platform != "vast" {
		t.Errorf("after 125 h of guesses: %+v, want vast", c)
	}
}

func TestTheBalanceHasNoUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rungs, job := drawRungs(t), drawJob(t)
		c := Choose(rungs, job)
		for _, f := range []time.Duration{2, 16} {
			scaled, later := slices.Clone(rungs), job
			later.Left *= float64(f)
			later.Milestone *= f
			later.Lost *= f
			for i := range scaled {
				r := &scaled[i]
				r.Parked, r.Waited, r.Start = r.Parked*f, r.Waited*f, r.Start*f
				if q := r.Quota; q != nil {
					r.Quota = &Quota{Left: q.Left * f, Whole: q.Whole * f, Resets: q.Resets * f}
				}
				if p := r.Price; p != nil {
					r.Price = &record.Price{PerHour: p.PerHour * 4, Unit: p.Unit}
				}
			}
			if d := Choose(scaled, later); d.Kind != c.Kind || d.Platform != c.Platform {
				t.Fatalf("all times × %d and all prices × 4: %s %s became %s %s", f, c.Kind, c.Platform, d.Kind, d.Platform)
			}
		}
	})
}

func drawRungs(t *rapid.T) []Rung {
	out := make([]Rung, rapid.IntRange(0, 4).Draw(t, "rungs"))
	for i := range out {
		r := Rung{Platform: string(rune('a' + i)), Spent: rapid.IntRange(0, 2).Draw(t, "spent")}
		switch rapid.IntRange(0, 6).Draw(t, "state") {
		case 0:
			r.Barred = "barred"
		case 1:
			r.Full, r.Soon = "full", rapid.Bool().Draw(t, "soon")
		case 2, 3:
			r.Parked, r.Why = time.Duration(rapid.IntRange(1, 1000).Draw(t, "parked"))*time.Minute, "because"
			r.Waited = time.Duration(rapid.IntRange(0, 100).Draw(t, "waited")) * time.Minute
		}
		if rapid.Bool().Draw(t, "priced") {
			r.Price = &record.Price{PerHour: float64(rapid.IntRange(0, 8).Draw(t, "price")) / 4, Unit: rapid.SampledFrom([]string{"USD", "USD", "credits", QuotaUnit}).Draw(t, "unit")}
		}
		if rapid.IntRange(0, 3).Draw(t, "rated") > 0 {
			r.Rate = float64(rapid.IntRange(1, 8).Draw(t, "rate")) * 1e12
		}
		if rapid.IntRange(0, 3).Draw(t, "starts") > 0 {
			r.Start = time.Duration(rapid.IntRange(1, 60).Draw(t, "start")) * time.Minute
		}
		if rapid.IntRange(0, 3).Draw(t, "quota") == 0 {
			r.Quota = &Quota{Whole: 30 * hour, Left: time.Duration(rapid.IntRange(0, 1800).Draw(t, "left")) * time.Minute, Resets: time.Duration(rapid.IntRange(0, 9999).Draw(t, "resets")) * time.Minute}
		}
		out[i] = r
	}
	return out
}

func drawJob(t *rapid.T) Job {
	return Job{Left: float64(rapid.IntRange(0, 3000).Draw(t, "work")) * 60e12, Milestone: time.Duration(rapid.IntRange(0, 30).Draw(t, "milestone")) * time.Minute,
		On: rapid.SampledFrom([]string{"", "", "a", "b", "c", "d", "gone"}).Draw(t, "on"), Lost: time.Duration(rapid.IntRange(0, 20).Draw(t, "lost")) * time.Minute}
}

func TestChooseIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rungs, job := drawRungs(t), drawJob(t)
		before := slices.Clone(rungs)
		c := Choose(rungs, job)
		if diff := cmp.Diff(before, rungs); diff != "" {
			t.Fatalf("the rungs were changed:\n%s", diff)
		}
		if diff := cmp.Diff(c, Choose(rungs, job)); diff != "" {
			t.Fatalf("equal facts, another choice:\n%s", diff)
		}
		if c.Reason == "" && (c.Kind != Launch || len(c.Rungs) > 1) {
			t.Fatalf("a choice without its reason: %+v", c)
		}
		running := c.Kind == Stay || c.Kind == Move
		if running != (job.On != "") {
			t.Fatalf("%s while it runs on %q", c.Kind, job.On)
		}
		i := slices.IndexFunc(rungs, func(r Rung) bool { return r.Platform == c.Platform })
		switch c.Kind {
		case Launch, Move:
			if i < 0 || obstacle(rungs[i], job).text != "" || c.Platform == job.On {
				t.Fatalf("%s on %+v", c.Kind, c)
			}
		case Wait:
			if i >= 0 && obstacle(rungs[i], job).forever {
				t.Fatalf("waits for a rung that never takes it: %+v", c)
			}
			if !slices.ContainsFunc(rungs, func(r Rung) bool { return !obstacle(r, job).forever }) {
				t.Fatalf("waits for nothing: %+v", c)
			}
		case Blocked:
			if slices.ContainsFunc(rungs, func(r Rung) bool { return r.Barred == "" }) {
				t.Fatalf("blocked, and a rung may take it without help: %+v", c)
			}
		}
	})
}

// Waiting longer is never worth more.
func TestALongerParkIsNeverWorthMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rungs, job := drawRungs(t), drawJob(t)
		if job.On = ""; len(rungs) < 2 {
			return
		}
		rungs = rungs[:2]
		rungs[0].Spent, rungs[1].Spent = 0, 0
		rungs[0].Barred, rungs[0].Full, rungs[0].Quota = "", "", nil
		rungs[0].Parked = time.Duration(rapid.IntRange(1, 2000).Draw(t, "short")) * time.Minute
		first := Choose(rungs, job)
		rungs[0].Parked += time.Duration(rapid.IntRange(1, 2000).Draw(t, "more")) * time.Minute
		if second := Choose(rungs, job); first.Kind == Launch && second.Kind == Wait {
			t.Fatalf("%v more of a park made it worth waiting: %+v, then %+v", rungs[0].Parked, first, second)
		}
	})
}
