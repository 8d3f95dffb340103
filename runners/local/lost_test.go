package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/agent/courier"
)

// send leaves what a worker has in its folder while a milestone and the result go up, and two names that are none of its own.
func send(scratch string) error {
	copies := filepath.Join(scratch, "headway-run-x", "milestones")
	err := os.MkdirAll(filepath.Join(copies, courier.Copy(3, 40)), 0o700)
	for _, name := range []string{courier.ResultMark, "\x1b[31m a name that the program chose", "milestone-1-step-2-x"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(copies, name), nil, 0o600))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(scratch, "deaf"), nil, 0o600))
}

// TestClosedNamesWhatWasOnItsWay: a worker that is killed while it sends is called closed only with the names of what it had not
// sent; asked again, the answer is the same. One that leaves by itself has nothing on its way.
func TestClosedNamesWhatWasOnItsWay(t *testing.T) {
	g := newRig(t, 2)
	r := g.open(t, map[string]string{"grace": "100ms"})
	var receipts []runners.Receipt
	for k, mode := range []string{"sending", ""} {
		one, err := r.Launch(t.Context(), []runners.Launch{g.launch(k+1, 1, mode)})
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, one...)
	}
	until(t, "it sends", func() bool {
		deaf, err := filepath.Glob(filepath.Join(g.scratch, "here", "run", "*", "deaf"))
		return err == nil && len(deaf) == 1
	})
	for range 2 {
		a, err := r.Release(t.Context(), receipts[0].Handle)
		_, lost, _ := strings.Cut(a.Text, "; ")
		want := "killed with this on its way, which is lost unless its last byte had arrived: milestone 3 at step 40, the result"
		if err != nil || a.Settlement != runners.Closed || lost != want {
			t.Errorf("%+v, %v", a, err)
		}
	}
	r = g.open(t, nil) // a grace in which it can leave
	if a, err := r.Release(t.Context(), receipts[1].Handle); err != nil || a.Settlement != runners.Closed || !strings.HasSuffix(a.Text, " is gone") {
		t.Errorf("one that left by itself: %+v, %v", a, err)
	}
}
