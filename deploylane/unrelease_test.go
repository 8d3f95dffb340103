package deploylane

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket/readonly"
)

// twoReleased is a rig with v1.0.0 and then v1.1.0 released.
func twoReleased(t *testing.T) *rig {
	g := newRig(t, 5)
	g.tagged("v1.0.0", 1)
	g.settle(g.lane, "v1.0.0")
	g.tagged("v1.1.0", 2)
	g.settle(g.lane, "v1.1.0")
	return g
}

// quiet counts the store operations of a look that has nothing to do.
func (g *rig) quiet(t *testing.T) int {
	t.Helper()
	before := g.dying.asked
	if _, trouble := g.pass(g.fresh()); len(trouble) > 0 {
		t.Fatal(trouble)
	}
	return g.dying.asked - before
}

// at is where the pointer is, in one line; with none it has to name nothing.
func (g *rig) at(t *testing.T) string {
	t.Helper()
	live, err := g.fresh().Live(t.Context(), "digits")
	if err != nil || live == nil {
		return fmt.Sprint(live, err)
	}
	if named := live.Release != (attest.Link{}) || live.Attestation != (attest.Link{}) || live.Artifact != (attest.Link{}); named != (live.Version != tag.None) {
		t.Errorf("%+v", live)
	}
	return fmt.Sprintf("%d %s", live.N, live.Version)
}

// TestUnrelease: a stage tag with the version none takes the pointer off every release, once, and its history says so; nothing is
// trained and nobody is told. An older version does not come back by itself; a stage tag and a newer release move it on.
func TestUnrelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := twoReleased(t)
		launched, told := len(g.place.launched), len(g.told)
		g.staged(tag.None, "bob", 1)
		for range 3 {
			if _, trouble := g.pass(g.fresh()); len(trouble) > 0 || g.at(t) != "3 none" {
				t.Fatalf("%v, at %s", trouble, g.at(t))
			}
		}
		places, err := g.lane.History(t.Context(), "digits")
		if err != nil || len(places) != 3 || places[2].Record.Moved.Tag != "stage/digits/live/1" || places[2].Record.Moved.Reason != "as asked" {
			t.Errorf("%+v, %v", places, err)
		}
		if strings.Contains(g.records()[CurrentKey("digits")], "release") {
			t.Errorf("the pointer says %s", g.records()[CurrentKey("digits")])
		}
		view, err := (&Viewer{Store: readonly.New(g.own)}).Look(t.Context())
		if err != nil || view.Models[0].Live != "" || view.Models[0].Trouble != "" || view.Models[0].Pointer[0].Version != tag.None {
			t.Errorf("%+v, %v", view, err)
		}
		g.tagged("v1.0.1", 3)
		if g.settle(g.fresh(), "v1.0.1"); g.at(t) != "3 none" {
			t.Errorf("an older version came back by itself: %s", g.at(t))
		}
		if len(g.place.launched) != launched || len(g.told) != told+1 {
			t.Errorf("%d launches more, told %v", len(g.place.launched)-launched, g.told)
		}
		g.staged("v1.0.0", "bob", 2)
		if g.pass(g.fresh()); g.at(t) != "4 v1.0.0" {
			t.Errorf("a stage tag brings it to %s", g.at(t))
		}
		g.staged(tag.None, "bob", 3)
		g.pass(g.fresh())
		g.tagged("v1.2.0", 4)
		if g.settle(g.fresh(), "v1.2.0"); g.at(t) != "6 v1.2.0" {
			t.Errorf("a newer release brings it to %s", g.at(t))
		}
	})
}

// TestUnreleaseOfNothing: where nothing is released there is nothing to take away, and nothing is taken away later.
func TestUnreleaseOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.staged(tag.None, "bob", 1)
		if _, trouble := g.pass(g.lane); len(trouble) > 0 || len(g.records()) != 1 {
			t.Errorf("%v, %v", trouble, keys(g.records()))
		}
		g.tagged("v1.0.0", 1)
		if g.settle(g.fresh(), "v1.0.0"); g.at(t) != "1 v1.0.0" {
			t.Errorf("at %s", g.at(t))
		}
	})
}

// TestUnreleaseKilled: a lane dies after each of its store operations while it takes a release away; the next one finishes it, once.
func TestUnreleaseKilled(t *testing.T) {
	quiet := 0 // operations of a look that has nothing to do: they come first
	synctest.Test(t, func(t *testing.T) { quiet = twoReleased(t).quiet(t) })
	for n, over := quiet, false; !over; n++ {
		synctest.Test(t, func(t *testing.T) {
			g := twoReleased(t)
			g.staged(tag.None, "bob", 1)
			g.dying.left = n
			g.pass(g.fresh())
			over = !g.dying.dead()
			g.dying.left = -1
			_, trouble := g.pass(g.fresh())
			places, err := g.lane.History(t.Context(), "digits")
			if len(trouble) > 0 || err != nil || g.at(t) != "3 none" || len(places) != 3 {
				t.Errorf("killed after operation %d: %v, at %s, %d places, %v", n, trouble, g.at(t), len(places), err)
			}
			before := g.records()
			g.pass(g.fresh())
			if d := cmp.Diff(before, g.records()); d != "" {
				t.Errorf("killed after operation %d: %s", n, d)
			}
		})
	}
}

// TestAStageTagBeforeARelease: a stage tag and a release that was tagged after it are acted on in one look. What was tagged later counts. A
// stage tag that points back comes behind the release, moves nothing any more, and says so; one that takes the model away comes first.
func TestAStageTagBeforeARelease(t *testing.T) {
	current := CurrentKey("digits")
	for to, want := range map[string][2]string{
		tag.None: {"4 v1.2.0", current + " is at none"},
		"v1.0.0": {"3 v1.2.0", current + " stays at v1.2.0: release/digits/v1.2.0 was tagged later"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := twoReleased(t)
			e := g.staged(to, "bob", 1)
			g.tagged("v1.2.0", 3)
			if g.settle(g.fresh(), "v1.2.0"); g.at(t) != want[0] {
				t.Errorf("%s: at %s", to, g.at(t))
			}
			k, found, err := g.lane.read(t.Context(), "lane/digits/stage/"+e.Object+".json")
			if err != nil || !found || k.Record.Reason != want[1] {
				t.Errorf("%s: %+v, %v", to, k.Record, err)
			}
		})
	}
}
