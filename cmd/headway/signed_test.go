package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

// keys makes SSH keys, and has the repository believe those of the file of allowed signers.
func (h *history) keys(names ...string) map[string]string {
	h.t.Helper()
	dir, out := h.t.TempDir(), map[string]string{}
	for _, n := range names {
		out[n] = filepath.Join(dir, n)
		if b, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", out[n]).CombinedOutput(); err != nil {
			h.t.Fatalf("ssh-keygen: %v: %s", err, b)
		}
	}
	gitIn(h.t, h.dir, "config", "gpg.format", "ssh")
	gitIn(h.t, h.dir, "config", "gpg.ssh.allowedSignersFile", filepath.Join(h.dir, "allowed"))
	return out
}

// allow writes the file of allowed signers.
func (h *history) allow(lines ...string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "allowed"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func public(t *testing.T, key string) string {
	t.Helper()
	b, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// signed commits with a key.
func (h *history) signed(key, message string) string {
	h.t.Helper()
	gitIn(h.t, h.dir, "config", "user.signingkey", key)
	gitIn(h.t, h.dir, "commit", "-q", "--allow-empty", "-S", "-m", message)
	return gitIn(h.t, h.dir, "rev-parse", "HEAD")
}

// forge rewrites a commit object by hand.
func (h *history) forge(commit, old, now string) string {
	h.t.Helper()
	raw, err := exec.Command("git", "-C", h.dir, "cat-file", "commit", commit).Output()
	if err != nil || !bytes.Contains(raw, []byte(old)) {
		h.t.Fatalf("%v: no %q in %s", err, old, raw)
	}
	c := exec.Command("git", "-C", h.dir, "hash-object", "-t", "commit", "-w", "--stdin")
	c.Stdin = bytes.NewReader(bytes.Replace(raw, []byte(old), []byte(now), 1))
	out, err := c.Output()
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// What a commit's signature is worth is what git verify-commit says of it, with the same file of allowed signers.
func TestSignaturesAgainstGitVerifyCommit(t *testing.T) {
	h := newHistory(t)
	key := h.keys("ann", "old", "eve")
	h.allow("ann@example.com "+public(t, key["ann"]), `old@example.com valid-before="20200101Z" `+public(t, key["old"]), `mail@example.com namespaces="email" `+public(t, key["eve"]))
	base := h.commit("first")
	good := h.signed(key["ann"], "by ann")
	gitIn(t, h.dir, "checkout", "-qb", "side", base)
	h.signed(key["ann"], "beside")
	gitIn(t, h.dir, "checkout", "-q", "main")
	gitIn(t, h.dir, "merge", "-q", "--no-ff", "-S", "-m", "a merge", "side")
	commits := map[string]string{
		"signed": good, "a merge": gitIn(t, h.dir, "rev-parse", "HEAD"), "not signed": base,
		"by a key for something else": h.signed(key["eve"], "by eve"), "by a key that is over": h.signed(key["old"], "by old"),
		"other words": h.forge(good, "by ann", "by amy"), "another author": h.forge(good, "author t ", "author u "),
		"another parent": h.forge(good, "parent "+base, "parent "+good),
	}
	git, err := repo.Open(repo.Options{Remote: h.dir, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	allowed, why, err := signersAt(git, gitIn(t, h.dir, "rev-parse", "HEAD"), "allowed")
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	both := map[bool]int{}
	for name, hash := range commits {
		why, err := notSigned(git, hash, allowed, time.Now())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		said, gerr := exec.Command("git", "-C", h.dir, "verify-commit", hash).CombinedOutput()
		if (why == "") != (gerr == nil) {
			t.Errorf("%s: we say %q, git verify-commit %v: %s", name, why, gerr, said)
		}
		both[gerr == nil]++
	}
	if both[true] < 2 || both[false] < 5 {
		t.Errorf("git verify-commit's verdicts: %v", both)
	}
}

// Before anything was accepted the first commit's own file says who may sign it, and it has to be signed by one of them; what
// was taken is said. A person who accepts any history answers for it.
func TestTheFirstCommitIsSignedByOneOfItsOwn(t *testing.T) {
	h := newHistory(t)
	key := h.keys("ann", "eve")
	h.allow("ann@example.com " + public(t, key["ann"]))
	none := h.commit("nobody")
	eve, ann := h.signed(key["eve"], "eve"), h.signed(key["ann"], "ann")
	git, err := repo.Open(repo.Options{Remote: h.dir, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	conf := plan.Config{Guard: plan.Guard{Signers: "allowed"}}
	for _, c := range []struct {
		commit  string
		any     bool
		want    string // part of the refusal; "": it is followed
		warning string
	}{
		{none, false, "its newest commit has to be signed by one of them: commit " + none[:12] + " by t: it is not signed", ""},
		{eve, false, "which is not among the allowed ones", ""},
		{ann, false, "", "so " + ann[:12] + " is taken since one whom its own allowed allows has signed it"},
		{none, true, "", ""},
	} {
		d := &reconcile.Desired{Plan: &plan.Plan{Config: conf}, Commit: c.commit}
		if err := vouched(t.Context(), d, git, "", c.any, time.Now()); err != nil {
			t.Fatal(err)
		}
		refused, warned := "", ""
		for _, r := range d.Refusals {
			refused += r.Code + ": " + r.Text
			if r.Code != "NotSigned" || !r.Whole {
				t.Errorf("%+v", r)
			}
		}
		for _, q := range d.Warnings {
			warned += q.Text
		}
		if (refused == "") != (c.want == "") || !strings.Contains(refused, c.want) || !strings.Contains(warned, c.warning) || c.warning == "" && warned != "" {
			t.Errorf("%s: refused %q, warned %q", c.commit, refused, warned)
		}
	}
}
