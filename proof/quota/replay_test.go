package main

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEqualSeedsPrintEqualBytes(t *testing.T) {
	var a, b bytes.Buffer
	report(&a, 3, 1, true)
	report(&b, 3, 1, true)
	if diff := cmp.Diff(a.String(), b.String()); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
}

// Whatever a policy does, the books balance: nobody gets work, quota or credits out of nothing.
func TestTheBooksBalance(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		asked := 0.0
		for _, k := range newTasks(seed) {
			asked += k.flops
		}
		for _, p := range policies() {
			got := replay(seed, p)
			if got.work > asked*(1+1e-9) || got.free > got.work || got.finished == got.jobs && got.work < asked*(1-1e-9) {
				t.Errorf("%s, seed %d: kept %g of %g FLOPs, %g of them free", p.name, seed, got.work, asked, got.free)
			}
			// Who holds a place in the last minute of a quota is found out in that minute.
			if resets := 5.0; got.quotaH > resets*30+1 || math.Abs(got.quotaH+got.idleH-resets*30) > 1 {
				t.Errorf("%s, seed %d: %.1f h of the quota used and %.1f idle, %v h in all", p.name, seed, got.quotaH, got.idleH, resets*30)
			}
			if got.credits > creditsAMonth+0.1 {
				t.Errorf("%s, seed %d: %.1f credits spent of %g", p.name, seed, got.credits, creditsAMonth)
			}
			if got.finished > got.jobs || got.launches < got.finished || got.moves > got.launches {
				t.Errorf("%s, seed %d: %+v", p.name, seed, got)
			}
		}
	}
}

// What the ladder is for: more of the work on hours that cost nothing than a queue that takes the first free slot, and
// everything finished all the same.
func TestFreeHoursAreUsed(t *testing.T) {
	var ours, first total
	for seed := uint64(1); seed <= 4; seed++ {
		ours.add(replay(seed, policies()[0]))
		first.add(replay(seed, policies()[1]))
	}
	if ours.finished != ours.jobs || ours.free/ours.work <= first.free/first.work || ours.paidH >= first.paidH {
		t.Errorf("headway: %s\nfirst free: %s", ours.row(), first.row())
	}
}
