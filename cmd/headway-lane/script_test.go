package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headway-run/headway/examples"
)

// TestScript runs one script per promise, with the real binaries in processes of their own.
func TestScript(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, ".", "../headway", "../../deploylane/ringsim/standalone").CombinedOutput(); err != nil {
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
			e.Setenv("SSH_AUTH_SOCK", "")
			e.Values["agents"] = &agents{program: filepath.Join(bin, "standalone"), running: map[string]*exec.Cmd{}}
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				e.Setenv("GIT_"+who+"_NAME", "script")
				e.Setenv("GIT_"+who+"_EMAIL", "script@example.com")
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitcode, "example": example, "expand": expand, "root": rootKey, "sign": sign, "ringagent": ringAgent,
			"repository": repository, "until": until, "files": files},
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

// example DIR: the programs of the digits example, into DIR/digits.
func example(ts *testscript.TestScript, neg bool, args []string) {
	sub, err := fs.Sub(examples.Digits, "digits/digits")
	ts.Check(err)
	ts.Check(os.CopyFS(filepath.Join(ts.MkAbs(args[0]), "digits"), sub))
}

// repository DIR: the whole plan repository of the digits example.
func repository(ts *testscript.TestScript, neg bool, args []string) {
	sub, err := fs.Sub(examples.Digits, "digits")
	ts.Check(err)
	ts.Check(os.CopyFS(ts.MkAbs(args[0]), sub))
}

// until GLOB: waits until such a file is there.
func until(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(3 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		found, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		if len(found) > 0 {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not come", args[0])
		}
	}
}

// files N GLOB: as many files match.
func files(ts *testscript.TestScript, neg bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if strconv.Itoa(len(found)) != args[0] {
		ts.Fatalf("%d files match, want %s: %q", len(found), args[0], found)
	}
}

// expand FILE…: $NAME becomes the variable of the script.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		file := ts.MkAbs(name)
		ts.Check(os.WriteFile(file, []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o644))
	}
}

// root NAME: puts the fingerprint of a public key into HEADWAY_LANE_ROOTS.
func rootKey(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(ts.Exec("ssh-keygen", "-lf", ts.MkAbs(args[0])))
	ts.Setenv("HEADWAY_LANE_ROOTS", strings.Fields(ts.ReadFile("stdout"))[1])
}

// sign WHO commit MESSAGE, sign WHO tag NAME FILE: git in the working folder, signed with the key of that name in $WORK/keys.
func sign(ts *testscript.TestScript, neg bool, args []string) {
	set := []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + filepath.Join(ts.Getenv("WORK"), "keys", args[0]+".pub")}
	switch args[1] {
	case "commit":
		ts.Check(ts.Exec("git", "add", "-A"))
		ts.Check(ts.Exec("git", append(set, "commit", "-q", "-S", "-m", args[2])...))
	case "tag":
		ts.Check(ts.Exec("git", append(set, "tag", "-f", "-s", "-F", args[3], args[2])...))
	}
}
