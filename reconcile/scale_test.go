package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

func TestAThousandJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 1200, model: sim.Model{Step: 5 * time.Second, Steps: 20, Milestone: 10}})
		jobs := numbered(1000, steps(20, 10))
		rec, d := r.reconciler(nil), r.desired("c1", jobs...)
		start := time.Now()
		rep := r.pass(rec, d)
		if n := r.sim.Meter().Started; n != 1000 || time.Since(start) > 30*time.Second {
			t.Errorf("%d launches after one pass of %v", n, time.Since(start))
		}
		first := rep.Requests
		r.until(rec, d, time.Hour, allFinished)
		idle := r.pass(rec, d).Requests
		if idle > 5 {
			t.Errorf("a pass with nothing to do costs %d requests", idle)
		}
		if n := r.sim.Meter().Started; n != 1000 {
			t.Errorf("%d launches, want 1000", n)
		}
		t.Logf("requests: %d for the pass that launches 1,000, %d for one that has nothing to do", first, idle)
	})
}

func TestReadingWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 6, script: "worker 2 die 47\nworker 3 fail 13", model: sim.Model{Step: time.Second}})
		jobs := numbered(4)
		jobs[0] = job(jobs[0].Name, steps(10_000, 10), func(j *plan.Job) { j.OnDelete = plan.Revoke })
		rec := r.reconciler(nil)
		for i := range jobs { // one after the other, so that it is known whose worker dies
			r.pass(rec, r.desired("c1", jobs[:i+1]...))
			<-time.After(3 * time.Second)
		}
		<-time.After(5 * time.Minute)
		count := counting.New(r.store)
		reader := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Dry = readonly.New(count), true })
		d2 := r.desired("c2", append(numbered(6)[1:], job("new"))...)
		launched := r.sim.Meter().Calls[sim.OpLaunch]
		var works []plan.Digest
		for _, j := range jobs {
			works = append(works, j.Work)
		}
		w, err := reader.Observe(t.Context(), works, jobs)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(w.Observed()); n != 4 || w.Requests == 0 {
			t.Errorf("observed %d works with %d requests", n, w.Requests)
		}
		if _, err := reader.Accepted(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if _, err := reader.Check(t.Context(), d2); err != nil {
			t.Error(err)
		}
		for i := range jobs {
			r.explain(reader, jobs[i])
		}
		kinds := map[reconcile.Kind]int{}
		for _, a := range r.pass(reader, d2).Actions {
			kinds[a.Kind]++
			if a.Done || a.Err != nil {
				t.Errorf("a dry pass did something: %+v", a)
			}
		}
		if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.Launch: 4, reconcile.None: 1, reconcile.Stop: 1, reconcile.WriteOff: 1}, kinds); diff != "" {
			t.Errorf("what a pass would do (-want +got):\n%s", diff)
		}
		if n := count.Counts(); n.Put != 0 || n.Delete != 0 || n.Presign != 0 {
			t.Errorf("writes reached the store: %+v", n)
		}
		if r.sim.Meter().Calls[sim.OpLaunch] != launched || r.sim.Meter().Calls[sim.OpRelease] != 0 {
			t.Error("a platform was called")
		}
	})
}

// After a restart, while the newer commit is refused, the accepted plan is read again at its own commit.
func TestTheAcceptedPlanGoesOnAfterARestart(t *testing.T) {
	for _, loads := range []bool{true, false} {
		t.Run(fmt.Sprintf("can be read again: %v", loads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restarted(t, loads) })
		})
	}
}

func restarted(t *testing.T, loads bool) {
	r := newRig(t, rigConfig{script: "worker 1 die 47"})
	j := job("a")
	good := r.desired("c1", j)
	r.pass(r.reconciler(nil), good)
	<-time.After(time.Minute)
	empty := r.desired("c2")
	asked := 0
	rec := r.reconciler(func(c *reconcile.Config) {
		c.Load = func(_ context.Context, commit string) (*plan.Plan, error) {
			if asked++; commit != "c1" || !loads {
				return nil, errors.New("no such commit")
			}
			return good.Plan, nil
		}
	})
	want := plan.StateFinished
	if !loads {
		want = plan.StateRevoked // written off, and left alone
	}
	rep := r.until(rec, empty, time.Hour, stateIs(j.Work, want))
	if rep.Commit != "c1" || rep.Accepted {
		t.Errorf("in force: %s", rep.Commit)
	}
	if asked != 1 {
		t.Errorf("the plan was read %d times, want once", asked)
	}
}

// fill writes n witnesses into a store, with a claim for each: of a hundred 60 are finished, 39 held and one is free.
func fill(b *testing.B, store bucket.Bucket, n int) []plan.Digest {
	b.Helper()
	works := make([]plan.Digest, n)
	put := func(key string, v any) {
		body, err := record.Encode(v)
		if err == nil {
			_, err = store.Put(b.Context(), key, strings.NewReader(string(body)), bucket.IfAbsent())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := range works {
		w := record.Hash([]byte(fmt.Sprint("work ", i)))
		works[i] = plan.Digest(w)
		rec := witness.Record{Protocol: record.Protocol, Work: w, Rev: 3, Write: record.Nonce(), Attempt: 1, Dispatch: 1,
			Lease: witness.LeaseFor(0, time.Second, 0), State: witness.Yielded}
		switch at := i % 100; {
		case at < 39:
			rec.State, rec.Holder = witness.Held, record.Nonce()
		case at < 99:
			rec.State = witness.Finished
			rec.Finished = &witness.FinishedPointer{Attempt: 1, Manifest: record.ResultManifestKey(w, 1), SHA256: record.Hash(nil)}
		}
		put(record.WitnessKey(w), rec)
		put(record.ClaimKey(w, 1), record.Claim{Protocol: record.Protocol, Work: w, Dispatch: 1, Nonce: record.Nonce(), Platform: "here", CaptureS: 120})
	}
	return works
}

// cpu is the processor time of this process, user and system. On a machine that others use too it says more than the
// clock.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkObserve10000 looks at 10,000 works on the embedded store: a first look of a process that has just opened
// the store and knows nothing, and the next one, when nothing has changed.
func BenchmarkObserve10000(b *testing.B) {
	folder := b.TempDir()
	open := func() bucket.Bucket {
		store, err := dir.Open(folder, dir.Options{Create: true, NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		return store
	}
	works := fill(b, open(), 10_000)
	look := func(b *testing.B, rec *reconcile.Reconciler) {
		w, err := rec.Observe(b.Context(), works, nil)
		if err != nil || len(w.Observed()) != len(works) {
			b.Fatal(err)
		}
		b.ReportMetric(float64(w.Requests), "requests/op")
	}
	newOne := func() *reconcile.Reconciler {
		rec, err := reconcile.New(reconcile.Config{Bucket: open(), ID: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		return rec
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		start := cpu(b)
		for b.Loop() {
			look(b, newOne())
		}
		b.ReportMetric(float64(cpu(b)-start)/1e6/float64(b.N), "cpu-ms/op")
	})
	b.Run("next", func(b *testing.B) {
		rec := newOne()
		look(b, rec)
		b.ReportAllocs()
		start := cpu(b)
		for b.Loop() {
			look(b, rec)
		}
		b.ReportMetric(float64(cpu(b)-start)/1e6/float64(b.N), "cpu-ms/op")
	})
}

// However long a work's history is, a look at it costs a bounded number of requests.
func TestALongHistoryCostsNoMoreThanItsEnd(t *testing.T) {
	for _, c := range []struct {
		name               string
		attempts, launches int64
	}{{"ten thousand attempts", 10_000, 10_000}, {"ten thousand launches without room", 0, 10_000}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { longHistory(t, c.attempts, c.launches) })
		})
	}
}

func longHistory(t *testing.T, attempts, launches int64) {
	r := newRig(t, rigConfig{})
	j := job("a")
	w := string(j.Work)
	put := func(key string, v any) {
		body, err := record.Encode(v)
		if err == nil {
			_, err = r.store.Put(t.Context(), key, strings.NewReader(string(body)), bucket.IfAbsent())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := int64(1); n <= launches; n++ {
		put(record.ClaimKey(w, n), record.Claim{Protocol: record.Protocol, Work: w, Dispatch: n, Nonce: "x", Platform: "here"})
		rc := record.Receipt{Protocol: record.Protocol, Work: w, Dispatch: n, Nonce: "x", OK: n <= attempts, Class: string(runners.NoSlots), Handle: []byte(`{"instance":1}`)}
		put(record.ReceiptKey(w, n), rc)
	}
	for a := int64(1); a <= attempts; a++ {
		o := record.Open{Protocol: record.Protocol, Work: w, Attempt: a, Dispatch: a, Platform: "here"}
		if a > 1 {
			o.Resume = &record.Pointer{Attempt: a - 1, Milestone: 1, Step: a - 1}
		}
		put(record.OpenKey(w, a), o)
		put(record.EndKey(w, a), record.End{Protocol: record.Protocol, Work: w, Attempt: a, Class: "yielded", Step: a})
	}
	if attempts > 0 {
		put(record.WitnessKey(w), witness.Record{Protocol: record.Protocol, Work: w, Rev: 9, Write: record.Nonce(), Attempt: attempts, Dispatch: attempts, State: witness.Yielded})
	}
	rec := r.reconciler(func(c *reconcile.Config) { c.Dry = true })
	rep := r.pass(rec, r.desired("c1", j))
	if rep.Requests > 64*4+50 {
		t.Errorf("the first look cost %d requests", rep.Requests)
	}
	last := rep.Actions[len(rep.Actions)-1]
	if last.Kind != reconcile.Launch && last.Kind != reconcile.Wait || last.Kind == reconcile.Launch && last.Dispatch != launches+1 {
		t.Errorf("decided %+v", last)
	}
	if again := r.pass(rec, r.desired("c1", j)).Requests; again > 8 {
		t.Errorf("the next look cost %d requests", again)
	}
}
