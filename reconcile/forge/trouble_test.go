package forge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/reconcile/forge"
)

// silent fails where the token stands in what is printed.
func silent(t *testing.T, v ...any) {
	t.Helper()
	for _, x := range v {
		if s := fmt.Sprintf("%v %+v %#v", x, x, x); strings.Contains(s, "canary") {
			t.Errorf("the token is printed: %s", s)
		}
	}
}

// TestRefusedBySentence: each way in which a forge says no becomes a sentence, and what to do: which permission is missing.
func TestRefusedBySentence(t *testing.T) {
	for _, c := range []struct {
		kind      forge.Kind
		where     string // the request that is refused
		status    int
		says, aid string
	}{
		{forge.GitHub, "GET user", 401, "GitHub could not ask whose token it is: the answer was 401 Unauthorized (no *** [31m)", "expired, revoked, or of another forge; it was taken from GITHUB_TOKEN"},
		{forge.GitHub, "GET comments", 404, "read the comments", "acme/plans has no pull request 7, or the token may not see it"},
		{forge.GitHub, "GET pull", 403, "read the pull request", "permissions: {pull-requests: read}"},
		{forge.GitHub, "POST comments", 403, "write the comment", "permissions: {pull-requests: write}"},
		{forge.GitHub, "POST status", 403, "set the commit status", "permissions: {statuses: write}"},
		{forge.GitLab, "GET user", 401, "GitLab could not ask", "GITLAB_TOKEN or CI_JOB_TOKEN"},
		{forge.GitLab, "POST comments", 403, "write the comment", "the scope api and the role Reporter"},
		{forge.GitLab, "POST status", 403, "set the commit status", "the scope api and the role Developer"},
		{forge.GitLab, "GET comments", 404, "read the comments", "research/ml/plans has no pull request 7"},
		{forge.Gitea, "GET user", 403, "Gitea could not ask", "read:user"},
		{forge.Gitea, "POST comments", 403, "write the comment", "write:issue"},
		{forge.Gitea, "POST status", 403, "set the commit status", "write:repository"},
		{forge.Gitea, "GET pull", 404, "read the pull request", "read:repository"},
		{forge.Gitea, "POST comments", 422, "write the comment: the answer was 422 Unprocessable Entity (no *** [31m)", ""},
	} {
		t.Run(fmt.Sprint(c.kind, c.where, c.status), func(t *testing.T) {
			f := newFake(t, c.kind)
			f.before = func(w http.ResponseWriter, _ *http.Request, what string) bool {
				if !strings.HasPrefix(what, c.where) {
					return false
				}
				answer(w, c.status, map[string]any{"message": "no " + token + "\x1b[31m\n"})
				return true
			}
			client := f.client(t)
			_, err := client.Post(t.Context(), post("x"))
			if strings.Contains(c.where, "status") {
				err = client.Status(t.Context(), forge.Status{Commit: head, Context: "x", State: forge.Success})
			}
			e, ok := errors.AsType[*forge.Error](err)
			if !ok || e.Status != c.status || !strings.Contains(e.Text, c.says) || !strings.Contains(e.Hint, c.aid) || strings.ContainsAny(e.Text, "\x1b\n") {
				t.Errorf("%v: %+v", err, e)
			}
			silent(t, err, e, f.job())
		})
	}
}

// TestWhatGitHubAsksFor: GitHub names the permission itself, and a job's own token on GitLab is told apart.
func TestWhatGitHubAsksFor(t *testing.T) {
	f := newFake(t, forge.GitHub)
	f.before = func(w http.ResponseWriter, _ *http.Request, what string) bool {
		w.Header().Set("X-Accepted-GitHub-Permissions", "issues=write; pull_requests=write")
		if strings.HasPrefix(what, "POST comments") {
			answer(w, 403, map[string]any{"message": "Resource not accessible by integration"})
		}
		return strings.HasPrefix(what, "POST comments")
	}
	_, err := f.client(t).Post(t.Context(), post("x"))
	if e, ok := errors.AsType[*forge.Error](err); !ok || !strings.Contains(e.Hint, "it asks for issues=write; pull_requests=write") {
		t.Errorf("%v", err)
	}
	f = newFake(t, forge.GitLab)
	j := f.job()
	j.Token = forge.TokenOf(forge.GitLab, func(name string) string { return map[string]string{"CI_JOB_TOKEN": token}[name] })
	c, err := forge.New(j, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Post(t.Context(), post("x"))
	if e, ok := errors.AsType[*forge.Error](err); !ok || !strings.Contains(e.Hint, "lets no job's own token comment") {
		t.Errorf("%v", err)
	}
}

// TestRedirects: the token goes to no other host, and nothing that is written is sent on.
func TestRedirects(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			seen := 0
			other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen++ }))
			t.Cleanup(other.Close)
			for _, where := range []string{"GET user", "GET comments", "GET pull", "POST comments"} {
				for _, code := range []int{301, 302, 307, 308} {
					f := newFake(t, kind)
					f.before = func(w http.ResponseWriter, r *http.Request, what string) bool {
						if strings.HasPrefix(what, where) {
							http.Redirect(w, r, other.URL+r.URL.Path, code)
						}
						return strings.HasPrefix(what, where)
					}
					_, err := f.client(t).Post(t.Context(), post("x"))
					if e, ok := errors.AsType[*forge.Error](err); !ok || e.Status != code || !strings.Contains(e.Hint, "sent elsewhere") {
						t.Errorf("%s %d: %v", where, code, err)
					}
				}
			}
			if seen > 0 {
				t.Errorf("another host was asked %d times", seen)
			}
			f := newFake(t, kind) // a question on the same host is sent on: the repository was renamed
			f.before = func(w http.ResponseWriter, r *http.Request, what string) bool {
				if strings.HasPrefix(what, "GET user") && r.URL.RawQuery == "" {
					http.Redirect(w, r, r.URL.Path+"?again", http.StatusMovedPermanently)
					return true
				}
				return false
			}
			if said := f.post(t, post("x")); said.Done != forge.Created {
				t.Errorf("%+v", said)
			}
		})
	}
}

// inMemory answers without a network, so that time can be a bubble's.
type inMemory struct{ h http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.h.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestTriesAgain: a limit is waited for as the forge asks, trouble of its own for some seconds, and neither for ever; what
// the forge refuses for good is asked once.
func TestTriesAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		times  int // how often it is so
		waits  time.Duration
		tries  int
		says   string // "": it succeeds
	}{
		{"a limit in seconds", 429, map[string]string{"Retry-After": "7"}, 2, 14 * time.Second, 3, ""},
		{"a second limit", 403, map[string]string{"Retry-After": "30"}, 1, 30 * time.Second, 2, ""},
		{"a date by the forge's own clock", 429, map[string]string{"Date": "Mon, 05 Jan 2026 10:00:00 GMT", "Retry-After": "Mon, 05 Jan 2026 10:00:20 GMT"}, 1, 20 * time.Second, 2, ""},
		{"full again in an hour", 403, map[string]string{"Date": "Mon, 05 Jan 2026 10:00:00 GMT", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1767610800"}, 9, 0, 1, "run the job again in 1h0m0s"},
		{"a limit that lasts", 429, map[string]string{"Retry-After": "50"}, 9, 100 * time.Second, 3, "run the job again in 50s"},
		{"no word of how long", 429, nil, 9, 15 * time.Second, 5, "run the job again later"},
		{"trouble that passes", 503, nil, 3, 7 * time.Second, 4, ""},
		{"trouble that stays", 500, nil, 99, 15 * time.Second, 5, "the forge is in trouble"},
		{"a nonsense of a wait", 502, map[string]string{"Retry-After": "-5"}, 1, time.Second, 2, ""},
		{"forbidden for good", 403, nil, 9, 0, 1, "permissions"},
		{"not there", 404, nil, 9, 0, 1, "has no pull request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if tries++; tries > c.times {
						_, _ = w.Write([]byte(`{"head":{"sha":"` + head + `"}}`))
						return
					}
					for k, v := range c.header {
						w.Header().Set(k, v)
					}
					w.WriteHeader(c.status)
				})
				client, err := forge.New(forge.Job{Forge: forge.GitHub, API: "https://api.github.com", Repository: "acme/plans", Pull: 7, Token: forge.NewToken(token)}, inMemory{h})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				p, err := client.Pull(t.Context())
				e, _ := errors.AsType[*forge.Error](err)
				if c.says == "" && (err != nil || p.Head != head) || c.says != "" && (e == nil || !strings.Contains(e.Hint, c.says)) {
					t.Errorf("%+v, %v, %+v", p, err, e)
				}
				if got := time.Since(start); got != c.waits || tries != c.tries {
					t.Errorf("%d tries in %v, want %d in %v", tries, got, c.tries, c.waits)
				}
			})
		})
	}
}

// TestInterrupted: a person who presses ctrl-C waits for nothing.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "60"); w.WriteHeader(429) })
		client, err := forge.New(forge.Job{Forge: forge.Gitea, API: "https://x.example/api/v1", Repository: "a/b", Pull: 1, Token: forge.NewToken(token)}, inMemory{h})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := client.Pull(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestNoAnswer: a forge that is not there is asked a few times, and said in one sentence; whatever quotes the token is not
// quoted.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err  error
			says string
		}{
			{fmt.Errorf("garbage that quotes %s", token), "no answer of HTTP that could be read"},
			{&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused to " + token)}, "dial tcp: connection refused to ***"},
		} {
			client, err := forge.New(forge.Job{Forge: forge.Gitea, API: "https://x.example/api/v1", Repository: "a/b", Pull: 1, Token: forge.NewToken(token)}, refusing{c.err})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err = client.Pull(t.Context())
			if e, ok := errors.AsType[*forge.Error](err); !ok || !strings.Contains(e.Text, c.says) || !strings.Contains(e.Hint, "--api") || time.Since(start) != 15*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			silent(t, err)
		}
	})
}

type refusing struct{ err error }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

// TestStrangeAnswers: HTML, other JSON, nothing and lies are said to be what they are, and the token stays unsaid.
func TestStrangeAnswers(t *testing.T) {
	for _, kind := range kinds() {
		for _, body := range []string{"", "<html>a proxy's page</html>", "[]", `{"head":7}`, `{"sha":{},"head":[]}`, `{"head":{"sha":"main"},"sha":"main"}`, "null", strings.Repeat("[", 100_000), `"` + strings.Repeat("x", 1<<20)} {
			synctest.Test(t, func(t *testing.T) {
				h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
				client, err := forge.New(forge.Job{Forge: kind, API: "https://x.example/api", Repository: "a/b", Pull: 1, Token: forge.NewToken(token)}, inMemory{h})
				if err != nil {
					t.Fatal(err)
				}
				_, err = client.Pull(t.Context())
				_, err2 := client.Post(t.Context(), post("x"))
				for _, err := range []error{err, err2} {
					if _, ok := errors.AsType[*forge.Error](err); !ok {
						t.Errorf("%s %.40q: %v", kind, body, err)
					}
					silent(t, err)
				}
			})
		}
	}
}

// TestTokenPrintsAsNothing in whatever way a job is printed.
func TestTokenPrintsAsNothing(t *testing.T) {
	f := newFake(t, forge.GitHub)
	j := f.job()
	b, err := json.Marshal(j)
	if err != nil || strings.Contains(string(b), "canary") {
		t.Errorf("%s, %v", b, err)
	}
	silent(t, j, &j, j.Token, f.client(t))
}
