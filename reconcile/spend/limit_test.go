package spend

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheWallLimit(t *testing.T) {
	l := Limits{Wall: 36 * time.Hour}
	if v := Judge(l, Account{Now: hour(100)}); v.Over() || v.Next != 0 {
		t.Errorf("never launched: %+v", v)
	}
	if v := Judge(l, Account{Now: hour(10), First: hour(0)}); v.Over() || v.Next != 26*time.Hour {
		t.Errorf("after 10 h: %+v", v)
	}
	v := Judge(l, Account{Now: hour(38), First: hour(0)})
	if v.Since != 2*time.Hour || v.Why != "limits.wall: its first launch was more than 36h ago" {
		t.Errorf("after 38 h: %+v", v)
	}
}

// Only what is paid in the limit's unit counts, and what does not is said.
func TestThePaidLimit(t *testing.T) {
	l := Limits{Paid: Amount{Sum: 20, Unit: "USD"}}
	a := Account{Now: hour(10), First: hour(0), Carried: Bill{Amounts: []Amount{{15, "USD", false}, {99, "credits", false}}, Unknown: 1},
		Launches: []Interval{{From: hour(0), To: hour(2), Rate: usd(1)}, {From: hour(4), Rate: usd(0.5)}, {From: hour(0), Rate: &Rate{PerHour: 50, Unit: "credits"}}}}
	v := Judge(l, a) // 15 + 2 + 0.5 × 6 = 20: this instant
	if !v.Over() || v.Since != 0 {
		t.Errorf("at 20 USD: %+v", v)
	}
	a.Now = hour(9)
	if v := Judge(l, a); v.Over() || v.Next != time.Hour {
		t.Errorf("an hour before: %+v", v)
	}
	a.Now = hour(13)
	if v := Judge(l, a); v.Since != 3*time.Hour || v.Why != "limits.paid: 21.50 USD are spent, the limit is 20.00 USD; not counted: 749.00 credits + unknown (1 launch)" {
		t.Errorf("three hours after: %+v", v)
	}
	a.Carried.Amounts[0].Sum = 30
	if v := Judge(l, a); !v.Over() || v.Since != 13*time.Hour {
		t.Errorf("carried over it: %+v", v)
	}
}

// A limit without a unit holds for each unit by itself; at the rate of nothing it is never reached.
func TestAPaidLimitWithoutAUnit(t *testing.T) {
	a := Account{Now: hour(3), First: hour(0), Launches: []Interval{{From: hour(0), Rate: usd(1)}, {From: hour(0), Rate: &Rate{PerHour: 2, Unit: "credits"}}}}
	if v := Judge(Limits{Paid: Amount{Sum: 5}}, a); !v.Over() || !strings.Contains(v.Why, "6.00 credits are spent, the limit is 5.00 credits") || v.Since != 30*time.Minute {
		t.Errorf("%+v", v)
	}
	free := Account{Now: hour(3), First: hour(0), Launches: []Interval{{From: hour(0), Rate: &Rate{}}, {From: hour(0)}}}
	if v := Judge(Limits{Paid: Amount{Sum: 5}}, free); v.Over() || v.Next != 0 {
		t.Errorf("free and unknown: %+v", v)
	}
}

// When a limit was crossed is the instant at which the bill reached it, whoever asks and however late.
func TestTheCrossingDoesNotDependOnWhenOneLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawIntervals(t, "launches")
		limit := Limits{Paid: Amount{Sum: rapid.Float64Range(0.01, 300).Draw(t, "limit"), Unit: "USD"}}
		a := Account{Now: hour(rapid.Float64Range(0, 200).Draw(t, "now")), First: hour(-50), Launches: list}
		v := Judge(limit, a)
		sum := Total(list, Bill{}, a.Now).Of("USD").Sum
		if v.Over() != (sum >= limit.Paid.Sum) && math.Abs(sum-limit.Paid.Sum) > 1e-6 {
			t.Fatalf("%v of %v: %+v", sum, limit.Paid.Sum, v)
		}
		if !v.Over() {
			return
		}
		at := a.Now.Add(-v.Since)
		if then := Total(list, Bill{}, at).Of("USD").Sum; math.Abs(then-limit.Paid.Sum) > 1e-6*(1+then) {
			t.Fatalf("%v were spent when the limit of %v was crossed", then, limit.Paid.Sum)
		}
		a.Now = a.Now.Add(time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "later")))
		if again := Judge(limit, a); a.Now.Add(-again.Since).Sub(at).Abs() > time.Millisecond {
			t.Fatalf("crossed at %v, and later at %v", at, a.Now.Add(-again.Since))
		}
	})
}
