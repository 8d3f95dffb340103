package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
)

// While a newer commit is refused, the code of what goes on comes from the commit that was accepted: the newer one may
// hold other files under the same name. A restart in between changes nothing.
func TestCodeComesFromTheAcceptedCommit(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a restart: %v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{script: "worker 1 die 47"})
				j := job("a")
				good, empty := r.desired("c1", j), r.desired("c2")
				var commits []string
				change := func(c *reconcile.Config) {
					c.Bundle = func(_ context.Context, _ *plan.Job, commit string) error {
						commits = append(commits, commit)
						return nil
					}
					c.Load = func(context.Context, string) (*plan.Plan, error) { return good.Plan, nil }
				}
				rec := r.reconciler(change)
				r.pass(rec, good)
				<-time.After(time.Minute)
				if restart {
					rec = r.reconciler(change)
				}
				r.until(rec, empty, time.Hour, allFinished)
				if diff := cmp.Diff([]string{"c1", "c1"}, commits); diff != "" {
					t.Errorf("bundled from (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A job whose code can't be bundled, or whose spec is damaged, is one job's trouble: it waits with a reason and with
// growing pauses, and the death of another job's worker is written off all the same.
func TestAJobThatCannotBeBundledHoldsNobodyUp(t *testing.T) {
	link := errors.New(`"code/x" is a symbolic link`)
	for _, c := range []struct {
		name    string
		err     error
		state   reconcile.Kind
		damaged bool
	}{
		{"a link in the folder", link, reconcile.Blocked, false},
		{"an upload that is never answered", &bucket.Error{Op: "put", Key: "code/x", Code: bucket.Unknown}, reconcile.Wait, false},
		{"a store that is full", &bucket.Error{Op: "put", Key: "code/x", Code: bucket.Full}, reconcile.Blocked, false},
		{"a damaged spec", nil, reconcile.Blocked, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneCannotStart(t, c.err, c.state, c.damaged) })
		})
	}
}

func oneCannotStart(t *testing.T, err error, want reconcile.Kind, damaged bool) {
	r := newRig(t, rigConfig{slots: 2, script: "worker 1 die 47"})
	// Its lease is so long that an error every quarter of an hour would hold the mass brake for ever.
	a, b := job("a", func(j *plan.Job) { j.Lease.Floor = 2 * time.Hour }), job("b")
	tries := 0
	rec := r.reconciler(func(c *reconcile.Config) {
		c.Bundle = func(_ context.Context, j *plan.Job, _ string) error {
			if j.Name != "b" {
				return nil
			}
			tries++
			return err
		}
	})
	if damaged {
		if _, err := r.store.Put(t.Context(), record.SpecKey(string(b.Work)), strings.NewReader(`{"protocol":1,"work":"another"}`), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	d := r.desired("c1", a, b)
	r.until(rec, d, 12*time.Hour, stateIs(a.Work, plan.StateFinished))
	if r.acts(reconcile.WriteOff) != 1 {
		t.Errorf("%d write-offs, want 1", r.acts(reconcile.WriteOff))
	}
	var last reconcile.Action
	for _, act := range r.pass(rec, d).Actions {
		if act.Work == b.Work {
			last = act
		}
	}
	if last.Kind != want || last.Until == 0 || !strings.Contains(last.Reason, "could not be launched") {
		t.Errorf("b stands at %+v", last)
	}
	if r.claims(b.Work) != 0 || tries > 40 {
		t.Errorf("%d claims, tried %d times in 12 hours", r.claims(b.Work), tries)
	}
}

// Jobs that share a code tree share the bundle: it is looked for, packed and uploaded once in a pass.
func TestOneCodeTreeIsBundledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40})
		jobs := numbered(30, func(j *plan.Job) { j.Code, j.CodeTree = "code", strings.Repeat("c", 40) })
		jobs = append(jobs, job("other", func(j *plan.Job) { j.Code, j.CodeTree = "other", strings.Repeat("d", 40) }))
		var mu sync.Mutex
		calls := map[string]int{}
		rec := r.reconciler(func(c *reconcile.Config) {
			c.Bundle = func(_ context.Context, j *plan.Job, _ string) error {
				mu.Lock()
				calls[j.Code]++
				mu.Unlock()
				<-time.After(time.Second)
				return nil
			}
		})
		r.pass(rec, r.desired("c1", jobs...))
		if diff := cmp.Diff(map[string]int{"code": 1, "other": 1}, calls); diff != "" {
			t.Errorf("bundled (-want +got):\n%s", diff)
		}
		if n := r.sim.Meter().Started; n != 31 {
			t.Errorf("%d launches, want 31", n)
		}
	})
}

// A limit beyond what a pass reads of a history runs out all the same, also for a successor that knows nothing.
func TestManyRetriesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{script: "launch * reject"})
		j := job("a", func(j *plan.Job) { j.Limits.Retries = 80 })
		d := r.desired("c1", j)
		r.until(r.reconciler(nil), d, 48*time.Hour, stateIs(j.Work, plan.StateFailed))
		if n := r.claims(j.Work); n != 81 {
			t.Errorf("%d launches, want 81", n)
		}
		later := r.reconciler(nil)
		if rep := r.pass(later, d); rep.States[j.Work].State != plan.StateFailed {
			t.Errorf("a successor says %v", rep.States[j.Work])
		}
		if e := r.explain(later, j); e.Spent != 81 || e.Limit != 80 {
			t.Errorf("explain says %d of %d", e.Spent, e.Limit)
		}
	})
}

// One key that the store refuses for ever, to readers or to writers, holds nobody else up.
func TestOneKeyThatIsRefusedHoldsNobodyUp(t *testing.T) {
	for _, op := range []string{"get", "put"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 2, script: "worker 1 die 47"})
				a, b := job("a"), job("b")
				key := record.WitnessKey(string(b.Work))
				if op == "put" {
					key = record.ClaimKey(string(b.Work), 1)
				}
				shaky := faulty.New(r.store, 1, faulty.Rule{Op: op, Key: key, Effect: faulty.Refuse, Code: bucket.Denied})
				rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = shaky })
				r.until(rec, r.desired("c1", a, b), 30*time.Minute, stateIs(a.Work, plan.StateFinished))
				if r.acts(reconcile.WriteOff) != 1 || r.claims(b.Work) != 0 || len(shaky.Unfired()) > 0 {
					t.Errorf("%d write-offs, %d claims of b, faults that never struck: %v", r.acts(reconcile.WriteOff), r.claims(b.Work), shaky.Unfired())
				}
			})
		})
	}
}
