package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func TestCentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)) // 100 … 1
	}
	for _, c := range []struct {
		of   []time.Duration
		n    int
		want time.Duration
	}{{hundred, 0, 1}, {hundred, 50, 51}, {hundred, 99, 100}, {[]time.Duration{7}, 99, 7}, {[]time.Duration{3, 1, 2}, 50, 2}} {
		if got := centile(c.of, c.n); got != c.want {
			t.Errorf("p%d of %d values is %v, want %v", c.n, len(c.of), got, c.want)
		}
	}
}

// Exact values of the paired test: of the 8 ways to exchange the two of three pairs one is the highest where each second is
// larger, so p is 1/8; of equal values every way is as high.
func TestChance(t *testing.T) {
	d := func(of ...time.Duration) []time.Duration { return of }
	for _, c := range []struct {
		a, b []time.Duration
		want float64
	}{{d(1, 2, 3), d(4, 5, 6), 1.0 / 8}, {d(4, 5, 6), d(1, 2, 3), 1}, {d(1, 2, 6), d(3, 5, 4), 2.0 / 8}, {d(5, 5), d(5, 5), 1}, {nil, d(1), 1}, {d(1), d(2), 1.0 / 2},
		{d(100, 10, 1), d(200, 20, 2), 1.0 / 8}} {
		if got := chance(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("chance(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func jobs(n int) []plan.Job {
	out := make([]plan.Job, n)
	for i := range out {
		out[i] = plan.Job{Name: "job", Work: plan.Digest(record.Hash([]byte{byte(i), byte(i >> 8)}))}
	}
	return out
}

// Pages begin where the dispatcher's do, and a listing takes as many turns as eight side by side leave.
func TestStarts(t *testing.T) {
	for n, want := range map[int]int{1: 1, 1000: 1, 1001: 2, 2000: 2, 2001: 3} {
		if got := len(starts(jobs(n))); got != want {
			t.Errorf("%d leases are on %d pages, want %d", n, got, want)
		}
	}
	for pages, want := range map[int]int{1: 1, 8: 1, 9: 2, 10: 2, 17: 3} {
		if got := rounds(pages); got != want {
			t.Errorf("%d pages take %d turns, want %d", pages, got, want)
		}
	}
}

// What headway watch logs becomes passes, launches and warnings.
func TestLines(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w := &watch{log: log}
	for _, text := range []string{
		"commit 0123456789ab plans: 3 jobs in 1 file",
		`{"level":"DEBUG","msg":"answered","job":"a"}`,
		`{"level":"INFO","msg":"done","action":"launch"}`,
		`{"level":"INFO","msg":"done","action":"release"}`,
		`{"level":"DEBUG","msg":"pass","took":1500000000,"works":3,"gets":4,"lists":5,"puts":6}`,
		`{"level":"WARN","msg":"not launched"}`,
		"no JSON at all {",
	} {
		w.line(text)
	}
	if len(w.passes) != 1 {
		t.Fatalf("%d passes", len(w.passes))
	}
	w.passes[0].at = time.Time{}
	if diff := cmp.Diff(passed{took: 1500 * time.Millisecond, works: 3, gets: 4, lists: 5, puts: 6}, w.passes[0], cmp.AllowUnexported(passed{})); diff != "" {
		t.Errorf("pass (-want +got):\n%s", diff)
	}
	if len(w.taken) != 1 || len(w.launch) != 1 || len(w.errors) != 1 || w.answered.IsZero() {
		t.Errorf("%d commits, %d launches, %d warnings, answered %v", len(w.taken), len(w.launch), len(w.errors), w.answered)
	}
}

func TestShownHeld(t *testing.T) {
	held, requests, err := shownHeld([]byte(`{"store_requests":2,"jobs":[{"state":"held"},{"state":"absent"},{"state":"held"}]}`))
	if err != nil || held != 2 || requests != 2 {
		t.Errorf("%d held, %d requests: %v", held, requests, err)
	}
	if _, _, err := shownHeld([]byte("<html>")); err == nil {
		t.Error("HTML was taken for a status")
	}
	if s, err := serverOf(`{"endpoint":"http://127.0.0.1:1","bucket":"b","region":"r"}`); err != nil || s.url("x") != "s3://b/x?endpoint=http%3A%2F%2F127.0.0.1%3A1&path_style=true&region=r" {
		t.Errorf("%s: %v", s.url("x"), err)
	}
	if _, err := serverOf(""); err == nil {
		t.Error("no server was taken for one")
	}
}

// The load holds its leases for as long as it is asked to: each is renewed once in a third of its length, and none is lost.
func TestTheLoadHoldsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, all := mem.New(), jobs(70)
		l, err := capture(t.Context(), store, all, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		length := l.lease.Length()
		ctx, stop := context.WithTimeout(t.Context(), 3*length)
		defer stop()
		l.renew(ctx)
		for _, j := range all {
			seen, err := witness.Read(t.Context(), store, string(j.Work))
			if err != nil {
				t.Fatal(err)
			}
			if r := seen.Record; r.State != witness.Held || r.Attempt != 1 || r.Lease.Length() != length || r.Rev < 9 || r.Rev > 11 {
				t.Errorf("%s is %s at rev %d after three lengths", j.Work.Short(), r.State, r.Rev)
			}
		}
		if n := l.writes.Load(); l.lost.Load() != 0 || n < 8*70 || n > 10*70 || int64(len(l.take())) != n || len(l.take()) != 0 {
			t.Errorf("%d renewals, %d leases lost", n, l.lost.Load())
		}
	})
}
