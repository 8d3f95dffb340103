package reconcile

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// lookOnce is one more look and compaction of a dispatcher that goes on.
func lookOnce(t *testing.T, r *Reconciler) {
	t.Helper()
	f := &looked{}
	l := &r.learner
	l.look(t.Context(), f)
	beside := &learner{b: l.b, stored: maps.Clone(l.stored), raw: maps.Clone(l.raw)}
	beside.compact(t.Context(), f)
	r.learned(f)
}

// However many objects lie under stats/ that are no observations, each version of one is read once, and what lies behind
// them gets its turn.
func TestWhatIsNoObservationIsReadOnce(t *testing.T) {
	b := mem.New()
	now := time.Now()
	for n := range int64(mostRaw + 500) {
		o := observed(n, now.Add(-48*time.Hour))
		if _, err := b.Put(t.Context(), record.ObservationKey(o, now.Add(-48*time.Hour)), strings.NewReader("{"), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	good := observed(1e6, now)
	store(t, b, good)
	r, err := New(Config{Bucket: b, ID: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	r.learnNow(t.Context())
	lookOnce(t, r)
	if c := r.book.Get(goodput.KeyOf(good)); c == nil || c.Totals.Dispatches != 1 {
		t.Fatalf("what lies behind them is not known after two looks: %+v", c)
	}
	before := r.learner.requests.Load()
	lookOnce(t, r)
	if asked := r.learner.requests.Load() - before; asked > 8 {
		t.Errorf("%d requests for a look that finds nothing new", asked)
	}
}

// More than are remembered, or an end that is read in vain for ever, keep nothing from being read: looks take turns.
func TestLooksTakeTurns(t *testing.T) {
	var list []bucket.Info
	for n := range 3*mostRaw + 7 {
		list = append(list, bucket.Info{Key: fmt.Sprintf("%06d", n)})
	}
	l, asked := &learner{b: mem.New()}, map[string]bool{}
	for range 4 {
		f := &looked{raw: map[string]record.Observation{}, bad: map[string]bucket.Version{}}
		l.read(t.Context(), list, nil, f)
		for key := range f.bad {
			asked[key] = true
		}
		l.reached = f.reached
	}
	if len(asked) != len(list) {
		t.Errorf("of %d objects %d were read in four looks", len(list), len(asked))
	}
}

// A compact form that leaves no room for anything is a stranger's, and is replaced.
func TestAFullCompactFormIsStartedAnew(t *testing.T) {
	b, now := mem.New(), time.Now()
	k := goodput.Key{Platform: "p", GPU: "cpu", Mode: "none"}
	forged := goodput.NewCompact(k)
	forged.Folded = map[string][]string{now.UTC().Format(time.DateOnly): {strings.Repeat("x", goodput.MaxCompact-600)}}
	body, err := record.Encode(forged)
	if err != nil || len(body) > goodput.MaxCompact {
		t.Fatal(len(body), err)
	}
	if _, err := b.Put(t.Context(), record.CompactKey(k.Platform, k.GPU, k.Mode), bytes.NewReader(body), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	for n := range int64(foldFrom) {
		store(t, b, observed(n, now.Add(-time.Duration(n)*time.Second)))
	}
	r, err := New(Config{Bucket: b, ID: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	r.learnNow(t.Context())
	lookOnce(t, r)
	lookOnce(t, r)
	if left, err := b.List(t.Context(), record.StatsPrefix, "", 1000); err != nil || len(left.Items) != 1 || total(t, b).Dispatches != foldFrom {
		t.Errorf("%d objects are left, %+v", len(left.Items), total(t, b))
	}
}

// Whatever lies in the store as compact forms, what is derived of it is finite and within its bounds.
func TestForgedStatisticsDeriveNothingAbsurd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Reconciler{book: &goodput.Book{}}
		huge := rapid.SampledFrom([]int64{0, 1, 9_999, 1e12, 1e15})
		bins := func(name string) map[int]int64 {
			m := map[int]int64{}
			for range 6 {
				m[rapid.IntRange(0, record.MaxBin).Draw(t, name+" bin")] = huge.Draw(t, name)
			}
			if rapid.Bool().Draw(t, name+" full") {
				for bin := range record.MaxBin + 1 {
					m[bin] = 1e15
				}
			}
			return m
		}
		one := goodput.Compact{Protocol: 1, Platform: "p", Mode: "none", Steps: record.Histogram{Done: bins("done"), Censored: bins("censored")}}
		one.Totals.Losses = rapid.SampledFrom([]int64{0, 3, 1e18}).Draw(t, "losses")
		one.Totals.PaidS = rapid.SampledFrom([]float64{0, 1e-300, 1e18}).Draw(t, "paid")
		one.Calm = goodput.Calm{Steps: huge.Draw(t, "steps"), Revisions: rapid.SampledFrom([]int64{0, 5, 1e18}).Draw(t, "revisions"),
			Falses: rapid.SampledFrom([]int64{0, 1, 1e18}).Draw(t, "falses"), Reached: rapid.Float64Range(0, 8192).Draw(t, "reached")}
		one.GPU = "card"
		body, err := record.Encode(&one)
		if err != nil {
			t.Fatal(err)
		}
		d, err := goodput.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		for n := range rapid.SampledFrom([]int{1, 1, 1, 2, 95}).Draw(t, "cards") {
			c := d.Clone()
			c.GPU = fmt.Sprint("card-", n)
			r.book.Put(c)
		}
		pl := &platform{conf: plan.Platform{Name: "p"}}
		j := &plan.Job{}
		was := past{stepS: rapid.SampledFrom([]float64{0, 1e-3, 1, 1e4}).Draw(t, "step"), k: rapid.SampledFrom([]float64{0, 50}).Draw(t, "k")}
		got := r.timersOf(j, pl, was)
		most := patience.Length(patience.MostK, renewShare())
		for name, d := range map[string]patience.Derived{"capture": got.Capture, "warm": got.Warm, "k": got.K, "lease": got.Lease, "milestone": got.Milestone} {
			if math.IsNaN(d.Value) || math.IsInf(d.Value, 0) || d.Value <= 0 || d.N < 0 || d.Censored < 0 {
				t.Fatalf("%s: %+v", name, d)
			}
			for _, in := range d.Inputs {
				if math.IsNaN(in.Value) || in.Value < 0 {
					t.Fatalf("%s rests on %+v", name, in)
				}
			}
		}
		if got.K.Value > most+1e-6 || got.K.Value < patience.LeastK || got.Lease.Value > max((most+1e-6)*was.stepS, witness.DefaultFloor.Seconds()) || got.Milestone.Value > milestoneMost {
			t.Fatalf("out of bounds: %+v", got)
		}
	})
}
