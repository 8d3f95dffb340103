package witness

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

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

// FuzzPlainKeys holds the walk over bytes against one over the tokens of the standard library.
func FuzzPlainKeys(f *testing.F) {
	t := &testing.T{}
	_, cases := vectors(t, "records.json")
	for _, c := range cases {
		f.Add(c.bytes(t))
	}
	for _, s := range []string{`{"a":{"b":1},"b":[{"a":1},{"a":2}]}`, `{"a":[1,{"a":1,"a":2}]}`, `{"a":"\",\"a\":\\","b":2}`, `{"\u0061":1,"a":2}`, `{"":1}`,
		`{"a":{},"b":[],"a":1}`, `[{"A":1}]`, `"a"`, ` 1`, `{"a":{"a":{"a":1,"b":[[{"a":1}]]}},"c":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > MaxRecord || !json.Valid(b) {
			return
		}
		err, want := plainKeys(b), tokenKeys(json.NewDecoder(bytes.NewReader(b)))
		if (err == nil) != want {
			t.Errorf("%q: %v; by tokens: %v", b, err, want)
		}
	})
}

// tokenKeys reports whether the value is an object, and no object in it has a key twice or one that is not plain.
func tokenKeys(d *json.Decoder) bool {
	d.UseNumber()
	if first, _ := d.Token(); first != json.Delim('{') {
		return false
	}
	open := []map[string]bool{{}} // nil: an array
	for key := true; len(open) > 0; {
		token, _ := d.Token()
		top := open[len(open)-1]
		if name, is := token.(string); is && key {
			if top[name] || !plain([]byte(name)) {
				return false
			}
			top[name], key = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
	return true
}

func BenchmarkDecode(b *testing.B) {
	work := record.Hash(nil)
	r := Record{Protocol: record.Protocol, Work: work, Rev: 3, Write: record.Nonce(), Attempt: 2, Holder: record.Nonce(), Dispatch: 2,
		Lease: LeaseFor(0, time.Second, 0), State: Held, Resume: &record.Pointer{Attempt: 1, Milestone: 4, Step: 400, Manifest: record.MilestoneManifestKey(work, 1, 4), SHA256: record.Hash(nil)}}
	text, err := encode(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(work, text); err != nil {
			b.Fatal(err)
		}
	}
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
