package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// forgedBoard is a store with one lease and a board of these rows.
func forgedBoard(t *testing.T, state witness.State, rows func(v bucket.Version) []BoardRow) bucket.Bucket {
	t.Helper()
	b := mem.New()
	put := func(key string, body []byte) bucket.Version {
		v, err := b.Put(t.Context(), key, bytes.NewReader(body), bucket.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	w := strings.Repeat("a", 64)
	lease := witness.Record{Protocol: record.Protocol, Rev: 1, Write: record.Nonce(), Work: w, State: state, Attempt: 2, Dispatch: 3}
	body, err := record.Encode(lease)
	if err != nil {
		t.Fatal(err)
	}
	v := put(record.WitnessKey(w), body)
	board := Board{Format: boardFormat, Plan: put(forceKey(""), []byte("{}")), Rows: rows(v)}
	if body, err = json.Marshal(board); err != nil {
		t.Fatal(err)
	}
	put(boardKey(""), body)
	return b
}

// Of a few jobs the lease is read, so a board can't show one held or finished that is not, nor the other way round; and a row
// that no dispatcher writes makes it none.
func TestABoardThatTheStoreContradictsIsNone(t *testing.T) {
	w := plan.Digest(strings.Repeat("a", 64))
	row := func(state string, change func(*BoardRow)) func(bucket.Version) []BoardRow {
		return func(v bucket.Version) []BoardRow {
			r := BoardRow{Observed: plan.Observed{Work: w, State: state, Attempt: 2, Dispatch: 3}, Job: "j", Version: v}
			if change != nil {
				change(&r)
			}
			return []BoardRow{r}
		}
	}
	for name, c := range map[string]struct {
		state witness.State
		rows  func(bucket.Version) []BoardRow
		good  bool
	}{
		"true":                    {witness.Yielded, row(plan.StateYielded, nil), true},
		"failed":                  {witness.Revoked, row(plan.StateFailed, nil), true},
		"held, and is not":        {witness.Yielded, row(plan.StateHeld, nil), false},
		"finished, and is not":    {witness.Revoked, row(plan.StateFinished, nil), false},
		"another attempt":         {witness.Yielded, row(plan.StateYielded, func(r *BoardRow) { r.Attempt = 9 }), false},
		"an older dispatch":       {witness.Yielded, row(plan.StateYielded, func(r *BoardRow) { r.Dispatch = 1 }), false},
		"a work that nobody has":  {witness.Yielded, row(plan.StateHeld, func(r *BoardRow) { r.Work, r.Version = plan.Digest(strings.Repeat("b", 64)), "" }), false},
		"no digest":               {witness.Yielded, row(plan.StateAbsent, func(r *BoardRow) { r.Work, r.Version = "../../x", "" }), false},
		"an empty one":            {witness.Yielded, row(plan.StateAbsent, func(r *BoardRow) { r.Work, r.Version = "", "" }), false},
		"less than nothing":       {witness.Yielded, row(plan.StateYielded, func(r *BoardRow) { r.Step = -1 }), false},
		"more dispatches than is": {witness.Yielded, row(plan.StateYielded, func(r *BoardRow) { r.Dispatch = 1 << 60 }), false},
	} {
		_, _, err := ReadBoard(t.Context(), forgedBoard(t, c.state, c.rows), "", nil)
		if errors.Is(err, ErrNoBoard) == c.good || c.good && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzBoard: whatever lies in a board's place, reading its rows never panics, and no held row is without a held lease.
func FuzzBoard(f *testing.F) {
	w := strings.Repeat("a", 64)
	f.Add([]byte(`{"format":1,"rows":[{"work":"` + w + `","state":"held","job":"j","attempt":1,"dispatch":1}]}`))
	f.Add([]byte(`{"format":1,"rows":[{"work":"` + w + `","state":"finished","job":"j","version":"x"},{"work":"` + w + `","state":"absent","job":"k"},{}]}`))
	f.Add([]byte(`{"rows":null,"platforms":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, way := range []func(*Board) error{
			func(b *Board) error { return b.reread(t.Context(), mem.New()) },
			func(b *Board) error { return b.update(t.Context(), mem.New()) },
		} {
			b := &Board{}
			if json.Unmarshal(data, b) != nil || !b.sound() || len(b.Rows) > boardFresh || way(b) != nil {
				continue
			}
			for _, r := range b.Rows {
				if r.State == plan.StateHeld || r.State == plan.StateFinished {
					t.Errorf("%s is shown as %s of an empty store", r.Job, r.State)
				}
			}
		}
	})
}
