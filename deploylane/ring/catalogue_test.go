package ring_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

func entry(load uint64) ring.Entry {
	return ring.Entry{Catalog: "models", Ring: "step37", Model: "step37", Release: "r1", Format: "sim", Tokens: 3000, Output: 1000,
		Route: ring.Route{Via: "tcp://h1.ring:42011", Load: load, Stages: []ring.Hop{{Agent: "tcp://h1.ring:42011", Node: "step37-s0"}}}}
}

// TestStoreCatalogue: what is shown is read back, what is cleared names nothing, and a load older than one that was shown is
// refused, after a clearing too.
func TestStoreCatalogue(t *testing.T) {
	store := mem.New()
	c := ring.StoreCatalogue{Records: ring.Records{Store: store, Model: "step37", Ring: "step37"}}
	if s, err := c.Read(t.Context(), "models"); err != nil || s.Serving {
		t.Errorf("before anything: %+v, %v", s, err)
	}
	two := entry(2)
	for range 2 { // asked again, as after a crash
		if err := c.Show(t.Context(), two); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Read(t.Context(), "models")
	if diff := cmp.Diff(ring.Shown{Schema: 1, Ring: "step37", Serving: true, Load: 2, Entry: &two}, s); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if err := c.Show(t.Context(), entry(1)); err == nil || !strings.Contains(err.Error(), "above 1") {
		t.Errorf("an older load: %v", err)
	}
	if err := c.Clear(t.Context(), "models", "step37"); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Read(t.Context(), "models"); err != nil || s.Serving || s.Entry != nil || s.Load != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.Show(t.Context(), entry(1)); err == nil {
		t.Error("an older load was shown after a clearing")
	}
	for _, bad := range []string{"../current", "A", "", "a/b"} {
		if err := c.Clear(t.Context(), bad, "step37"); err == nil {
			t.Errorf("a catalog named %q", bad)
		}
	}
	foreign := ring.StoreCatalogue{Records: ring.Records{Store: store, Model: "step37", Ring: "other"}}
	if _, err := store.Put(t.Context(), foreign.Key("models"), strings.NewReader(`{"schema":1,"ring":"step37","serving":true,"load":1}`), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.Read(t.Context(), "models"); err == nil || foreign.Show(t.Context(), entry(3)) == nil {
		t.Error("a catalog that another wrote was taken for one")
	}
}

// TestStoreCatalogueRaces: an answer that is lost is settled by a look, and of writers at once the highest load stays.
func TestStoreCatalogueRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		lost := faulty.New(store, 1, faulty.Rule{Name: "lost", Op: "put", Key: "*", Nth: 1, Times: 1, Effect: faulty.Lose})
		c := ring.StoreCatalogue{Records: ring.Records{Store: lost, Model: "step37", Ring: "step37"}}
		if err := c.Show(t.Context(), entry(1)); err != nil || lost.Fired("lost") != 1 {
			t.Fatalf("%v, fired %d", err, lost.Fired("lost"))
		}
		var wg sync.WaitGroup
		for g := range uint64(4) {
			wg.Go(func() { _ = c.Show(t.Context(), entry(2+g)) })
		}
		wg.Wait()
		if s, err := c.Read(t.Context(), "models"); err != nil || !s.Serving || s.Load != 5 || s.Entry.Route.Load != 5 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
