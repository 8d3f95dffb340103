package gc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// everything lets go of all that may go.
var everything = Options{Apply: true, Finished: time.Nanosecond, Logs: time.Nanosecond, Grace: time.Hour} // a table of values

// rich makes a store that has something of every reason, an hour old and more.
func rich(t rapid.TB, ctx context.Context) (*world, *clocked) {
	b := newClocked(mem.New())
	w := &world{Bucket: b, pass: b.pass, t: t, ctx: ctx}
	w.fill()
	b.pass(2 * time.Hour)
	return w, b
}

// fill makes three works, one that yielded, one that finished and one that is held.
func (w *world) fill() {
	for i := range 3 {
		j := w.add(i)
		h := w.capture(j)
		w.advance(h)
		w.advance(h)
		w.log(h, 0)
		w.revoke(h)
		w.upload(h, true)
		w.upload(h, false)
		h = w.capture(j)
		w.advance(h)
		w.advance(h)
		switch i {
		case 0:
			w.finish(h, false)
			w.yield(h)
		case 1:
			w.finish(h, true)
		}
	}
}

// cut is a store that a process reaches until it dies: after that many deletes, the last one landed or not.
type cut struct {
	bucket.Bucket
	mu    sync.Mutex
	left  int
	lands bool
}

var errDead = errors.New("the process is dead")

func (c *cut) Delete(ctx context.Context, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left > 0 || c.left == 0 && c.lands {
		if err := c.Bucket.Delete(ctx, key); err != nil || c.left > 0 {
			return err
		}
	}
	return &bucket.Error{Op: "delete", Key: key, Code: bucket.Denied, Err: errDead} // nothing is asked again
}

// after is what a store holds when a gc is through: its keys, without those that say when.
func after(w *world) []string { return slices.Sorted(maps.Keys(w.keys())) }

// TestDiesAtEachDelete: wherever a gc dies, the store is clean and usable, no manifest stands without its files, and the
// next gc ends where one without a death does.
func TestDiesAtEachDelete(t *testing.T) {
	w, _ := rich(t, t.Context())
	whole, err := Apply(t.Context(), w, everything)
	if err != nil {
		t.Fatal(err)
	}
	w.clean("whole")
	want, deletes := after(w), whole.Sum().Objects
	if deletes < 30 {
		t.Fatalf("only %d deletes: the world is too tame", deletes)
	}
	for n := 1; n <= deletes; n++ {
		for _, lands := range []bool{false, true} {
			w, _ := rich(t, t.Context())
			did, err := Apply(t.Context(), &cut{Bucket: w.Bucket, left: n, lands: lands}, everything)
			if !errors.Is(err, errDead) {
				t.Fatalf("death at delete %d: %v", n, err)
			}
			w.clean("after a death")
			for _, j := range w.works {
				w.manifests(j)
			}
			if sum := did.Sum(); sum.Objects >= n+lanes {
				t.Fatalf("%d reported after %d deletes", sum.Objects, n)
			}
			if _, err := Apply(t.Context(), w, everything); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, after(w)); diff != "" {
				t.Fatalf("death at delete %d (lands: %v), then another gc (-want +got):\n%s", n, lands, diff)
			}
			if n%4 == 0 {
				w.usable()
			}
		}
	}
}

// manifests: whatever manifest of a work is there, its files are.
func (w *world) manifests(j *job) {
	w.t.Helper()
	for key := range w.keys() {
		if !strings.HasPrefix(key, record.AttemptsPrefix(j.id)) || !strings.HasSuffix(key, "/manifest.json") {
			continue
		}
		var m record.Manifest
		if err := record.Decode([]byte(bytesOf(w.t, w.ctx, w, key)), record.MaxManifest, &m); err != nil {
			w.t.Fatal(err)
		}
		for _, f := range m.Files {
			if !w.has(strings.TrimSuffix(key, "manifest.json") + f.Path) {
				w.t.Fatalf("%s is there, and its %s is not", key, f.Path)
			}
		}
	}
}

// TestFaultsOfTheStore: answers that are lost, slow or refused for a while change nothing of where a gc ends.
func TestFaultsOfTheStore(t *testing.T) {
	for name, rules := range map[string][]faulty.Rule{
		"lost answers of deletes": {{Name: "f", Op: "delete", Effect: faulty.Lose, Probability: 0.3}},
		"deletes that are cut":    {{Name: "f", Op: "delete", Effect: faulty.Refuse, Code: bucket.Unknown, Probability: 0.3}},
		"throttled":               {{Name: "f", Op: "delete", Effect: faulty.Refuse, Code: bucket.Throttled, Probability: 0.3}},
		"deleted twice":           {{Name: "f", Op: "delete", Effect: faulty.Twice}},
		"lost answers of writes":  {{Name: "f", Op: "put", Effect: faulty.Lose, Probability: 0.5}},
		"written twice":           {{Name: "f", Op: "put", Effect: faulty.Twice, Probability: 0.5}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := rich(t, t.Context())
			if _, err := Apply(t.Context(), w, everything); err != nil {
				t.Fatal(err)
			}
			want := after(w)
			for seed := range uint64(8) {
				w, _ := rich(t, t.Context())
				f := faulty.New(w.Bucket, seed, rules...)
				_, err := Apply(t.Context(), f, everything)
				if f.Fired("f") == 0 {
					t.Fatalf("%s: the fault never went off", name)
				}
				w.clean(name)
				if err != nil { // it may give up; then the next one goes on
					if _, err := Apply(t.Context(), w, everything); err != nil {
						t.Fatal(name, err)
					}
				}
				if diff := cmp.Diff(want, after(w)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", name, diff)
				}
				w.usable()
			}
		})
	}
}

// TestStaleListings: pages of an earlier hour make a gc delete less, or what is gone, and nothing else. Of what was written again since, as a
// deposed attempt's result may be, they know the earlier age; what the holder writes stays however old it looks.
func TestStaleListings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := build(rt, rt, 15)
		lag := faulty.New(w.Bucket, 1)
		if _, err := Plan(w.ctx, lag, everything); err != nil {
			rt.Fatal(err)
		}
		past, then := w.keys(), w.Bucket.(*clocked).now
		for range rapid.IntRange(1, 15).Draw(rt, "more") {
			w.step(rt, w.works[rapid.IntRange(0, len(w.works)-1).Draw(rt, "work")])
		}
		lag.Add(faulty.Rule{Name: "lag", Op: "list", Effect: faulty.Lag, Probability: 0.7})
		before := w.keys()
		for key, age := range past {
			if young, there := before[key]; there {
				before[key] = max(young, age+w.Bucket.(*clocked).now.Sub(then))
			}
		}
		did, err := Apply(w.ctx, lag, everything)
		if err != nil {
			rt.Fatal(err)
		}
		did.Totals = []Total{{Objects: len(before) + trims(w.keys()) - trims(before) - len(w.keys())}} // it may report what was gone
		w.judge(everything, before, w.keys(), did)
		w.clean("after a gc that saw the past")
		w.usable()
	})
}

func trims(keys map[string]time.Duration) (n int) {
	for key := range keys {
		if strings.HasPrefix(key, record.TrimPrefix) {
			n++
		}
	}
	return n
}

// TestTwoAtOnce: two gcs side by side end where one ends.
func TestTwoAtOnce(t *testing.T) {
	w, _ := rich(t, t.Context())
	if _, err := Apply(t.Context(), w, everything); err != nil {
		t.Fatal(err)
	}
	want := after(w)
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			w, _ := rich(t, t.Context())
			var wg sync.WaitGroup
			for i := range uint64(2) {
				slow := faulty.New(w.Bucket, 2*seed+i, faulty.Rule{Effect: faulty.Slow, Delay: time.Millisecond, Probability: 0.5})
				wg.Go(func() {
					if _, err := Apply(t.Context(), slow, everything); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			w.clean("after both")
			if diff := cmp.Diff(want, after(w)); diff != "" {
				t.Fatalf("(-one +two):\n%s", diff)
			}
			w.usable()
		})
	}
}

// TestBounds: a run deletes no more than it may, says that there is more, and as many runs as it takes end where one does.
func TestBounds(t *testing.T) {
	w, _ := rich(t, t.Context())
	whole, err := Apply(t.Context(), w, everything)
	if err != nil || whole.More {
		t.Fatal(whole.More, err)
	}
	want := after(w)
	for _, most := range []int{1, 2, 7, 16, 50} {
		w, _ := rich(t, t.Context())
		o := everything
		o.Max = most
		for runs := 1; ; runs++ {
			before := len(w.keys())
			did, err := Apply(t.Context(), w, o)
			if err != nil || did.Sum().Objects > most || before-len(w.keys()) > most {
				t.Fatal(did.Sum(), err)
			}
			w.clean("between two runs")
			if !did.More {
				break
			}
			if runs > 1000 {
				t.Fatal("it never ends")
			}
		}
		if diff := cmp.Diff(want, after(w)); diff != "" {
			t.Fatalf("%d at a time (-want +got):\n%s", most, diff)
		}
		w.usable()
	}
}

// TestBoundOfTime: a run that has used up its time begins no other work.
func TestBoundOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := rich(t, t.Context())
		o := everything
		o.For = time.Minute
		slow := faulty.New(w.Bucket, 1, faulty.Rule{Op: "delete", Effect: faulty.Slow, Delay: 50 * time.Second})
		did, err := Apply(t.Context(), slow, o)
		if err != nil || !did.More || did.Sum().Objects == 0 || did.Sum().Objects > 2*lanes {
			t.Fatalf("%+v %v", did.Totals, err)
		}
		w.clean("after half of it")
	})
}
