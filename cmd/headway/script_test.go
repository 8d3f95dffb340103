package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headway-run/headway/runners/process"
)

// TestScript runs one script per promise, with the real binary in processes of its own.
func TestScript(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
			e.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				e.Setenv("GIT_"+who+"_NAME", "script")
				e.Setenv("GIT_"+who+"_EMAIL", "script@example.com")
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitcode, "commit": commitFolder, "await": await, "killwork": killWork, "stopwork": stopWork, "hint": runHint,
			"tree": treeOf, "mask": mask, "awaitfile": awaitFile, "numbered": numbered, "git": gitCommand,
		},
	})
}

// exitcode N COMMAND…: the command ends with exactly this code. Its output is kept for stdout and stderr.
func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// commit MESSAGE: everything in the working folder, into a repository that is made at the first call.
func commitFolder(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(ignoreState(ts.MkAbs(".")))
	_, err := commitAll(ts.MkAbs("."), strings.Join(args, " "))
	ts.Check(err)
}

// await JOB FIELD VALUE: until a field of `headway status --json` has the value, or with a number: is at least it. It
// waits for the fact, four minutes at most.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: await JOB FIELD VALUE")
	}
	deadline := time.Now().Add(4 * time.Minute)
	last := ""
	for time.Now().Before(deadline) {
		out, err := statusOf(ts, args[0])
		if v, ok := out[args[1]]; err == nil && ok {
			last = fmt.Sprint(v)
			want, isNumber := strconv.ParseFloat(args[2], 64)
			if n, ok := v.(float64); ok && isNumber == nil && n >= want || last == args[2] {
				return
			}
		} else {
			last = fmt.Sprint(err)
		}
		<-time.After(100 * time.Millisecond)
	}
	ts.Fatalf("%s of %s did not become %s: it is %s", args[1], args[0], args[2], last)
}

func statusOf(ts *testscript.TestScript, job string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bin, _, _ := strings.Cut(ts.Getenv("PATH"), string(os.PathListSeparator))
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "headway"), "status", job, "--json")
	cmd.Dir = ts.MkAbs(".")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var doc struct {
		Jobs []map[string]any `json:"jobs"`
	}
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Jobs) != 1 {
		return nil, fmt.Errorf("status printed %d jobs: %w", len(doc.Jobs), err)
	}
	return doc.Jobs[0], nil
}

// killwork JOB: SIGKILL to every process of a job's work, the agent included.
func killWork(ts *testscript.TestScript, neg bool, args []string) {
	signalWork(ts, args[0], syscall.SIGKILL)
}

// stopwork JOB: the same with SIGSTOP: as if the machine hung.
func stopWork(ts *testscript.TestScript, neg bool, args []string) {
	signalWork(ts, args[0], syscall.SIGSTOP)
}

// hint: runs the command of the last hint that the doctor prints.
func runHint(ts *testscript.TestScript, neg bool, args []string) {
	_ = ts.Exec("headway", "doctor")
	_, command, found := strings.Cut(ts.ReadFile("stdout"), "\n    hint: headway ")
	command, _, _ = strings.Cut(command, "\n")
	if neg || !found {
		ts.Fatalf("the doctor gives no command:\n%s", ts.ReadFile("stdout"))
	}
	ts.Check(ts.Exec("headway", strings.Fields(command)...))
}

func signalWork(ts *testscript.TestScript, job string, sig syscall.Signal) {
	out, err := statusOf(ts, job)
	ts.Check(err)
	found, err := process.Find("HEADWAY_WORK=" + fmt.Sprint(out["work"]))
	ts.Check(err)
	if len(found) == 0 {
		ts.Fatalf("no process of %s to signal", job)
	}
	for _, p := range found {
		if err := syscall.Kill(p.PID, sig); err != syscall.ESRCH { // one's end may be another's
			ts.Check(err)
		}
	}
}
