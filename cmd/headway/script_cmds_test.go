package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// tree FILE DIR: writes the names, modes, sizes, times and hashes of everything below DIR into FILE, for cmp.
func treeOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tree FILE DIR")
	}
	var out strings.Builder
	root := ts.MkAbs(args[1])
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = fmt.Sprintf("%d %x", info.Size(), sha256.Sum256(b))
		}
		fmt.Fprintf(&out, "%s %s %s %s\n", rel, info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano), sum)
		return nil
	}))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out.String()), 0o644))
}

// mask FILE: replaces what differs from run to run in the standard output of the last command (digests, commits, times,
// places) by words, and writes the rest into FILE.
func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mask FILE")
	}
	s := ts.ReadFile("stdout")
	s = strings.ReplaceAll(s, ts.MkAbs("."), "WORK")
	for _, m := range []struct{ re, to string }{
		{`\b[0-9a-f]{64}\b`, "DIGEST"}, {`\b[0-9a-f]{40}\b`, "HASH"}, {`\b[0-9a-f]{12}\b`, "SHORT"},
		{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "TIME"}, {`"age_s": [0-9.e+-]+`, `"age_s": AGE`}, {`"age_ns": \d+`, `"age_ns": AGE`},
		{`"state": "[0-9a-f]{16}"`, `"state": "STATE"`}, {`"store_requests": \d+`, `"store_requests": N`}, {`pid \d+`, "pid N"}, {`"by": "[^"]*"`, `"by": "WHO"`},
		{`"paid_s": [0-9.e+-]+`, `"paid_s": PAID`}, {`"cost": "0 for \d+s at free"`, `"cost": "0 for PAID at free"`},
		{`"requests": \d+`, `"requests": N`},
	} {
		s = regexp.MustCompile(m.re).ReplaceAllString(s, m.to)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(s), 0o644))
}

// awaitFile NAME REGEXP: until a file holds a match, four minutes at most. The file is what a command in the
// background is told to write (sh -c 'exec headway … >NAME 2>&1').
func awaitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaitfile FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	deadline := time.Now().Add(4 * time.Minute)
	var b []byte
	for time.Now().Before(deadline) {
		if b, err = os.ReadFile(ts.MkAbs(args[0])); err == nil && re.Match(b) {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	ts.Fatalf("%s did not come to match %s; it holds:\n%s", args[0], args[1], b)
}

// numbered FILE FIRST LAST EXPLAINED: the file's lines of the form "step N" name every number from FIRST to LAST, but for what
// a killed attempt had not uploaded yet: each gap ends where an attempt began, by the words of explain in EXPLAINED.
func numbered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: numbered FILE FIRST LAST EXPLAINED")
	}
	var n [2]int
	for i := range n {
		var err error
		n[i], err = strconv.Atoi(args[i+1])
		ts.Check(err)
	}
	begins := map[string]bool{}
	for _, m := range regexp.MustCompile(`attempt \d+: from step (\d+)`).FindAllStringSubmatch(ts.ReadFile(args[3]), -1) {
		begins[m[1]] = true
	}
	at, resumed := n[0]-1, 0
	for _, l := range strings.Split(ts.ReadFile(args[0]), "\n") {
		word, number, ok := strings.Cut(l, " ")
		step, err := strconv.Atoi(number)
		if !ok || word != "step" || err != nil {
			continue
		}
		if step != at+1 {
			if resumed++; !begins[strconv.Itoa(step-1)] || resumed > len(begins) {
				ts.Fatalf("step %d is followed by step %d, and no attempt began there", at, step)
			}
		}
		at = step
	}
	if at != n[1] {
		ts.Fatalf("the last step is %d, want %d", at, n[1])
	}
}

// git ARG…: the git binary in the working folder; its output is kept.
func gitCommand(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("git", args...)
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		ts.Fatalf("git: %v", err)
	}
	if (err != nil) != neg {
		ts.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
}
