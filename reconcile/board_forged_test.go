package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
)

// TestNothingIsDecidedByABoard: whoever may write the store can write a board that the leases do not contradict, and status shows
// its words. A dispatcher does what it does without one: what the board calls failed is launched and finishes, once.
func TestNothingIsDecidedByABoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 2})
		j := job("a")
		rec := r.reconciler(func(c *reconcile.Config) { c.Board = true })
		d := r.desired("c1", j)
		rows := fmt.Sprintf(`{"format":1,"commit":"c9","rows":[{"work":%q,"state":"failed","reason":"forged","job":"a","dispatch":7}]}`, j.Work)
		if _, err := r.store.Put(t.Context(), "board/-", strings.NewReader(rows), bucket.Always()); err != nil {
			t.Fatal(err)
		}
		rep := r.until(rec, d, time.Hour, allFinished)
		if n := r.claims(j.Work); n != 1 || rep.States[j.Work].Dispatch != 1 {
			t.Errorf("%d claims, %+v", n, rep.States[j.Work])
		}
		if got := r.read("board/-"); got != rows {
			t.Errorf("the board of so few jobs was touched: %s", got)
		}
	})
}
