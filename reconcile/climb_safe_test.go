package reconcile

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// A work leaves for a better rung only while it holds its lease and is not silent, behind a milestone of this very attempt
// that came after the wish, for a rung above that takes it now and on which no more retries were spent.
func TestAMoveIsSafe(t *testing.T) {
	moves := 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		if rapid.IntRange(0, 3).Draw(t, "runs") > 0 { // most of what is drawn does not
			f.Lease = Lease{State: witness.Held, Version: "v", Attempt: 2, Dispatch: 2, Suspect: rapid.IntRange(0, 4).Draw(t, "silent") == 4,
				Resume: &record.Pointer{Attempt: rapid.SampledFrom([]int64{2, 2, 2, 1}).Draw(t, "milestone of"), Milestone: 1}}
			f.Wish = rapid.SampledFrom([]Wish{Wanted, Wanted, Wanted, Frozen, Leaving}).Draw(t, "wished")
		}
		f.On, f.Rest = "q", Rest{FLOPs: 1e18}
		for i := range f.Rungs {
			f.Rungs[i].Rate, f.Rungs[i].Start = float64(rapid.SampledFrom([][]int{{4, 4, 4, 1, 0}, {1, 1, 1, 2, 0}}[i]).Draw(t, "rate"))*1e13, time.Duration(rapid.SampledFrom([]int{1, 2, 3, 0}).Draw(t, "start"))*time.Minute
		}
		if rapid.IntRange(0, 9).Draw(t, "looked at") > 0 {
			f.Climb = &Climb{Attempt: f.Lease.Attempt + rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -1}).Draw(t, "of"), To: rapid.SampledFrom([]string{"p", "p", "p", "p", "", "q"}).Draw(t, "to"),
				Spent: map[string]int{"p": rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "spent")}}
			if rapid.IntRange(0, 3).Draw(t, "had one") == 0 {
				f.Climb.Pointer = f.Lease.Resume
			} else if rapid.Bool().Draw(t, "another") {
				f.Climb.Pointer = &record.Pointer{Attempt: f.Lease.Attempt, Milestone: 7}
			}
			if rapid.IntRange(0, 5).Draw(t, "stuck") == 0 {
				f.Climb.No = "its retries are spent"
			}
		}
		a := Decide(f)
		if a.Kind != Move {
			return
		}
		moves++
		l, c, up := f.Lease, f.Climb, f.Rungs[0]
		if l.State != witness.Held || l.Suspect || a.Version != l.Version || f.Wish != Wanted || f.Job.Suspend || f.Unready != "" || f.Hurdle.Left > 0 {
			t.Fatalf("left: %+v", f)
		}
		if c == nil || c.No != "" || c.Attempt != l.Attempt || c.To != "p" || l.Resume == nil || l.Resume.Attempt != l.Attempt || !moved(c.Pointer, l.Resume) {
			t.Fatalf("left without a milestone behind its wish: %+v, %+v", c, l)
		}
		if up.Refused+up.Fatal+up.Full != "" || up.Parked > 0 || up.Rate <= 0 || up.Start <= 0 || c.Spent["p"] > c.Spent["q"] {
			t.Fatalf("left for %+v, spent %v", up, c.Spent)
		}
	})
	if moves == 0 {
		t.Error("no case moved: this shows nothing")
	}
}
