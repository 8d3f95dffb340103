package repo

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// TestManyFetches: packs do not pile up, nothing that the branch still has is lost, and readers notice nothing.
func TestManyFetches(t *testing.T) {
	o := newOrigin(t)
	w := serve(t, o)
	cache := t.TempDir()
	first := o.commit("main", "0", files("x", "0"))
	r := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
	r.packs = 3
	expect(t, r, "advanced >0")
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			tr, err := r.Tree(first)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := tr.Read("x", 10); err != nil || string(b) != "0" {
				t.Errorf("the first commit, meanwhile: %q, %v", b, err)
				return
			}
		}
	})
	for i := 1; i <= 8; i++ {
		n := fmt.Sprint(i)
		o.commit("main", n, files("x", n))
		expect(t, r, fmt.Sprintf("advanced %d>%d", i-1, i))
		readX(t, r, r.last().Hash, n)
		packs, err := filepath.Glob(filepath.Join(cache, "*", "objects", "pack", "*.pack"))
		if err != nil || len(packs) > 3 {
			t.Errorf("after %d fetches: %d packs, %v", i, len(packs), err)
		}
	}
	close(stop)
	reader.Wait()
	if got := r.Counters().Fetches; got != 9+2 {
		t.Errorf("%d fetches, want 9 and 2 for tidying", got)
	}
	expect(t, r, "unchanged 8")
	w.down.Store(true)
	again := watch(t, Options{Remote: w.address(), Branch: "main", Cache: cache})
	head, err := again.Head(t.Context())
	if err != nil || head.Subject() != "8" {
		t.Fatalf("head from the tidied copy: %+v, %v", head, err)
	}
	readX(t, again, first, "0")
	expect(t, again, "unreachable 8 Offline")
}
