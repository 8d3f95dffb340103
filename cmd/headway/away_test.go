package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/sim"
)

const awayConfig = "headway: v1\nstore: embedded\nplans: [plans/*.yaml]\nplatforms:\n  here: {runner: sim, slots: 2}\ndefaults: {on: [here]}\n"

// gitIn runs the git binary in a folder.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// far is a repository behind git's own HTTP program, which answers with another status as long as one is set. Each answer closes
// its connection: one that is kept open is never at rest for a bubble's clock.
type far struct {
	dir    string
	status atomic.Int64
	asked  atomic.Int64
	*httptest.Server
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{dir: filepath.Join(t.TempDir(), "plans")}
	if err := os.MkdirAll(filepath.Join(f.dir, "plans"), 0o755); err != nil {
		t.Fatal(err)
	}
	gitIn(t, f.dir, "init", "-q", "-b", "main")
	f.commit(t, map[string]string{plan.ConfigFile: awayConfig, "plans/a.yaml": "jobs:\n  train: {run: train, milestones: {every: 5 steps}}\n"})
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	h := &cgi.Handler{Path: git, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(f.dir), "GIT_HTTP_EXPORT_ALL=1"}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		f.asked.Add(1)
		w.Header().Set("Connection", "close")
		if s := f.status.Load(); s != 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(int(s))
			return
		}
		h.ServeHTTP(w, rq)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *far) commit(t *testing.T, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gitIn(t, f.dir, "add", "-A")
	gitIn(t, f.dir, "commit", "-q", "-m", "plans")
	return gitIn(t, f.dir, "rev-parse", "HEAD")
}

// spoil makes the remote answer with a status, or for 0 without the branch, of which name there is a tag; mend undoes it.
func (f *far) spoil(t *testing.T, status int64) (mend func()) {
	if f.status.Store(status); status != 0 {
		return func() { f.status.Store(0) }
	}
	gitIn(t, f.dir, "branch", "-m", "main", "elsewhere")
	gitIn(t, f.dir, "tag", "main")
	return func() { gitIn(t, f.dir, "branch", "-m", "elsewhere", "main") }
}

// A remote that gives no answer that can be used, for a day: the last good plan stays in force and what runs goes on, it is said
// once with since when, and once it answers again the newest commit is followed by itself.
func TestADayWithoutTheRemote(t *testing.T) {
	for name, c := range map[string]struct {
		status int64
		want   string
	}{
		"away":                    {503, "503"},
		"its token has expired":   {401, "it does not accept these credentials"},
		"nobody may see it":       {403, "it does not accept these credentials"},
		"there is no such folder": {404, "no such repository"},
		"its branch is deleted":   {0, `there is no branch "main"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			state := t.TempDir()
			synctest.Test(t, func(t *testing.T) { aDay(t, f, state, c.status, c.want) })
		})
	}
}

func aDay(t *testing.T, f *far, state string, status int64, want string) {
	var stdout, stderr bytes.Buffer
	store := mem.New()
	s, err := sim.New(sim.Config{Platform: "here", Slots: 2, Bucket: store, Model: sim.Model{Step: 20 * time.Minute, Steps: 100, Milestone: 5}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := env{stdout: &stdout, stderr: &stderr, getenv: func(string) string { return "" }, dir: state, hidden: &hidden{}}
	w := &watcher{env: e, trouble: map[string]string{}, interval: 2 * time.Minute, wake: make(chan struct{}, 1), meter: meter.New("d", "dev"), health: newHealth(30 * time.Second), state: state}
	secret := "t0ken-of-yesterday"
	if w.git, err = repo.Open(repo.Options{Remote: f.URL + "/plans", Branch: "main", Cache: filepath.Join(state, "git"), Auth: repo.Auth{Token: func() (string, error) { return secret, nil }}}); err != nil {
		t.Fatal(err)
	}
	defer w.git.Close()
	head, ok := w.git.Poll(t.Context()).(repo.Advanced)
	if !ok {
		t.Fatal("the first look saw nothing")
	}
	p := &project{env: e, root: state, plans: &w.plans}
	if err := p.load(w.git, head.New.Hash); err != nil || len(p.plan.Jobs) != 1 {
		t.Fatal(err, p.problems)
	}
	r, err := reconcile.New(reconcile.Config{Bucket: store, StoreURL: "mem:", Runners: map[string]runners.Runner{"here": s}, ID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	w.loop = &loop{p: p, git: w.git, r: r, said: map[plan.Digest]string{}, drains: map[plan.Digest]bool{}, store: store}
	work := p.plan.Jobs[0].Work
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.run(ctx, false) }()
	at := func() plan.Observed {
		synctest.Wait()
		world, err := r.Observe(t.Context(), []plan.Digest{work}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return world.Observed()[work]
	}
	time.Sleep(time.Hour)
	if o := at(); o.State != plan.StateHeld || w.health.ready() != "" {
		t.Fatalf("%+v, %s\n%s%s", o, w.health.ready(), &stdout, &stderr)
	}
	mend := f.spoil(t, status)
	asked, began := f.asked.Load(), time.Now()
	time.Sleep(24 * time.Hour)
	if o := at(); o.State != plan.StateHeld || o.Attempt != 1 || o.Step < 60 {
		t.Errorf("after a day: %+v", o)
	}
	if n := f.asked.Load() - asked; n < 24*30-2 {
		t.Errorf("it was asked %d times", n)
	}
	said := stderr.String()
	if strings.Count(said, "warning: ") != 1 || !strings.Contains(said, want) || !strings.Contains(said, ": the last good plan stays in force\n") || strings.Contains(said, secret) {
		t.Errorf("said: %s", said)
	}
	_, since, _ := strings.Cut(said, "is away since ")
	since, _, _ = strings.Cut(since, ": ")
	if when, err := time.Parse(time.RFC3339, since); status != 0 && (err != nil || when.Before(began.Add(-time.Second)) || when.Sub(began) > 3*time.Minute) {
		t.Errorf("since %q, it began at %s: %v", since, began, err)
	}
	if !strings.Contains(w.health.ready(), "the repository could not be read") {
		t.Errorf("ready: %q", w.health.ready())
	}
	mend()
	next := f.commit(t, map[string]string{"plans/b.yaml": "jobs:\n  later: {run: later}\n"})
	time.Sleep(5 * time.Minute)
	if o := at(); o.State != plan.StateHeld || o.Attempt != 1 || w.loop.p.commit != next || strings.Count(stdout.String(), "the repository is well again\n") != 1 || w.health.ready() != "" {
		t.Errorf("back: %+v, follows %s, want %s; ready: %q\n%s", o, w.loop.p.commit, next, w.health.ready(), &stdout)
	}
	cancel()
	<-done
	r.Wait()
}
