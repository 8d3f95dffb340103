package reconcile_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// heap is what is alive, bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// many is a plan of n jobs as people write them.
func many(t testing.TB, n int) *plan.Plan {
	t.Helper()
	files := map[string]string{"headway.yaml": "headway: v1\nplatforms:\n  here: {runner: sim, slots: 100000}\ndefaults:\n  on: [here]\n"}
	for from := 0; from < n; from += 100 {
		var b strings.Builder
		b.WriteString("jobs:\n")
		for i := from; i < min(from+100, n); i++ {
			fmt.Fprintf(&b, "  job-%05d:\n    kind: train\n    run: train --width ${params.width} --rate ${params.rate}\n    params: {width: %d, rate: 0.001}\n    seed: %d\n    labels: {team: vision, sweep: s%d}\n    limits: {retries: 3}\n", i, i, i, i/100)
		}
		files[fmt.Sprintf("plans/%05d.yaml", from)] = b.String()
	}
	p, problems := plan.Load(plan.NewMemTree(files))
	for _, q := range problems {
		if q.Severity == plan.Error {
			t.Fatal(q)
		}
	}
	return p
}

// allHeld writes a claim and a held lease for each job.
func allHeld(t testing.TB, store bucket.Bucket, jobs []plan.Job) {
	t.Helper()
	for i := range jobs {
		w := string(jobs[i].Work)
		for key, v := range map[string]any{
			record.WitnessKey(w): witness.Record{Protocol: record.Protocol, Work: w, Rev: 3, Write: record.Nonce(), Attempt: 1, Dispatch: 1,
				Lease: witness.LeaseFor(600, 1e9, 0), State: witness.Held, Holder: record.Nonce(),
				Resume: &record.Pointer{Attempt: 1, Milestone: 1, Step: 10, Manifest: record.MilestoneManifestKey(w, 1, 1), SHA256: record.Hash(nil)}},
			record.ClaimKey(w, 1): record.Claim{Protocol: record.Protocol, Work: w, Dispatch: 1, Nonce: record.Nonce(), Dispatcher: "here/1", Platform: "here",
				Runner: "sim", Job: jobs[i].Name, Commit: record.Hash(nil)[:40], Reason: "first launch", CaptureS: 120, Time: "2026-01-01T00:00:00Z"},
		} {
			b, err := record.Encode(v)
			if err == nil {
				_, err = store.Put(t.Context(), key, strings.NewReader(string(b)), bucket.IfAbsent())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What a process remembers of a running job is less than 10 KB, its plan included. Three quarters of it may be garbage
// before the next collection, so what is resident is about twice that.
func TestAJobWeighsLittle(t *testing.T) {
	const n = 2000
	store, before := mem.New(), int64(0)
	func() { allHeld(t, store, many(t, n).Jobs) }()
	before = heap()
	p := many(t, n)
	ofPlan := heap() - before
	platform, err := sim.New(sim.Config{Platform: "here", Slots: 100_000, Bucket: store})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := reconcile.New(reconcile.Config{Bucket: store, StoreURL: "mem", ID: "here/1", Runners: map[string]runners.Runner{"here": platform}})
	if err != nil {
		t.Fatal(err)
	}
	d := &reconcile.Desired{Plan: p, Commit: record.Hash(nil)[:40], Fresh: true, Complete: true, AllowStops: -1}
	for range 3 {
		rep, err := rec.Pass(t.Context(), d)
		if err != nil || len(rep.Errors) > 0 {
			t.Fatal(err, rep.Errors)
		}
		if got := rep.States[p.Jobs[0].Work].State; got != plan.StateHeld {
			t.Fatalf("job is %s", got)
		}
	}
	each := float64(heap()-before) / n / 1e3
	t.Logf("a job weighs %.1f KB, %.1f of it its plan", each, float64(ofPlan)/n/1e3)
	if each > 8 {
		t.Errorf("a job weighs %.1f KB", each)
	}
	runtime.KeepAlive(rec)
	runtime.KeepAlive(d)
}

// weight is what a reconciler remembers after some simulated days over twenty jobs of which three are replaced every hour,
// while workers finish, die, and leave when their job left the plan.
func weight(t *testing.T, days int) (kb float64) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 100, script: "worker 3 die 47\nworker 8 die 13\nworker 20 fail 13", model: sim.Model{Step: time.Minute}})
		rec, jobs := r.reconciler(nil), numbered(20)
		began, launched := time.Now(), 0
		for hour := 0; hour < days*24; hour++ {
			for i := range 3 {
				jobs[(3*hour+i)%20] = job(fmt.Sprintf("job-%d-%d", hour, i))
			}
			d := r.desired(fmt.Sprintf("c%d", hour), slices.Clone(jobs)...)
			for time.Since(began) < time.Duration(hour+1)*time.Hour {
				rep := r.pass(rec, d)
				launched = max(launched, len(rep.States))
				<-time.After(max(rep.Next, 30*time.Second))
			}
		}
		if n := r.sim.Meter().Started; n < days*24*3 || launched < 20 {
			t.Fatalf("%d launches in %d days: nothing happened", n, days)
		}
		r.seen = nil
		with := heap()
		runtime.KeepAlive(rec)
		rec = nil
		kb = float64(with-heap()) / 1e3
	})
	return kb
}

// Seven simulated days weigh what one does.
func TestSevenDaysWeighWhatOneDoes(t *testing.T) {
	one, seven := weight(t, 1), weight(t, 7)
	t.Logf("after a day %.0f KB are remembered, after seven %.0f KB", one, seven)
	if seven > 1.5*one+100 {
		t.Errorf("after a day %.0f KB are remembered, after seven %.0f KB: something is never forgotten", one, seven)
	}
}

// BenchmarkPass10000 is a pass over 10,000 held leases of which none has changed: what headway watch does every 5 s.
func BenchmarkPass10000(b *testing.B) {
	store := mem.New()
	p := many(b, 10_000)
	allHeld(b, store, p.Jobs)
	rec, err := reconcile.New(reconcile.Config{Bucket: store, StoreURL: "mem", ID: "here/1", Board: true})
	if err != nil {
		b.Fatal(err)
	}
	d := &reconcile.Desired{Plan: p, Commit: record.Hash(nil)[:40], Fresh: true, Complete: true, AllowStops: -1}
	if _, err := rec.Pass(b.Context(), d); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	start, requests := cpu(b), int64(0)
	for b.Loop() {
		rep, err := rec.Pass(b.Context(), d)
		if err != nil {
			b.Fatal(err)
		}
		requests += rep.Requests
	}
	b.ReportMetric(float64(cpu(b)-start)/1e6/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
}
