package forge_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/forge"
)

// reader asks about commits, and has no pull request of its own.
func (f *fake) reader(t *testing.T) *forge.Client {
	t.Helper()
	j := f.job()
	j.Pull = 0
	c, err := forge.Reader(j, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// says makes the fake answer whoever asks for the pull requests of head.
func (f *fake) says(status int, body string) {
	path := map[forge.Kind]string{forge.GitHub: "/api/v3/repos/acme/plans/commits/" + head + "/pulls", forge.GitLab: "/api/v4/projects/research%2Fml%2Fplans/repository/commits/" + head + "/merge_requests",
		forge.Gitea: "/api/v1/repos/acme/plans/commits/" + head + "/pull"}[f.kind]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.URL.EscapedPath() != path || !f.allowed(r) {
			return false
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
}

// The pull requests by which a commit came, as each forge tells them: merged ones alone, with the branch and the labels.
func TestMergedAsEachForgeTellsIt(t *testing.T) {
	for _, k := range kinds() {
		f := newFake(t, k)
		b, err := os.ReadFile("testdata/merged-" + string(k) + ".json")
		if err != nil {
			t.Fatal(err)
		}
		f.says(200, string(b))
		want := []forge.Merged{{Number: 7, Into: "main", Heads: []string{"9f2c000000000000000000000000000000000009"}, Labels: []string{"headway/allow-replace", "team: vision"}}}
		if k != forge.Gitea {
			want = append(want, forge.Merged{Number: 6, Into: "stack", Heads: []string{head}})
		}
		if k == forge.Gitea {
			want[0].Made = head
		}
		if k == forge.GitLab {
			want[1].Heads = append(want[1].Heads, "9f2c000000000000000000000000000000000008")
		}
		got, err := f.reader(t).Merged(t.Context(), head)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v: %s", k, err, d)
		}
		if _, err := f.reader(t).Merged(t.Context(), "main"); err == nil {
			t.Errorf("%s: a branch is taken for a commit", k)
		}
	}
}

// A pull request of another repository, or of one that is not named, is none of ours, though it holds the same commit.
func TestMergedElsewhere(t *testing.T) {
	const of = `{"number":7,"iid":7,"state":"merged","merged":true,"merged_at":"x","target_branch":"main","target_project_id":%d,"references":{"full":%q},"base":{"ref":"main","repo":%s},"labels":["a"]}`
	for _, k := range kinds() {
		for _, c := range []struct {
			id         int
			full, repo string
			as         string // how GitLab's project is named here; "": by its path
			ours       bool
		}{
			{3, "research/ml/plans!7", `{"full_name":"acme/plans"}`, "", true},
			{4, "eve/plans!7", `{"full_name":"eve/plans"}`, "", false},
			{3, "research/ml/plans!70", `{"full_name":"acme/plans2"}`, "", false},
			{3, "", "null", "", false},
			{3, "", `{"full_name":"Acme/Plans"}`, "3", true},
			{4, "research/ml/plans!7", `{"full_name":""}`, "3", false},
		} {
			f := newFake(t, k)
			body := fmt.Sprintf(of, c.id, c.full, c.repo)
			if k != forge.Gitea {
				body = "[" + body + "]"
			}
			j := f.job()
			if j.Pull = 0; k == forge.GitLab && c.as != "" {
				j.Repository = c.as
			}
			f.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				_, err := w.Write([]byte(body))
				return err == nil
			}
			client, err := forge.Reader(j, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := client.Merged(t.Context(), head); err != nil || (len(got) == 1) != c.ours {
				t.Errorf("%s: %+v: %+v, %v", k, c, got, err)
			}
		}
	}
}

// What a forge says is bounded and checked; that it knows of no pull request is an answer, and a refusal names what the token lacks.
func TestMergedOddly(t *testing.T) {
	one := func(n int) string {
		return fmt.Sprintf(`{"number":%d,"iid":0,"state":"merged","merged":true,"merged_at":"x","target_branch":"main","base":{"ref":"main","repo":{"full_name":"acme/plans"}},"references":{"full":"research/ml/plans!0"},"labels":["a"]}`, n)
	}
	for _, k := range kinds() {
		f := newFake(t, k)
		list := func(s string) string {
			if k == forge.Gitea {
				return s
			}
			return "[" + s + "]"
		}
		for body, want := range map[string]string{
			list(""):                        "",
			"<html>":                        "not the JSON",
			list(`{"labels": {"name": 1}}`): "not the JSON",
			list(`{"labels": [["a"]]}`):     "not the JSON",
			list(`{"labels": [], "state": "merged", "merged": true, "title": "` + strings.Repeat("x", 9<<20) + `"}`): "longer than",
		} {
			f.says(200, body)
			got, err := f.reader(t).Merged(t.Context(), head)
			if want == "" && k == forge.Gitea {
				want = "not the JSON" // nothing at all
			}
			if want == "" && (err != nil || got != nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || len(got) > 0 {
				t.Errorf("%s: %.40s: %v, %v", k, body, got, err)
			}
		}
		if k == forge.Gitea {
			f.says(404, `{"message":"pull request does not exist"}`)
			if got, err := f.reader(t).Merged(t.Context(), head); err != nil || got != nil {
				t.Errorf("no pull request: %v, %v", got, err)
			}
			continue
		}
		var many []string
		for i := range 50 {
			many = append(many, one(i+1))
		}
		f.says(200, list(strings.Join(many, ",")))
		if got, err := f.reader(t).Merged(t.Context(), head); err != nil || len(got) != 20 {
			t.Errorf("%s: %d of fifty, %v", k, len(got), err)
		}
		f.says(404, `{"message":"Not Found"}`)
		_, err := f.reader(t).Merged(t.Context(), head)
		if e, ok := errors.AsType[*forge.Error](err); !ok || !strings.Contains(e.Hint, "the token may not see it: give the") || strings.Contains(e.Hint, "pull request 0") {
			t.Errorf("%s: %#v", k, err)
		}
	}
}

// The labels of a pull request come with it.
func TestThePullRequestsLabels(t *testing.T) {
	for _, k := range kinds() {
		f := newFake(t, k)
		f.before = func(w http.ResponseWriter, r *http.Request, what string) bool {
			if what != "GET pull" {
				return false
			}
			v, _ := f.pull().(map[string]any)
			v["labels"] = []any{map[string]any{"id": 1, "name": "headway/allow-replace"}}
			if k == forge.GitLab {
				v["labels"] = []string{"headway/allow-replace"}
			}
			answer(w, 200, v)
			return true
		}
		p, err := f.client(t).Pull(t.Context())
		if d := cmp.Diff([]string{"headway/allow-replace"}, p.Labels); d != "" || err != nil {
			t.Errorf("%s: %v %s", k, err, d)
		}
	}
}

// Which forge a repository is read from follows from its address, and no token goes to another host.
func TestWhereAForgeIs(t *testing.T) {
	for _, c := range []struct {
		kind               forge.Kind
		api, remote        string
		at, repository, no string
	}{
		{forge.GitHub, "", "https://github.com/acme/plans.git", "https://api.github.com", "acme/plans", ""},
		{forge.GitHub, "", "git@github.com:acme/plans.git", "https://api.github.com", "acme/plans", ""},
		{forge.GitHub, "", "https://x:secret@ghe.example.com/acme/plans", "https://ghe.example.com/api/v3", "acme/plans", ""},
		{forge.GitLab, "", "ssh://git@gitlab.example.com:2222/research/ml/plans.git", "https://gitlab.example.com/api/v4", "research/ml/plans", ""},
		{forge.Gitea, "", "http://127.0.0.1:3000/acme/plans", "http://127.0.0.1:3000/api/v1", "acme/plans", ""},
		{forge.Gitea, "", "https://example.com/git/acme/plans.git", "https://example.com/git/api/v1", "acme/plans", ""},
		{forge.Gitea, "https://git.example.com:8443/api/v1", "ssh://git@git.example.com:22/acme/plans", "https://git.example.com:8443/api/v1", "acme/plans", ""},
		{forge.GitHub, "https://api.github.com", "https://github.com/acme/plans", "https://api.github.com", "acme/plans", ""},
		{forge.GitHub, "https://api.github.com", "https://git.corp.example/acme/plans", "", "", "on another host"},
		{forge.Gitea, "", "http://git.example.com/acme/plans", "", "", "over plain http"},
		{forge.Gitea, "http://git.example.com/api/v1", "ssh://git@git.example.com/acme/plans", "", "", "over plain http"},
		{forge.GitHub, "", "/srv/plans", "", "", "read from no forge"},
		{forge.GitHub, "", "file:///srv/plans", "", "", "read from no forge"},
		{forge.GitHub, "", "../plans", "", "", "read from no forge"},
		{forge.GitHub, "", "https://github.com/plans", "", "", "expected OWNER/NAME"},
		{"cvs", "", "https://github.com/acme/plans", "", "", "found neither"},
	} {
		j, err := forge.Of(c.kind, c.api, c.remote)
		if c.no != "" {
			if err == nil || !strings.Contains(err.Error(), c.no) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", c.remote, err)
			}
			continue
		}
		if err != nil || j.API != c.at || j.Repository != c.repository {
			t.Errorf("%s: %+v, %v", c.remote, j, err)
		}
	}
}
