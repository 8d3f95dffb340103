package deploylane

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/record"
)

// TestASwappedReleaseIsSaid: what the live release names is swapped or taken away after everything is over; each look of a lane that
// runs on, of one that starts anew, and of a person who only asks says so, and the pointer stays. Put back, it is good again.
func TestASwappedReleaseIsSaid(t *testing.T) {
	result := func(g *rig, name string) string { return record.ResultPrefix(g.place.launched[0].Work, 1) + name }
	upper := func(s string) string { return strings.ToUpper(s) }
	for name, c := range map[string]struct {
		key  func(g *rig) string
		do   func(string) string // nil: taken away
		says string
	}{
		"the attestation": {func(*rig) string { return attestationKey("digits", "v1.0.0") }, upper, "names the attestation"},
		"no attestation":  {func(*rig) string { return attestationKey("digits", "v1.0.0") }, nil, "is gone: it is the attestation of v1.0.0"},
		"the manifest":    {func(g *rig) string { return record.ResultManifestKey(g.place.launched[0].Work, 1) }, upper, "names the manifest"},
		"a file":          {func(g *rig) string { return result(g, "model.json") }, upper, "has the sha256"},
		"a longer file":   {func(g *rig) string { return result(g, "model.json") }, func(s string) string { return s + "x" }, "has 65 bytes"},
		"no file":         {func(g *rig) string { return result(g, "metrics.json") }, nil, "is gone: it is a file of v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.settle(g.lane, "v1.0.0")
				g.settle(g.lane, "v1.0.0")
				<-time.After(time.Minute)
				key := c.key(g)
				was, pointer := g.records()[key], g.records()[CurrentKey("digits")]
				if was == "" { // not below lane/
					b, _, err := get(t.Context(), g.own, key, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					was = string(b)
				}
				if c.do == nil {
					g.remove(key)
				} else {
					g.rewrite(key, c.do)
				}
				for i, l := range []*Lane{g.lane, g.lane, g.fresh()} {
					if _, trouble := g.pass(l); len(trouble) != 1 || !strings.Contains(trouble[0].Error(), key+" ") || !strings.Contains(trouble[0].Error(), c.says) {
						t.Errorf("look %d: %v", i, trouble)
					}
				}
				if live, err := g.fresh().Live(t.Context(), "digits"); live == nil || err == nil || !strings.Contains(err.Error(), c.says) || g.records()[CurrentKey("digits")] != pointer {
					t.Errorf("%+v, %v", live, err)
				}
				if _, err := g.own.Put(t.Context(), key, bytes.NewReader([]byte(was)), bucket.Always()); err != nil {
					t.Fatal(err)
				}
				if _, trouble := g.pass(g.lane); len(trouble) > 0 {
					t.Errorf("put back: %v", trouble)
				}
			})
		})
	}
}

// TestLookingAfterAReleaseIsCheap: what was looked at is not read again, and no file of the model is read at all.
func TestLookingAfterAReleaseIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.settle(g.lane, "v1.0.0")
		l := g.fresh()
		store := counting.New(g.own)
		l.Store = store
		current, err := l.Live(t.Context(), "digits")
		if err != nil {
			t.Fatal(err)
		}
		before := store.Counts()
		if err := l.sound(t.Context(), "digits", *current); err != nil {
			t.Fatal(err)
		}
		if d := store.Counts().Minus(before); d.Get != 0 || d.List != 2 || d.Put != 0 {
			t.Errorf("a look costs %v", d)
		}
	})
}
