package deploylane

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/tag"
)

// TestKilledAfterAnyOperation: a lane is killed after each of its store operations in turn, then another one goes on. The
// records are those of a lane that nobody killed, there is one release, one place of the pointer, and each target was told.
func TestKilledAfterAnyOperation(t *testing.T) {
	var want map[string]string
	var first *rig
	operations := 0
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.lane, "v1.0.0"); !s.Done || s.Refused {
			t.Fatalf("%+v", s)
		}
		want, operations, first = g.timeless(), g.dying.asked, g
	})
	if operations < 80 {
		t.Fatalf("only %d operations", operations)
	}
	for n := 1; n <= operations; n++ {
		synctest.Test(t, func(t *testing.T) {
			g := first.again(t)
			g.tagged("v1.0.0", 1)
			g.dying.left = n
			for range 50 {
				if _, trouble := g.pass(g.lane); len(trouble) > 0 || g.dying.dead() {
					break
				}
			}
			if !g.dying.dead() {
				return // it was done before
			}
			g.dying.left = -1
			s := g.settle(g.fresh(), "v1.0.0")
			if !s.Done || s.Refused {
				t.Fatalf("killed after operation %d: %+v", n, s)
			}
			if d := cmp.Diff(want, g.timeless()); d != "" {
				t.Errorf("killed after operation %d: %s", n, d)
			}
			if len(g.told) < 1 || len(g.told) > 2 || g.told[0] != g.told[len(g.told)-1] {
				t.Errorf("killed after operation %d: told %v", n, g.told)
			}
		})
	}
}

// stamps are what the store's clock puts into an attestation, and the hashes that follow from it.
var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// timeless are the records without what depends on when they were written: the times in the attestation, and the hashes and
// signatures that rest on them.
func (g *rig) timeless() map[string]string {
	out := map[string]string{}
	for k, v := range g.records() {
		var envelope struct {
			Payload string `json:"payload"`
			Record  json.RawMessage
		}
		_ = json.Unmarshal([]byte(v), &envelope)
		switch {
		case strings.HasSuffix(k, ".dsse.json"):
			b, err := base64.StdEncoding.DecodeString(envelope.Payload)
			if err != nil {
				g.t.Fatal(err)
			}
			out[k] = stamps.ReplaceAllString(string(b), "TIME")
		case strings.HasSuffix(k, "/release.json"), strings.Contains(k, "/target-"), strings.Contains(k, "/history/"), strings.HasSuffix(k, "/current"):
			body := string(envelope.Record)
			if body == "" {
				body = v
			}
			out[k] = regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllString(body, `"HASH"`)
		default:
			out[k] = v
		}
	}
	return out
}

// TestDiesBetweenReleaseAndPointer: the next start finishes the pointer, once.
func TestDiesBetweenReleaseAndPointer(t *testing.T) {
	for _, after := range []string{"lane/digits/v1.0.0/release.json", "lane/digits/history/00000001.json", "lane/digits/current"} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.dying.after = after
				for !g.dying.dead() {
					all, trouble := g.pass(g.lane)
					if len(trouble) == 0 && all[0].Done {
						t.Fatal("it was done without it")
					}
				}
				if _, there := g.records()[after]; !there {
					t.Fatal("it did not write it")
				}
				g.dying.left, g.dying.after = -1, ""
				if _, there := g.records()["lane/digits/v1.0.0/target-pointer.json"]; there {
					t.Fatal("it went on")
				}
				for range 3 {
					if s := g.settle(g.fresh(), "v1.0.0"); !s.Done || s.Refused {
						t.Fatalf("%+v", s)
					}
				}
				cur, err := g.lane.Live(t.Context(), "digits")
				places, herr := g.lane.History(t.Context(), "digits")
				if err != nil || herr != nil || cur.Version != "v1.0.0" || cur.N != 1 || len(places) != 1 || len(g.place.launched) != 2 {
					t.Errorf("%+v, %d places, %d launches, %v, %v", cur, len(places), len(g.place.launched), err, herr)
				}
			})
		})
	}
}

// TestTwoLanesShareOneStore: two lanes release two versions at once. There is one release of each, each work is launched once, the
// pointer's places follow one another, and it ends at the newer one, whichever was over first.
func TestTwoLanesShareOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.tagged("v1.1.0", 2)
		look := &tag.Look{Policy: g.policy, Models: []tag.Model{{Name: "digits", Entries: g.entries}}}
		var both sync.WaitGroup
		for range 2 {
			l := g.fresh()
			l.Store = g.own
			both.Go(func() {
				for range 30 {
					if _, trouble := l.Pass(t.Context(), look); len(trouble) > 0 {
						t.Error(trouble)
					}
					<-time.After(time.Second)
				}
			})
		}
		both.Wait()
		l := g.fresh()
		for _, v := range []string{"v1.0.0", "v1.1.0"} {
			if s, err := l.Look(t.Context(), "digits", v); err != nil || s.Stage != Release || s.Refused {
				t.Errorf("%s: %+v, %v", v, s, err)
			}
		}
		places, err := l.History(t.Context(), "digits")
		cur, cerr := l.Live(t.Context(), "digits")
		if err != nil || cerr != nil || len(places) == 0 || cur.Version != "v1.1.0" || cur.History.SHA256 != places[len(places)-1].SHA256 || len(g.place.launched) != 2 {
			t.Errorf("%d places, %+v, %d launches, %v, %v", len(places), cur, len(g.place.launched), err, cerr)
		}
	})
}
