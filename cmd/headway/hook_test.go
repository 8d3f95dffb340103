package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/reconcile/meter"
)

func hooked(secrets ...string) (*hooks, *watcher) {
	w := &watcher{wake: make(chan struct{}, 1), meter: meter.New("d", "dev"), health: newHealth(0)}
	var list [][]byte
	for _, s := range secrets {
		list = append(list, []byte(s))
	}
	return newHooks(list, []*watcher{w}), w
}

const pushBody = `{"ref":"refs/heads/main","repository":{"clone_url":"https://git.example.com/team/plans.git"}}`

// deliver sends a delivery as GitHub would.
func deliver(h *hooks, id, secret string, body []byte) (int, string) {
	rq := httptest.NewRequest("POST", "/hook", bytes.NewReader(body))
	rq.Header.Set("Content-Type", "application/json")
	rq.Header.Set("X-Github-Event", "push")
	rq.Header.Set("X-Github-Delivery", id)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	rq.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, rq)
	return rw.Code, rw.Body.String()
}

func woken(w *watcher) bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// TestHookWakesTheLoop: whoever has a secret may ask for a look, also with the one that is being replaced; case 18: a
// delivery that comes twice wakes once, and without a sign of an error; a branch that nobody follows wakes nobody.
func TestHookWakesTheLoop(t *testing.T) {
	h, w := hooked("old-secret", "new-secret")
	for i, secret := range []string{"old-secret", "new-secret"} {
		if code, body := deliver(h, fmt.Sprint(i), secret, []byte(pushBody+strings.Repeat(" ", i))); code != 202 || !woken(w) {
			t.Errorf("%s: %d %s", secret, code, body)
		}
	}
	if code, body := deliver(h, "1", "new-secret", []byte(pushBody+" ")); code != 200 || woken(w) {
		t.Errorf("the same delivery again: %d %s", code, body)
	}
	if code, _ := deliver(h, "3", "other", []byte(pushBody+"   ")); code != 401 || woken(w) {
		t.Errorf("a stranger's delivery: %d", code)
	}
	w.following.branch = "release"
	if code, _ := deliver(h, "4", "old-secret", []byte(pushBody+"    ")); code != 202 || woken(w) {
		t.Errorf("another branch: %d", code)
	}
	w.following.branch = "main"
	for i := range 50 {
		deliver(h, fmt.Sprint("many", i), "old-secret", []byte(pushBody+strings.Repeat("\n", i+1)))
	}
	if !woken(w) || woken(w) {
		t.Error("fifty hooks together are not one look")
	}
}

// TestHookBearsAnything is case 27: what is huge, malformed or unsigned is refused, whatever it is.
func TestHookBearsAnything(t *testing.T) {
	h, w := hooked("secret-of-ours")
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, httptest.NewRequest("POST", "/hook", io.LimitReader(manyBytes{}, 1<<30)))
	if rw.Code != 413 {
		t.Errorf("a gigabyte: %d", rw.Code)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		body := make([]byte, r.IntN(400))
		for k := range body {
			body[k] = byte(r.IntN(256))
		}
		if i%2 == 0 {
			body = append([]byte(pushBody[:r.IntN(len(pushBody)-1)]), body...)
		}
		if code, _ := deliver(h, fmt.Sprint(i), "secret-of-ours", body); code != 400 {
			t.Fatalf("%q: %d", body, code)
		}
		if code, _ := deliver(h, fmt.Sprint("s", i), "wrong", body); code != 401 {
			t.Fatalf("unsigned %q: %d", body, code)
		}
	}
	if woken(w) {
		t.Error("a malformed delivery woke the loop")
	}
	for range hooksAtOnce {
		h.room <- struct{}{}
	}
	if code, _ := deliver(h, "x", "secret-of-ours", []byte(pushBody)); code != 429 {
		t.Errorf("one more than there is room for: %d", code)
	}
}

type manyBytes struct{}

func (manyBytes) Read(p []byte) (int, error) { return len(p), nil }

// TestNoHookWithoutASecret: nobody can be believed, so there is no such page.
func TestNoHookWithoutASecret(t *testing.T) {
	_, w := hooked()
	if code, _ := askPage(page([]*watcher{w}, nil), "POST", "/hook"); code != 404 {
		t.Errorf("POST /hook: %d", code)
	}
	p := page([]*watcher{w}, [][]byte{[]byte("secret")})
	if code, _ := askPage(p, "GET", "/hook"); code != 405 {
		t.Errorf("GET /hook: %d", code)
	}
	if code, _ := askPage(p, "POST", "/hook"); code != 400 && code != 401 {
		t.Errorf("POST /hook with nothing: %d", code)
	}
	e := env{hidden: &hidden{}, getenv: func(string) string { return " first-secret ,,second-secret\nthird-secret\n" }}
	if got, err := hookSecrets(e); err != nil || len(got) != 3 || string(got[0]) != "first-secret" || strings.Contains(e.hidden.from("x third-secret"), "third") {
		t.Errorf("secrets %q", got)
	}
	for _, none := range []string{",,", " ", "\n,\n"} {
		e.getenv = func(string) string { return none }
		if got, err := hookSecrets(e); err == nil || got != nil || !strings.Contains(err.Error(), "HEADWAY_HOOK_SECRET is set and holds no secret") {
			t.Errorf("%q: %q, %v", none, got, err)
		}
	}
	e.getenv = func(string) string { return "" }
	if got, err := hookSecrets(e); err != nil || got != nil {
		t.Errorf("unset: %q, %v", got, err)
	}
}

// TestPokesAreBounded: a poke ends the pause, and no more than one look a second is made of any number of them.
func TestPokesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{wake: make(chan struct{}, 1)}
		start := time.Now()
		go func() {
			for range 1000 {
				w.poke()
				time.Sleep(10 * time.Millisecond)
			}
		}()
		looks := 0
		for time.Since(start) < 10*time.Second {
			if err := w.pause(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			looks++
		}
		if looks != 10 {
			t.Errorf("%d looks in 10 s", looks)
		}
		synctest.Wait()
		woken(w)
		w.poke()
		start = time.Now()
		if err := w.pause(t.Context(), time.Minute); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		start = time.Now()
		if err := w.pause(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, over := context.WithCancel(t.Context())
		over()
		if w.pause(ctx, time.Hour) == nil {
			t.Error("an ended context ends no pause")
		}
	})
}

// TestTokenFile is case 40: a token is read again at each use, so that a renewed one counts at once, and no line shows it.
func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	e := env{dir: dir, hidden: &hidden{}, getenv: func(k string) string {
		return map[string]string{"HEADWAY_GIT_TOKEN_FILE": "token", "HEADWAY_GIT_TOKEN": "not-this-one"}[k]
	}}
	token := (&watching{}).auth(e).Token
	if _, err := token(); err == nil {
		t.Error("an absent file gave a token")
	}
	for _, want := range []string{"first-token", "second-token"} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := token(); got != want || err != nil || strings.Contains(e.hidden.from("is "+want), want) {
			t.Errorf("got %q, %v; shown as %s", got, err, e.hidden.from("is "+want))
		}
	}
	for _, bad := range []string{"", " \n", strings.Repeat("x", maxToken+1)} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := token(); err == nil {
			t.Errorf("%d bytes gave a token", len(bad))
		}
	}
}

func TestSources(t *testing.T) {
	for in, want := range map[string]source{"https://x/y.git": {"https://x/y.git", "def"}, "a#b": {"a", "b"}, "a#b/c": {"a", "b/c"}, "#b": {"#b", "def"}, "a#": {"a#", "def"}} {
		if got := parseSource(in, "def"); got != want {
			t.Errorf("%q is %+v", in, got)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{"one": real + "/one", "one/": real + "/one", "./two/../one": real + "/one", dir + "/one": real + "/one",
		"file://" + dir + "/one": real + "/one", "link": real, "": "", "git@x:team/plans.git/": "git@x:team/plans.git", "https://x/y/": "https://x/y"} {
		if got := (source{in, "b"}).here(real); got != (source{want, "b"}) {
			t.Errorf("%s: %+v, want %s", in, got, want)
		}
	}
	a, b := source{"https://me:hunter2@x/team/plans.git", "main"}.slug(), source{"https://x/team/plans.git", "dev"}.slug()
	if !strings.HasPrefix(a, "plans-") || a == b || strings.Contains(a, "hunter2") {
		t.Errorf("slugs %s %s", a, b)
	}
	var out bytes.Buffer
	p := &prefixed{to: &out, mark: "[a] "}
	fmt.Fprintf(p, "one\n  two\n")
	if out.String() != "[a] one\n[a]   two\n" {
		t.Errorf("%q", out.String())
	}
	v := &watching{interval: time.Second, id: "x"}
	if _, err := v.sources(env{dir: t.TempDir(), getenv: os.Getenv}, []string{"a", "a"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the same source twice: %v", err)
	}
}
