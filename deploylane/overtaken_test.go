package deploylane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/runners/bucket"
)

// TestATargetThatWasAwayIsNotToldOfTheOlder: a target that did not take a release and took a newer one since is not told of the older
// one when it is back, which would bring it back; a release of an older line that was asked for later is told.
func TestATargetThatWasAwayIsNotToldOfTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		tell, away := g.lane.Exec, true
		told := []string{}
		l := g.fresh()
		l.Exec = func(ctx context.Context, argv []string, key string, body []byte) (string, error) {
			if away {
				return "", errors.New("away")
			}
			told = append(told, key)
			return tell(ctx, argv, key, body)
		}
		g.tagged("v1.0.0", 1)
		g.upTo(Release)
		if all, _ := g.pass(l); len(all) != 1 || all[0].Stage != "target" {
			t.Fatalf("%+v", all)
		}
		g.tagged("v1.1.0", 2)
		for range 50 {
			_, _ = g.pass(l)
		}
		away = false
		newest, _ := g.pass(l) // each is tried in turn: the older one first, and so it is told before the newer one
		if s := g.settle(l, "v1.1.0"); !s.Done {
			t.Fatalf("%+v, %+v", s, newest)
		}
		of := func(version string) string {
			k, found, err := l.read(t.Context(), key("digits", version, Release))
			if err != nil || !found {
				t.Fatal(version, err)
			}
			return k.SHA256
		}
		if want := []string{of("v1.0.0"), of("v1.1.0")}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		// The same again, and now the newer one was told while the older one's turn failed.
		g.remove(key("digits", "v1.0.0", "target-tell"))
		if s := g.settle(g.fresh(), "v1.0.0"); !s.Done || len(g.told) != 2 {
			t.Errorf("%+v; told %v", s, g.told)
		}
		if k, _, err := l.read(t.Context(), key("digits", "v1.0.0", "target-tell")); err != nil || k.Record.Code != "Overtaken" {
			t.Errorf("%+v, %v", k.Record, err)
		}
		g.tagged("v1.0.1", 3)
		if s := g.settle(g.fresh(), "v1.0.1"); !s.Done || len(g.told) != 3 {
			t.Errorf("%+v; told %v", s, g.told)
		}
	})
}

// TestAnAnswerOfAnotherRelease: what a target, or a stage tag, came to is no answer to another release, target or tag.
func TestAnAnswerOfAnotherRelease(t *testing.T) {
	for from, to := range map[string]string{
		key("digits", "v1.0.0", "target-tell"):       key("digits", "v1.1.0", "target-tell"),
		key("digits", "v1.0.0", "target-pointer"):    key("digits", "v1.0.0", "target-tell"),
		"lane/digits/stage/" + object(101) + ".json": "lane/digits/stage/" + object(102) + ".json",
	} {
		t.Run(to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.settle(g.lane, "v1.0.0")
				g.staged("v1.0.0", "bob", 1)
				g.settle(g.lane, "v1.0.0")
				g.remove(to)
				if _, err := g.own.Put(t.Context(), to, strings.NewReader(g.records()[from]), bucket.IfAbsent()); err != nil {
					t.Fatal(err)
				}
				g.tagged("v1.1.0", 2)
				g.staged("v1.0.0", "bob", 2)
				for range 50 {
					_, trouble := g.pass(g.lane)
					if len(trouble) > 0 {
						if _, broken := errors.AsType[*Broken](trouble[0]); !broken {
							t.Error(trouble)
						}
						return
					}
				}
				_, trouble := g.pass(g.fresh())
				if len(trouble) == 0 {
					t.Error("a replayed answer counts")
				}
			})
		})
	}
}
