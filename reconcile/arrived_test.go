package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// mount is a store as one worker sees it through a mount that says yes to its result's files and keeps them: they never leave its
// machine.
type mount struct {
	*mem.Bucket
	keeps func(key string, body bucket.Body) (bucket.Body, bool) // what arrives of a file; false: nothing
}

func (m *mount) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.Contains(key, "/result/") && !strings.HasSuffix(key, "/manifest.json") {
		var arrives bool
		if body, arrives = m.keeps(key, body); !arrives {
			return "kept", nil
		}
	}
	return m.Bucket.Put(ctx, key, body, c)
}

// TestFinishedIsNotSaidOfAResultThatIsNotThere: a worker finishes in good faith, and its result never left its machine, or not all
// of it. The job is not called finished, whoever needs it waits and says why, nothing is launched again, and once a person has
// put the file back all goes on.
func TestFinishedIsNotSaidOfAResultThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		keeps func(string, bucket.Body) (bucket.Body, bool)
		want  string
	}{
		"nothing arrives": {func(string, bucket.Body) (bucket.Body, bool) { return nil, false }, sim.StateFile + " is not in the store"},
		"half of it":      {func(_ string, b bucket.Body) (bucket.Body, bool) { return strings.NewReader("half"), true }, sim.StateFile + " has 4 bytes, its manifest says "},
		"an empty file":   {func(_ string, b bucket.Body) (bucket.Body, bool) { return strings.NewReader(""), true }, sim.StateFile + " has 0 bytes, its manifest says "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lostResult(t, c.keeps, c.want) })
		})
	}
}

func lostResult(t *testing.T, keeps func(string, bucket.Body) (bucket.Body, bool), want string) {
	var kept []byte
	m := &mount{}
	r := newRig(t, rigConfig{slots: 2, model: sim.Model{Step: time.Second}, store: m})
	m.Bucket = r.store
	m.keeps = func(key string, b bucket.Body) (bucket.Body, bool) {
		kept = make([]byte, b.Size())
		_, _ = b.ReadAt(kept, 0)
		return keeps(key, b)
	}
	rec := r.reconciler(nil)
	first := job("first")
	second := job("second", func(j *plan.Job) { j.Inputs = []plan.Input{{Job: "first", Work: first.Work}} })
	d := r.desired("c1", first, second)
	rep := r.until(rec, d, time.Hour, func(rep *reconcile.Report) bool { return rep.States[first.Work].Final == reconcile.Blocked })
	s, needs := rep.States[first.Work], rep.States[second.Work]
	if s.State != plan.StateUnknown || !strings.Contains(s.Reason, "finished by attempt 1, but its result is not whole: "+want) {
		t.Errorf("%+v", s)
	}
	if !strings.HasPrefix(needs.Reason, "needs first, which is finished by attempt 1, but its result is not whole: "+want) || needs.Final != reconcile.Blocked {
		t.Errorf("what needs it: %+v", needs)
	}
	for range 3 { // said again, and not asked again
		rep = r.pass(rec, d)
		if rep.States[first.Work] != s || rep.Verbs.Gets > 4 {
			t.Errorf("%+v with %+v", rep.States[first.Work], rep.Verbs)
		}
	}
	rep = r.pass(r.reconciler(nil), d) // a new process finds the same
	if rep.States[first.Work].Reason != s.Reason {
		t.Errorf("a new process says %+v", rep.States[first.Work])
	}
	if n := r.claims(first.Work); n != 1 {
		t.Errorf("%d launches of what is finished", n)
	}
	m.keeps = func(_ string, b bucket.Body) (bucket.Body, bool) { return b, true }
	if _, err := r.store.Put(t.Context(), record.ResultPrefix(string(first.Work), 1)+sim.StateFile, strings.NewReader(string(kept)), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	r.until(rec, d, time.Hour, allFinished)
}

// TestAResultIsLookedForOnce: what is there is asked for when it is first seen to be finished, and then never again; with many
// files by a listing. A dry pass and an observer ask for nothing.
func TestAResultIsLookedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 40, model: sim.Model{Step: time.Second}})
		jobs := numbered(40)
		d := r.desired("c1", jobs...)
		rec := r.reconciler(nil)
		r.until(rec, d, time.Hour, allFinished)
		r.pass(rec, d)
		if rep := r.pass(rec, d); rep.Verbs.Gets > 3 {
			t.Errorf("a pass over %d finished works: %+v", len(jobs), rep.Verbs)
		}
		fresh, dry := r.reconciler(nil), r.reconciler(func(c *reconcile.Config) { c.Dry = true })
		without, with := r.pass(dry, d).Verbs, r.pass(fresh, d).Verbs
		if got := with.Gets - without.Gets; got != 2*int64(len(jobs)) || with.Lists > without.Lists+1 {
			t.Errorf("a first pass: %+v, a dry one: %+v: want a manifest and a file for each of %d", with, without, len(jobs))
		}
		if rep := r.pass(fresh, d); rep.Verbs.Gets > 3 {
			t.Errorf("its second pass: %+v", rep.Verbs)
		}
	})
}
