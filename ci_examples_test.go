package headway

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/google/go-cmp/cmp"
)

// readYAML reads a file of the repository as YAML.
func readYAML(t *testing.T, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// at walks down a document: keys of maps, and 0 for the first of a list.
func at(doc any, path ...string) any {
	for _, k := range path {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[k]
		case []any:
			if doc = nil; k == "0" && len(d) > 0 {
				doc = d[0]
			}
		default:
			return nil
		}
	}
	return doc
}

// shellLines are the commands of a workflow or an action: `run` of its steps, and GitLab's `script`.
func shellLines(doc any) (out []string) {
	switch d := doc.(type) {
	case map[string]any:
		for k, v := range d {
			line, one := v.(string)
			lines, many := v.([]any)
			switch {
			case k == "run" && one:
				out = append(out, line)
			case k == "script" && many:
				for _, l := range lines {
					line, _ := l.(string)
					out = append(out, line)
				}
			default:
				out = append(out, shellLines(v)...)
			}
		}
	case []any:
		for _, v := range d {
			out = append(out, shellLines(v)...)
		}
	}
	return out
}

// used are the actions that a workflow or an action uses.
func used(doc any) (out []string) {
	switch d := doc.(type) {
	case map[string]any:
		for k, v := range d {
			if name, ok := v.(string); ok && k == "uses" {
				out = append(out, name)
			} else {
				out = append(out, used(v)...)
			}
		}
	case []any:
		for _, v := range d {
			out = append(out, used(v)...)
		}
	}
	return out
}

// TestCIExamples: the ready workflow files and the action are YAML, every command of headway in them exists with its flags,
// comment is the only one of them, they ask for no more rights than a comment and a status need, no text of a pull request
// reaches a shell, and the actions of others are pinned to a commit: whoever moves a tag would get the job's token.
func TestCIExamples(t *testing.T) {
	h := newHelp(t)
	verbs := h.verbs(t)
	rights := map[string]any{"contents": "read", "pull-requests": "write", "statuses": "write"}
	for _, path := range []string{"action.yml", "examples/ci/github.yml", "examples/ci/github-action.yml", "examples/ci/gitea.yml", "examples/ci/gitlab-ci.yml"} {
		doc := readYAML(t, path)
		comments := 0
		for _, line := range shellLines(doc) {
			if strings.Contains(line, "${{") {
				t.Errorf("%s: %q: an expression in a shell's text can be made to run what it holds: hand it over in env", path, line)
			}
			for _, m := range regexp.MustCompile(`(?m)(?:^|/)headway"?(?: -C \S+)? ([a-z]+)(.*)$`).FindAllStringSubmatch(line, -1) {
				if !slices.Contains(verbs, m[1]) {
					t.Errorf("%s: %q: there is no verb %s", path, line, m[1])
				}
				for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[2], -1) {
					if !strings.Contains(h.of(t, m[1]), flag+" ") {
						t.Errorf("%s: headway %s has no flag %s", path, m[1], flag)
					}
				}
				if m[1] == "comment" {
					comments++
				} else { // a verb that fails ends the job, and the comment of the commit before would stay
					t.Errorf("%s: headway %s stands beside headway comment, which says an error of the plan itself", path, m[1])
				}
			}
		}
		for _, name := range used(doc) {
			if name != "headway-run/headway@v1" && !regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`).MatchString(name) {
				t.Errorf("%s uses %s: name a commit of it", path, name)
			}
		}
		uses := at(doc, "jobs", "plan", "steps")
		if steps, ok := uses.([]any); ok && at(steps[len(steps)-1], "uses") == "headway-run/headway@v1" {
			comments++ // in the action, which is this repository's
		}
		if comments != 1 {
			t.Errorf("%s: headway comment stands there %d times", path, comments)
		}
		if path == "action.yml" || strings.Contains(path, "gitlab") {
			continue
		}
		if d := cmp.Diff(rights, doc["permissions"]); d != "" {
			t.Errorf("%s: permissions: %s", path, d)
		}
		on := map[string]any{"pull_request": map[string]any{"types": []any{"opened", "synchronize", "reopened", "labeled", "unlabeled", "edited"}}}
		if d := cmp.Diff(on, doc["on"]); d != "" {
			t.Errorf("%s: on: %s", path, d)
		}
	}
	action := readYAML(t, "action.yml")
	if at(action, "runs", "using") != "composite" || at(action, "inputs", "token", "default") != "${{ github.token }}" {
		t.Error("action.yml: not an action that runs with the job's token")
	}
	if got := at(readYAML(t, "examples/ci/gitlab-ci.yml"), "headway plan", "rules", "0", "if"); got != `$CI_PIPELINE_SOURCE == "merge_request_event"` {
		t.Errorf("gitlab-ci.yml runs %v", got)
	}
}

// TestTheActionsScript: the step that comments, run as its runner runs it, sets the output `code` whatever headway ends with, and
// fails where that is neither "nothing to do" nor "changes". The ready workflow files end in the same way.
func TestTheActionsScript(t *testing.T) {
	bin := t.TempDir()
	stand := "#!/bin/sh\necho \"$GITHUB_TOKEN $*\" >>\"$SAID\"\ncase \"$*\" in *comment*) exit \"$WANT\";; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "headway"), []byte(stand), 0o755); err != nil {
		t.Fatal(err)
	}
	script := func(path, holds string) string {
		for _, line := range shellLines(readYAML(t, path)) {
			if strings.Contains(line, holds) {
				return line
			}
		}
		t.Fatalf("%s: no step holds %q", path, holds)
		return ""
	}
	for code, fails := range map[string]bool{"0": false, "2": false, "1": true, "3": true} {
		for _, path := range []string{"action.yml", "examples/ci/github.yml", "examples/ci/gitea.yml", "examples/ci/gitlab-ci.yml"} {
			dir := t.TempDir()
			out, said := filepath.Join(dir, "output"), filepath.Join(dir, "said")
			c := exec.Command("bash", "-eo", "pipefail", "-c", script(path, "comment"))
			c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RUNNER_TEMP="+bin, "GITHUB_OUTPUT="+out, "DIRECTORY=plans of a", "GITHUB_TOKEN=given", "SAID="+said, "WANT="+code)
			text, err := c.CombinedOutput()
			if (err != nil) != fails {
				t.Errorf("%s: headway ends with %s: %v: %s", path, code, err, text)
			}
			want := "given comment\n"
			if path == "action.yml" {
				want = "given -C plans of a comment\n"
				if b, err := os.ReadFile(out); err != nil || string(b) != "code="+code+"\n" {
					t.Errorf("headway ends with %s: the action's outputs are %q, %v", code, b, err)
				}
			}
			if b, err := os.ReadFile(said); err != nil || string(b) != want {
				t.Errorf("%s: headway was called as %q, %v", path, b, err)
			}
		}
	}
}
