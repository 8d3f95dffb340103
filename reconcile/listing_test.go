package reconcile_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// leasesOf makes n works with a held lease each, under names that begin with label.
func leasesOf(t *testing.T, store bucket.Bucket, label string, n int) []plan.Digest {
	t.Helper()
	jobs := make([]plan.Job, n)
	works := make([]plan.Digest, n)
	for i := range jobs {
		jobs[i].Name = fmt.Sprint(label, i)
		jobs[i].Work = plan.Digest(record.Hash([]byte(jobs[i].Name)))
		works[i] = jobs[i].Work
	}
	allHeld(t, store, jobs)
	return works
}

// Pages are listed side by side: no lease is missed and none is read twice, a store that holds nothing else costs no page
// more than one listing, and one that holds works of others costs few more.
func TestManyLeasesAreListedSideBySide(t *testing.T) {
	for strangers, pages := range map[int]int64{0: 4, 1200: 8} {
		t.Run(fmt.Sprintf("%d strangers", strangers), func(t *testing.T) {
			store := mem.New()
			works := leasesOf(t, store, "own", 3500)
			leasesOf(t, store, "other", strangers)
			count := counting.New(store)
			rec, err := reconcile.New(reconcile.Config{Bucket: count, ID: "here/1"})
			if err != nil {
				t.Fatal(err)
			}
			asked := append(works, plan.Digest(record.Hash([]byte("absent"))))
			for look, want := range []counting.Counts{{Get: 2*3500 + 1, List: pages}, {List: pages}} {
				before := count.Counts()
				w, err := rec.Observe(t.Context(), asked, nil)
				if err != nil {
					t.Fatal(err)
				}
				states := map[string]int{}
				for _, o := range w.Observed() {
					states[o.State]++
				}
				if states[plan.StateHeld] != 3500 || states[plan.StateAbsent] != 1 {
					t.Errorf("look %d saw %v", look, states)
				}
				got := count.Counts().Minus(before)
				if got.Get != want.Get || got.List > want.List || got.Put != 0 { // a lease and its claim; the absent one has no claim either
					t.Errorf("look %d cost %v, want %v", look, got, want)
				}
			}
			// What changed is read, and nothing else.
			before := count.Counts()
			leasesRenewed(t, store, works[:7])
			if _, err := rec.Observe(t.Context(), asked, nil); err != nil {
				t.Fatal(err)
			}
			if got := count.Counts().Minus(before); got.Get != 7 {
				t.Errorf("7 renewals cost %v", got)
			}
		})
	}
}

// leasesRenewed writes each lease once more.
func leasesRenewed(t *testing.T, store bucket.Bucket, works []plan.Digest) {
	t.Helper()
	for _, w := range works {
		o, err := store.Get(t.Context(), record.WitnessKey(string(w)), bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(o.Body)
		next := bytes.Replace(body, []byte(`"rev": 3`), []byte(`"rev": 4`), 1)
		if err != nil || bytes.Equal(body, next) {
			t.Fatal(err, string(body))
		}
		if _, err := store.Put(t.Context(), record.WitnessKey(string(w)), bytes.NewReader(next), bucket.IfIs(o.Version)); err != nil {
			t.Fatal(err)
		}
	}
}

// One page that the store does not answer fails the look, and the next one is whole.
func TestAPageThatFailsFailsTheLook(t *testing.T) {
	store := mem.New()
	works := leasesOf(t, store, "own", 3500)
	faults := faulty.New(store, 1, faulty.Rule{Op: "list", Key: record.WitnessPrefix, Nth: 3, Effect: faulty.Refuse, Code: bucket.Unknown})
	rec, err := reconcile.New(reconcile.Config{Bucket: faults, ID: "here/1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.Observe(t.Context(), works, nil); err == nil {
		t.Error("a look without one of its pages was taken for whole")
	}
	w, err := rec.Observe(t.Context(), works, nil)
	if err != nil || len(w.Observed()) != 3500 {
		t.Error(err)
	}
	if left := faults.Unfired(); len(left) > 0 {
		t.Errorf("never struck: %v", left)
	}
}
