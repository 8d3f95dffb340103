package forge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headway-run/headway/reconcile/forge"
)

const (
	token  = "ghs_canary0token0that0nobody0may0print"
	head   = "9f2c000000000000000000000000000000000001"
	moved  = "9f2c000000000000000000000000000000000002"
	base   = "0b5f000000000000000000000000000000000000"
	marker = "<!-- headway:plan root=team-a "
	myID   = 41898282
)

func kinds() []forge.Kind { return []forge.Kind{forge.GitHub, forge.GitLab, forge.Gitea} }

type comment struct {
	ID     int64
	Body   string
	Author int64
	System bool
}

// fake is one forge as its API answers: the same comments and statuses behind the shapes of the three.
type fake struct {
	*httptest.Server
	kind forge.Kind

	mu       sync.Mutex
	comments []comment
	next     int64
	statuses []url.Values
	live     string // the pull request's head
	fork     bool
	calls    []string // "GET comments 1"
	page     int      // how many comments a page has at most, whatever is asked for
	// before sees every request first; true: it answered.
	before func(w http.ResponseWriter, r *http.Request, what string) bool
}

func newFake(t *testing.T, kind forge.Kind) *fake {
	t.Helper()
	f := &fake{kind: kind, next: 1000, live: head, page: 100}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) job() forge.Job {
	j := forge.Job{Forge: f.kind, Repository: "acme/plans", Pull: 7, Head: head, Run: "https://ci.example.com/runs/1", Token: forge.NewToken(token)}
	j.API = f.URL + map[forge.Kind]string{forge.GitHub: "/api/v3", forge.GitLab: "/api/v4", forge.Gitea: "/api/v1"}[f.kind]
	if f.kind == forge.GitLab {
		j.Repository = "research/ml/plans"
	}
	return j
}

func (f *fake) client(t *testing.T) *forge.Client {
	t.Helper()
	c, err := forge.New(f.job(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// add is a comment that is there already.
func (f *fake) add(body string, author int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.comments = append(f.comments, comment{ID: f.next, Body: body, Author: author})
	return f.next
}

func (f *fake) bodies() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.comments {
		out = append(out, c.Body)
	}
	return out
}

// count is how many requests of a kind there were.
func (f *fake) count(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// what names a request apart from its forge.
func (f *fake) what(r *http.Request) string {
	p := r.URL.EscapedPath()
	is := func(s string) bool { return strings.HasSuffix(p, s) }
	project := "/repos/acme/plans"
	comments, one, pull := project+"/issues/7/comments", project+"/issues/comments/", project+"/pulls/7"
	if f.kind == forge.GitLab {
		project = "/projects/research%2Fml%2Fplans"
		pull = project + "/merge_requests/7"
		comments, one = pull+"/notes", pull+"/notes/"
	}
	switch {
	case is("/user"):
		return r.Method + " user"
	case is("/api/graphql") && f.kind == forge.GitHub:
		return r.Method + " graphql"
	case is(pull):
		return r.Method + " pull"
	case is(comments):
		return r.Method + " comments " + r.URL.Query().Get("page")
	case strings.Contains(p, one):
		return r.Method + " comment " + p[strings.LastIndex(p, "/")+1:]
	case strings.Contains(p, project+"/statuses/"):
		return r.Method + " status " + p[strings.LastIndex(p, "/")+1:]
	}
	return "unknown " + r.Method + " " + p
}

func (f *fake) allowed(r *http.Request) bool {
	switch f.kind {
	case forge.GitHub:
		return r.Header.Get("Authorization") == "Bearer "+token
	case forge.Gitea:
		return r.Header.Get("Authorization") == "token "+token
	default:
		return r.Header.Get("PRIVATE-TOKEN") == token
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	what := f.what(r)
	f.mu.Lock()
	f.calls = append(f.calls, what)
	before := f.before
	f.mu.Unlock()
	if before != nil && before(w, r, what) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.allowed(r) {
		answer(w, 401, map[string]any{"message": "Bad credentials"})
		return
	}
	words := strings.Fields(what)
	switch words[0] + " " + words[1] {
	case "GET user":
		if f.kind == forge.GitHub { // the token of a job is no user's
			answer(w, 403, map[string]any{"message": "Resource not accessible by integration", "documentation_url": "https://docs.github.com/rest/users/users#get-the-authenticated-user", "status": "403"})
			return
		}
		answer(w, 200, map[string]any{"id": myID, "login": "robot", "username": "robot", "is_admin": false})
	case "POST graphql":
		answer(w, 200, map[string]any{"data": map[string]any{"viewer": map[string]any{"login": "github-actions[bot]", "databaseId": myID}}})
	case "GET pull":
		answer(w, 200, f.pull())
	case "GET comments":
		f.list(w, r)
	case "POST comments":
		var in struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		f.next++
		f.comments = append(f.comments, comment{ID: f.next, Body: in.Body, Author: myID})
		answer(w, 201, f.shape(f.comments[len(f.comments)-1]))
	case "PATCH comment", "PUT comment", "DELETE comment":
		f.change(w, r, words)
	case "POST status":
		f.status(w, r, words[2])
	default:
		answer(w, 404, map[string]any{"message": "Not Found: " + what})
	}
}

func (f *fake) change(w http.ResponseWriter, r *http.Request, words []string) {
	id, _ := strconv.ParseInt(words[2], 10, 64)
	if right := map[forge.Kind]string{forge.GitLab: "PUT"}[f.kind]; words[0] != "DELETE" && (right == "PUT") != (words[0] == "PUT") {
		answer(w, 405, map[string]any{"message": "method not allowed"})
		return
	}
	for i := range f.comments {
		if f.comments[i].ID != id {
			continue
		}
		if words[0] == "DELETE" {
			f.comments = append(f.comments[:i], f.comments[i+1:]...)
			w.WriteHeader(204)
			return
		}
		var in struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		f.comments[i].Body = in.Body
		answer(w, 200, f.shape(f.comments[i]))
		return
	}
	answer(w, 404, map[string]any{"message": "404 Not Found"})
}

func (f *fake) status(w http.ResponseWriter, r *http.Request, sha string) {
	v := r.URL.Query()
	if f.kind != forge.GitLab {
		var in map[string]string
		_ = json.NewDecoder(r.Body).Decode(&in)
		v = url.Values{}
		for k, x := range in {
			v.Set(k, x)
		}
	}
	v.Set("commit", sha)
	f.statuses = append(f.statuses, v)
	answer(w, 201, map[string]any{"id": 1, "state": v.Get("state"), "context": v.Get("context")})
}

func (f *fake) pull() any {
	repo := func(id int, name string) any {
		return map[string]any{"id": id, "full_name": name, "clone_url": f.URL + "/" + name + ".git"}
	}
	source, id := "acme/plans", 3
	if f.fork {
		source, id = "eve/plans", 9
	}
	if f.kind == forge.GitLab {
		return map[string]any{"id": 901, "iid": 7, "project_id": 3, "state": "opened", "sha": f.live, "source_project_id": id, "target_project_id": 3,
			"author": map[string]any{"id": 5, "username": "ann"}, "diff_refs": map[string]any{"base_sha": base, "head_sha": f.live, "start_sha": base}}
	}
	return map[string]any{"id": 901, "number": 7, "state": "open", "user": map[string]any{"id": 5, "login": "ann"},
		"head": map[string]any{"ref": "more", "sha": f.live, "repo": repo(id, source)}, "base": map[string]any{"ref": "main", "sha": base, "repo": repo(3, "acme/plans")}}
}

func (f *fake) shape(c comment) any {
	if f.kind == forge.GitLab {
		return map[string]any{"id": c.ID, "type": nil, "body": c.Body, "system": c.System, "noteable_type": "MergeRequest", "noteable_iid": 7, "resolvable": false,
			"author": map[string]any{"id": c.Author, "username": "someone", "state": "active"}, "created_at": "2026-01-02T03:04:05.678Z"}
	}
	kind := "User"
	if c.Author == myID {
		kind = "Bot"
	}
	return map[string]any{"id": c.ID, "node_id": "IC_1", "html_url": fmt.Sprintf("https://forge.example.com/acme/plans/pull/7#issuecomment-%d", c.ID), "body": c.Body,
		"user": map[string]any{"id": c.Author, "login": "someone", "type": kind}, "created_at": "2026-01-02T03:04:05Z", "author_association": "NONE", "performed_via_github_app": nil}
}

// list gives one page: GitHub and GitLab say in Link whether there is another, Gitea gives everything and its count.
func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	page, _ := strconv.Atoi(q.Get("page"))
	from, to := 0, len(f.comments)
	if f.kind != forge.Gitea {
		size, _ := strconv.Atoi(q.Get("per_page"))
		size = min(size, f.page)
		from, to = min((page-1)*size, to), min(page*size, to)
		if to < len(f.comments) {
			w.Header().Set("Link", fmt.Sprintf(`<https://elsewhere.example/steal?page=%d>; rel="next", <https://elsewhere.example/steal?page=9>; rel="last"`, page+1))
		}
	} else {
		w.Header().Set("X-Total-Count", strconv.Itoa(len(f.comments)))
	}
	out := []any{}
	for _, c := range f.comments[from:to] {
		out = append(out, f.shape(c))
	}
	answer(w, 200, out)
}
