package goodput

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
)

// ofG4 are the eight attempts of science.md's G4, the newest at the moment 0 of at(): their shares are the scores.
func ofG4(env func(i int) record.Environment) (b *Book, k Key) {
	values, ages := []float64{.30, .31, .29, .30, .22, .21, .23, .22}, []int{60, 55, 50, 45, 6, 4, 2, 0}
	b = &Book{}
	for i := range values {
		o := one(i, -24*ages[i], func(o *record.Observation) { o.Peak, o.StepKeptS, o.Env = 0, 1000*values[i], env(i) })
		if k = KeyOf(o); !b.Add(o) {
			panic("an observation that no dispatcher writes") // can't happen: one made it
		}
	}
	return b, k
}

// G4 with and without a change of driver between its halves: in one environment old samples fade, and the threshold rules;
// in two they are not mixed at all, and both halves are kept.
func TestG4StartsANewHistory(t *testing.T) {
	now := int64(1_800_000_001)
	before, after := record.Environment{Driver: "550"}, record.Environment{Driver: "570"}
	b, k := ofG4(func(int) record.Environment { return before })
	mixed := BoundOf(b.scores(k, before, now))
	near(t, "effective samples of one history", mixed.Effective, 6.3024, 1e-4)
	near(t, "median of one history", mixed.Median, .22, 1e-12)
	if ch, is := b.Changed(k, before, now); is {
		t.Errorf("nothing has changed: %s", ch)
	}

	b, k = ofG4(func(i int) record.Environment { return []record.Environment{before, after}[i/4] })
	stored, err := record.Encode(b.Get(k))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	again := &Book{}
	again.Put(c)
	for name, b := range map[string]*Book{"as folded": b, "as stored": again} {
		for env, want := range map[record.Environment]Bound{before: {Median: .30, N: 4, Effective: 3.9347}, after: {Median: .22, N: 4, Effective: 3.9894}} {
			got := BoundOf(b.scores(k, env, now))
			near(t, name+": effective samples", got.Effective, want.Effective, 1e-3)
			near(t, name+": median", got.Median, want.Median, 1e-12)
			if got.N != want.N || got.V != Theta {
				t.Errorf("%s: %v: %+v", name, env, got)
			}
		}
		ch, is := b.Changed(k, after, now)
		if want := "new history since driver 550 → 570 at 2027-01-09T08:00:00Z: 4 attempts before it are kept apart"; !is || ch.String() != want || ch.N != 4 {
			t.Errorf("%s: %v %q of %d, want %q", name, is, ch, ch.N, want)
		}
		if ch, is := b.Changed(k, before, now); is {
			t.Errorf("%s: the older one has nothing before it: %s", name, ch)
		}
		if e := b.Expect(k.Platform, k.GPU, k.Mode, "f"); e.Share.N != 4 || e.Share.V != .22 {
			t.Errorf("%s: expected share %+v: want that of the newest environment", name, e.Share)
		}
		third := Stint{StepS: 600, PaidS: 3000, Key: k, Family: "f", At: now, Env: record.Environment{Driver: "580"}}
		v, _ := b.Judge([]Stint{third})
		if want := "; new history since driver 570 → 580 at 2027-01-15T08:00:01Z: 8 attempts before it are kept apart"; !v.Below || v.Bound.V != Theta || !strings.HasSuffix(v.Why, want) {
			t.Errorf("%s: the first one in a third: %+v, want %q", name, v, want)
		}
		third.Env = after
		if v, _ := b.Judge([]Stint{third}); v.Bound.N != 4 || !strings.Contains(v.Why, "driver 550 → 570") {
			t.Errorf("%s: the fifth one in the second: %+v", name, v)
		}
	}
}

// What older versions wrote is read, and is a history of its own.
func TestOldObservationsStayReadable(t *testing.T) {
	var o record.Observation
	text := `{"protocol":1,"platform":"p","gpu":"cpu","mode":"none","family":"f","work":"` + record.Hash(nil) + `","dispatch":1,"attempt":1,"class":"finished",
		"captured":true,"capture_s":2,"paid_s":100,"step_kept_s":80,"lost_s":0,"tail_s":0,"all":{},"time":"2026-01-02T03:04:05Z"}`
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	c, err := Decode([]byte(`{"protocol":1,"rev":1,"write":"w","platform":"p","gpu":"cpu","mode":"none","totals":{"dispatches":2},"steps":{},"calm":{"steps":0},
		"scores":[{"at":1767000000,"share":0.5},{"at":1767100000,"share":0.6}],"captures":[{"at":1767000000,"s":3}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b := &Book{}
	b.Put(c)
	k := KeyOf(o)
	later := one(7, 24, func(o *record.Observation) {
		o.GPU, o.Mode, o.Env = "cpu", "none", record.Environment{Driver: "570", Image: "linux amd64, python 3.12.1", Price: "USD"}
	})
	fresh, _ := b.Changed(k, later.Env, 1_767_200_000)
	if want := "driver unknown → 570, image unknown → linux amd64, python 3.12.1, price unknown → USD"; !strings.Contains(fresh.String(), want) || fresh.Before != 2 {
		t.Errorf("%q, want %q", fresh, want)
	}
	if !b.Add(o) || !b.Add(later) {
		t.Fatal("not folded")
	}
	now := b.now() + 1
	if n := len(b.scores(k, record.Environment{}, now)); n != 3 {
		t.Errorf("%d scores of nobody knows which environment, want 3", n)
	}
	if ch, is := b.Changed(k, later.Env, now); !is || ch.Before != 3 || ch.N != 1 {
		t.Errorf("%v %+v", is, ch)
	}
	if n := len(b.Captures("p")); n != 1 {
		t.Errorf("%d captures, want that of the image that is known", n)
	}
}

// However attempts of several environments came in, each environment's history is what it were without the others, and an
// environment that comes back goes on.
func TestEnvironmentsAreNeverMixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs := []record.Environment{{}, {Driver: "550"}, {Driver: "570"}, {Driver: "570", Price: "USD"}, {Image: "linux amd64, python 3.12.1"}}
		var list []record.Observation
		for n := range rapid.IntRange(1, 60).Draw(t, "attempts") {
			list = append(list, one(n, rapid.IntRange(0, 2000).Draw(t, "hours"), func(o *record.Observation) {
				o.Env = rapid.SampledFrom(envs).Draw(t, "environment")
				o.StepKeptS = float64(rapid.IntRange(0, 1000).Draw(t, "kept"))
				o.WorkKept = 0.3 * 130e12 * o.StepKeptS
			}))
		}
		all, turned := &Book{}, &Book{}
		for _, o := range list {
			all.Add(o)
		}
		for _, o := range rapid.Permutation(list).Draw(t, "order") {
			turned.Add(o)
		}
		k, now := KeyOf(list[0]), all.now()+1
		if diff := cmp.Diff(all.Get(k).Eras, turned.Get(k).Eras); diff != "" {
			t.Fatalf("(-one order +another):\n%s", diff)
		}
		sum := int64(0)
		for _, e := range all.Get(k).Eras {
			alone := &Book{}
			for _, o := range list {
				if o.Env == e.Env {
					alone.Add(o)
				}
			}
			sum += e.N
			got, want := BoundOf(all.scores(k, e.Env, now)), BoundOf(alone.scores(k, e.Env, now))
			if got.N != want.N || int64(got.N) != e.N || math.Abs(got.V-want.V) > 1e-9 {
				t.Fatalf("%+v: %+v, alone %+v", e, got, want)
			}
		}
		if sum != int64(len(list)) {
			t.Fatalf("%d attempts in all environments, want %d", sum, len(list))
		}
	})
}

// An old history is kept, however long the new one becomes; and no machine's word makes the account of them grow.
func TestAnOldHistoryIsKept(t *testing.T) {
	b := &Book{}
	old := record.Environment{Driver: "550"}
	n := 0
	add := func(hours int, env record.Environment) {
		n++
		if !b.Add(one(n, hours, func(o *record.Observation) { o.Env = env })) {
			t.Fatalf("observation %d was not folded", n)
		}
	}
	for range 20 {
		add(0, old)
	}
	for i := range 400 {
		add(1+i/100, record.Environment{Driver: "570"})
	}
	k := Key{"p", "nvidia-t4", "fp16"}
	if got := BoundOf(b.scores(k, old, b.now()+1)); got.N != ofFamily || got.Threshold {
		t.Errorf("back to the old driver: %+v, want its last %d attempts", got, ofFamily)
	}
	if ch, _ := b.Changed(k, record.Environment{Driver: "570"}, b.now()+1); ch.N != 400 || ch.Before != 20 || ch.At != 1_800_003_600 {
		t.Errorf("%+v", ch)
	}
	for i := range 500 {
		add(10+i, record.Environment{Driver: fmt.Sprint("forged ", i)})
	}
	c := b.Get(k)
	stored, err := record.Encode(c)
	if err != nil || len(c.Eras) != mostEras || len(stored) > 300<<10 {
		t.Errorf("%d environments in %d bytes, %v", len(c.Eras), len(stored), err)
	}
	if _, err := Decode(stored); err != nil {
		t.Error(err)
	}
	long := one(0, 0, func(o *record.Observation) { o.Env.Driver = strings.Repeat("9", 100) })
	if Check(long) == nil {
		t.Error("a driver of 100 bytes is taken")
	}
	c.Eras[0].Env.Image = long.Env.Driver
	if stored, _ = record.Encode(c); stored == nil {
		t.Fatal("not encoded")
	}
	if _, err := Decode(stored); err == nil {
		t.Error("an account with an image of 100 bytes is taken")
	}
}

// Waits of another image than the newest say nothing of the next one; those of which none is known count from its first day.
func TestWaitsAreOfTheNewestImage(t *testing.T) {
	b := &Book{}
	for i, w := range []struct {
		hours    int
		image    string
		captured bool
	}{{0, "a", true}, {1, "", false}, {2, "b", true}, {3, "", false}, {4, "a", true}, {5, "b", true}, {6, "", true}} {
		o := one(i, w.hours, func(o *record.Observation) {
			o.CaptureS, o.Captured, o.Env.Image = float64(10*(i+1)), w.captured, w.image
		})
		if !w.captured {
			o.Class = "no_capture"
		}
		if !b.Add(o) {
			t.Fatal(i)
		}
	}
	var got []float64
	for _, w := range b.Captures("p") {
		got = append(got, w.S)
	}
	if diff := cmp.Diff([]float64{30, 40, 60, 70}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if old := time.Unix(1_800_000_000, 0); b.now() != old.Add(6*time.Hour).Unix() {
		t.Error(b.now())
	}
}
