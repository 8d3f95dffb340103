package faulty_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

func TestConformanceWithoutFaults(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return faulty.New(mem.New(), 1) })
}

func put(t *testing.T, b bucket.Bucket, body string, c bucket.Cond) (bucket.Version, error) {
	t.Helper()
	return b.Put(t.Context(), "a/k", strings.NewReader(body), c)
}

func read(t *testing.T, b bucket.Bucket) string {
	t.Helper()
	o, err := b.Get(t.Context(), "a/k", bucket.Range{})
	if err != nil {
		return bucket.CodeOf(err).String()
	}
	data, err := io.ReadAll(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEffectsOnAPut(t *testing.T) {
	for name, c := range map[string]struct {
		rule   faulty.Rule
		code   string // of the create
		stored string
	}{
		"refuse, cut before":  {faulty.Rule{Effect: faulty.Refuse}, "Unknown", "NotFound"},
		"refuse, 503":         {faulty.Rule{Effect: faulty.Refuse, Code: bucket.Throttled}, "Throttled", "NotFound"},
		"lose":                {faulty.Rule{Effect: faulty.Lose}, "Unknown", "x"},
		"twice":               {faulty.Rule{Effect: faulty.Twice}, "Condition", "x"},
		"ignore":              {faulty.Rule{Effect: faulty.Ignore}, "", "x"},
		"slow":                {faulty.Rule{Effect: faulty.Slow, Delay: time.Millisecond}, "", "x"},
		"other key":           {faulty.Rule{Key: "b/*", Effect: faulty.Refuse}, "", "x"},
		"other verb":          {faulty.Rule{Op: "list", Effect: faulty.Refuse}, "", "x"},
		"second only":         {faulty.Rule{Nth: 2, Effect: faulty.Refuse}, "", "x"},
		"reads cannot be put": {faulty.Rule{Effect: faulty.Truncate}, "", ""},
	} {
		inner := mem.New()
		c.rule.Name = name
		if c.rule.Op == "" {
			c.rule.Op = "put"
		}
		f := faulty.New(inner, 1, c.rule)
		_, err := put(t, f, "x", bucket.IfAbsent())
		got := ""
		if err != nil {
			got = bucket.CodeOf(err).String()
		}
		if stored := read(t, inner); got != c.code || (c.stored != "" && stored != c.stored) {
			t.Errorf("%s: answered %q and stored %q, want %q and %q", name, got, stored, c.code, c.stored)
		}
	}
}

func TestIgnoredConditionOverwrites(t *testing.T) {
	f := faulty.New(mem.New(), 1, faulty.Rule{Name: "f", Conditional: true, Effect: faulty.Ignore})
	_, _ = put(t, f, "a", bucket.IfAbsent())
	if _, err := put(t, f, "b", bucket.IfAbsent()); err != nil || read(t, f) != "b" || f.Fired("f") != 2 {
		t.Errorf("%v, holds %q, fired %d", err, read(t, f), f.Fired("f"))
	}
}

// TestHeldRequestLandsLater: the caller has given up, and then the write arrives.
func TestHeldRequestLandsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, release := mem.New(), make(chan struct{})
		f := faulty.New(inner, 1, faulty.Rule{Name: "hold", Op: "put", Times: 1, Effect: faulty.Hold, Release: release})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Put(ctx, "a/k", strings.NewReader("late"), bucket.IfAbsent())
		if !bucket.Is(err, bucket.Unknown) || read(t, inner) != "NotFound" {
			t.Errorf("before: %v, holds %q", err, read(t, inner))
		}
		close(release)
		synctest.Wait()
		if read(t, inner) != "late" {
			t.Errorf("after: holds %q", read(t, inner))
		}
	})
}

func TestStaleReadsAndLists(t *testing.T) {
	f := faulty.New(mem.New(), 1, faulty.Rule{Name: "stale", Op: "get", Times: 2, Effect: faulty.Stale}, faulty.Rule{Name: "lag", Op: "list", Nth: 2, Effect: faulty.Lag})
	v, err := put(t, f, "one", bucket.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.List(t.Context(), "a/", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := []string{read(t, f)} // what was before the create: nothing
	if _, err := put(t, f, "two", bucket.IfIs(v)); err != nil {
		t.Fatal(err)
	}
	seen = append(seen, read(t, f), read(t, f))
	if diff := cmp.Diff([]string{"NotFound", "one", "two"}, seen); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	second, _ := f.List(t.Context(), "a/", "", 0)
	third, _ := f.List(t.Context(), "a/", "", 0)
	if first.Items[0].Version != second.Items[0].Version || third.Items[0].Version == second.Items[0].Version {
		t.Errorf("lists show %s, %s, %s", first.Items[0].Version, second.Items[0].Version, third.Items[0].Version)
	}
	if u := f.Unfired(); len(u) > 0 {
		t.Errorf("never fired: %v", u)
	}
}

func TestTruncatedBody(t *testing.T) {
	f := faulty.New(mem.New(), 1, faulty.Rule{Name: "cut", Effect: faulty.Truncate})
	_, _ = put(t, f, "0123456789", bucket.IfAbsent())
	if got := read(t, f); got != "01234" {
		t.Errorf("read %q, want half", got)
	}
}

// TestSeedRepeats: one seed, one history.
func TestSeedRepeats(t *testing.T) {
	history := func(seed uint64) (codes []bool) {
		f := faulty.New(mem.New(), seed, faulty.Rule{Probability: 0.5, Effect: faulty.Refuse})
		for range 64 {
			_, err := put(t, f, "x", bucket.Always())
			codes = append(codes, err == nil)
		}
		return codes
	}
	if diff := cmp.Diff(history(3), history(3)); diff != "" {
		t.Errorf("the same seed gave two histories:\n%s", diff)
	}
	if cmp.Equal(history(3), history(4)) {
		t.Error("two seeds gave one history")
	}
}
