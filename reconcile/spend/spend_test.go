package spend

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func hour(h float64) time.Time { return start.Add(time.Duration(h * float64(time.Hour))) }

func usd(perHour float64) *Rate { return &Rate{PerHour: perHour, Unit: "USD"} }

// Each unit by itself, what is not known beside it, and what is still paid for counted until now.
func TestABillIsSummedByUnit(t *testing.T) {
	list := []Interval{
		{From: hour(0), To: hour(2), Rate: usd(0.5)},
		{From: hour(2), Rate: usd(0.25)},                                                     // still paid for, at hour 6: 1 USD
		{From: hour(0), To: hour(3), Rate: &Rate{PerHour: 1, Unit: "quota hours"}},           //
		{From: hour(0), To: hour(1), Rate: &Rate{PerHour: 8, Unit: "credits", Share: 0.25}},  // one of four jobs of one launch
		{From: hour(0), To: hour(1), Rate: &Rate{PerHour: 3, Unit: "credits", AtMost: true}}, //
		{From: hour(1), To: hour(0), Rate: usd(100)},                                         // stamps that go back are no time
		{From: hour(0), To: hour(9), Rate: &Rate{}},                                          // free
		{From: hour(0), To: hour(1)},                                                         // price unknown
		{From: hour(0)},                                                                      // unknown, and going on
		{From: hour(5), To: hour(8), Rate: &Rate{PerHour: 2, Unit: "USD"}},                   // promised to end later
	}
	got := Total(list, Bill{Amounts: []Amount{{Sum: 1, Unit: "USD"}}, Unknown: 1}, hour(6))
	want := Bill{Amounts: []Amount{{Sum: 5, Unit: "USD"}, {Sum: 5, Unit: "credits", AtMost: true}, {Sum: 3, Unit: "quota hours"}}, Unknown: 3, Open: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := got.String(); s != "5.00 USD + at most 5.00 credits + 3.00 quota hours + unknown (3 launches)" {
		t.Error(s)
	}
}

func TestWhatABillSays(t *testing.T) {
	for want, b := range map[string]Bill{
		"0":                                {},
		"unknown (1 launch)":               {Unknown: 1},
		"12.40 USD + unknown (2 launches)": {Amounts: []Amount{{12.4, "USD", false}}, Unknown: 2},
		"at most 0.0045 USD":               {Amounts: []Amount{{0.0045, "USD", true}}},
		"0.00 USD":                         {Amounts: []Amount{{0, "USD", false}}},
		"1.50":                             {Amounts: []Amount{{1.5, "", false}}},
	} {
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, r := range map[string]Rate{"free": {}, "0.40 USD per hour": {PerHour: 0.4, Unit: "USD"}, "at most 0.45 per hour": {PerHour: 0.45, AtMost: true},
		"0.10 USD per hour (a part of 0.40 USD)": {PerHour: 0.4, Unit: "USD", Share: 0.25}} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func drawInterval(t *rapid.T, name string) Interval {
	i := Interval{From: hour(rapid.Float64Range(-50, 50).Draw(t, name+" from"))}
	if rapid.Bool().Draw(t, name+" ended") {
		i.To = hour(rapid.Float64Range(-60, 100).Draw(t, name+" to"))
	}
	if rapid.IntRange(0, 4).Draw(t, name+" known") > 0 {
		i.Rate = &Rate{PerHour: rapid.Float64Range(0, 20).Draw(t, name+" price"), Unit: rapid.SampledFrom([]string{"", "USD", "credits"}).Draw(t, name+" unit"),
			AtMost: rapid.Bool().Draw(t, name+" bound"), Share: rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, name+" share")}
	}
	return i
}

func drawIntervals(t *rapid.T, name string) (out []Interval) {
	for range rapid.IntRange(0, 12).Draw(t, name) {
		out = append(out, drawInterval(t, name))
	}
	return out
}

// near compares two bills but for what adding in another order rounds.
func near(a, b Bill) string {
	return cmp.Diff(a, b, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*(1+math.Abs(x)) }))
}

// The cost of launches is the sum of their costs, in whatever parts it is carried.
func TestCostsAreAdditive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, now := drawIntervals(t, "a"), drawIntervals(t, "b"), hour(rapid.Float64Range(-50, 100).Draw(t, "now"))
		whole := Total(append(append([]Interval{}, a...), b...), Bill{}, now)
		if diff := near(Total(b, Total(a, Bill{}, now), now), whole); diff != "" {
			t.Fatal("carried:", diff)
		}
		if diff := near(Total(a, Bill{}, now).Add(Total(b, Bill{}, now)), whole); diff != "" {
			t.Fatal("added:", diff)
		}
	})
}

// A cost is never negative, and time only adds to it: more so while an end is pending.
func TestCostsNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, at := drawIntervals(t, "launches"), rapid.Float64Range(-50, 100).Draw(t, "now")
		later := at + rapid.Float64Range(0, 50).Draw(t, "later")
		before, after := Total(list, Bill{}, hour(at)), Total(list, Bill{}, hour(later))
		if len(before.Amounts) != len(after.Amounts) || before.Unknown != after.Unknown || after.Open > before.Open {
			t.Fatalf("%v became %v", before, after)
		}
		for k, a := range before.Amounts {
			if a.Sum < 0 || after.Amounts[k].Sum < a.Sum-1e-9 {
				t.Fatalf("%v became %v", a, after.Amounts[k])
			}
		}
	})
}

// An end that is confirmed late costs at least what one that was confirmed at once does: a longer pending only adds.
func TestALongerPendingCostsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, now := drawInterval(t, "launch"), hour(rapid.Float64Range(0, 100).Draw(t, "now"))
		i.To = hour(rapid.Float64Range(-50, 100).Draw(t, "closed"))
		longer, open := i, i
		longer.To, open.To = i.To.Add(time.Duration(rapid.Int64Range(0, int64(50*time.Hour)).Draw(t, "pending"))), time.Time{}
		unit := ""
		if i.Rate != nil {
			unit = i.Rate.Unit
		}
		a, b, c := Charge(i, now).Of(unit).Sum, Charge(longer, now).Of(unit).Sum, Charge(open, now).Of(unit).Sum
		if a > b || b > c {
			t.Fatalf("closed %v, later %v, never %v", a, b, c)
		}
	})
}

// What is next to nothing is no row of zeros.
func TestATinyAmountShowsItsDigits(t *testing.T) {
	if s := Number(5.4e-10); s != "5.4e-10" {
		t.Error(s)
	}
}
