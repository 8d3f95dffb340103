package reconcile

import (
	"math"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// However many launches a work has seen, the newest few and the sums that their claims carry give what all of them cost.
func TestWhatWasPaidIsNotForgotten(t *testing.T) {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	whole, want := map[int64]*slip{}, spend.Bill{}
	for n := int64(1); n <= 300; n++ {
		at := start.Add(time.Duration(n) * time.Hour)
		s := &shelf{listed: map[int64]*slip{}}
		h := History{}
		for k := max(n-historyWindow, 1); k < n; k++ {
			s.listed[k] = whole[k]
			h.Dispatches = append(h.Dispatches, Dispatch{N: k})
		}
		s.purse.date, s.purse.heard = at, time.Now()
		list, carried, gone := s.paid("w", h, nil, math.MaxInt64)
		carried.Unknown += gone
		got := carried
		for _, l := range list {
			got = got.Add(spend.Charge(l.Interval, at))
		}
		if math.Abs(got.Of("USD").Sum-want.Of("USD").Sum) > 1e-9 || got.Unknown != want.Unknown {
			t.Fatalf("before dispatch %d: %v, all of them cost %v", n, got, want)
		}
		d := &slip{modified: at, receiptAt: at, claim: &record.Claim{Dispatch: n, Paid: s.carry("w", h, nil, n)},
			receipt: &record.Receipt{OK: true, Price: &record.Price{PerHour: float64(n%5) / 2, Unit: "USD"}}, told: at.Add(30 * time.Minute), release: &record.Release{Settlement: "closed"}}
		if n%11 == 0 {
			d.receipt.Price = nil
		}
		if n%7 == 0 {
			d.receipt = &record.Receipt{Class: "no_slots"} // was never paid for
		}
		whole[n] = d
		if i, ok := s.interval("w", n, d, h, nil); ok {
			want = want.Add(spend.Charge(i, at.Add(time.Hour)))
		}
	}
	if want.Unknown == 0 || want.Of("USD").Sum < 50 {
		t.Fatalf("the test pays too little: %v", want)
	}
}

// One answer with an absurd time, wherever it comes, crosses no limit; two that agree are believed.
func TestOneAbsurdDateMovesNoClock(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for name, dates := range map[string][]time.Duration{
		"first": {1e6, 0, 1}, "second": {0, 1e6, 1}, "third": {0, 1, 1e6}, "back": {0, 1, -1e6}, "apart": {0, 1, 1e6, -1e6, 3e6, 2}, "moved": {1e6, 1e6, 0, 1},
	} {
		var p purse
		for i, d := range dates {
			p.clock(now.Add(d * time.Second))
			if i == 0 && !p.doubted() {
				t.Errorf("%s: one answer is believed", name)
			}
		}
		if got := p.now().Sub(now); p.doubted() || got < 0 || got > clockSlack {
			t.Errorf("%s: the store's time is %v off", name, got)
		}
	}
	var p purse
	seen := &witness.Seen{Date: now.Add(1e6 * time.Second)}
	p.sees(seen)
	p.sees(seen)
	if !p.doubted() {
		t.Error("an answer agrees with itself")
	}
}

// What a shared launch costs is divided among its jobs alike, or by their cards where the receipt says so.
func TestAShareOfALaunchIsPaid(t *testing.T) {
	for _, tc := range []struct {
		jobs  int
		share float64
		want  float64
	}{{0, 0, 0}, {4, 0, 0.25}, {4, 0.625, 0.625}, {4, 1.5, 0.25}, {4, -1, 0.25}, {0, 0.5, 0}} {
		d := &slip{receipt: &record.Receipt{OK: true, Price: &record.Price{PerHour: 2, Unit: "USD"}, Jobs: tc.jobs, Share: tc.share}}
		if got := d.rate(); got == nil || got.Share != tc.want {
			t.Errorf("%d jobs, share %v: %+v, want %v", tc.jobs, tc.share, got, tc.want)
		}
	}
}
