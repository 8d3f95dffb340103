//go:build gitea

package forge_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile/forge"
)

// server is the real Gitea that .ci/gitea/run started.
type server struct {
	t                            *testing.T
	URL, User, Password, Version string
}

func gitea(t *testing.T) *server {
	t.Helper()
	s := &server{t: t}
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_GITEA")), s); err != nil {
		t.Fatalf("HEADWAY_TEST_GITEA does not describe a server (%v): run .ci/gitea/run go test -tags gitea -run Gitea ./reconcile/forge ./cmd/headway", err)
	}
	return s
}

// ask sends a request of the administrator and fails unless it is answered with success.
func (s *server) ask(method, path string, in, out any) {
	s.t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+"/api/v1/"+path, bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	r.SetBasicAuth(s.User, s.Password)
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode/100 != 2 {
		s.t.Fatalf("%s %s: %d %s %v", method, path, a.StatusCode, body, err)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			s.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
}

func (s *server) token(name string, scopes ...string) forge.Token {
	s.t.Helper()
	var made struct {
		SHA1 string `json:"sha1"`
	}
	s.ask("POST", "users/"+s.User+"/tokens", map[string]any{"name": fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), "scopes": scopes}, &made)
	return forge.NewToken(made.SHA1)
}

// commit writes a file on a branch, which it makes from main if it is new, and returns the commit.
func (s *server) commit(repo, branch, fresh, file, text string) string {
	s.t.Helper()
	in := map[string]any{"content": base64.StdEncoding.EncodeToString([]byte(text)), "message": file, "branch": branch}
	if fresh != "" {
		in["branch"], in["new_branch"] = branch, fresh
	}
	var made struct {
		Commit struct {
			SHA string `json:"sha"`
		} `json:"commit"`
	}
	s.ask("POST", "repos/"+s.User+"/"+repo+"/contents/"+file, in, &made)
	return made.Commit.SHA
}

// pullRequest makes a repository with one open pull request and returns its name, number and head.
func (s *server) pullRequest(name string) (string, int, string) {
	s.t.Helper()
	name = fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	s.ask("POST", "user/repos", map[string]any{"name": name, "auto_init": true, "default_branch": "main"}, nil)
	head := s.commit(name, "main", "more", "a.txt", "one")
	var pr struct {
		Number int `json:"number"`
	}
	s.ask("POST", "repos/"+s.User+"/"+name+"/pulls", map[string]any{"head": "more", "base": "main", "title": "more"}, &pr)
	return name, pr.Number, head
}

// TestGiteaComment: against a real server, one comment is made and edited, others' stay, an old head is dropped, a status
// stands on the commit with its link, and a token that lacks a scope is told which.
func TestGiteaComment(t *testing.T) {
	s := gitea(t)
	name, number, first := s.pullRequest("comment")
	path := fmt.Sprintf("repos/%s/%s/issues/%d/comments", s.User, name, number)
	s.ask("POST", "admin/users", map[string]any{"username": "eve" + name[8:], "password": s.Password, "email": name + "@example.com", "must_change_password": false}, nil)
	eve := &server{t: t, URL: s.URL, User: "eve" + name[8:], Password: s.Password}
	eve.ask("POST", path, map[string]string{"body": marker + "head=0 -->\nan imitation"}, nil)
	for i := range 60 { // more than a page of the server's
		eve.ask("POST", path, map[string]string{"body": fmt.Sprintf("chatter %d", i)}, nil)
	}
	job := forge.Job{Forge: forge.Gitea, API: s.URL + "/api/v1", Repository: s.User + "/" + name, Pull: number, Run: s.URL + "/run/1", Token: s.token("all", "read:user", "write:issue", "write:repository")}
	c, err := forge.New(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Pull(t.Context())
	if err != nil || p.Head != first || p.Fork || p.Into != "main" || p.Base == "" {
		t.Fatalf("%+v, %v; want head %s", p, err, first)
	}
	post := func(head, text string, want forge.Done) {
		t.Helper()
		said, err := c.Post(t.Context(), forge.Post{Marker: marker, Body: marker + "head=" + head + " -->\n" + text, Empty: text == "### No changes", Head: head})
		if err != nil || said.Done != want || want != forge.Nothing && !strings.HasPrefix(said.URL, s.URL) {
			t.Fatalf("%+v, %v; want %s", said, err, want)
		}
	}
	post(first, "### No changes", forge.Nothing)
	post(first, "### Plan: 1 to start\n| a | b |\n|---|---|\n", forge.Created)
	post(first, "### Plan: 1 to start\n| a | b |\n|---|---|\n", forge.Unchanged)
	second := s.commit(name, "more", "", "b.txt", "two")
	var moved *forge.Moved
	for range 100 { // the server notes a push in the background
		_, err = c.Post(t.Context(), forge.Post{Marker: marker, Body: marker + "-->\nold", Head: first})
		if m, ok := errors.AsType[*forge.Moved](err); ok {
			moved = m
			break
		}
	}
	if moved == nil || moved.Live != second {
		t.Fatalf("a plan of the old head: %v", err)
	}
	post(second, "### No changes", forge.Edited)
	if err := c.Status(t.Context(), forge.Status{Commit: second, Context: "headway/plan (team-a)", State: forge.Failure, Text: "refused: EmptyPlanRoot"}); err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Body string
		User struct{ Login string }
	}
	s.ask("GET", path, nil, &all)
	ours, imitation := 0, 0
	for _, n := range all {
		if n.User.Login == s.User {
			ours++
			if !strings.Contains(n.Body, "head="+second+" -->\n### No changes") {
				t.Errorf("ours says %q", n.Body)
			}
		} else if strings.Contains(n.Body, "an imitation") {
			imitation++
		}
	}
	if ours != 1 || imitation != 1 || len(all) != 62 {
		t.Errorf("%d of ours, %d imitations, %d in all", ours, imitation, len(all))
	}
	var statuses []map[string]any
	s.ask("GET", "repos/"+s.User+"/"+name+"/commits/"+second+"/statuses", nil, &statuses)
	if len(statuses) != 1 || statuses[0]["context"] != "headway/plan (team-a)" || statuses[0]["status"] != "failure" || statuses[0]["target_url"] != s.URL+"/run/1" {
		t.Errorf("statuses: %v", statuses)
	}
	s.refusals(job, second)
}

// refusals: tokens that lack what is needed.
func (s *server) refusals(job forge.Job, head string) {
	s.t.Helper()
	for _, c := range []struct {
		token forge.Token
		hint  string
	}{
		{s.token("mute", "read:user", "read:issue", "read:repository"), "write:issue"},
		{s.token("nobody", "write:issue", "write:repository"), "read:user"},
		{forge.NewToken("0123456789012345678901234567890123456789"), "not accepted"},
	} {
		job.Token = c.token
		client, err := forge.New(job, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = client.Post(s.t.Context(), forge.Post{Marker: marker, Body: marker + "-->\nx", Head: head})
		if e, ok := errors.AsType[*forge.Error](err); !ok || !strings.Contains(e.Hint, c.hint) || strings.Contains(e.Text+e.Hint, c.token.Value()) {
			s.t.Errorf("%v: %+v, want a hint of %s", err, e, c.hint)
		}
	}
}

// TestGiteaHook: what a real server delivers is signed as Hook expects it, is about the repository under each address that
// the server gives, and with another secret is refused.
func TestGiteaHook(t *testing.T) {
	s := gitea(t)
	name, _, _ := s.pullRequest("hook")
	type delivered struct {
		header http.Header
		body   []byte
	}
	got := make(chan delivered, 16)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(io.LimitReader(r.Body, forge.MaxHook+1))
		got <- delivered{r.Header, b}
	}))
	t.Cleanup(sink.Close)
	s.ask("POST", "repos/"+s.User+"/"+name+"/hooks", map[string]any{"type": "gitea", "active": true, "events": []string{"push"},
		"config": map[string]string{"url": sink.URL, "content_type": "json", "secret": secret}}, nil)
	s.commit(name, "main", "", "c.txt", "three")
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case d := <-got:
			w, err := forge.Hook(d.header, d.body, [][]byte{[]byte(secret)})
			if err != nil || w.Forge != forge.Gitea || w.Event != "push" || w.Delivery == "" || !w.About(s.URL+"/"+s.User+"/"+name+".git") {
				t.Fatalf("%+v, %v", w, err)
			}
			if _, err := forge.Hook(d.header, d.body, [][]byte{[]byte("another")}); err == nil {
				t.Error("another secret fits too")
			}
			if _, err := forge.Hook(d.header, append(d.body, ' '), [][]byte{[]byte(secret)}); err == nil {
				t.Error("another body fits too")
			}
			if w.Ref == "refs/heads/main" {
				return
			} // else the push of the pull request's branch, which was still on its way
		case <-deadline:
			t.Fatal("the server did not deliver the push of main")
		}
	}
}
