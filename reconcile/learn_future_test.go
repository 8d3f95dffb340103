package reconcile

import (
	"bytes"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// An observation of an end that is yet to come is no observation: ages are counted back from the newest, so it would take
// all weight from everything that is known of every platform.
func TestAnEndFromTheFutureIsNotBelieved(t *testing.T) {
	store := mem.New()
	for name, c := range map[string]struct {
		at   time.Time
		want bool
	}{"now": {time.Now(), true}, "years ahead": {time.Now().AddDate(1000, 0, 0), false}} {
		o := observed(1, c.at)
		body, err := record.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		key := record.ObservationKey(o, c.at)
		if _, err := store.Put(t.Context(), key, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		got, err := readObservation(t.Context(), store, key)
		if err != nil || (got != nil) != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
