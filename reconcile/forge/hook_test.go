package forge_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/reconcile/forge"
)

const secret = "a-secret-of-the-webhook"

func sign(body []byte, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// headersOf are what each forge sends, Gitea's with all those of GitHub and Gogs that it adds.
func headersOf(f, event string, body []byte, secret string) http.Header {
	h, sum := http.Header{}, sign(body, secret)
	set := func(kv ...string) {
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
	}
	switch f {
	case "gitlab":
		set("X-Gitlab-Event", event, "X-Gitlab-Token", secret, "X-Gitlab-Event-UUID", "event-1", "X-Gitlab-Instance", "https://gitlab.example.com")
		return h
	case "forgejo":
		set("X-Forgejo-Event", event, "X-Forgejo-Delivery", "delivery-1", "X-Forgejo-Signature", sum)
		fallthrough
	case "gitea":
		set("X-Gitea-Event", event, "X-Gitea-Delivery", "delivery-1", "X-Gitea-Signature", sum, "X-Gogs-Event", event, "X-Gogs-Signature", sum, "X-Hub-Signature", "sha1=00")
	}
	set("X-GitHub-Event", event, "X-GitHub-Delivery", "delivery-1", "X-Hub-Signature-256", "sha256="+sum, "Content-Type", "application/json")
	return h
}

// TestHooksOfTheForges: what each forge sends is understood, down to the repository's addresses in every form that a
// dispatcher may have been given.
func TestHooksOfTheForges(t *testing.T) {
	github := []string{"https://github.com/acme/plans.git", "git@github.com:acme/plans.git", "https://github.com/acme/plans"}
	gitlab := []string{"https://gitlab.example.com/research/ml/plans.git", "git@gitlab.example.com:research/ml/plans.git"}
	web := "https://gitlab.example.com/research/ml/plans"
	gitea := []string{"https://git.example.com/acme/plans.git", "git@git.example.com:acme/plans.git", "https://git.example.com/acme/plans"}
	giteaPorts := []string{"https://git.example.com:3000/acme/plans.git", "ssh://git@git.example.com:2222/acme/plans.git", "https://git.example.com:3000/acme/plans"}
	for _, c := range []struct {
		file, forge, event string
		want               forge.Wake
		about              string
	}{
		{"github-push", "github", "push", forge.Wake{Forge: forge.GitHub, Delivery: "delivery-1", Ref: "refs/heads/main", Repositories: github}, "ssh://git@github.com/Acme/plans"},
		{"github-pull", "github", "pull_request", forge.Wake{Forge: forge.GitHub, Delivery: "delivery-1", Ref: "refs/heads/main", Repositories: []string{github[0], github[1], github[2]}}, "https://x:token@github.com/acme/plans.git/"},
		{"github-ping", "github", "ping", forge.Wake{Forge: forge.GitHub, Delivery: "delivery-1", Repositories: []string{github[0], github[1], github[2]}}, "github.com:acme/plans.git"},
		{"gitea-push", "gitea", "push", forge.Wake{Forge: forge.Gitea, Delivery: "delivery-1", Ref: "refs/heads/main", Repositories: giteaPorts}, "git@git.example.com:acme/plans.git"},
		{"gitea-push", "forgejo", "push", forge.Wake{Forge: forge.Gitea, Delivery: "delivery-1", Ref: "refs/heads/main", Repositories: giteaPorts}, "ssh://git@git.example.com:2222/acme/plans"},
		{"gitea-create", "gitea", "create", forge.Wake{Forge: forge.Gitea, Delivery: "delivery-1", Ref: "refs/tags/v1.2.0", Repositories: gitea}, "https://git.example.com/acme/plans"},
		{"gitlab-push", "gitlab", "Push Hook", forge.Wake{Forge: forge.GitLab, Delivery: "event-1", Ref: "refs/heads/main", Repositories: append(gitlab[:2:2], web)}, "git@gitlab.example.com:research/ml/plans.git"},
		{"gitlab-merge", "gitlab", "Merge Request Hook", forge.Wake{Forge: forge.GitLab, Delivery: "event-1", Ref: "refs/heads/main", Repositories: append(gitlab[:2:2], web)}, "https://gitlab.example.com/research/ml/plans"},
	} {
		t.Run(c.forge+" "+c.file, func(t *testing.T) {
			body := fixture(t, c.file)
			got, err := forge.Hook(headersOf(c.forge, c.event, body, secret), body, [][]byte{[]byte("an older one"), []byte(secret)})
			if err != nil {
				t.Fatal(err)
			}
			digest := sha256.Sum256(body)
			c.want.Event, c.want.Digest = c.event, hex.EncodeToString(digest[:])
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if !got.About(c.about) {
				t.Errorf("not about %s", c.about)
			}
			for _, other := range []string{"https://github.com/acme/other", "https://evil.example/acme/plans", "git@github.com:eve/plans.git", "", "plans", "/srv/acme/plans", "https://github.com"} {
				if got.About(other) {
					t.Errorf("about %q", other)
				}
			}
		})
	}
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "hooks", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHookAsAForm: GitHub's default is a form around the JSON; the signature is of the form as it came.
func TestHookAsAForm(t *testing.T) {
	body := []byte(url.Values{"payload": {string(fixture(t, "github-push"))}}.Encode())
	h := headersOf("github", "push", body, secret)
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	w, err := forge.Hook(h, body, [][]byte{[]byte(secret)})
	if err != nil || w.Ref != "refs/heads/main" || !w.About("https://github.com/acme/plans") {
		t.Errorf("%+v, %v", w, err)
	}
	body = []byte("payload=%7B%7D&payload=%7B%7D")
	h = headersOf("github", "push", body, secret)
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	status(t, h, body, 400, "application/json")
}

// status holds a delivery that must be refused against its status and what the refusal says.
func status(t *testing.T, h http.Header, body []byte, want int, says string, secrets ...string) {
	t.Helper()
	if secrets == nil {
		secrets = []string{secret}
	}
	var keys [][]byte
	for _, s := range secrets {
		keys = append(keys, []byte(s))
	}
	w, err := forge.Hook(h, body, keys)
	x, ok := errors.AsType[*forge.HookError](err)
	if !ok || x.Status != want || !strings.Contains(x.Text, says) || len(w.Repositories) > 0 {
		t.Errorf("%+v, %v; want a refusal with %d that says %q", w, err, want, says)
	}
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the refusal holds the secret: %v", err)
	}
}

// TestHookRefusals: case 27 of the table of cases, and every way not to be signed. A body is looked at last.
func TestHookRefusals(t *testing.T) {
	body := fixture(t, "github-push")
	right := func(f string) http.Header { return headersOf(f, "push", body, secret) }
	without := func(f string, keys ...string) http.Header {
		h := right(f)
		for _, k := range keys {
			h.Del(k)
		}
		return h
	}
	with := func(f, k, v string) http.Header { h := right(f); h.Set(k, v); return h }
	status(t, right("github"), make([]byte, forge.MaxHook+1), 413, "at most")
	status(t, right("github"), append([]byte(" "), body...), 401, "does not fit")
	status(t, right("github"), []byte("{not json"), 401, "does not fit") // before it is parsed
	status(t, headersOf("github", "push", []byte("{not json"), secret), []byte("{not json"), 400, "JSON")
	status(t, headersOf("gitea", "push", []byte(`[1]`), secret), []byte(`[1]`), 400, "JSON")
	status(t, headersOf("gitlab", "push", []byte(`{"ref":7}`), secret), []byte(`{"ref":7}`), 400, "JSON")
	deep := []byte(strings.Repeat(`{"repository":`, 60_000))
	status(t, headersOf("github", "push", deep, secret), deep, 400, "JSON")
	status(t, http.Header{}, body, 400, "none of their event headers")
	status(t, without("github", "X-Hub-Signature-256"), body, 401, "set the secret")
	status(t, with("github", "X-Hub-Signature-256", ""), body, 401, "set the secret")
	status(t, with("github", "X-Hub-Signature-256", "sha256=00"), body, 401, "no SHA-256 signature")
	status(t, with("github", "X-Hub-Signature-256", sign(body, secret)), body, 401, "no SHA-256 signature")
	status(t, with("github", "X-Hub-Signature-256", "sha256="+sign(body, "")), body, 401, "does not fit", secret, "")
	status(t, without("gitea", "X-Gitea-Signature"), body, 401, "X-Gitea-Signature") // GitHub's beside it is no way round
	status(t, without("gitlab", "X-Gitlab-Token"), body, 401, "set the secret")
	status(t, with("gitlab", "X-Gitlab-Token", secret+"x"), body, 401, "secret token")
	status(t, right("github"), body, 401, "no secret is set", "")
	status(t, with("gitlab", "X-Gitlab-Token", ""), body, 401, "no secret is set", "", "")
	twice := right("github")
	twice.Add("X-Hub-Signature-256", "sha256="+sign(body, "other"))
	status(t, twice, body, 400, "2 times")
}

// TestHookKeepsNoCredentials: an address with a password in it, a ref that is none and a name with control characters
// reach nobody.
func TestHookKeepsNoCredentials(t *testing.T) {
	body := []byte(`{"ref":"main\n","repository":{"clone_url":"https://ann:hunter2@git.example.com/a/b.git?x=hunter2#hunter2","ssh_url":"ann:hunter2@git.example.com:a/b","html_url":"https://git.example.com/a/b\u0007","git_http_url":"https://hunter2@git.example.com/a/b","git_ssh_url":"` + strings.Repeat("x", 3000) + `"}}`)
	h := headersOf("gitea", "push", body, secret)
	h.Set("X-Gitea-Delivery", "a\tb")
	w, err := forge.Hook(h, body, [][]byte{[]byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	want := forge.Wake{Forge: forge.Gitea, Event: "push", Digest: w.Digest, Repositories: []string{"https://git.example.com/a/b.git", "https://git.example.com/a/b"}}
	if d := cmp.Diff(want, w); d != "" {
		t.Error(d)
	}
}

// TestADeliveryThatComesTwice: case 18 of the table of cases. Two webhooks, or a replay under another id, wake once; what
// is old is forgotten, and however many come, little is remembered.
func TestADeliveryThatComesTwice(t *testing.T) {
	var s forge.Seen
	now := time.Now()
	is := func(id, body string, after time.Duration, want bool) {
		t.Helper()
		if got := s.Fresh(forge.Wake{Forge: forge.GitHub, Delivery: id, Digest: body}, now.Add(after)); got != want {
			t.Errorf("%s %s after %v: fresh is %v", id, body, after, got)
		}
	}
	is("1", "a", 0, true)
	is("1", "a", time.Millisecond, false)
	is("1", "b", time.Millisecond, false) // one id, another body
	is("2", "a", time.Second, false)      // the same body under another id
	is("3", "c", time.Second, true)
	is("", "d", time.Second, true)
	is("", "e", time.Second, true) // without an id, the body decides
	is("", "d", time.Second, false)
	is("1", "a", 11*time.Minute, true)
	rapid.Check(t, func(t *rapid.T) {
		var s forge.Seen
		now := time.Now()
		recent := map[string]time.Time{}
		for range rapid.IntRange(1, 40).Draw(t, "deliveries") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			d := rapid.StringMatching(`[a-d]`).Draw(t, "body")
			last, known := recent[d]
			want := !known || now.Sub(last) >= 10*time.Minute
			if got := s.Fresh(forge.Wake{Digest: d}, now); got != want {
				t.Fatalf("body %s: fresh is %v", d, got)
			}
			if want {
				recent[d] = now
			}
		}
	})
	flood := 0
	for i := range 10_000 {
		if s.Fresh(forge.Wake{Digest: string(rune('a'+i%26)) + string(rune(i))}, now.Add(12*time.Minute)) {
			flood++
		}
	}
	if flood != 10_000 || s.Remembered() > 2048 {
		t.Errorf("%d of 10000 were fresh, %d are remembered", flood, s.Remembered())
	}
}

// FuzzHook: no header and no body makes a wake without the secret, and none that is signed makes more than a bounded,
// printable wake.
func FuzzHook(f *testing.F) {
	for _, name := range []string{"github-push", "github-pull", "gitea-push", "gitea-create", "gitlab-push", "gitlab-merge"} {
		body := fixture(f, name)
		f.Add("X-Hub-Signature-256", "sha256="+sign(body, "guess"), "application/json", body)
	}
	f.Add("X-Gitlab-Token", "guess", "application/x-www-form-urlencoded", []byte("payload=%7B%7D"))
	f.Add("X-Gitea-Signature", "", "", []byte(`{"repository":{"clone_url":"ssh://u:p@h/x"}}`))
	f.Fuzz(func(t *testing.T, key, value, kind string, body []byte) {
		for _, event := range []string{"X-GitHub-Event", "X-Gitea-Event", "X-Gitlab-Event"} {
			h := http.Header{}
			h.Set(event, "push")
			h.Set(key, value)
			if _, err := forge.Hook(h, body, [][]byte{[]byte(secret)}); err == nil && !strings.Contains(value, sign(body, secret)) && value != secret {
				t.Fatalf("a wake without the secret: %s: %q", key, value)
			}
		}
		for _, f := range []string{"github", "gitea", "gitlab"} {
			h := headersOf(f, "push", body, secret)
			h.Set("Content-Type", kind)
			w, err := forge.Hook(h, body, [][]byte{[]byte(secret)})
			if _, refused := errors.AsType[*forge.HookError](err); err != nil && !refused {
				t.Fatalf("an error of another type: %v", err)
			}
			if len(w.Repositories) > 12 || len(w.Ref) > 1100 || w.Ref != "" && !strings.HasPrefix(w.Ref, "refs/") {
				t.Fatalf("%+v", w)
			}
			for _, r := range w.Repositories {
				if u, err := url.Parse(r); err == nil && u.User != nil {
					if _, has := u.User.Password(); has {
						t.Fatalf("a password is kept: %s", r)
					}
				}
				_ = w.About(r)
			}
		}
	})
}
