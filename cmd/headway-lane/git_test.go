package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// signedRepo is a repository made by git, with keys made by ssh-keygen, as the adapters see it.
type signedRepo struct {
	t         *testing.T
	dir, keys string
}

const (
	repoPlan   = "jobs: {}\n"
	repoPolicy = "stages: [prod]\nmodels:\n  - {match: digits, release: [ann@example.com], stages: {prod: [ann@example.com]}, requires: {os: linux, probe: v1}}\n"
)

func newSignedRepo(t *testing.T) *signedRepo {
	t.Helper()
	r := &signedRepo{t, t.TempDir(), t.TempDir()}
	for _, who := range []string{"root", "ann", "eve"} {
		r.run(r.keys, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", who)
	}
	r.git("", "init", "-q", "-b", "main", ".")
	r.commit("root", tag.PolicyFile, repoPolicy)
	r.commit("root", tag.SignersFile, r.line("ann"))
	r.commit("", "plans/digits.yaml", repoPlan)
	return r
}

func (r *signedRepo) run(dir, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com", "SSH_AUTH_SOCK=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *signedRepo) git(who string, args ...string) string {
	r.t.Helper()
	return r.run(r.dir, "git", append([]string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + filepath.Join(r.keys, who+".pub")}, args...)...)
}

func (r *signedRepo) line(who string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.keys, who+".pub"))
	if err != nil {
		r.t.Fatal(err)
	}
	return who + "@example.com " + string(b)
}

func (r *signedRepo) commit(who, path, text string) {
	r.t.Helper()
	full := filepath.Join(r.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	r.git("", "add", path)
	if who == "" {
		r.git("", "commit", "-q", "-m", path)
		return
	}
	r.git(who, "commit", "-q", "-S", "-m", path)
}

func (r *signedRepo) tag(who, version, commit string) {
	r.t.Helper()
	hex := func(c string) string { return strings.Repeat(c, 64) }
	p, err := tag.ReadPolicy([]byte(repoPolicy))
	if err != nil {
		r.t.Fatal(err)
	}
	ready, err := tag.Prepare(tag.Message{Repo: "git.example.com/team/models", Model: "digits", Version: version, Plan: "plans/digits.yaml",
		PlanSHA256: record.Hash([]byte(repoPlan)), Candidate: hex("2"), Attempt: 3, Artifact: hex("4")}, nil, p)
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.keys, "message")
	if err := os.WriteFile(file, []byte(ready.Text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.git(who, "tag", "-f", "-s", "-F", file, ready.Name, commit)
}

// anyCandidate is a store of research that has what every tag speaks of.
type anyCandidate struct{}

// Candidate implements tag.Facts.
func (anyCandidate) Candidate(context.Context, string, int64) (*tag.Candidate, error) {
	return &tag.Candidate{Generation: 1, Manifest: strings.Repeat("4", 64)}, nil
}

// Standing implements tag.Facts.
func (anyCandidate) Standing(context.Context, string, string) (*tag.Standing, error) { return nil, nil }

// verdicts looks once, through the adapters.
func (r *signedRepo) verdicts(w *tag.Watch) (map[string]tag.Code, error) {
	r.t.Helper()
	l, err := w.Look(r.t.Context(), time.Now())
	if err != nil {
		return nil, err
	}
	got := map[string]tag.Code{}
	for _, m := range l.Models {
		if err := errors.Join(m.Trouble...); err != nil {
			return nil, err
		}
		for _, e := range m.Entries {
			got[strings.TrimPrefix(e.Ref, "refs/tags/release/digits/")+fmt.Sprintf(" %.4s", e.Object)] = e.Code
		}
	}
	return got, nil
}

// TestTagsThroughTheAdapters: signed tags of a real repository are judged through go-git and sshsig as through git itself,
// and nobody gets in by a merge that takes an old state of the signers back.
func TestTagsThroughTheAdapters(t *testing.T) {
	r := newSignedRepo(t)
	git, err := repo.Open(repo.Options{Remote: r.dir, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	root := strings.Fields(r.run(r.keys, "ssh-keygen", "-l", "-f", "root.pub"))[1]
	w := &tag.Watch{Git: tags{git}, Keys: keysOf(), Facts: anyCandidate{}, Store: mem.New(), Seal: tag.Seal{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))},
		Repo: "git.example.com/team/models", Roots: []string{root}}
	r.tag("ann", "v1.0.0", "main")
	r.tag("eve", "v1.0.1", "main")
	r.git("", "tag", "release/digits/v1.0.2", "main")
	r.git("", "tag", "-a", "-m", strings.Repeat("x", tag.MaxObject), "release/digits/v1.0.3", "main")
	r.git("", "update-ref", "refs/tags/release/digits/v1.0.4", "release/digits/v1.0.0")
	r.git("", "branch", "old")
	r.git("", "checkout", "-q", "-b", "side")
	r.commit("", "x", "y")
	r.tag("ann", "v1.0.5", "side")
	r.git("", "checkout", "-q", "main")
	want := map[string]tag.Code{"v1.0.0": tag.Accepted, "v1.0.1": tag.UnknownSigner, "v1.0.2": tag.LightweightTag, "v1.0.3": tag.Malformed, "v1.0.4": tag.TagNameMismatch, "v1.0.5": tag.NotOnBranch}
	all := map[string]tag.Code{}
	add := func(version string, code tag.Code) {
		all[version+fmt.Sprintf(" %.4s", r.git("", "rev-parse", "release/digits/"+version))] = code
	}
	for v, code := range want {
		add(v, code)
	}
	got, err := r.verdicts(w)
	if d := cmp.Diff(all, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	r.tag("ann", "v1.0.0", "main~1") // moved
	add("v1.0.0", tag.TagMoved)
	if got, err = r.verdicts(w); err != nil || !cmp.Equal(all, got) {
		t.Errorf("moved: %v\n%s", err, cmp.Diff(all, got))
	}

	r.commit("root", tag.SignersFile, r.line("eve")) // ann may not any more
	r.tag("ann", "v1.1.0", "main")
	add("v1.1.0", tag.UnknownSigner)
	if got, err = r.verdicts(w); err != nil || !cmp.Equal(all, got) {
		t.Errorf("removed: %v\n%s", err, cmp.Diff(all, got))
	}
	r.git("", "checkout", "-q", "old")
	r.git("", "merge", "-q", "-s", "ours", "-m", "back", "main")
	r.git("", "checkout", "-q", "main")
	r.git("", "merge", "-q", "--ff-only", "old")
	r.tag("ann", "v1.2.0", "main")
	_, err = r.verdicts(w)
	if u, ok := errors.AsType[*tag.Untrusted](err); !ok || u.File != tag.SignersFile {
		t.Errorf("a merge took the old signers back: %v", err)
	}
}

// TestLaneIsRooted: lane.yaml says which stores are written and which programs run, so only a root key may change it.
func TestLaneIsRooted(t *testing.T) {
	r := newSignedRepo(t)
	git, err := repo.Open(repo.Options{Remote: r.dir, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	root := strings.Fields(r.run(r.keys, "ssh-keygen", "-l", "-f", "root.pub"))[1]
	const text = `lane: v1
research: dir:///research
store: dir:///lane
platforms:
  pinned: {runner: local}
models:
  digits:
    plan: plans/digits.yaml
    job: digits
    backtest: {job: digits-backtest, metric: accuracy, at_least: 0.5}
    metrics: {val_accuracy: {direction: higher, margin: 0.9}}
    on: [pinned]
    targets: [{pointer: true}]
`
	for _, c := range []struct{ who, text, want string }{
		{"root", text, ""},
		{"", text + "# as ever\n", "is not signed"},
		{"ann", text + "# by ann\n", "which is no root key"},
		{"root", text + "nonsense: 1\n", "unknown"},
		{"root", text + "# mended\n", ""},
	} {
		r.commit(c.who, deploylane.File, c.text)
		_, err := plans{git, []string{root}}.Lane(t.Context(), r.git("", "rev-parse", "HEAD"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("by %q: %v, want %q", c.who, err, c.want)
		}
	}
	if _, err := (plans{git, nil}).Lane(t.Context(), r.git("", "rev-parse", "HEAD")); err == nil {
		t.Error("without a root key it counts")
	}
	r.git("", "rm", "-q", deploylane.File)
	if err := errors.Join(os.MkdirAll(filepath.Join(r.dir, "lane"), 0o755), os.Symlink("/etc/passwd", filepath.Join(r.dir, deploylane.File))); err != nil {
		t.Fatal(err)
	}
	r.git("", "add", "-A")
	r.git("root", "commit", "-q", "-S", "-m", "a link")
	if _, err := (plans{git, []string{root}}).Lane(t.Context(), r.git("", "rev-parse", "HEAD")); err == nil || !strings.Contains(err.Error(), "is no plain file") {
		t.Errorf("a link: %v", err)
	}
}
