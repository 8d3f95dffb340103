package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const canary = "canary-token-of-the-job"

// smallForge is as much of Gitea's API as the verb asks for (reconcile/forge has all three, and every way to fail).
type smallForge struct {
	*httptest.Server
	mu       sync.Mutex
	comments []string
	statuses []map[string]string
	live     string
	readOnly bool
	asked    int
	strange  []string       // paths that are no forge's
	labels   []string       // of the pull request
	merged   map[string]any // pull requests by the commit that they brought
	broken   string         // a path that is not answered well
}

func newSmallForge(t *testing.T) *smallForge {
	t.Helper()
	f := &smallForge{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *smallForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	reply := func(code int, v any) { w.WriteHeader(code); _ = json.NewEncoder(w).Encode(v) }
	var in map[string]string
	_ = json.NewDecoder(r.Body).Decode(&in)
	one := func(i int) any {
		return map[string]any{"id": i + 1, "body": f.comments[i], "html_url": fmt.Sprintf("https://git.example.com/c/%d", i+1), "user": map[string]any{"id": 5}}
	}
	path, api := strings.CutPrefix(r.URL.Path, "/api/v1/")
	if !api {
		f.strange = append(f.strange, path)
	}
	switch brought, is := strings.CutPrefix(path, "repos/acme/plans/commits/"); {
	case r.Header.Get("Authorization") != "token "+canary:
		reply(401, map[string]any{"message": "who are you"})
	case path == f.broken:
		reply(403, map[string]any{"message": "not to you, " + canary})
	case is:
		if pr, ok := f.merged[strings.TrimSuffix(brought, "/pull")]; ok {
			reply(200, pr)
		} else {
			reply(404, map[string]any{"message": "pull request does not exist"})
		}
	case r.Method != "GET" && f.readOnly:
		reply(403, map[string]any{"message": "read only, " + canary})
	case path == "user":
		reply(200, map[string]any{"id": 5, "login": "robot"})
	case path == "repos/acme/plans/pulls/7":
		repo := map[string]any{"id": 1, "full_name": "acme/plans"}
		list := []any{}
		for _, l := range f.labels {
			list = append(list, map[string]any{"name": l})
		}
		reply(200, map[string]any{"number": 7, "labels": list, "head": map[string]any{"sha": f.live, "repo": repo}, "base": map[string]any{"repo": repo}})
	case path == "repos/acme/plans/issues/7/comments" && r.Method == "GET":
		out := []any{}
		for i := range f.comments {
			out = append(out, one(i))
		}
		reply(200, out)
	case path == "repos/acme/plans/issues/7/comments":
		f.comments = append(f.comments, in["body"])
		reply(201, one(len(f.comments)-1))
	case path == "repos/acme/plans/issues/comments/1" && r.Method == "PATCH":
		f.comments[0] = in["body"]
		reply(200, one(0))
	case strings.HasPrefix(path, "repos/acme/plans/statuses/"):
		in["commit"] = strings.TrimPrefix(path, "repos/acme/plans/statuses/")
		f.statuses = append(f.statuses, in)
		reply(201, in)
	default:
		reply(404, map[string]any{"message": path})
	}
}

// pullRequest is a plan repository whose branch is checked out, and the CI job that is run for it.
type pullRequest struct {
	t    *testing.T
	dir  string
	base string // the commit that the branch began at
	head string
	vars map[string]string
	said bytes.Buffer // of the forge, by a loop over it
}

func newPullRequest(t *testing.T, forge string) *pullRequest {
	t.Helper()
	p := &pullRequest{t: t, dir: t.TempDir()}
	p.write("headway.yaml", "headway: v1\nname: team-a\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n")
	p.write("plans/old.yaml", "jobs:\n  old: {run: exit 0}\n")
	if err := ignoreState(p.dir); err != nil {
		t.Fatal(err)
	}
	p.base = p.commit("base")
	p.vars = map[string]string{"CI": "true", "GITHUB_ACTIONS": "true", "GITEA_ACTIONS": "true", "GITHUB_API_URL": forge + "/api/v1", "GITHUB_REPOSITORY": "acme/plans", "GITHUB_SERVER_URL": "https://git.example.com",
		"GITHUB_RUN_ID": "9", "GITEA_TOKEN": canary, "GITHUB_EVENT_PATH": filepath.Join(t.TempDir(), "event.json"), "GITHUB_STEP_SUMMARY": filepath.Join(t.TempDir(), "summary.md")}
	return p
}

func (p *pullRequest) write(name, body string) {
	p.t.Helper()
	to := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(body), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pullRequest) commit(message string) string {
	p.t.Helper()
	hash, err := commitAll(p.dir, message)
	if err != nil {
		p.t.Fatal(err)
	}
	return hash
}

// pushed makes the checked out commit the head of the pull request, for the job and for the forge.
func (p *pullRequest) pushed(f *smallForge, fork bool) {
	p.t.Helper()
	from := map[string]any{"id": 1, "full_name": "acme/plans"}
	if fork {
		from = map[string]any{"id": 2, "full_name": "eve/plans"}
	}
	b, err := json.Marshal(map[string]any{"number": 7, "pull_request": map[string]any{"number": 7, "head": map[string]any{"sha": p.head, "repo": from},
		"base": map[string]any{"sha": p.base, "ref": "main", "repo": map[string]any{"id": 1, "full_name": "acme/plans"}}}})
	if err == nil {
		err = os.WriteFile(p.vars["GITHUB_EVENT_PATH"], b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	f.mu.Lock()
	f.live = p.head
	f.mu.Unlock()
}

// run is `headway comment` in the job, with what it prints.
func (p *pullRequest) run(code int, args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	e := env{args: append([]string{"comment"}, args...), stdout: &out, stderr: &out, dir: p.dir, getenv: func(k string) string { return p.vars[k] }}
	if got := run(p.t.Context(), e); got != code {
		p.t.Fatalf("ended with %d, want %d:\n%s", got, code, out.String())
	}
	if strings.Contains(out.String(), canary) {
		p.t.Errorf("the token is printed: %s", out.String())
	}
	return out.String()
}

// has holds a text against what must stand in it; with an exclamation mark in front: what must not.
func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if not, is := strings.CutPrefix(w, "!"); strings.Contains(text, not) == is {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
}

// TestCommentOnAPullRequest: one comment, edited on each push, with what the branch changes; a status with the run's link
// and the state of the exit code; the same on the run's own page.
func TestCommentOnAPullRequest(t *testing.T) {
	f := newSmallForge(t)
	p := newPullRequest(t, f.URL)
	p.write("README.md", "nothing of the plan\n")
	p.head = p.commit("words alone")
	p.pushed(f, false)
	has(t, p.run(0), "no comment: nothing would change", "status headway/plan (team-a): success")
	if len(f.comments) != 0 {
		t.Fatalf("posted for nothing: %q", f.comments)
	}

	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("a job")
	p.pushed(f, false)
	has(t, p.run(2), "comment created https://git.example.com/c/1", "status headway/plan (team-a): success")
	has(t, f.comments[0], "<!-- headway:plan root=team-a head="+p.head[:12]+" digest=sha256:", "1 to start", "| new |")
	has(t, f.comments[0], "> The store is a folder beside the plans (`store: embedded`), and this checkout has none: what is in force, runs or is finished is not known here")
	has(t, p.run(2), "comment unchanged")

	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 1}\n")
	p.write("plans/more.yaml", "jobs:\n  more: {run: exit 3}\n")
	p.head = p.commit("two jobs")
	p.pushed(f, false)
	has(t, p.run(2), "comment edited")
	has(t, f.comments[0], "head="+p.head[:12], "2 to start", "| more |")

	p.write("plans/new.yaml", "jobs:\n  new: {rum: x}\n")
	p.head = p.commit("a mistake")
	p.pushed(f, false)
	has(t, p.run(1), "comment edited", "status headway/plan (team-a): error", "plans/new.yaml:2:")
	has(t, f.comments[0], "plans/new.yaml:2:", "rum")

	p.write("headway.yaml", "headway: v1\nnaem: team-a\n")
	p.head = p.commit("a mistake in headway.yaml")
	p.pushed(f, false)
	has(t, p.run(1), "error: headway.yaml:2:", "comment edited", "status headway/plan (team-a): error") // the base's name finds it
	has(t, f.comments[0], "<!-- headway:plan root=team-a head="+p.head[:12], "### Error: 3 refused", "| ! | more |", "- headway.yaml:2:1: unknown key &#34;naem&#34;", "did you mean name", "No store was asked", "!more that do not fit")

	if len(f.comments) != 1 {
		t.Errorf("%d comments: %q", len(f.comments), f.comments)
	}
	s := f.statuses[1]
	has(t, s["description"], "1 to start")
	if s["context"] != "headway/plan (team-a)" || s["state"] != "success" || s["target_url"] != "https://git.example.com/acme/plans/actions/runs/9" {
		t.Errorf("status: %v", s)
	}
	summary, err := os.ReadFile(p.vars["GITHUB_STEP_SUMMARY"])
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(summary), "| new |", "| more |", "!"+canary)
}

// TestCommentRefused: a guard's refusal is a failure of the commit, and the exit code of plan.
func TestCommentRefused(t *testing.T) {
	f := newSmallForge(t)
	p := newPullRequest(t, f.URL)
	p.write("headway.yaml", "headway: v1\nname: team-a\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\nguard: {platforms: {here: [team=vision]}}\n")
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("of another team")
	p.pushed(f, false)
	has(t, p.run(3), "comment created", "status headway/plan (team-a): failure")
	has(t, f.comments[0], "GuardPlatforms", "| new |")
	has(t, f.statuses[0]["description"], "refused: GuardPlatforms: ")

	p.write("headway.yaml", "headway: v1\nname: team-a\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\nguard: {pinned: [main]}\n")
	p.head = p.commit("unpinned")
	p.pushed(f, false)
	checkout := exec.Command("git", "-C", p.dir, "checkout", "-q", "--detach") // as CI does: no branch is named
	if out, err := checkout.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	has(t, p.run(3), "comment edited", "status headway/plan (team-a): failure")
	has(t, f.comments[0], "GuardPinned", "branch main")
}

// TestCommentOfAFork: neither the store nor a platform that a stranger names is asked; where his token may only read, the
// plan stands in the run, and the exit code is that of the plan.
func TestCommentOfAFork(t *testing.T) {
	f := newSmallForge(t)
	p := newPullRequest(t, f.URL)
	p.vars["AWS_ACCESS_KEY_ID"], p.vars["AWS_SECRET_ACCESS_KEY"] = "AKIA", canary+"-of-the-store"
	p.write("headway.yaml", "headway: v1\nname: team-a\nstore: \"s3://loot/x?endpoint="+f.URL+"&region=eu&path_style=true\"\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n")
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("a stranger's")
	p.pushed(f, true)
	has(t, p.run(2), "comment created")
	has(t, f.comments[0], "From a fork: its files alone, held against those of the base", "1 to start", "| new |", "1 unchanged",
		": its files, held against those of ", ". No store was asked: what is in force, runs or is finished is not known.")
	if strings.Contains(f.comments[0], "store state") || strings.Contains(f.comments[0], "in force;") {
		t.Errorf("a store that nobody asked: %s", f.comments[0])
	}
	if len(f.strange) > 0 {
		t.Errorf("the store that a stranger named was asked: %v", f.strange)
	}

	f.readOnly, f.comments, f.statuses = true, nil, nil
	out := p.run(2)
	has(t, out, "warning: nothing is posted for a branch of a fork, whose token may only read", "| new |", "From a fork")
	p.vars["GITEA_TOKEN"] = ""
	asked := f.asked
	has(t, p.run(2), "there is no token", "| new |")
	if f.asked != asked || len(f.comments)+len(f.statuses) > 0 {
		t.Errorf("asked without a token: %d, %q", f.asked-asked, f.comments)
	}
}

// TestCommentOfAnOldHead: case 41. Nothing is posted, which is said, and the exit code is that of the plan.
func TestCommentOfAnOldHead(t *testing.T) {
	f := newSmallForge(t)
	p := newPullRequest(t, f.URL)
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("a job")
	p.pushed(f, false)
	f.live = strings.Repeat("7", 40)
	has(t, p.run(2), "dropped: the pull request moved from "+p.head[:12]+" to 777777777777", "!comment", "!status")
	if len(f.comments)+len(f.statuses) > 0 {
		t.Errorf("posted: %q %v", f.comments, f.statuses)
	}
	p.head = strings.Repeat("7", 40) // the job's checkout is of something else
	p.pushed(f, false)
	has(t, p.run(1), "which is neither the head 777777777777 of the pull request nor a merge of it", "hint: check out the pull request")
}

// TestCommentWithoutAForge: a dry run prints what would be posted and asks nobody; what is missing is said with its flag.
func TestCommentWithoutAForge(t *testing.T) {
	f := newSmallForge(t)
	p := newPullRequest(t, f.URL)
	p.write("plans/new.yaml", "jobs:\n  new: {run: exit 2}\n")
	p.head = p.commit("a job")
	p.pushed(f, false)
	has(t, p.run(2, "--dry-run"), "<!-- headway:plan root=team-a head="+p.head[:12], "| new |", "status headway/plan (team-a): success: ")
	if _, err := os.Stat(p.vars["GITHUB_STEP_SUMMARY"]); err == nil || f.asked > 0 {
		t.Errorf("a dry run wrote a summary, or asked %d times", f.asked)
	}
	p.vars = map[string]string{"GITEA_TOKEN": canary}
	has(t, p.run(2, "--dry-run"), "| new |", "| old |")
	has(t, p.run(1), "name the forge: --forge github|gitlab|gitea")
	has(t, p.run(1, "--forge", "gitea", "--pull", "7"), "--api URL")
	has(t, p.run(2, "--forge", "gitea", "--pull", "7", "--api", f.URL+"/api/v1", "--repository", "acme/plans"), "comment created")
	p.vars["GITEA_TOKEN"] = "expired"
	has(t, p.run(1, "--forge", "gitea", "--pull", "7", "--api", f.URL+"/api/v1", "--repository", "acme/plans"), "error: Gitea could not", "hint: the token is not accepted")
}
