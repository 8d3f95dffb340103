package forge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// maxEvent bounds the file in which a CI job finds what started it, in bytes. GitHub's are 25 MiB at most.
const maxEvent = 32 << 20

// Job is what a CI job knows of itself: which pull request it runs for, and what it may say there.
type Job struct {
	Forge      Kind
	API        string // https://api.github.com, https://git.example.com/api/v1, https://gitlab.com/api/v4
	Repository string // owner/name; GitLab: the number of the project, or group/name
	Pull       int    // the number of the pull request
	Head       string // the newest commit of the pull request when the job began; "": not known
	Base       string // the commit that it would be merged into; "": not known
	Into       string // the branch that it would be merged into; "": not known
	Fork       bool   // its branch lies in another repository, whose people may be strangers
	Run        string // the page of this run; "": none
	Token      Token
}

// Token is what a forge is asked with. It prints as nothing, also within something else.
type Token struct {
	value *string // fmt shows no pointer's end
	ofJob bool    // of GitLab's job itself, which goes by another header and may do less
}

// NewToken makes a token out of its text.
func NewToken(s string) Token {
	s = strings.TrimSpace(s)
	return Token{value: &s}
}

// Empty: there is none.
func (t Token) Empty() bool { return t.Value() == "" }

// Value is the token's text, for whoever keeps it out of what is printed.
func (t Token) Value() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

func (Token) String() string   { return "(a token)" }
func (Token) GoString() string { return "(a token)" }

// MarshalText keeps it out of JSON.
func (Token) MarshalText() ([]byte, error) { return []byte("(a token)"), nil }

// Tokens are the variables that hold the token of each forge, in the order in which they are tried.
func Tokens(k Kind) []string {
	switch k {
	case GitHub:
		return []string{"GITHUB_TOKEN"}
	case Gitea:
		return []string{"GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN"}
	default:
		return []string{"GITLAB_TOKEN", "CI_JOB_TOKEN"}
	}
}

// Detect reads a CI job's environment. What it lacks is left empty: a person can name it (see Job.Check). read reads a file
// of at most so many bytes. Errors are about an environment that contradicts itself or cannot be read.
func Detect(getenv func(string) string, read func(name string, max int64) ([]byte, error)) (Job, error) {
	switch {
	case getenv("GITEA_ACTIONS") == "true" || getenv("FORGEJO_ACTIONS") == "true": // they say GITHUB_ACTIONS too
		return fromActions(Gitea, getenv, read)
	case getenv("GITHUB_ACTIONS") == "true":
		return fromActions(GitHub, getenv, read)
	case getenv("GITLAB_CI") == "true":
		return fromGitLab(getenv)
	}
	return Job{}, nil
}

// TokenOf is the token that the environment has for a forge.
func TokenOf(k Kind, getenv func(string) string) Token {
	for _, name := range Tokens(k) {
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return Token{value: &v, ofJob: name == "CI_JOB_TOKEN"}
		}
	}
	return Token{}
}

// event is what GitHub, Gitea and Forgejo write of the pull request that started a job.
type event struct {
	Number int   `json:"number"`
	Pull   *pull `json:"pull_request"`
}

func fromActions(k Kind, getenv func(string) string, read func(string, int64) ([]byte, error)) (Job, error) {
	j := Job{Forge: k, API: getenv("GITHUB_API_URL"), Repository: getenv("GITHUB_REPOSITORY"), Token: TokenOf(k, getenv)}
	server := strings.TrimSuffix(getenv("GITHUB_SERVER_URL"), "/")
	if k == Gitea {
		j.API = cmp.Or(j.API, server+"/api/v1")
	} else {
		j.API = cmp.Or(j.API, "https://api.github.com")
	}
	if id := getenv("GITHUB_RUN_ID"); server != "" && id != "" {
		j.Run = fmt.Sprintf("%s/%s/actions/runs/%s", server, j.Repository, id)
	}
	name := getenv("GITHUB_EVENT_PATH")
	if name == "" {
		return j, nil
	}
	b, err := read(name, maxEvent)
	if err != nil {
		return j, fmt.Errorf("what started this job (GITHUB_EVENT_PATH) cannot be read: %w", err)
	}
	var e event
	if err := json.Unmarshal(b, &e); err != nil {
		return j, fmt.Errorf("what started this job (GITHUB_EVENT_PATH) is not the JSON of an event")
	}
	if e.Pull == nil {
		return j, nil
	}
	j.Pull = cmp.Or(e.Pull.Number, e.Number)
	p := e.Pull.facts(k)
	j.Head, j.Base, j.Into, j.Fork = p.Head, p.Base, p.Into, p.Fork
	return j, nil
}

func fromGitLab(getenv func(string) string) (Job, error) {
	j := Job{Forge: GitLab, API: getenv("CI_API_V4_URL"), Repository: cmp.Or(getenv("CI_MERGE_REQUEST_PROJECT_ID"), getenv("CI_PROJECT_ID")),
		// of a pipeline of merged results CI_COMMIT_SHA is a merge that nobody pushed
		Head: cmp.Or(getenv("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"), getenv("CI_COMMIT_SHA")), Base: getenv("CI_MERGE_REQUEST_DIFF_BASE_SHA"), Into: getenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"), Run: getenv("CI_JOB_URL"),
		Fork: getenv("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != getenv("CI_MERGE_REQUEST_PROJECT_ID"), Token: TokenOf(GitLab, getenv)}
	if n := getenv("CI_MERGE_REQUEST_IID"); n != "" {
		var err error
		if j.Pull, err = strconv.Atoi(n); err != nil {
			return j, fmt.Errorf("CI_MERGE_REQUEST_IID is %q, which is no number", n)
		}
	}
	return j, nil
}

// Check says what is missing or wrong before anything can be asked, and how to name it; nil: nothing.
func (j Job) Check() error { return j.check(true) }

func (j Job) check(pull bool) error {
	switch {
	case j.Forge == "":
		return fmt.Errorf("this is no job of GitHub, GitLab, Gitea or Forgejo, so name the forge: --forge github|gitlab|gitea --api URL --repository OWNER/NAME --pull N")
	case j.Forge != GitHub && j.Forge != GitLab && j.Forge != Gitea:
		return fmt.Errorf("--forge %q: found neither github, gitlab nor gitea (which Forgejo is too)", string(j.Forge))
	case pull && j.Pull <= 0:
		return fmt.Errorf("this run is not of a pull request: start it by one (GitHub and Gitea: on: pull_request; GitLab: rules with merge_request_event), or name one: --pull N")
	case j.API == "":
		return fmt.Errorf("it is not said where the forge's API is: --api URL (%s)", map[Kind]string{GitHub: "https://api.github.com", GitLab: "https://gitlab.com/api/v4", Gitea: "https://HOST/api/v1"}[j.Forge])
	case j.Repository == "":
		return fmt.Errorf("it is not said which repository: --repository OWNER/NAME")
	case j.Forge != GitLab && (strings.Count(j.Repository, "/") != 1 || strings.HasPrefix(j.Repository, "/") || strings.HasSuffix(j.Repository, "/")):
		return fmt.Errorf("--repository %q: expected OWNER/NAME", j.Repository)
	case !printable(j.Repository, maxRef):
		return fmt.Errorf("--repository %q: expected OWNER/NAME, in printable characters", j.Repository)
	}
	u, err := url.Parse(j.API)
	switch { // the URL itself is not shown: it may hold a password
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("the forge's API is not an https URL: --api URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the URL of the forge's API holds a user, a password or parameters: leave them out (--api URL), the token comes from %s", Tokens(j.Forge)[0])
	case j.Head != "" && !isCommit(j.Head):
		return fmt.Errorf("the head %q of the pull request is no commit: expected 40 or 64 hexadecimal digits", j.Head)
	}
	return nil
}

func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
