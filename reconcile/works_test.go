package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// Whatever lies in a store, every work that has a lease or a record is listed once, in order, page by page; what strangers put
// between is none.
func TestWorksArePagedAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := mem.New()
		put := func(key string) {
			if _, err := b.Put(context.Background(), key, strings.NewReader("{}"), bucket.Always()); err != nil {
				t.Fatal(err)
			}
		}
		var want []plan.Digest
		for i := range rapid.IntRange(0, 12).Draw(t, "works") {
			w := record.Hash(fmt.Append(nil, i))
			want = append(want, plan.Digest(w))
			lease := rapid.Bool().Draw(t, "lease")
			if lease {
				put(record.WitnessKey(w))
			}
			if !lease || rapid.Bool().Draw(t, "records") {
				put(record.ClaimKey(w, 1))
				put(record.SpecKey(w))
			}
		}
		for _, key := range []string{"witness/x", "witness/" + strings.Repeat("g", 64), "work/README", "work/" + strings.Repeat("0", 65) + "/spec.json"} {
			if rapid.Bool().Draw(t, key) {
				put(key)
			}
		}
		slices.Sort(want)
		r, err := New(Config{Bucket: b, ID: "d", Dry: true})
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 15).Draw(t, "page")
		var got []plan.Digest
		for more, after := true, plan.Digest(""); more; {
			var list []plan.Digest
			if list, more, err = r.Works(context.Background(), after, size); err != nil {
				t.Fatal(err)
			}
			if len(list) > size || more && len(list) != size {
				t.Fatalf("%d works on a page of %d, more: %v", len(list), size, more)
			}
			if got = append(got, list...); len(list) > 0 {
				after = list[len(list)-1]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-stored +listed):\n%s", diff)
		}
	})
}

// A work with more records than a page holds costs one request, as one with few does: the rest of it is left out.
func TestALongWorkCostsOnePage(t *testing.T) {
	b := mem.New()
	var want []plan.Digest
	for i := range 3 {
		w := record.Hash(fmt.Append(nil, i))
		want = append(want, plan.Digest(w))
		for n := range int64(2500) {
			if _, err := b.Put(t.Context(), record.ClaimKey(w, 1+n), strings.NewReader("{}"), bucket.Always()); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(want)
	r, err := New(Config{Bucket: b, ID: "d", Dry: true})
	if err != nil {
		t.Fatal(err)
	}
	before := r.requests.Load()
	got, more, err := r.Works(t.Context(), "", 10)
	if diff := cmp.Diff(want, got); diff != "" || more || err != nil {
		t.Errorf("%v %v (-stored +listed):\n%s", more, err, diff)
	}
	if n := r.requests.Load() - before; n > 5 { // one of the leases, one of each work, one that shows the end
		t.Errorf("%d requests for 7500 keys", n)
	}
}
