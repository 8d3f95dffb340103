package fleet_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/sim"
)

// cut is a machine's way to the store that breaks within the first lease: what the worker would say at its end, which is the
// instant at which the reconciler writes it off and has the machine killed, never arrives.
type cut struct {
	bucket.Bucket
	at time.Time
}

// Put implements bucket.Bucket.
func (c *cut) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (bucket.Version, error) {
	if !time.Now().Before(c.at) {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: syscall.EHOSTUNREACH}
	}
	return c.Bucket.Put(ctx, key, body, cond)
}

// slow runs one job under a reconciler, until it has failed or finished: each step takes six floors, and the loop says
// nothing before the first one ends; without notice before a kill, its machines also lose their network within the first
// lease. It reports why it ended and how many launches that took.
func slow(t *testing.T, retries int, notice time.Duration) (y *yard, why string, e *reconcile.Explanation) {
	c := sim.Config{Model: sim.Model{Notice: notice, Step: 90 * time.Second, Steps: 10, LeaseFloor: 15 * time.Second}, Bucket: mem.New()}
	if notice == 0 {
		c.Port = func(int) bucket.Bucket { return &cut{Bucket: c.Bucket, at: time.Now().Add(30 * time.Second)} }
	}
	y = open(t, fleet.Config{Undeclared: true}, c, "")
	j := plan.Job{Name: "slow", Group: "slow", Kind: "train", Argv: []string{"train"}, On: []string{"sim"}, Limits: plan.Limits{Retries: retries},
		Milestones: plan.Milestones{Steps: 3}, FLOPs: flops.Work{Steps: 10}, OnDelete: plan.Drain, Generation: 1}
	j.Work = j.Digest()
	conf := plan.Config{Platforms: map[string]plan.Platform{"sim": {Name: "sim", Runner: "sim", Slots: 3}}, Guard: plan.Guard{Prune: 0.2}}
	d := &reconcile.Desired{Plan: &plan.Plan{Config: conf, Jobs: []plan.Job{j}, Files: []string{"a.yaml"}}, Commit: "c1", Fresh: true, Complete: true, AllowStops: -1}
	rec, err := reconcile.New(reconcile.Config{Bucket: y.b, StoreURL: "mem:", Runners: map[string]runners.Runner{"sim": y.r}, ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 12*time.Hour; {
		rep, err := rec.Pass(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if s := rep.States[j.Work]; s.State == plan.StateFailed || s.State == plan.StateFinished {
			e, err := rec.Explain(t.Context(), &j, &conf)
			if err != nil {
				t.Fatal(err)
			}
			return y, s.State + ": " + s.Reason, e
		}
		time.Sleep(rep.Next)
	}
	t.Fatalf("neither failed nor finished in 12 h: %v", y.r.Truth())
	return y, "", nil
}

// A loop whose first step outlasts the lease of the start, and that declares no phase, ends after two attempts that say so,
// however many retries there are, with the one sentence that helps its author.
func TestALongFirstStepEndsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, why, e := slow(t, 500, 20*time.Second)
		defer y.r.Close()
		if !strings.HasPrefix(why, "failed: the program never said that a step ended") || !strings.Contains(why, "declare a long first step with run.phase") {
			t.Error(why)
		}
		if len(e.Lines) > 3 || e.Lines[0].Class != "no_step" || e.Lines[1].Class != "no_step" {
			t.Errorf("%+v, %+v", e.Lines, y.exits)
		}
	})
}

// The same where machines are gone before their agents can say a word: nobody knows then that it was the program. The
// budget ends the job, and the account names both. One early death costs nothing, since so short a stint can't be judged
// by itself (science.md §3.2: two in a row that kept nothing are); from the second on each costs a retry. So retries + 2
// launches are the bound.
func TestALongFirstStepWithoutAWordSpendsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, why, e := slow(t, 2, 0)
		defer y.r.Close()
		if !strings.HasPrefix(why, "failed: 3 retries spent, limits.retries is 2") || !strings.Contains(why, "the program never said") ||
			!strings.Contains(why, "run.phase") || !strings.Contains(why, "lease: {floor:") {
			t.Error(why)
		}
		var spent []bool
		for _, l := range e.Lines {
			spent = append(spent, l.Spent)
			if l.Class == "silent" && !strings.Contains(l.Why, "its machine is gone, or the program never said") {
				t.Errorf("dispatch %d: %s", l.Dispatch, l.Why)
			}
		}
		if diff := cmp.Diff([]bool{false, true, true, true}, spent); diff != "" || e.Lines[0].Class != "silent" {
			t.Errorf("which attempts cost a retry (-want +got):\n%s%+v", diff, e.Lines)
		}
	})
}
