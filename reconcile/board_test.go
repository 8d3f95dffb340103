package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// boarded is a rig of n jobs on a platform with slots for most of them, and a reconciler that leaves boards.
func boarded(t *testing.T, n, slots int) (*rig, *reconcile.Reconciler, *reconcile.Desired) {
	t.Helper()
	r := newRig(t, rigConfig{slots: slots, script: "worker 3 fail 13\nworker 5 die 47", model: sim.Model{Step: 10 * time.Second}})
	return r, r.reconciler(func(c *reconcile.Config) { c.Board = true }), r.desired("c1", numbered(n)...)
}

// rows are a board's, without what depends on the moment.
func rows(b *reconcile.Board) map[string]plan.Observed {
	out := map[string]plan.Observed{}
	for _, r := range b.Rows {
		o := r.Observed
		o.Age, o.Reason = 0, ""
		out[r.Job] = o
	}
	return out
}

// closely is the same from the records themselves.
func (r *rig) closely(d *reconcile.Desired) map[string]plan.Observed {
	r.t.Helper()
	var works []plan.Digest
	for _, j := range d.Plan.Jobs {
		works = append(works, j.Work)
	}
	w, err := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Dry = readonly.New(r.store), true }).Observe(r.t.Context(), works, d.Plan.Jobs)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]plan.Observed{}
	for _, j := range d.Plan.Jobs {
		o := w.Observed()[j.Work]
		o.Age, o.Reason, o.LostGPUHours = 0, "", 0
		out[j.Name] = o
	}
	return out
}

// The board says of every job what its records say, at once and after renewals that came later, for as many requests as
// there are pages and changes.
func TestTheBoardSaysWhatTheRecordsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rec, d := boarded(t, 600, 550)
		began := time.Now()
		for time.Since(began) < boardFor {
			r.pass(rec, d)
			<-time.After(boardPace)
		}
		if n := len(rows(r.read600(t))); n != 600 {
			t.Fatalf("%d rows", n)
		}
		compared := 0
		for range 8 { // between two boards, while workers go on
			<-time.After(3 * time.Second)
			b, requests, err := reconcile.ReadBoard(t.Context(), r.store, "", nil)
			if errors.Is(err, reconcile.ErrNoBoard) {
				continue // something has changed hands
			}
			if err != nil {
				t.Fatal(err)
			}
			compared++
			got, want := rows(b), r.closely(d)
			for name, o := range want {
				if g := got[name]; g.Platform == "" || o.Platform == "" { // of works that nobody holds the board knows more
					g.Platform, o.Platform = "", ""
					got[name], want[name] = g, o
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("rows (-records +board):\n%s", diff)
			}
			if requests < 3 || requests > 3+600 {
				t.Errorf("%d requests", requests)
			}
		}
		if compared < 4 {
			t.Errorf("the board could tell %d times of 8", compared)
		}
	})
}

// read600 reads the board of the rig.
func (r *rig) read600(t *testing.T) *reconcile.Board {
	t.Helper()
	b, requests, err := reconcile.ReadBoard(t.Context(), r.store, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows for %d requests", len(b.Rows), requests)
	return b
}

// A board that can't tell says so: there is none, no dispatcher is there, another plan is in force, a lease vanished, or
// somebody wrote what is no board.
func TestABoardThatCannotTell(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, rec *reconcile.Reconciler, d *reconcile.Desired){
		"old": func(r *rig, _ *reconcile.Reconciler, _ *reconcile.Desired) { <-time.After(61 * time.Second) },
		"another plan": func(r *rig, _ *reconcile.Reconciler, d *reconcile.Desired) {
			r.pass(r.reconciler(nil), r.desired("c2", append(numbered(600), job("one-more"))...))
		},
		"a lease vanished": func(r *rig, _ *reconcile.Reconciler, d *reconcile.Desired) {
			if err := r.store.Delete(r.t.Context(), record.WitnessKey(string(d.Plan.Jobs[7].Work))); err != nil {
				r.t.Fatal(err)
			}
		},
		"nonsense": func(r *rig, _ *reconcile.Reconciler, _ *reconcile.Desired) { r.raw("board/-", "hello") },
		"removed": func(r *rig, _ *reconcile.Reconciler, _ *reconcile.Desired) {
			if err := r.store.Delete(r.t.Context(), "board/-"); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, rec, d := boarded(t, 600, 600)
				r.pass(rec, d)
				<-time.After(11 * time.Second)
				r.pass(rec, d)
				r.read600(t)
				spoil(r, rec, d)
				if _, _, err := reconcile.ReadBoard(t.Context(), r.store, "", nil); !errors.Is(err, reconcile.ErrNoBoard) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Two dispatchers share one board; few jobs have none, and neither has a pass that only looks.
func TestWhoWritesTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, want := range map[int]bool{499: false, 500: true} {
			r, rec, d := boarded(t, n, n)
			other := r.reconciler(func(c *reconcile.Config) { c.Board = true })
			dry := r.reconciler(func(c *reconcile.Config) { c.Board, c.Dry, c.Bucket = true, true, readonly.New(r.store) })
			versions := map[bucket.Version]bool{}
			for range 12 {
				r.pass(rec, d)
				r.pass(other, d)
				r.pass(dry, d)
				if p, err := r.store.List(t.Context(), "board/", "", 10); err != nil || len(p.Items) > 1 {
					t.Fatal(fmt.Sprint(p.Items), err)
				} else if len(p.Items) == 1 {
					versions[p.Items[0].Version] = true
				}
				<-time.After(5 * time.Second)
			}
			if got := len(versions) > 0; got != want || len(versions) > 8 {
				t.Errorf("%d jobs: %d boards in a minute", n, len(versions))
			}
		}
	})
}

// All rows of more than a thousand jobs cost two requests and are as old as they say; those of one name, or of a few, are
// looked at again and say what the records say.
func TestALargeBoardSaysHowOldItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rec, d := boarded(t, 1001, 1001)
		r.pass(rec, d)
		<-time.After(3 * time.Minute)
		r.pass(rec, d)
		before := r.closely(d)
		<-time.After(45 * time.Second)
		b, requests, err := reconcile.ReadBoard(t.Context(), r.store, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if requests != 2 || b.AsOf != 45*time.Second {
			t.Errorf("%d requests, %v old", requests, b.AsOf)
		}
		if diff := cmp.Diff(before, rows(b)); diff != "" {
			t.Errorf("rows (-records then +board):\n%s", diff)
		}
		for _, row := range b.Rows {
			if row.State == plan.StateHeld && (row.Age < b.AsOf || row.Age > 4*time.Minute) {
				t.Fatalf("%s changed %v ago", row.Job, row.Age)
			}
		}
		few := map[string]bool{d.Plan.Jobs[0].Name: true, d.Plan.Jobs[800].Name: true}
		b, requests, err = reconcile.ReadBoard(t.Context(), r.store, "", func(row *reconcile.BoardRow) bool { return few[row.Job] })
		if err != nil || requests != 4 || b.AsOf != 0 || len(b.Rows) != 2 {
			t.Fatalf("%d requests, %v old, %d rows: %v", requests, b.AsOf, len(b.Rows), err)
		}
		now, moved := r.closely(d), 0
		for name, o := range rows(b) {
			if diff := cmp.Diff(now[name], o); diff != "" {
				t.Errorf("%s (-records now +board):\n%s", name, diff)
			}
			if o.Step != before[name].Step {
				moved++
			}
		}
		if moved == 0 {
			t.Error("neither of the two has moved since: it does not show that they were read again")
		}
	})
}
