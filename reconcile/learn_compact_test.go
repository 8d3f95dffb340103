package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// dying is a store whose user is killed at its at-th write: before it, or after it took effect.
type dying struct {
	bucket.Bucket
	n     atomic.Int64
	at    int64
	after bool
}

var errKilled = errors.New("killed")

func (d *dying) call(do func() error) error {
	n := d.n.Add(1)
	if n > d.at || n == d.at && !d.after {
		return &bucket.Error{Code: bucket.Unknown, Err: errKilled}
	}
	if err := do(); err != nil || n < d.at {
		return err
	}
	return &bucket.Error{Code: bucket.Unknown, Err: errKilled}
}

func (d *dying) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (v bucket.Version, err error) {
	err = d.call(func() (e error) { v, e = d.Bucket.Put(ctx, key, body, c); return e })
	return v, err
}

func (d *dying) Delete(ctx context.Context, key string) error {
	return d.call(func() error { return d.Bucket.Delete(ctx, key) })
}

// observed makes the n-th observation of a platform.
func observed(n int64, at time.Time) record.Observation {
	return record.Observation{Protocol: 1, Platform: "p", GPU: "cpu", Mode: "none", Family: "f", Work: record.Hash(fmt.Append(nil, n)), Dispatch: 1, Attempt: 1,
		Class: "finished", Runner: "sim", Captured: true, CaptureS: 2, StartS: 1, PaidS: 100, StepKeptS: 80, Time: at.UTC().Format(time.RFC3339)}
}

func store(t testing.TB, b bucket.Bucket, o record.Observation) {
	t.Helper()
	body, err := record.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, o.Time)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), record.ObservationKey(o, at), bytes.NewReader(body), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// stretch is one look and one compaction of a dispatcher that has just started.
func stretch(t *testing.T, b bucket.Bucket) (*learner, error) {
	l := &learner{}
	l.start(b, false)
	f := &looked{}
	l.look(t.Context(), f)
	first := f.err
	l.compact(t.Context(), f)
	return l, errors.Join(first, f.err)
}

// total is what a dispatcher that starts now counts.
func total(t *testing.T, b bucket.Bucket) goodput.Totals {
	t.Helper()
	r, err := New(Config{Bucket: b, ID: "reader", Dry: true})
	if err != nil {
		t.Fatal(err)
	}
	r.learnNow(t.Context())
	c := r.book.Get(goodput.Key{Platform: "p", GPU: "cpu", Mode: "none"})
	if c == nil {
		return goodput.Totals{}
	}
	return c.Totals
}

// Given a dispatcher that is killed at each write of a compaction, before and after it took effect, and another that
// goes on. Then whoever reads, at any moment, counts each observation once.
func TestACompactionThatIsKilledCountsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 66
		want := goodput.Totals{Dispatches: most, Captured: most, PaidS: 100 * most, StepKeptS: 80 * most}
		for _, after := range []bool{false, true} {
			for at := int64(1); ; at++ {
				b := mem.New()
				for n := range int64(most) {
					store(t, b, observed(n, time.Now().Add(-time.Duration(n)*time.Minute)))
				}
				d := &dying{Bucket: b, at: at, after: after}
				_, _ = stretch(t, d)
				if diff := cmp.Diff(want, total(t, b)); diff != "" {
					t.Fatalf("killed at write %d, after %v (-want +got):\n%s", at, after, diff)
				}
				for range 2 {
					if _, err := stretch(t, b); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(want, total(t, b)); diff != "" {
					t.Fatalf("killed at write %d, after %v, and another went on (-want +got):\n%s", at, after, diff)
				}
				if d.n.Load() < at {
					if at <= most {
						t.Errorf("it has only %d writes: one compact form and %d deletes are expected", at, most)
					}
					break
				}
			}
		}
	})
}

// Given two dispatchers that fold at once, and an observation that comes back after it was folded. Then each counts once.
func TestTwoThatFoldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		for n := range int64(200) {
			store(t, b, observed(n, time.Now()))
		}
		var learners [2]*learner
		var looks [2]*looked
		for i := range learners { // both have looked before either folds
			learners[i], looks[i] = &learner{}, &looked{}
			learners[i].start(b, false)
			learners[i].look(t.Context(), looks[i])
		}
		for i := range learners {
			learners[i].compact(t.Context(), looks[i])
		}
		store(t, b, observed(7, time.Now())) // whoever was asleep writes it once more
		if got := total(t, b); got.Dispatches != 200 {
			t.Errorf("%d are counted, want 200", got.Dispatches)
		}
		<-time.After(2 * time.Hour)
		if _, err := stretch(t, b); err != nil {
			t.Fatal(err)
		}
		if got := total(t, b); got.Dispatches != 200 {
			t.Errorf("%d are counted, want 200", got.Dispatches)
		}
		if p, err := b.List(t.Context(), record.StatsPrefix, "", 10); err != nil || len(p.Items) != 1 {
			t.Errorf("%d objects are left: %v", len(p.Items), err)
		}
	})
}

// Names are forgotten when nobody writes such an observation any more; one that turns up later is not counted.
func TestNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		old := time.Now()
		for n := range int64(70) {
			store(t, b, observed(n, old))
		}
		if _, err := stretch(t, b); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * 24 * time.Hour)
		store(t, b, observed(100, time.Now().Add(-2*time.Hour)))
		if _, err := stretch(t, b); err != nil {
			t.Fatal(err)
		}
		s, err := readCompact(t.Context(), b, record.CompactKey("p", "cpu", "none"))
		if err != nil {
			t.Fatal(err)
		}
		if s.compact.Named(goodput.Name(record.Hash(fmt.Append(nil, int64(0))), 1)) {
			t.Error("names of five days ago are kept")
		}
		store(t, b, observed(0, old))
		if got := total(t, b); got.Dispatches != 71 {
			t.Errorf("%d are counted, want 71", got.Dispatches)
		}
	})
}

// Bytes that are no compact form, and observations that nobody can have made, spoil nothing.
func TestForeignStatisticsSpoilNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		put := func(key, text string) {
			if _, err := b.Put(t.Context(), key, bytes.NewReader([]byte(text)), bucket.Always()); err != nil {
				t.Fatal(err)
			}
		}
		put(record.CompactKey("p", "cpu", "none"), `{"protocol":1,"platform":"q"}`)
		put(record.StatsPrefix+"p/cpu/none/2000-01-01/"+record.Hash(nil)+".1.json", `{"protocol":1,"platform":"p","gpu":"cpu","mode":"none","paid_s":-1}`)
		put(record.StatsPrefix+"strange", "?")
		for n := range int64(70) {
			store(t, b, observed(n, time.Now()))
		}
		for range 2 {
			if _, err := stretch(t, b); err != nil {
				t.Fatal(err)
			}
		}
		if got := total(t, b); got.Dispatches != 70 {
			t.Errorf("%d are counted, want 70", got.Dispatches)
		}
	})
}

// statReads is a store that keeps which statistics were read.
type statReads struct {
	bucket.Bucket
	mu    sync.Mutex
	keys  []string
	lists int
}

func (a *statReads) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(key, record.StatsPrefix) {
		a.keys = append(a.keys, key)
	}
	return a.Bucket.Get(ctx, key, r)
}

func (a *statReads) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(prefix, record.StatsPrefix) {
		a.lists++
	}
	return a.Bucket.List(ctx, prefix, after, limit)
}

// A dispatcher that starts reads the compact forms, and of the observations only those that are not folded yet: however many
// were, its first pass asks for as many objects, and its second for none.
func TestAStartReadsTheCompactFormOnly(t *testing.T) {
	for _, folded := range []int64{foldFrom, 10 * foldFrom, foldMost} {
		synctest.Test(t, func(t *testing.T) {
			b := mem.New()
			for _, platform := range []string{"p", "q"} {
				for n := range folded {
					o := observed(n, time.Now())
					o.Platform = platform
					store(t, b, o)
				}
			}
			if _, err := stretch(t, b); err != nil {
				t.Fatal(err)
			}
			want := []string{record.CompactKey("p", "cpu", "none"), record.CompactKey("q", "cpu", "none")}
			for n := range int64(7) {
				o := observed(folded+n, time.Now())
				store(t, b, o)
				want = append(want, record.ObservationKey(o, time.Now()))
			}
			a := &statReads{Bucket: b}
			r, err := New(Config{Bucket: a, ID: "starts", Dry: true})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := r.Pass(t.Context(), &Desired{Plan: &plan.Plan{}, Commit: "c1", Fresh: true, Complete: true, AllowStops: -1}); err != nil {
					t.Fatal(err)
				}
				slices.Sort(a.keys)
				slices.Sort(want)
				if diff := cmp.Diff(want, a.keys); diff != "" || a.lists != 1 {
					t.Errorf("%d folded of each: %d lists, and what was read (-want +got):\n%s", folded, a.lists, diff)
				}
			}
			if c := r.book.Get(goodput.Key{Platform: "p", GPU: "cpu", Mode: "none"}); c == nil || c.Totals.Dispatches != folded+7 {
				t.Errorf("it counts %+v, want %d", c, folded+7)
			}
		})
	}
}

// BenchmarkStart100000 is what a dispatcher that starts reads of 100,000 observations of 20 keys, all but 200 of which are folded,
// beside what reading them one by one would take.
func BenchmarkStart100000(b *testing.B) {
	inner := mem.New()
	const keys, each = 20, 5000
	now := time.Now()
	for k := range keys {
		c := goodput.NewCompact(goodput.Key{Platform: fmt.Sprint("p", k), GPU: "nvidia-t4", Mode: "fp16"})
		for n := range int64(each) {
			o := observed(n, now.Add(-time.Duration(n)*12*time.Minute))
			o.Platform, o.GPU, o.Mode, o.Peak, o.WorkKept = c.Platform, c.GPU, c.Mode, 65e12, 1e15
			o.Family = fmt.Sprint("family ", n%30)
			if n < 10 {
				store(b, inner, o)
			} else if !c.Fold(o) {
				b.Fatal("it was not folded")
			}
		}
		c.Close(now)
		body, err := record.Encode(c)
		if err == nil {
			_, err = inner.Put(b.Context(), record.CompactKey(c.Platform, c.GPU, c.Mode), bytes.NewReader(body), bucket.IfAbsent())
		}
		if err != nil {
			b.Fatal(err)
		}
		if k == 0 {
			b.ReportMetric(float64(len(body)), "B/compact")
		}
	}
	var requests int64
	for b.Loop() {
		count := counting.New(inner)
		r, err := New(Config{Bucket: count, ID: "bench", Dry: true})
		if err != nil {
			b.Fatal(err)
		}
		r.learnNow(b.Context())
		if got := r.book.Expect("p3", "nvidia-t4", "fp16", "family 7"); got.MFU.N < 3 || got.Bound.Threshold {
			b.Fatalf("%+v", got)
		}
		n := count.Counts()
		requests = int64(n.Get + n.List)
	}
	b.ReportMetric(float64(requests), "requests/start")
	b.ReportMetric(keys*each/float64(requests), "observations/request")
}
