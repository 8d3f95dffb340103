package reconcile_test

import (
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/plan"
)

// A command with signs that JSON may write in two ways is accepted, and the next dispatcher on this store reads it again.
func TestAnAcceptedCommandIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		d := r.desired("c1", job("a", func(j *plan.Job) { j.Argv = []string{"sh", "-c", "a <b >c && echo \u2028\"\\u003c\""} }))
		r.pass(r.reconciler(nil), d)
		a, err := r.reconciler(nil).Accepted(t.Context(), "")
		if err != nil || a == nil || len(a.Jobs) != 1 || a.Jobs[0].Work != d.Plan.Jobs[0].Work {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}
