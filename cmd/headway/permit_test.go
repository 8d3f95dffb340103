package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/forge"
	"github.com/headway-run/headway/reconcile/repo"
)

// history is a repository whose commits change nothing but a file of their own.
type history struct {
	t   *testing.T
	dir string
	n   int
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, dir: t.TempDir()}
	gitIn(t, h.dir, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(h.dir, plan.ConfigFile), []byte("headway: v1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *history) commit(message string) string {
	h.t.Helper()
	h.n++
	if err := os.WriteFile(filepath.Join(h.dir, "f"+strings.Repeat("x", h.n)), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
	gitIn(h.t, h.dir, "add", "-A")
	gitIn(h.t, h.dir, "commit", "-q", "-m", message)
	return gitIn(h.t, h.dir, "rev-parse", "HEAD")
}

func (h *history) merge(branch, message string) string {
	h.t.Helper()
	gitIn(h.t, h.dir, "merge", "-q", "--no-ff", "-m", message, branch)
	return gitIn(h.t, h.dir, "rev-parse", "HEAD")
}

// allowed is what a commit allows over the one that is in force.
func (h *history) allowed(over, commit string) (stops int, empty bool, replace []string, warnings int) {
	h.t.Helper()
	git, err := repo.Open(repo.Options{Remote: h.dir, Branch: "main"})
	if err != nil {
		h.t.Fatal(err)
	}
	defer git.Close()
	message, err := commitMessage(git, commit)
	if err != nil {
		h.t.Fatal(err)
	}
	d := &reconcile.Desired{Plan: &plan.Plan{}, Commit: commit, AllowStops: -1}
	if err := ask(h.t.Context(), d, git, message, &plan.Accepted{Commit: over}, false); err != nil {
		h.t.Fatal(err)
	}
	return d.AllowStops, d.AllowEmpty, d.AllowReplace, len(d.Warnings)
}

// A forge writes the message of a merge, and the trailers stand in the commits of the pull request: those that the merge brings
// count, beside none of its own. Those that were in force already, and those before a commit that is no merge, don't.
func TestAMergeAllowsWhatItsCommitsAllow(t *testing.T) {
	h := newHistory(t)
	base := h.commit("first\n\nAllow-Stops: 99\nAllow-Empty: yes")
	gitIn(t, h.dir, "checkout", "-qb", "one")
	h.commit("drop some\n\nAllow-Stops: 4\nAllow-Replace: a, b")
	h.commit("a word")
	gitIn(t, h.dir, "checkout", "-q", "main")
	first := h.merge("one", "Merge pull request #1 from team/one\n\ndrop some")
	gitIn(t, h.dir, "checkout", "-qb", "two", base)
	h.commit("drop more\n\nAllow-Stops: 3")
	gitIn(t, h.dir, "checkout", "-q", "main")
	second := h.merge("two", "Merge pull request #2 from team/two")
	plain := h.commit("no merge")
	gitIn(t, h.dir, "checkout", "-qb", "three", plain)
	h.commit("x\n\nAllow-Stops: 7")
	h.commit("y\n\nAllow-Stops: many")
	gitIn(t, h.dir, "checkout", "-q", "main")
	own := h.merge("three", "Merge pull request #3\n\nAllow-Stops: 1")
	gitIn(t, h.dir, "checkout", "-qb", "four", own)
	h.commit("z\n\nAllow-Replace: 2")
	h.commit("y\n\nAllow-Replace: c\nAllow-Empty: no")
	gitIn(t, h.dir, "checkout", "-q", "main")
	mixed := h.merge("four", "Merge pull request #4")
	for _, c := range []struct {
		name, over, commit string
		stops              int
		replace            []string
		warnings           int
	}{
		{"what it brings", base, first, 4, []string{"a", "b"}, 0},
		{"nothing that was in force", first, second, 3, nil, 0},
		{"two merges at once", base, second, 7, []string{"a", "b"}, 0},
		{"no merge", base, plain, -1, nil, 0},
		{"a merge that says it itself", plain, own, 1, nil, 0},
		{"names and a number, and no number", own, mixed, -1, nil, 2},
	} {
		stops, empty, replace, warnings := h.allowed(c.over, c.commit)
		if stops != c.stops || empty || !cmp.Equal(replace, c.replace) || warnings != c.warnings {
			t.Errorf("%s: %d, %v, %q, %d warnings", c.name, stops, empty, replace, warnings)
		}
	}
}

// One branch is followed once by one process, whichever way it is named; what only may be the same is refused too.
func TestOneBranchIsWatchedOnce(t *testing.T) {
	h := newHistory(t)
	h.commit("first")
	gitIn(t, h.dir, "branch", "other")
	for _, c := range []struct{ args, want string }{
		{h.dir + " " + h.dir + "#main", "the same branch of the same repository is named twice"},
		{h.dir + "#main file://" + h.dir, "the same branch of the same repository is named twice"},
		{"ssh://git@example.com/x ssh://git@example.com/x#dev", "the repository is named with the branch dev and without one, which may be the same"},
		{h.dir + " " + h.dir + "#other", ""},
		{h.dir, ""},
	} {
		v := &watching{interval: time.Second, id: "d", state: t.TempDir()}
		ws, err := v.sources(env{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, dir: h.dir}, strings.Fields(c.args))
		if c.want == "" && (err != nil || len(ws) != len(strings.Fields(c.args)) || ws[0].branch != "") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %d, %v", c.args, len(ws), err)
		}
	}
}

// Before the first pass nothing is known, and readyz says so.
func TestReadyBeforeTheFirstPass(t *testing.T) {
	h := newHealth(time.Hour)
	for i, c := range []struct {
		do   func()
		want string
	}{
		{func() {}, "no pass yet: nothing is known of the store"},
		{func() { h.polled(false) }, "no pass yet: the repository could not be read when it was asked last: the log says why"},
		{func() { h.polled(true) }, "no pass yet: nothing is known of the store"},
		{func() { h.passed(false) }, "the last pass could not read the store: the log says why"},
		{func() { h.passed(true) }, ""},
		{func() { h.polled(false); h.passed(false) }, "the last pass could read neither the repository nor the store: the log says why"},
	} {
		if c.do(); h.ready() != c.want {
			t.Errorf("%d: %q, want %q", i, h.ready(), c.want)
		}
	}
}

// A job that is told the branch and no commit of it, as GitLab does for some pipelines, holds the plan against the commit at which
// its own branch left that one; where that cannot be found it says so.
func TestABaseThatTheForgeDoesNotName(t *testing.T) {
	h := newHistory(t)
	base := h.commit("first")
	gitIn(t, h.dir, "checkout", "-qb", "work")
	head := h.commit("mine")
	gitIn(t, h.dir, "checkout", "-q", "main")
	gitIn(t, h.dir, "update-ref", "refs/remotes/origin/main", h.commit("meanwhile"))
	gitIn(t, h.dir, "checkout", "-q", "--detach", "work")
	gitIn(t, h.dir, "branch", "-qD", "main")
	for _, c := range []struct {
		job  forge.Job
		flag string
		want string
		said string
	}{
		{job: forge.Job{Into: "main"}, want: base},
		{job: forge.Job{Into: "main", Base: "b"}, want: "b"},
		{job: forge.Job{Into: "main"}, flag: "work"},
		{job: forge.Job{}},
		{job: forge.Job{Into: "gone"}, said: `warning: what is pending on gone already is not told apart: branch "gone": there is no such ref here`},
	} {
		var stderr bytes.Buffer
		v := &commenting{job: c.job, base: c.flag}
		v.branchedOff(t.Context(), &project{env: env{stderr: &stderr}, root: h.dir, commit: head})
		if v.job.Base != c.want || !strings.HasPrefix(stderr.String(), c.said) || c.said == "" && stderr.Len() > 0 {
			t.Errorf("%+v: %q, %s", c.job, v.job.Base, &stderr)
		}
	}
}
