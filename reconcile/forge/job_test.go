package forge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/forge"
)

const pullEvent = `{"action":"synchronize","number":7,"pull_request":{"number":7,"state":"open","head":{"ref":"more","sha":"9f2c000000000000000000000000000000000001","repo":{"id":3,"full_name":"acme/plans"}},"base":{"ref":"main","sha":"0b5f000000000000000000000000000000000000","repo":{"id":3,"full_name":"acme/plans"}}},"repository":{"id":3,"full_name":"acme/plans"}}`

// TestDetect: what the environment of each forge's jobs says, and that a fork is known as one.
func TestDetect(t *testing.T) {
	actions := func(more ...string) map[string]string {
		m := map[string]string{"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_REPOSITORY": "acme/plans", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": "event.json",
			"GITHUB_SHA": "cccc000000000000000000000000000000000000", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_API_URL": "https://api.github.com", "GITHUB_RUN_ID": "55", "GITHUB_TOKEN": "a"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	gitlab := func(source string) map[string]string {
		return map[string]string{"GITLAB_CI": "true", "CI": "true", "CI_API_V4_URL": "https://gitlab.com/api/v4", "CI_PROJECT_ID": "9", "CI_MERGE_REQUEST_PROJECT_ID": "3", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": source,
			"CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_SHA": head, "CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_JOB_URL": "https://gitlab.com/x/-/jobs/1", "CI_JOB_TOKEN": "job", "GITLAB_TOKEN": ""}
	}
	github := forge.Job{Forge: forge.GitHub, API: "https://api.github.com", Repository: "acme/plans", Pull: 7, Head: head, Base: base, Into: "main", Run: "https://github.com/acme/plans/actions/runs/55"}
	gitea := github
	gitea.Forge, gitea.API, gitea.Run = forge.Gitea, "https://git.example.com/api/v1", "https://git.example.com/acme/plans/actions/runs/55"
	lab := forge.Job{Forge: forge.GitLab, API: "https://gitlab.com/api/v4", Repository: "3", Pull: 7, Head: head, Base: base, Into: "main", Run: "https://gitlab.com/x/-/jobs/1"}
	as := func(j forge.Job, change func(*forge.Job)) forge.Job { change(&j); return j }
	for _, c := range []struct {
		name  string
		env   map[string]string
		event string
		want  forge.Job
		token string
	}{
		{"GitHub", actions(), pullEvent, github, "a"},
		{"a fork", actions(), strings.Replace(pullEvent, `"repo":{"id":3,`, `"repo":{"id":9,`, 1), as(github, func(j *forge.Job) { j.Fork = true }), "a"},
		{"a fork that is gone", actions("GITHUB_TOKEN", ""), strings.Replace(pullEvent, `"repo":{"id":3,"full_name":"acme/plans"}`, `"repo":null`, 1), as(github, func(j *forge.Job) { j.Fork = true }), ""},
		{"a push", actions(), `{"ref":"refs/heads/main","after":"x"}`, as(github, func(j *forge.Job) { j.Pull, j.Head, j.Base, j.Into = 0, "", "", "" }), "a"},
		{"Gitea", actions("GITEA_ACTIONS", "true", "GITHUB_API_URL", "https://git.example.com/api/v1", "GITHUB_SERVER_URL", "https://git.example.com/", "GITEA_TOKEN", "b"), pullEvent, gitea, "b"},
		{"Forgejo", actions("FORGEJO_ACTIONS", "true", "GITHUB_API_URL", "", "GITHUB_SERVER_URL", "https://git.example.com", "FORGEJO_TOKEN", "c\n"), pullEvent, gitea, "c"},
		{"GitLab", gitlab("3"), "", lab, "job"},
		{"a fork on GitLab", gitlab("12"), "", as(lab, func(j *forge.Job) { j.Fork = true }), "job"},
		{"a desk", map[string]string{"GITHUB_TOKEN": "mine"}, "", forge.Job{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := forge.Detect(func(k string) string { return c.env[k] }, func(name string, max int64) ([]byte, error) {
				if name != "event.json" || max < 1<<20 {
					t.Errorf("reads %d bytes of %s", max, name)
				}
				return []byte(c.event), nil
			})
			if err != nil || j.Token.Value() != c.token {
				t.Errorf("%v; token %q", err, j.Token.Value())
			}
			j.Token = forge.Token{}
			if d := cmp.Diff(c.want, j, cmp.AllowUnexported(forge.Token{})); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestDetectErrors: an environment that cannot be read is said, and holds up nothing else.
func TestDetectErrors(t *testing.T) {
	env := map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": "event.json"}
	get := func(k string) string { return env[k] }
	if _, err := forge.Detect(get, func(string, int64) ([]byte, error) { return nil, errors.New("no such file") }); err == nil || !strings.Contains(err.Error(), "GITHUB_EVENT_PATH") {
		t.Error(err)
	}
	if _, err := forge.Detect(get, func(string, int64) ([]byte, error) { return []byte("<html>"), nil }); err == nil || !strings.Contains(err.Error(), "not the JSON") {
		t.Error(err)
	}
	env = map[string]string{"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "seven"}
	if _, err := forge.Detect(get, nil); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Error(err)
	}
}

// TestCheck: what is missing is named with the flag that gives it, and an address with a secret in it is not repeated.
func TestCheck(t *testing.T) {
	good := forge.Job{Forge: forge.Gitea, API: "https://git.example.com/api/v1", Repository: "acme/plans", Pull: 7, Head: head}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*forge.Job){
		"--forge github|gitlab|gitea":           func(j *forge.Job) { j.Forge = "" },
		`--forge "bitbucket"`:                   func(j *forge.Job) { j.Forge = "bitbucket" },
		"--pull N":                              func(j *forge.Job) { j.Pull = 0 },
		"--api URL (https://HOST/api/v1)":       func(j *forge.Job) { j.API = "" },
		"--repository OWNER/NAME":               func(j *forge.Job) { j.Repository = "" },
		`--repository "plans": expected`:        func(j *forge.Job) { j.Repository = "plans" },
		`--repository "a/b/c": expected`:        func(j *forge.Job) { j.Repository = "a/b/c" },
		"in printable characters":               func(j *forge.Job) { j.Repository = "a/b\n" },
		"not an https URL":                      func(j *forge.Job) { j.API = "ftp://hunter2@x" },
		"holds a user, a password":              func(j *forge.Job) { j.API = "https://ann:hunter2@git.example.com/api/v1" },
		"holds a user, a password or parameter": func(j *forge.Job) { j.API = "https://git.example.com/api/v1?access_token=hunter2" },
		"is no commit":                          func(j *forge.Job) { j.Head = "main" },
	} {
		j := good
		change(&j)
		err := j.Check()
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := forge.New(good, nil); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("without a token: %v", err)
	}
}
