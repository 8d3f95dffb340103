package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// outage is a store that can be switched off, and counts the writes of the witness that got through.
type outage struct {
	bucket.Bucket
	off    atomic.Bool
	fired  atomic.Int64
	writes atomic.Int64
}

func (o *outage) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if o.off.Load() {
		o.fired.Add(1)
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
	}
	if strings.HasPrefix(key, record.WitnessPrefix) {
		o.writes.Add(1)
	}
	return o.Bucket.Put(ctx, key, body, c)
}

func (o *outage) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if o.off.Load() {
		o.fired.Add(1)
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.Unknown}
	}
	return o.Bucket.Get(ctx, key, r)
}

// bubble runs f with a captured lease in fake time.
func bubble(t *testing.T, terms record.Terms, f func(t *testing.T, o *outage, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{Bucket: mem.New()}
		h := captured(t, o, terms)
		d := newDesk(terms, func(string, int64, string) {})
		k := newKeeper(d, h, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		go k.run(ctx)
		o.writes.Store(0)
		f(t, o, d)
		cancel()
		<-k.done
	})
}

func TestNoEvidenceNoRenewal(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		d.stepped(1)
		synctest.Wait()
		after := o.writes.Load()
		time.Sleep(24 * time.Hour)
		if n := o.writes.Load() - after; after != 1 || n != 0 {
			t.Errorf("%d writes for a step, %d in a day without one", after, n)
		}
	})
}

func TestStepsRenewByThirds(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		for n := range int64(36_000) { // an hour of steps of 100 ms
			time.Sleep(100 * time.Millisecond)
			if !d.stepped(n) {
				t.Fatal("refused")
			}
		}
		synctest.Wait()
		if n := o.writes.Load(); n < 700 || n > 722 {
			t.Errorf("%d renewals in an hour with a lease of 15 s", n)
		}
		if d.own.Progress.Step < 35_900 || d.own.Lease.StepS != 0.1 || d.own.Lease.Seconds != 15 {
			t.Errorf("witness %+v", d.own)
		}
	})
}

// TestOutage: training goes on; an asking step is answered at once until the lease is threatened, waits then, and is
// answered when the store is back.
func TestOutage(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		d.stepped(1)
		synctest.Wait()
		o.off.Store(true)
		began := time.Now()
		for n := int64(2); time.Since(began) < 11*time.Second; n++ {
			time.Sleep(500 * time.Millisecond)
			d.stepped(n)
			before := time.Now()
			if a, err := d.verdict(t.Context()); err != nil || !a.OK || a.QuietS != 2.5 || time.Since(before) != 0 {
				t.Fatalf("%s into the outage: %+v, %v after %s", time.Since(began), a, err, time.Since(before))
			}
		}
		go func() { time.Sleep(10 * time.Second); o.off.Store(false) }()
		time.Sleep(time.Second)
		before := time.Now()
		if _, err := d.verdict(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(before); waited < 8*time.Second || waited > 12*time.Second || o.fired.Load() == 0 {
			t.Errorf("the verdict came after %s, with %d faults", waited, o.fired.Load())
		}
	})
}

func TestEndlessOutageIsGivenUp(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		d.stepped(1)
		synctest.Wait()
		o.off.Store(true)
		began := time.Now()
		time.Sleep(12 * time.Second)
		d.stepped(2)
		_, err := d.verdict(t.Context())
		e, ok := errors.AsType[*ending](err)
		if took := time.Since(began); !ok || e.exit.Code != CodeStore || took < 45*time.Second || took > 80*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestDeposedWhileSteppingAndWaiting(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		d.stepped(1)
		synctest.Wait()
		seen, err := witness.Read(t.Context(), o, testWork)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := witness.Revoke(t.Context(), o, seen, "silent"); got != witness.Ended {
			t.Fatal(err)
		}
		writes := o.writes.Load()
		time.Sleep(6 * time.Second)
		d.stepped(2)
		synctest.Wait()
		_, err = d.verdict(t.Context())
		if e, ok := errors.AsType[*ending](err); !ok || e.exit.Code != CodeLeaseLost || e.code != "lease_lost" {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Hour)
		d.stepped(3)
		synctest.Wait()
		if n := o.writes.Load() - writes; n != 1 { // the one that was refused
			t.Errorf("%d writes after it was deposed", n)
		}
	})
}

func TestAPhaseIsCoveredWhenItBegins(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		for n := range int64(100) {
			time.Sleep(10 * time.Millisecond)
			d.stepped(n)
		}
		synctest.Wait()
		if _, err := d.enter(t.Context(), phase{"eval", 6 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		if l := d.own.Lease; l.Seconds != 375 || l.Phase != "eval" {
			t.Errorf("lease %+v", l)
		}
		time.Sleep(6 * time.Minute)
		if _, err := d.enter(t.Context(), phase{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l := d.own.Lease; l.Seconds != 15 || l.Phase != "" {
			t.Errorf("afterwards %+v", l)
		}
		before := o.writes.Load()
		for range 20 { // short ones are within the lease and cost no write
			if _, err := d.enter(t.Context(), phase{"save", time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			_, _ = d.enter(t.Context(), phase{})
		}
		synctest.Wait()
		if n := o.writes.Load() - before; n > 1 {
			t.Errorf("%d writes for short phases", n)
		}
	})
}

// TestABadPointerCostsAMilestone: an upload whose manifest is not what it says is refused by the holder's own check;
// the lease goes on and the previous pointer stays.
func TestABadPointerCostsAMilestone(t *testing.T) {
	bubble(t, terms(), func(t *testing.T, o *outage, d *desk) {
		d.stepped(5)
		synctest.Wait()
		d.took(5)
		d.reported(courier.Report{Pointer: record.Pointer{Attempt: 1, Milestone: 1, Step: 5, Manifest: record.MilestoneManifestKey(testWork, 1, 1), SHA256: strings.Repeat("0", 64)}})
		named, failed, err := d.drain(t.Context(), true)
		if named != 0 || failed != 1 || err != nil || d.own.Resume != nil {
			t.Errorf("named %d, failed %d, %v; %+v", named, failed, err, d.own)
		}
		time.Sleep(10 * time.Second)
		d.stepped(6)
		synctest.Wait()
		if d.overErr() != nil || d.own.Progress.Step != 6 {
			t.Errorf("%v %+v", d.overErr(), d.own)
		}
	})
}

func (d *desk) overErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		return nil
	}
	return d.ended
}

// TestPromise: the lease is never below the floor, never below K median steps once they are known, and never shorter
// than three of the longest steps of the warm-up.
func TestPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := record.Terms{LeaseK: rapid.Float64Range(1, 1000).Draw(t, "k"), LeaseFloorS: rapid.Float64Range(0.1, 600).Draw(t, "floor")}
		steps := rapid.SliceOfN(rapid.Int64Range(1, int64(time.Minute)), 1, 200).Draw(t, "steps")
		var p pace
		now := time.Now()
		p.step(now, 1)
		longest := time.Duration(0)
		for i, s := range steps {
			now = now.Add(time.Duration(s))
			p.step(now, 1)
			longest = max(longest, time.Duration(s))
			l := promise(terms, &p, phase{})
			if l.Seconds < terms.LeaseFloorS-1e-9 {
				t.Fatalf("%g s below the floor", l.Seconds)
			}
			if i+1 >= settled && l.Seconds < terms.LeaseK*p.median().Seconds()-1e-6 {
				t.Fatalf("%g s for steps of %s", l.Seconds, p.median())
			}
			if i+1 < warmUp && l.Seconds < 3*longest.Seconds()-1e-6 {
				t.Fatalf("%g s after a step of %s", l.Seconds, longest)
			}
			if in := promise(terms, &p, phase{"eval", time.Minute}); in.Seconds < l.Seconds+60-1e-6 {
				t.Fatalf("a minute's phase makes %g s of %g s", in.Seconds, l.Seconds)
			}
		}
	})
}

// TestOneCallerOfRenew: the lease is renewed in one place, which the desk reaches by evidence alone, and the courier
// has nothing in its hands that could.
func TestOneCallerOfRenew(t *testing.T) {
	calls := 0
	err := filepath.WalkDir(".", func(path string, e os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		calls += strings.Count(string(b), ".Renew(")
		return err
	})
	if err != nil || calls != 1 {
		t.Errorf("%d calls of Renew, %v", calls, err)
	}
}
