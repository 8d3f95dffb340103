//go:build gitea

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/forge"
)

// TestGiteaPullRequest: the verb against a real Gitea, as a CI job on it runs: a branch is pushed, its plan is said once, the
// next push edits it, and the status stands on the head.
func TestGiteaPullRequest(t *testing.T) {
	var s struct{ URL, User, Password string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_GITEA")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_GITEA does not describe a server (%v): run .ci/gitea/run go test -tags gitea -run Gitea ./cmd/headway", err)
	}
	ask := asking(t, s.URL+"/api/v1/", s.User, s.Password)
	name := fmt.Sprintf("plans-%d", time.Now().UnixNano())
	ask("POST", "user/repos", map[string]any{"name": name, "default_branch": "main"}, nil)
	var token struct {
		SHA1 string `json:"sha1"`
	}
	ask("POST", "users/"+s.User+"/tokens", map[string]any{"name": name, "scopes": []string{"read:user", "write:issue", "write:repository"}}, &token)

	p := newPullRequest(t, s.URL)
	remote, err := url.Parse(s.URL + "/" + s.User + "/" + name + ".git")
	if err != nil {
		t.Fatal(err)
	}
	remote.User = url.UserPassword(s.User, s.Password)
	push := func(branch string) {
		t.Helper()
		c := exec.Command("git", "-C", p.dir, "push", "-q", remote.String(), "HEAD:refs/heads/"+branch)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("push: %v\n%s", err, out)
		}
	}
	push("main")
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("a job")
	push("more")
	deadline := time.Now().Add(time.Minute)
	for known := []any{}; len(known) < 2; { // the server notes a push in the background
		if ask("GET", "repos/"+s.User+"/"+name+"/branches", nil, &known); time.Now().After(deadline) {
			t.Fatalf("the server knows %d branches", len(known))
		}
	}
	var pr struct{ Number int }
	ask("POST", "repos/"+s.User+"/"+name+"/pulls", map[string]any{"head": "more", "base": "main", "title": "more"}, &pr)
	p.vars = map[string]string{"GITEA_TOKEN": token.SHA1}
	args := []string{"--forge", "gitea", "--api", s.URL + "/api/v1", "--repository", s.User + "/" + name, "--pull", fmt.Sprint(pr.Number)}
	has(t, p.run(2, args...), "comment created "+s.URL, "status headway/plan (team-a): success")
	has(t, p.run(2, args...), "comment unchanged")
	p.write("plans/more.yaml", "jobs:\n  more: {run: exit 3}\n")
	p.head = p.commit("another job")
	push("more")
	for live := ""; live != p.head; {
		var now struct{ Head struct{ SHA string } }
		ask("GET", fmt.Sprintf("repos/%s/%s/pulls/%d", s.User, name, pr.Number), nil, &now)
		if live = now.Head.SHA; time.Now().After(deadline) {
			t.Fatalf("the pull request stays at %s", live)
		}
	}
	has(t, p.run(2, args...), "comment edited")
	var comments []struct{ Body string }
	ask("GET", fmt.Sprintf("repos/%s/%s/issues/%d/comments", s.User, name, pr.Number), nil, &comments)
	if len(comments) != 1 {
		t.Fatalf("%d comments", len(comments))
	}
	has(t, comments[0].Body, "<!-- headway:plan root=team-a head="+p.head[:12], "Already pending on main (", "| more |", "| new |")
	var statuses []struct{ Context, Status, Description string }
	ask("GET", "repos/"+s.User+"/"+name+"/commits/"+p.head+"/statuses", nil, &statuses)
	if len(statuses) != 1 || statuses[0].Status != "success" || statuses[0].Context != "headway/plan (team-a)" || !strings.Contains(statuses[0].Description, "2 to start") {
		t.Errorf("statuses: %+v", statuses)
	}
}

// A label on a real server: the comment counts it before the merge, the loop after it, asked with a token that may only read; a merge, a
// squash and a rebase of one commit all belong to their pull request.
func TestGiteaLabel(t *testing.T) {
	var s struct{ URL, User, Password string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_GITEA")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_GITEA does not describe a server (%v): run .ci/gitea/run go test -tags gitea -run Gitea ./cmd/headway", err)
	}
	ask := asking(t, s.URL+"/api/v1/", s.User, s.Password)
	for _, way := range []string{"merge", "squash", "rebase", "rebase-merge"} {
		name := fmt.Sprintf("label-%s-%d", way, time.Now().UnixNano())
		repository := "repos/" + s.User + "/" + name
		ask("POST", "user/repos", map[string]any{"name": name, "default_branch": "main"}, nil)
		token := func(scopes ...string) string {
			var made struct {
				SHA1 string `json:"sha1"`
			}
			ask("POST", "users/"+s.User+"/tokens", map[string]any{"name": name + scopes[0], "scopes": scopes}, &made)
			return made.SHA1
		}
		p := replacing(t, s.URL)
		remote, err := url.Parse(s.URL + "/" + s.User + "/" + name + ".git")
		if err != nil {
			t.Fatal(err)
		}
		reader, err := forge.Of(forge.Gitea, "", remote.String())
		if err != nil || reader.Repository != s.User+"/"+name {
			t.Fatalf("%+v, %v", reader, err)
		}
		reader.Token = forge.NewToken(token("read:repository"))
		remote.User = url.UserPassword(s.User, s.Password)
		gitIn(t, p.dir, "push", "-q", remote.String(), p.base+":refs/heads/main", p.head+":refs/heads/more")
		eventually := func(what string, ok func() bool) { // the server notes a push, and what can be merged, in the background
			t.Helper()
			for deadline := time.Now().Add(2 * time.Minute); !ok(); <-time.After(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: it never came to be", what)
				}
			}
		}
		eventually("two branches", func() bool { var known []any; ask("GET", repository+"/branches", nil, &known); return len(known) == 2 })
		var pr struct{ Number int }
		ask("POST", repository+"/pulls", map[string]any{"head": "more", "base": "main", "title": "more"}, &pr)
		if way == "rebase-merge" { // where the base has not moved, it is a merge of the commits as they are
			ask("POST", repository+"/contents/README.md", map[string]any{"content": "", "message": "beside it", "branch": "main"}, nil)
		}
		p.vars = map[string]string{"GITEA_TOKEN": token("write:issue", "read:user", "write:repository")}
		args := []string{"--forge", "gitea", "--api", s.URL + "/api/v1", "--repository", s.User + "/" + name, "--pull", fmt.Sprint(pr.Number)}
		has(t, p.run(3, args...), "comment created "+s.URL, "status headway/plan (team-a): failure")
		var label struct{ ID int64 }
		ask("POST", repository+"/labels", map[string]any{"name": "ok: replace", "color": "#ededed"}, &label)
		ask("POST", fmt.Sprintf("%s/issues/%d/labels", repository, pr.Number), map[string]any{"labels": []int64{label.ID}}, nil)
		has(t, p.run(2, args...), "comment edited", "status headway/plan (team-a): success")

		path := fmt.Sprintf("%s/pulls/%d", repository, pr.Number)
		eventually("mergeable", func() bool { var now struct{ Mergeable bool }; ask("GET", path, nil, &now); return now.Mergeable })
		ask("POST", path+"/merge", map[string]any{"Do": way}, nil)
		gitIn(t, p.dir, "fetch", "-q", remote.String(), "main")
		gitIn(t, p.dir, "reset", "-q", "--hard", "FETCH_HEAD")
		tip := gitIn(t, p.dir, "rev-parse", "HEAD")
		client, err := forge.Reader(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		ask("DELETE", fmt.Sprintf("%s/issues/%d/labels/%d", repository, pr.Number, label.ID), nil, nil)
		if r := p.pass(p.following(client, tip)); r.Accepted || len(r.Refusals) != 1 || r.Refusals[0].Code != reconcile.CodeGuardReplaceAfter {
			t.Fatalf("%s, the label taken away: accepted %v: %+v", way, r.Accepted, r.Refusals)
		}
		ask("POST", fmt.Sprintf("%s/issues/%d/labels", repository, pr.Number), map[string]any{"labels": []int64{label.ID}}, nil)
		if r := p.pass(p.following(client, tip)); !r.Accepted {
			t.Errorf("%s, with the label: %+v; said %s", way, r.Refusals, &p.said)
		}
	}
}

// asking returns what sends a person's request and fails unless it is answered with success.
func asking(t *testing.T, api, user, password string) func(method, path string, in, out any) {
	return func(method, path string, in, out any) {
		t.Helper()
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, api+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(user, password)
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode/100 == 2 && out != nil {
			err = json.Unmarshal(body, out)
		}
		if err != nil || a.StatusCode/100 != 2 {
			t.Fatalf("%s %s: %d %s %v", method, path, a.StatusCode, body, err)
		}
	}
}
