package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/spend"
)

// What is paid for although nobody works on it is named with its price, or that this is unknown, and since when; a release that is
// pending also where it costs nothing.
func TestLeaksSaySinceWhen(t *testing.T) {
	from := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	open := spend.Bill{Open: 1}
	job := func(name string, l reconcile.LaunchCost) jobCost {
		l.Dispatch, l.Platform, l.From, l.PaidS = 2, "vast", from, 6000
		return jobCost{Job: name, Cost: &reconcile.Cost{Work: "0123456789abcdef", Launches: []reconcile.LaunchCost{l}}}
	}
	got := leaks([]jobCost{
		job("pending", reconcile.LaunchCost{Price: "0.40 USD per hour", Cost: open, Open: true, Release: "pending"}),
		job("never asked", reconcile.LaunchCost{Price: "0.40 USD per hour", Cost: open, Open: true}),
		job("", reconcile.LaunchCost{Price: "unknown", Cost: open, Open: true, Release: "pending"}),
		job("free", reconcile.LaunchCost{Price: "free", Open: true, Release: "pending"}),
		job("free and not asked", reconcile.LaunchCost{Price: "free", Open: true}),
		job("runs", reconcile.LaunchCost{Price: "0.40 USD per hour", Cost: open, Open: true, Running: true, Release: "pending"}),
		job("closed", reconcile.LaunchCost{Price: "0.40 USD per hour", Release: "closed"}),
	})
	want := []string{
		"still paid for: launch 2 of pending on vast, 0.40 USD per hour, since 2026-05-04T10:00:00Z (1h40m): its release is pending",
		"still paid for: launch 2 of never asked on vast, 0.40 USD per hour, since 2026-05-04T10:00:00Z (1h40m): its end is not confirmed",
		"still paid for: launch 2 of 0123456789ab on vast, price unknown, since 2026-05-04T10:00:00Z (1h40m): its release is pending",
		"not released yet: launch 2 of free on vast, free, since 2026-05-04T10:00:00Z (1h40m): its release is pending",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
