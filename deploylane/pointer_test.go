package deploylane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// TestThePointerIsHeldAgainstItsHistory: whatever somebody does to the pointer, the next pass says it and sets it back, once;
// what is ahead of the history stays, since going back would undo a place that is missing.
func TestThePointerIsHeldAgainstItsHistory(t *testing.T) {
	edit := func(from, to string) func(*rig) {
		return func(g *rig) {
			g.rewrite(CurrentKey("digits"), func(s string) string { return strings.Replace(s, from, to, 1) })
		}
	}
	for name, c := range map[string]struct {
		do        func(*rig)
		says      string
		ok, stays bool
	}{
		"nothing":         {do: func(*rig) {}, ok: true},
		"gone":            {do: func(g *rig) { g.remove(CurrentKey("digits")) }, says: "was gone"},
		"another version": {do: edit(`"version":"v1.1.0"`, `"version":"v1.0.0"`), says: "was edited by somebody else (v1.0.0 at place 2)"},
		"another file":    {do: edit(`"artifact":{"key":"`, `"artifact":{"key":"x`), says: "was edited by somebody else"},
		"unreadable":      {do: edit(`{`, ``), says: "could not be read"},
		"ahead":           {do: edit(`"n":2`, `"n":9`), says: "is at place 9, and its history ends at 2", stays: true},
		"a missing place": {do: func(g *rig) { g.remove(placeKey(historyOf("digits"), 2)) }, says: "is at place 2, and its history ends at 1", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.settle(g.lane, "v1.0.0")
				g.tagged("v1.1.0", 2)
				g.settle(g.lane, "v1.1.0")
				good := g.records()[CurrentKey("digits")]
				c.do(g)
				spoiled := g.records()[CurrentKey("digits")]
				_, err := g.fresh().Live(t.Context(), "digits")
				if _, broken := errors.AsType[*Broken](err); broken == c.ok {
					t.Errorf("to look says %v", err)
				}
				for i, l := range []*Lane{g.lane, g.fresh()} {
					_, trouble := g.pass(l)
					said := len(trouble) > 0 && strings.Contains(trouble[0].Error(), c.says)
					if want := c.says != "" && (i == 0 || c.stays); said != want || !want && len(trouble) > 0 {
						t.Errorf("pass %d says %v", i, trouble)
					}
				}
				want := good
				if c.stays {
					want = spoiled
				}
				if got := g.records()[CurrentKey("digits")]; got != want {
					t.Errorf("the pointer says %s", got)
				}
			})
		})
	}
}

// TestAPointerThatIsNotThereIsSaid: to look says so, of whatever history, and says nothing of a model that was never released.
func TestAPointerThatIsNotThereIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		for n, says := range []string{"", "lane/digits/current is not there, and its history is at place 1: ", "lane/digits/current is gone, and its history ends at place 2, v1.1.0; "} {
			if n > 0 {
				g.tagged(fmt.Sprintf("v1.%d.0", n-1), n)
				g.settle(g.fresh(), fmt.Sprintf("v1.%d.0", n-1))
				g.remove(CurrentKey("digits"))
			}
			live, err := g.fresh().Live(t.Context(), "digits")
			if live != nil || (says == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%d places: %+v, %v", n, live, err)
			}
		}
	})
}

// TestAPointerThatIsBehindIsBroughtOn: a lane that died after a place's record and before the swap is no trouble.
func TestAPointerThatIsBehindIsBroughtOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.settle(g.lane, "v1.0.0")
		behind := g.records()[CurrentKey("digits")]
		g.tagged("v1.1.0", 2)
		g.settle(g.lane, "v1.1.0")
		g.rewrite(CurrentKey("digits"), func(string) string { return behind })
		if _, trouble := g.pass(g.fresh()); len(trouble) > 0 {
			t.Error(trouble)
		}
		if live, err := g.lane.Live(t.Context(), "digits"); err != nil || live.Version != "v1.1.0" {
			t.Errorf("%+v, %v", live, err)
		}
	})
}

// remove takes an object away behind the lane's back.
func (g *rig) remove(key string) {
	g.t.Helper()
	if err := g.own.Delete(g.t.Context(), key); err != nil {
		g.t.Fatal(err)
	}
}
