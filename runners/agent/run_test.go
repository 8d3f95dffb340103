package agent

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func TestARunFinishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.run(1, CodeFinished)
	seen := w.witness().Record
	if seen.State != witness.Finished || seen.Resume == nil || seen.Resume.Step != 100 || seen.Progress.Step != 100 {
		t.Errorf("witness %+v", seen)
	}
	if e := w.end(1); e.Class != "finished" || e.Step != 100 || e.RanS <= 0 {
		t.Errorf("end %+v", e)
	}
	if got := w.text(record.ResultPrefix(w.work, 1) + "metrics.json"); !strings.Contains(got, `"sum": 5050`) {
		t.Errorf("result %s", got)
	}
	if log := w.text(record.LogPrefix(w.work, 1)); log != "training from step 0\n" {
		t.Errorf("log %q", log)
	}
	events := w.text(record.EventPrefix(w.work, 1))
	for _, want := range []string{"captured", "started", "renewed", "milestone", "exited", "finishing"} {
		if !strings.Contains(events, `"event":"`+want+`"`) {
			t.Errorf("no event %q in\n%s", want, events)
		}
	}
	w.run(2, CodeNothingToDo) // a finished work never runs again
}

// TestKilledAgentIsResumed: SIGKILL of the agent alone takes the program and its family along, and the next attempt
// goes on from the last milestone that the witness names.
func TestKilledAgentIsResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"BAD": "family", "AT": "5", "TOTAL": "800"}) // AT lies before the first milestone
	p := w.start(1, "agent")
	child, grand := w.pid("child"), w.pid("grand")
	w.until("a milestone", func() bool { return w.witness().Record.Resume != nil })
	w.claim(2)
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	w.gone(child, grand)
	if e := w.end(1); e.Class != "" {
		t.Errorf("a killed agent left an account: %+v", e)
	}
	w.run(2, CodeNothingToDo) // held: a worker never judges another's silence
	judged := w.witness()
	if got, _, err := witness.Revoke(t.Context(), w.b, judged, "silent"); got != witness.Ended {
		t.Fatal(got, err)
	}
	w.run(3, CodeFinished)
	seen := w.witness().Record
	if seen.State != witness.Finished || seen.Attempt != 2 || seen.Finished.Attempt != 2 {
		t.Errorf("witness %+v", seen)
	}
	if log := w.text(record.LogPrefix(w.work, 2)); strings.Contains(log, "from step 0\n") || !strings.Contains(log, "training from step ") {
		t.Errorf("attempt 2 said %q", log)
	}
	w.sound()
}

// A worker that nobody ends leaves by itself at the bound that its launch carried, behind a last milestone.
func TestItLeavesAtItsBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"TOTAL": "10000000"})
	w.terms.MilestoneSteps, w.terms.MilestoneS = 0, 3600
	w.environ = append(os.Environ(), "HEADWAY_WITHIN=15s")
	p := w.start(1, "agent")
	if got := w.code(p); got != CodeYielded {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	if seen := w.witness().Record; seen.State != witness.Yielded || seen.Resume == nil && seen.Progress.Step > 0 {
		t.Errorf("witness %+v", seen)
	}
}

func TestNoticeSavesAndYields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"TOTAL": "100000"})
	w.terms.MilestoneSteps, w.terms.MilestoneS = 0, 3600
	p := w.start(1, "agent")
	w.until("the first renewal", func() bool { return w.witness().Record.Progress.Step > 0 })
	at := w.witness().Record.Progress.Step
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := w.code(p); got != CodeYielded {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	seen := w.witness().Record
	if seen.State != witness.Yielded || seen.Resume == nil || seen.Resume.Step < at {
		t.Errorf("noticed at step %d, witness %+v", at, seen)
	}
	if e := w.end(1); e.Class != "yielded" {
		t.Errorf("end %+v", e)
	}
}
