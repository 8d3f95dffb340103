package tag

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile/signers"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// yard is a repository made by git, with keys made by ssh-keygen. It is the port Git as well: git itself answers.
type yard struct {
	t     testing.TB
	dir   string
	keys  string
	store bucket.Bucket
	facts *fixedFacts
	away  bool   // nobody answers
	lost  string // object that cannot be read
	now   time.Time
}

type fixedFacts struct {
	candidates map[string]Candidate
	standings  map[string]Standing
	err        error
}

func (f *fixedFacts) Candidate(_ context.Context, work string, attempt int64) (*Candidate, error) {
	c, ok := f.candidates[fmt.Sprintf("%s/%d", work, attempt)]
	if f.err != nil || !ok {
		return nil, f.err
	}
	return &c, nil
}

func (f *fixedFacts) Standing(_ context.Context, _, version string) (*Standing, error) {
	s, ok := f.standings[version]
	if f.err != nil || !ok {
		return nil, f.err
	}
	return &s, nil
}

const (
	planPath   = "plans/digits.yaml"
	planText   = "jobs: {}\n"
	policyText = `stages: [prod]
models:
  - {match: digits, release: [ann@example.com, old@example.com, weak@example.com, files@example.com], stages: {prod: [ann@example.com, bob@example.com]}, signers: 2, requires: {os: linux, probe: v1}}
  - {match: "nlp-*", release: [bob@example.com], requires: {os: linux, probe: v1}}
`
)

// newYard makes a repository whose protected branch is main, with a plan, signers and a policy that a root key signed.
func newYard(t testing.TB) *yard {
	t.Helper()
	y := &yard{t: t, dir: t.TempDir(), keys: t.TempDir(), store: mem.New(), now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC),
		facts: &fixedFacts{candidates: map[string]Candidate{hash("2") + "/3": {Generation: 1, Manifest: hash("4")}}, standings: map[string]Standing{}}}
	for _, who := range []string{"root", "ann", "bob", "eve", "old", "files"} {
		y.run(y.keys, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", who)
	}
	y.run(y.keys, "", "ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "weak", "-f", "weak")
	y.git("", "init", "-q", "-b", "main", ".")
	y.commit("root", PolicyFile, policyText)
	y.commit("root", SignersFile, y.signers())
	y.commit("", planPath, planText)
	return y
}

func (y *yard) signers() string {
	return y.line("ann", "") + y.line("bob", "") + y.line("weak", "") + y.line("files", `namespaces="file" `) + y.line("old", `valid-before="20260501Z" `)
}

func (y *yard) line(who, options string) string {
	return who + "@example.com " + options + y.read(who+".pub")
}

func (y *yard) read(key string) string {
	y.t.Helper()
	b, err := os.ReadFile(filepath.Join(y.keys, key))
	if err != nil {
		y.t.Fatal(err)
	}
	return string(b)
}

func (y *yard) run(dir, stdin, name string, args ...string) string {
	y.t.Helper()
	out, err := y.try(dir, stdin, name, args...)
	if err != nil {
		y.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (y *yard) try(dir, stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com", "TZ=UTC", "SSH_AUTH_SOCK=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// git runs git in the yard; who signs, where something is signed.
func (y *yard) git(who string, args ...string) string {
	y.t.Helper()
	set := []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + filepath.Join(y.keys, who+".pub"), "-c", "core.autocrlf=false"}
	return strings.TrimSuffix(y.run(y.dir, "", "git", append(set, args...)...), "\n")
}

// commit changes one file on the branch that is checked out.
func (y *yard) commit(who, path, text string) string {
	y.t.Helper()
	full := filepath.Join(y.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		y.t.Fatal(err)
	}
	y.git("", "add", path)
	if who == "" {
		y.git("", "commit", "-q", "-m", path)
	} else {
		y.git(who, "commit", "-q", "-S", "-m", path)
	}
	return y.git("", "rev-parse", "HEAD")
}

// message is what a release of digits says.
func (y *yard) message(version string) string {
	y.t.Helper()
	m := releaseMessage(version)
	m.PlanSHA256 = record.Hash([]byte(planText))
	return y.text(m)
}

func (y *yard) text(m Message) string {
	y.t.Helper()
	s, err := m.Text()
	if err != nil {
		y.t.Fatal(err)
	}
	return s
}

// tag makes a signed tag and gives its object.
func (y *yard) tag(who, name, text, at string) string {
	y.t.Helper()
	file := filepath.Join(y.keys, "message")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		y.t.Fatal(err)
	}
	y.git(who, "tag", "-f", "-s", "-F", file, name, at)
	return y.git("", "rev-parse", name)
}

// raw puts an object of a ref's in the repository, whatever it holds.
func (y *yard) raw(name, object string) string {
	y.t.Helper()
	h := strings.TrimSpace(y.run(y.dir, object, "git", "hash-object", "-w", "-t", "tag", "--literally", "--stdin"))
	y.git("", "update-ref", refTags+name, h)
	return h
}

// sign signs a payload as git would, under a namespace.
func (y *yard) sign(who, space, payload string) string {
	y.t.Helper()
	return y.run(y.keys, payload, "ssh-keygen", "-q", "-Y", "sign", "-n", space, "-f", who)
}

func (y *yard) watch() *Watch {
	root, _, _ := strings.Cut(strings.TrimPrefix(y.run(y.keys, "", "ssh-keygen", "-l", "-f", "root.pub"), "256 "), " ")
	return &Watch{Git: y, Keys: testKeys(), Facts: y.facts, Store: y.store, Seal: testSeal(), Repo: "git.example.com/team/models", Roots: []string{root}}
}

func testKeys() Keys {
	return Keys{Root: signers.Bare, Signers: func(file []byte) (Verify, error) {
		a, err := signers.Parse(file)
		if err != nil {
			return nil, err
		}
		return func(payload, signature []byte, now time.Time) (string, string, error) {
			who, err := a.Check(payload, signature, now)
			if e, ok := errors.AsType[*signers.Error](err); ok {
				code := Code(e.Code)
				if code == "NotValidNow" {
					code = NotValid
				}
				return who.Name, who.Fingerprint, &KeyError{code, e.Text}
			}
			return who.Name, who.Fingerprint, err
		}, nil
	}}
}

// look looks once and gives the one model that there is.
func (y *yard) look(w *Watch) Model {
	y.t.Helper()
	l, err := w.Look(y.t.(interface{ Context() context.Context }).Context(), y.now)
	if err != nil {
		y.t.Fatal(err)
	}
	for _, m := range l.Models {
		if m.Name == "digits" {
			return m
		}
	}
	return Model{}
}

var errAway = errors.New("nobody answers")

// Tags implements Git.
func (y *yard) Tags(context.Context) (out []Ref, err error) {
	if y.away {
		return nil, errAway
	}
	for line := range strings.Lines(y.git("", "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")) {
		object, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		out = append(out, Ref{name, object})
	}
	return out, nil
}

// Tip implements Git.
func (y *yard) Tip(context.Context) (string, error) {
	return y.git("", "rev-parse", "refs/heads/main"), nil
}

// Object implements Git.
func (y *yard) Object(_ context.Context, r Ref) (string, []byte, error) {
	if y.lost == r.Object {
		return "", nil, errAway
	}
	if size, err := strconv.ParseInt(y.git("", "cat-file", "-s", r.Object), 10, 64); err != nil || size > MaxObject {
		return "", nil, errors.Join(err, &TooLarge{size})
	}
	kind := y.git("", "cat-file", "-t", r.Object)
	return kind, []byte(y.run(y.dir, "", "git", "cat-file", kind, r.Object)), nil
}

// Descends implements Git.
func (y *yard) Descends(_ context.Context, base, commit string) (bool, error) {
	_, err := y.try(y.dir, "", "git", "merge-base", "--is-ancestor", base, commit)
	return err == nil, nil
}

// File implements Git.
func (y *yard) File(_ context.Context, commit, path string, _ int64) ([]byte, error) {
	out, err := y.try(y.dir, "", "git", "cat-file", "blob", commit+":"+path)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return []byte(out), nil
}

// LastChange implements Git, for straight histories.
func (y *yard) LastChange(ctx context.Context, tip, path string) (Change, error) {
	if _, err := y.File(ctx, tip, path, 0); err != nil {
		return Change{}, err
	}
	c := Change{Commit: y.git("", "log", "-1", "--format=%H", tip, "--", path)}
	in := false
	for line := range bytes.Lines([]byte(y.git("", "cat-file", "commit", c.Commit) + "\n")) {
		if rest, is := bytes.CutPrefix(line, []byte("gpgsig ")); is {
			in, c.Signature = true, rest
			continue
		}
		if in = in && line[0] == ' '; in {
			c.Signature = append(c.Signature, line[1:]...)
			continue
		}
		c.Payload = append(c.Payload, line...)
	}
	return c, nil
}
