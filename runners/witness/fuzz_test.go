package witness

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/headway-run/headway/runners/record"
)

// FuzzDecode: whatever lies under a witness key is a record that survives a round trip, or *Unreadable, and no move
// leads from a finished one.
func FuzzDecode(f *testing.F) {
	t := &testing.T{}
	work, cases := vectors(t, "records.json")
	for _, c := range cases {
		f.Add(c.bytes(t))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(work, b)
		if err != nil {
			if !isUnreadable(err) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		if len(b) > MaxRecord || r.Work != work || r.Rev < 1 {
			t.Fatalf("accepted %+v", r)
		}
		again, err := encode(r)
		if err != nil && len(b) < MaxRecord/8 { // indentation and escapes may take a long one over the bound
			t.Fatalf("accepted and can't be written: %v", err)
		}
		if err == nil {
			if _, err := Decode(work, again); err != nil {
				t.Fatalf("written and can't be read: %v\n%s", err, again)
			}
		}
		if _, no := nextCapture(r, r.Floor+1, record.Nonce(), quick); r.State == Finished && no == nil {
			t.Fatal("a finished record was captured")
		}
	})
}

// TestNextAgainstCheck holds the moves against the table, two implementations of one protocol: from every kind of
// record, each next function gives a record that CheckMove names as that move, or refuses.
func TestNextAgainstCheck(t *testing.T) {
	_, cases := vectors(t, "records.json")
	rng := rand.New(rand.NewPCG(1, 2))
	type made struct {
		r    Record
		no   *Refusal
		want Move
	}
	count := map[Move]int{}
	for _, c := range cases {
		if c.Expect != "accept" || c.Record == nil {
			continue
		}
		var old Record
		if err := json.Unmarshal(c.Record, &old); err != nil {
			t.Fatal(err)
		}
		for _, holder := range []string{old.Holder, record.Nonce()} {
			to := record.Pointer{Attempt: old.Attempt, Milestone: rng.Int64N(6), Step: 50 + rng.Int64N(150), SHA256: record.Hash(nil)}
			to.Manifest = record.MilestoneManifestKey(old.Work, to.Attempt, to.Milestone)
			fin := FinishedPointer{Attempt: old.Attempt, Manifest: record.ResultManifestKey(old.Work, old.Attempt), SHA256: record.Hash(nil)}
			var all []made
			add := func(want Move) func(r Record, no *Refusal) {
				return func(r Record, no *Refusal) { all = append(all, made{r, no, want}) }
			}
			add(MoveCapture)(nextCapture(old, rng.Int64N(6)+1, record.Nonce(), quick))
			add(MoveRenew)(nextRenew(old, holder, Progress{}, quick))
			add(MoveAdvance)(nextAdvance(old, holder, to, Progress{}, quick))
			add(MoveYield)(nextYield(old, holder, "x"))
			add(MoveFinish)(nextFinish(old, holder, fin, Progress{}))
			add(MoveRevoke)(nextRevoke(old, "x"))
			for _, m := range all {
				if m.no != nil {
					if m.no.Work != old.Work || m.no.Text == "" {
						t.Errorf("%s: a refusal without a sentence: %+v", c.Name, m.no)
					}
					continue
				}
				m.r.Write = record.Nonce()
				got, err := CheckMove(&old, m.r)
				if err == nil && got != m.want || err != nil && m.want != MoveAdvance {
					t.Errorf("%s: made as %s, checked as %q: %v", c.Name, m.want, got, err)
				}
				count[got]++
			}
			if holder != old.Holder && old.State == Held {
				for _, m := range all[1:5] {
					if m.no == nil {
						t.Errorf("%s: a stranger made the move %s", c.Name, m.want)
					}
				}
			}
			if r, done := nextStop(old, rng.Int64N(9), "x"); !done {
				r.Write = record.Nonce()
				if got, err := CheckMove(&old, r); err != nil || got != MoveStop && got != MoveRevoke {
					t.Errorf("%s: stop: %s %v", c.Name, got, err)
				}
				count[MoveStop]++
			}
		}
	}
	for _, m := range []Move{MoveCapture, MoveRenew, MoveAdvance, MoveYield, MoveFinish, MoveRevoke, MoveStop} {
		if count[m] == 0 {
			t.Errorf("no case made the move %s", m)
		}
	}
}
