package runners_test

import (
	"encoding/json"
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"pgregory.net/rapid"
)

// claims puts n claims of one work into a store; with receipts of a refusal when refused.
func claims(t *testing.T, s *store, from, to int64) {
	t.Helper()
	for n := from; n <= to; n++ {
		put(t, s.Bucket, record.ClaimKey(work, n), order(n).Claim)
		put(t, s.Bucket, record.ReceiptKey(work, n), record.Receipt{Protocol: 1, Work: work, Dispatch: n, Class: string(runners.NoSlots)})
	}
}

func TestNextDispatch(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	last := int64(0)
	for _, upto := range []int64{0, 1, 7, 8, 9, 40, 300} {
		claims(t, s, last+1, upto)
		last = upto
		rapid.Check(t, func(t *rapid.T) {
			known := rapid.Int64Range(0, last).Draw(t, "known")
			s.lists = 0
			got, err := d.NextDispatch(ctxOf(), work, known)
			if err != nil || got != last+1 {
				t.Errorf("next after %d of %d: %d, %v", known, last, got, err)
			}
			if most := 2*bits.Len64(uint64(last-known)) + 2; s.lists > most {
				t.Errorf("%d lists for %d dispatches behind the known one, at most %d", s.lists, last-known, most)
			}
		})
	}
}

// A work that was dispatched ten thousand times costs no more requests than one that was dispatched ten times.
func TestTenThousandDispatches(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	claims(t, s, 1, 10_000)
	put(t, s.Bucket, record.ReleaseKey(work, 9_999, 12), record.Release{Protocol: 1, Work: work, Dispatch: 9_999, Settlement: "closed"})
	if n, err := d.NextDispatch(t.Context(), work, 9_995); err != nil || n != 10_001 || s.lists != 1 {
		t.Errorf("next is %d, %v, with %d lists", n, err, s.lists)
	}
	s.lists, s.gets = 0, 0
	list, err := d.ReadClaims(t.Context(), work, 9_990, 5)
	if err != nil || len(list) != 5 || list[0].N != 9_991 || list[4].Receipt.Class != "no_slots" {
		t.Errorf("claims: %+v, %v", list, err)
	}
	if s.lists > 2 || s.gets > 15 {
		t.Errorf("%d lists and %d gets for five claims", s.lists, s.gets)
	}
	s.lists, s.gets = 0, 0
	status, err := d.Status(t.Context(), work)
	if err != nil || status.Phase != runners.PhaseFree || status.LastDispatch != 10_000 || len(status.Dispatches) != 3 || status.Dispatches[1].Answers != 12 {
		t.Errorf("status: %+v, %v", status, err)
	}
	if s.lists > 32 || s.gets > 10 {
		t.Errorf("%d lists and %d gets for one status", s.lists, s.gets)
	}
}

func TestReadClaimsPages(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	claims(t, s, 1, 25)
	for k := range int64(40) { // a platform that was asked often in a row
		put(t, s.Bucket, record.ReleaseKey(work, 7, k+1), record.Release{Protocol: 1, Work: work, Dispatch: 7, Settlement: "pending"})
	}
	var got []int64
	for after := int64(0); ; {
		list, err := d.ReadClaims(t.Context(), work, after, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			got = append(got, e.N)
			if e.Bad != "" || e.Claim.Dispatch != e.N || e.Receipt == nil || (e.N == 7) != (e.Answers == 40) {
				t.Errorf("%+v", e)
			}
		}
		after = list[len(list)-1].N
	}
	var want []int64
	for n := range int64(25) {
		want = append(want, n+1)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

// Bytes that cannot be read as what they should be are said to be so; they hide nothing else and stop nothing.
func TestHostileClaims(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	claims(t, s, 1, 6)
	other := order(2).Claim
	other.Work = record.Hash(nil)
	newer := order(4).Claim
	newer.Protocol = 99
	prefix := record.DispatchPrefix(work)
	for key, v := range map[string]any{
		record.ClaimKey(work, 1): "{", record.ClaimKey(work, 2): other, record.ClaimKey(work, 3): order(33).Claim, record.ClaimKey(work, 4): newer,
		record.ReceiptKey(work, 5): json.RawMessage(`{"dispatch":"five"}`), record.ReceiptKey(work, 9): "no claim",
		prefix + "5.json": "not padded", prefix + "99999999999999999999.json": "no number", prefix + "x.json": "", prefix + "00000006.gossip": "",
	} {
		put(t, s.Bucket, key, v)
	}
	list, err := d.ReadClaims(t.Context(), work, 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[int64]bool{}
	for _, e := range list {
		bad[e.N] = bad[e.N] || e.Bad != ""
	}
	if diff := cmp.Diff(map[int64]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 9: true}, bad); diff != "" {
		t.Errorf("bad (-want +got):\n%s", diff)
	}
	if n, err := d.NextDispatch(t.Context(), work, 0); err != nil || n != 10 {
		t.Errorf("next: %d, %v", n, err)
	}
	if n, err := d.NextDispatch(t.Context(), work, 9); err != nil || n != 10 {
		t.Errorf("next after 9: %d, %v", n, err)
	}
}
