package deploylane

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// TestAReleaseGoesThroughAllStages: one tag, six records that name one another, an attestation, a pointer, and one call of each target.
func TestAReleaseGoesThroughAllStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if !s.Done || s.Refused || len(s.Chain) != len(Stages()) {
			t.Fatalf("%+v", s)
		}
		want := []string{"lane/digits/current", "lane/digits/history/00000001.json", "lane/digits/v1.0.0/approve.json", "lane/digits/v1.0.0/attestation.dsse.json", "lane/digits/v1.0.0/backtest.json",
			"lane/digits/v1.0.0/candidate.json", "lane/digits/v1.0.0/release.json", "lane/digits/v1.0.0/retrain.json", "lane/digits/v1.0.0/spread.json", "lane/digits/v1.0.0/target-pointer.json", "lane/digits/v1.0.0/target-tell.json"}
		if d := cmp.Diff(want, keys(g.records())); d != "" {
			t.Error(d)
		}
		c := s.Chain[0].Record.Candidate
		if len(c.Seeds) != 5 || len(g.place.launched) != 2 || len(g.told) != 1 {
			t.Errorf("%d seeds, %d launches, told %v", len(c.Seeds), len(g.place.launched), g.told)
		}
		for i, l := range g.place.launched {
			if l.Spec.Generation != 2 || l.Spec.Deploy != (i == 1) || l.Spec.Requires["driver"] != "550.1" || record.CheckIdentity(l.Spec) != nil {
				t.Errorf("launch %d: %+v", i, l.Spec)
			}
		}
		v, err := attest.Verify([]byte(g.records()["lane/digits/v1.0.0/attestation.dsse.json"]), []attest.Key{g.lane.Attester.Key()})
		if err != nil || v.Predicate.Tag.Object != object(1) || v.Predicate.Retrained.Work != g.place.launched[0].Work {
			t.Errorf("%+v, %v", v.Predicate, err)
		}
		cur, err := g.lane.Live(t.Context(), "digits")
		if err != nil || cur.Version != "v1.0.0" || cur.N != 1 {
			t.Errorf("%+v, %v", cur, err)
		}
		before := g.records()
		if s = g.settle(g.fresh(), "v1.0.0"); !s.Done || len(g.place.launched) != 2 || len(g.told) != 1 {
			t.Errorf("a second lane does it again: %+v", s)
		}
		if d := cmp.Diff(before, g.records()); d != "" {
			t.Errorf("a second lane writes: %s", d)
		}
	})
}

// TestTheTagIsMovedAfterRetrainStarted: the run goes on under the old object id, the new tag is refused.
func TestTheTagIsMovedAfterRetrainStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		if _, trouble := g.pass(g.lane); len(trouble) > 0 || len(g.place.launched) != 1 || len(g.records()) != 1 {
			t.Fatalf("%v, %d launches, %v", trouble, len(g.place.launched), keys(g.records()))
		}
		moved := g.entries[0]
		moved.Object, moved.Code = object(2), tag.TagMoved // the ledger's verdict on the moved tag
		g.entries = append(g.entries, moved)
		l := g.fresh()
		if s := g.settle(l, "v1.0.0"); !s.Done || s.Refused || s.Chain[5].Record.Object != object(1) {
			t.Fatalf("%+v", s)
		}
		// And should a lane with another ledger come with it: the version is the first one's.
		moved.Code = tag.Accepted
		o, _ := OrderOf(moved)
		if s, err := l.Begin(t.Context(), o); err != nil || !s.Refused || s.Code != "TagMoved" || !strings.Contains(s.Text, "what runs goes on under the first") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// late is a store whose first answer about a key is from before anybody wrote it.
type late struct {
	bucket.Bucket
	key string
}

func (l *late) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if key == l.key {
		l.key = ""
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.NotFound}
	}
	return l.Bucket.Get(ctx, key, r)
}

// TestTwoTagsForOneVersionRace: one release record, whoever is first.
func TestTwoTagsForOneVersionRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		a, b := g.tagged("v1.0.0", 1), g.tagged("v1.0.0", 2)
		g.entries = nil
		oa, _ := OrderOf(a)
		ob, _ := OrderOf(b)
		one, two := g.fresh(), g.fresh()
		two.Store = &late{Bucket: g.dying, key: key("digits", "v1.0.0", Candidate)}
		// Both have found no record before either writes: the second create loses.
		first, err := one.Begin(t.Context(), oa)
		if err != nil || first.Refused {
			t.Fatalf("%+v, %v", first, err)
		}
		second, err := two.Begin(t.Context(), ob)
		if err != nil || !second.Refused || second.Code != "TagMoved" {
			t.Fatalf("%+v, %v", second, err)
		}
		g.entries = append(g.entries, b)
		for _, l := range []*Lane{two, one, two} {
			g.settle(l, "v1.0.0")
		}
		n := 0
		for k := range g.records() {
			if strings.HasSuffix(k, "/release.json") {
				n++
			}
		}
		if s, err := one.Look(t.Context(), "digits", "v1.0.0"); err != nil || n != 1 || len(s.Chain) != 6 || s.Chain[5].Record.Object != object(1) || len(g.told) != 1 {
			t.Errorf("%d release records, %+v, %v, told %v", n, s, err, g.told)
		}
	})
}

// TestTheDriverWasUpgraded: refused by the worker, naming both versions, before a step; nothing is launched again.
func TestTheDriverWasUpgraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.machine["driver"] = "560.2"
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if !s.Refused || s.Stage != Retrain || s.Code != "EnvRefused" || !strings.Contains(s.Text, `driver: required "550.1", found "560.2"`) {
			t.Fatalf("%+v", s)
		}
		if g.settle(g.fresh(), "v1.0.0"); len(g.place.launched) != 1 {
			t.Errorf("%d launches", len(g.place.launched))
		}
	})
}

// TestBetterStopsForAHuman: a retrained model above the interval is "better", and waits until a second person has signed.
func TestBetterStopsForAHuman(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.metrics["val_accuracy"] = 0.99
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if s.Done || s.Stage != Approve || !strings.Contains(s.Text, "better") || s.Chain[2].Record.Code != "better" {
			t.Fatalf("%+v", s)
		}
		g.staged("v1.0.0", "ann", 1) // the signer of the release is no second one
		if s = g.settle(g.lane, "v1.0.0"); s.Done {
			t.Fatalf("%+v", s)
		}
		e := g.staged("v1.0.0", "bob", 2)
		if s = g.settle(g.lane, "v1.0.0"); !s.Done || s.Refused || s.Chain[4].Record.Approval[0].Object != e.Object {
			t.Fatalf("%+v", s)
		}
		if n := len(must(g.lane.History(t.Context(), "digits"))); n != 2 { // the release itself, and ann's tag, looked at once it was released
			t.Errorf("%d places", n)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestWorseAndInconclusiveEnd: a model that is worse than the seeds predict is not released, and its backtest is not paid for; what cannot be
// told says what a person can do. That is found before anything is launched, so here the seeds become alike afterwards.
func TestWorseAndInconclusiveEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.metrics["val_accuracy"] = 0.6
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.lane, "v1.0.0"); !s.Refused || s.Stage != Spread || s.Code != "worse" || len(g.place.launched) != 1 {
			t.Fatalf("%+v", s)
		}
		l := g.fresh()
		r := &release{chain: must(l.Chain(t.Context(), "digits", "v1.0.0"))}
		r.c = r.chain[0].Record.Candidate
		for i := range r.c.Seeds {
			r.c.Seeds[i].Metrics = map[string]float64{"val_accuracy": 0.95}
		}
		_, err := l.spread(t.Context(), r)
		if no, is := errors.AsType[*Stop](err); !is || no.Code != "inconclusive" || !strings.Contains(no.Text, "a person has to look; with more seeds") {
			t.Errorf("%v", err)
		}
	})
}

// TestTheParentHasTwoSeeds: refused before any money is spent.
func TestTheParentHasTwoSeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 2)
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if !s.Refused || s.Stage != Candidate || s.Code != "TooFewSeeds" || !strings.Contains(s.Text, "found 2 of the parent's seeds") || len(g.place.launched) != 0 {
			t.Fatalf("%+v, %d launches", s, len(g.place.launched))
		}
	})
}

// TestRollback: a stage tag points back at a release that was attested before; nothing is trained, and it moves once.
func TestRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.settle(g.lane, "v1.0.0")
		g.tagged("v1.1.0", 2)
		g.settle(g.lane, "v1.1.0")
		launches := len(g.place.launched)
		g.staged("v1.0.0", "bob", 1)
		for range 3 {
			g.settle(g.fresh(), "v1.1.0")
		}
		cur, err := g.lane.Live(t.Context(), "digits")
		if err != nil || cur.Version != "v1.0.0" || cur.N != 3 || len(g.place.launched) != launches {
			t.Fatalf("%+v, %v, %d launches more", cur, err, len(g.place.launched)-launches)
		}
		// A release whose model was swapped since is not gone back to.
		work := g.place.launched[0].Work
		_ = g.own.Delete(t.Context(), record.ResultPrefix(work, 1)+"model.json")
		if err := put(t.Context(), g.own, record.ResultPrefix(work, 1)+"model.json", bytes.NewReader([]byte("evil"))); err != nil {
			t.Fatal(err)
		}
		g.staged("v1.1.0", "bob", 2)
		g.pass(g.fresh()) // it also says that what is live was swapped
		k, found, err := g.lane.read(t.Context(), "lane/digits/stage/"+object(102)+".json")
		if err != nil || !found || k.Record.Passed || k.Record.Code != "ArtifactMismatch" {
			t.Errorf("%+v, %v", k.Record, err)
		}
	})
}

// meanwhile is a store in which somebody else does something right before a key is written, once.
type meanwhile struct {
	bucket.Bucket
	key string
	do  func()
}

func (m *meanwhile) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if do := m.do; key == m.key && do != nil {
		m.do = nil
		do()
	}
	return m.Bucket.Put(ctx, key, body, c)
}

// TestThePointerIsSwappedFromWhatWasRead: a pointer that somebody else moved between a lane's look and its write is not moved back.
func TestThePointerIsSwappedFromWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.settle(g.lane, "v1.0.0")
		g.tagged("v1.1.0", 2)
		l := g.fresh()
		moved := false
		l.Store = &meanwhile{g.dying, CurrentKey("digits"), func() {
			why, err := g.fresh().Move(t.Context(), g.staged("v1.0.0", "bob", 1), Book{})
			moved = err == nil && strings.Contains(why, "is at v1.0.0")
		}}
		s := g.settle(l, "v1.1.0")
		cur, err := g.lane.Live(t.Context(), "digits")
		if !s.Done || s.Refused || !moved || err != nil || cur.N != 3 || cur.Version != "v1.0.0" {
			t.Errorf("moved %v, at %+v, %v; %s", moved, cur, err, s.Text)
		}
	})
}

// TestTheBacktestDecides: a second generation whose backtest does not reach the least score ends there, though its seeds let it pass.
func TestTheBacktestDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.metrics["accuracy"] = 0.89
		g.tagged("v1.0.0", 1)
		s := g.settle(g.lane, "v1.0.0")
		if !s.Refused || s.Stage != Backtests || s.Code != "BacktestFailed" || !strings.Contains(s.Text, "the backtest of generation 2: accuracy is 0.89, at least 0.9 is asked for") || len(g.told) > 0 {
			t.Errorf("%+v", s)
		}
	})
}
