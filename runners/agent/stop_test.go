package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// TestStoppedByAPerson: the program and its family go, the exit code says that a person did it.
func TestStoppedByAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"BAD": "family", "AT": "5", "TOTAL": "100000"})
	p := w.start(1, "agent")
	child, grand := w.pid("child"), w.pid("grand")
	if got, _, err := witness.Stop(t.Context(), w.b, w.work, 2, "no longer wanted"); got != witness.Ended {
		t.Fatal(got, err)
	}
	rev := w.witness().Record.Rev
	if got := w.code(p); got != CodeRevoked {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
	w.gone(child, grand)
	if e := w.end(1); e.Class != "revoked" || !strings.Contains(e.Text, "no longer wanted") {
		t.Errorf("end %+v", e)
	}
	if now := w.witness().Record; now.Rev != rev || now.State != witness.Revoked {
		t.Errorf("a deposed agent wrote: %+v", now)
	}
	w.run(1, CodeNothingToDo) // below the floor
}

// TestAHungLoopIsNotRenewed: a program that is alive and silent sends no evidence. Nothing is written for longer than
// its lease, and when it is written off the agent learns it by reading, and frees the machine.
func TestAHungLoopIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"BAD": "hang", "AT": "200", "TOTAL": "1000"})
	w.terms.LeaseFloorS = 0.6
	p := w.start(1, "agent")
	child := w.pid("hung")
	seen := w.witness()
	w.until("the last renewals to land", func() bool {
		now := w.witness()
		same := now.Version == seen.Version
		seen = now
		return same && now.Record.Resume != nil
	})
	length := seen.Record.Lease.Length()
	deadline := time.After(2 * length)
	for quiet := true; quiet; {
		select {
		case <-deadline:
			quiet = false
		case <-time.After(length / 10):
			if now := w.witness(); now.Version != seen.Version {
				t.Fatalf("rev %d was written while the program hung", now.Record.Rev)
			}
		}
	}
	if got, _, err := witness.Revoke(t.Context(), w.b, seen, "silent"); got != witness.Ended {
		t.Fatal(got, err)
	}
	if got := w.code(p); got != CodeLeaseLost {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
	w.gone(child)
	if e := w.end(1); e.Class != "deposed" {
		t.Errorf("end %+v", e)
	}
}

// TestStubbornProgramOnNotice: one that neither asks nor obeys SIGTERM is killed within the grace.
func TestStubbornProgramOnNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.terms.GraceS = 0.5
	w.spec.Argv = shell(`trap "" TERM; echo $$ >"$MARKS/p.part"; mv "$MARKS/p.part" "$MARKS/p"; sleep 1000; sleep 1000`)
	p := w.start(1, "agent")
	pid := w.pid("p")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := w.code(p); got != CodeYielded {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
	w.gone(pid)
	if seen := w.witness().Record; seen.State != witness.Yielded {
		t.Errorf("witness %+v", seen)
	}
}

// TestPausedAgentLearnsItsFate: SIGSTOP of the agent, written off and captured by another meanwhile; it wakes and stops.
func TestPausedAgentLearnsItsFate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"TOTAL": "100000"})
	w.terms.MilestoneSteps, w.terms.MilestoneS = 0, 3600
	p := w.start(1, "agent")
	w.until("a renewal", func() bool { return w.witness().Record.Progress.Step > 0 })
	var took witness.Seen
	w.until("the take-over", func() bool {
		_ = p.Process.Signal(syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		got, now, _ := witness.Revoke(ctx, w.b, w.witness(), "silent")
		if took = now; got != witness.Ended { // stopped in the middle of a write, it keeps the directory store's lock
			_ = p.Process.Signal(syscall.SIGCONT)
		}
		return got == witness.Ended
	})
	w.claim(2)
	if _, err := witness.Capture(t.Context(), w.b, witness.CaptureRequest{Work: w.work, Dispatch: 2, Lease: took.Record.Lease}); err != nil {
		t.Fatal(err)
	}
	before := w.witness()
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := w.code(p); got != CodeLeaseLost {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
	if now := w.witness(); now.Version != before.Version {
		t.Errorf("the woken agent wrote: %+v", now.Record)
	}
}

// TestDiskFull: a snapshot that does not fit is refused with the bytes it needs, the run goes on, and one that fits
// becomes the milestone. On another machine of that size the big snapshot of an earlier attempt is refused at the start.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"PAD": "8000000", "SHRINK": "1", "ELSEWHERE": t.TempDir()})
	p := w.start(1, "small-disk")
	if got := w.code(p); got != CodeFinished {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	log := w.text(record.LogPrefix(w.work, 1))
	if !strings.Contains(log, "refused: no space for a copy of the milestone at step 20: 8000030 bytes are needed") {
		t.Errorf("log %s", log)
	}
	if seen := w.witness().Record; seen.Resume == nil || seen.Resume.Step != 100 {
		t.Errorf("resume %+v", seen.Resume)
	}

	w = newWorld(t, map[string]string{"PAD": "8000000", "BAD": "fail", "AT": "50"})
	w.run(1, CodeUserCode)
	p = w.start(2, "small-disk")
	if got := w.code(p); got != CodeDiskFull {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
	if e := w.end(2); e.Class != "disk_full" || !strings.Contains(e.Text, "8000030 bytes are needed") {
		t.Errorf("end %+v", e)
	}
	if seen := w.witness().Record; seen.State != witness.Yielded || seen.Resume.Attempt != 1 {
		t.Errorf("witness %+v", seen)
	}
}

// TestWatchMode: a program that knows nothing of us is resumed by the checkpoint files that it leaves.
func TestWatchMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.spec.Metrics = nil
	w.terms.WatchPath, w.terms.WatchIntervalS = "ckpt/step-*.txt", 1
	// Starts behind the newest checkpoint; writes the next one as a whole; waits until a test lets it go on.
	w.spec.Argv = shell(`mkdir -p ckpt; last=$(ls ckpt | sed 's/[^0-9]//g' | sort -n | tail -1); echo "last=$last socket=$HEADWAY_SOCKET"
n=$(( ${last:-0} + 10 )); echo "state $n" >ckpt/.part; mv ckpt/.part "ckpt/step-$n.txt"
if [ $n -ge 20 ]; then echo ok >"$HEADWAY_RESULT/r"; exit 0; fi
echo $$ >"$MARKS/p.part"; mv "$MARKS/p.part" "$MARKS/p"; sleep 1000`)
	p := w.start(1, "agent")
	pid := w.pid("p")
	w.until("the checkpoint to be named", func() bool { return w.witness().Record.Resume != nil })
	if seen := w.witness().Record; seen.Resume.Step != 10 || seen.Progress.Step != 10 || seen.Lease.Seconds < 3 {
		t.Errorf("witness %+v", seen)
	}
	rev := w.witness().Record.Rev
	_ = p.Process.Kill()
	_ = p.Wait()
	w.gone(pid)
	seen := w.witness()
	if seen.Record.Rev != rev {
		t.Errorf("rev %d after %d: something renewed without a file", seen.Record.Rev, rev)
	}
	if got, _, err := witness.Revoke(t.Context(), w.b, seen, "silent"); got != witness.Ended {
		t.Fatal(got, err)
	}
	w.run(2, CodeFinished)
	if log := w.text(record.LogPrefix(w.work, 2)); log != "last=10 socket=\n" {
		t.Errorf("attempt 2 said %q", log)
	}
	if now := w.witness().Record; now.Resume.Attempt != 2 || now.Resume.Step != 20 {
		t.Errorf("its last checkpoint was not taken: %+v", now.Resume)
	}
	if left, _ := filepath.Glob(filepath.Join(w.scratch, "*")); len(left) > 0 {
		t.Errorf("the killed run's files are still there: %v", left)
	}
}

// TestPythonProgram runs the embedded client in a real interpreter.
func TestPythonProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	script := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(script, []byte(`
import os, headway
with headway.attach() as run:
    resume = run.resume()
    start, total = (resume.step, int(open(resume.path + "/state").read())) if resume else (0, 0)
    print("from", start)
    for n in run.steps(start, 60):
        total += n
        run.note(loss=1 / n)
        if n == 45 and not resume:
            raise ValueError("planted")
        if run.milestone_due():
            with open("state.part", "w") as f:
                f.write(str(total))
            os.replace("state.part", "state")
            run.milestone("state", n)
    with run.phase("eval", expect="30s"):
        pass
    run.finish(sum=total)
`), 0o644); err != nil {
		t.Fatal(err)
	}
	w.spec.Argv = []string{"python3", script}
	w.run(1, CodeUserCode)
	if e := w.end(1); e.Error != "ValueError: planted" {
		t.Errorf("end %+v", e)
	}
	w.run(2, CodeFinished)
	if got := w.text(record.ResultPrefix(w.work, 2) + "metrics.json"); !strings.Contains(got, "1830") {
		t.Errorf("metrics %s; log %s", got, w.text(record.LogPrefix(w.work, 2)))
	}
	if log := w.text(record.LogPrefix(w.work, 2)); !strings.Contains(log, "from 40\n") {
		t.Errorf("log %s", log)
	}
}
