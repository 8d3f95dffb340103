package forge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxMerged is how many pull requests of one commit are looked at: what has more is no merge.
const maxMerged = 20

// labels are names, which GitHub and Gitea give within objects and GitLab as they are.
type labels []string

func (l *labels) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for _, raw := range list {
		var within struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &within.Name) != nil {
			if err := json.Unmarshal(raw, &within); err != nil {
				return err
			}
		}
		*l = append(*l, within.Name)
	}
	return nil
}

// Merged is a pull request by which a commit came to a branch.
type Merged struct {
	Number int
	Into   string   // the branch
	Heads  []string // the newest commit of its own, and, on GitLab, the one that its commits were squashed into
	Labels []string // as they are now
	Made   string   // Gitea: the commit that it made, or found, when it was merged; "": not said
}

// merged says whether a pull request is, in the words of each forge.
func (p *pull) merged(k Kind) bool {
	switch k {
	case GitHub:
		return p.MergedAt != ""
	case GitLab:
		return p.State == "merged"
	default:
		return p.Merged
	}
}

// goesHere says whether a pull request goes to the repository that is asked about: forges also tell of those of forks and of a
// fork's origin, which hold the same commits, and whose branches and labels are other people's. One that does not say is not ours.
func (c *Client) goesHere(p *pull) bool {
	if c.job.Forge != GitLab {
		to := p.Base.Repo
		return to != nil && strings.EqualFold(to.Name, c.job.Repository)
	}
	if id, err := strconv.ParseInt(c.job.Repository, 10, 64); err == nil {
		return p.Target == id
	}
	return strings.EqualFold(p.Called.Full, fmt.Sprintf("%s!%d", c.job.Repository, p.IID))
}

// Reader makes a client that asks about a repository, and about no pull request of a CI job: Job.Pull does not count.
func Reader(j Job, base http.RoundTripper) (*Client, error) { return newClient(j, false, base) }

// Merged asks by which pull requests a commit of a branch came there: the merge, what was squashed into one, or one of several
// that were taken as they are (of those Gitea knows the last alone). None: it was pushed, the token may not see it, or the
// pull request is of another repository.
func (c *Client) Merged(ctx context.Context, commit string) (out []Merged, err error) {
	if !isCommit(commit) {
		return nil, fmt.Errorf("a pull request is asked for by a commit, and %q is none", commit)
	}
	q := request{method: http.MethodGet, path: c.project() + "/commits/" + commit + "/pulls", query: url.Values{"per_page": {fmt.Sprint(maxMerged)}}, asking: readMerged}
	add := func(p pull) {
		if p.merged(c.job.Forge) && c.goesHere(&p) && len(out) < maxMerged {
			facts := p.facts(c.job.Forge)
			heads := slices.DeleteFunc([]string{facts.Head, p.Squash}, func(h string) bool { return !isCommit(h) })
			m := Merged{Number: p.Number + p.IID, Into: facts.Into, Heads: heads, Labels: p.Labels}
			if c.job.Forge == Gitea && isCommit(p.Made) {
				m.Made = p.Made
			}
			out = append(out, m)
		}
	}
	switch c.job.Forge {
	case GitLab:
		q.path = c.project() + "/repository/commits/" + commit + "/merge_requests"
	case Gitea:
		q.path, q.query = c.project()+"/commits/"+commit+"/pull", nil
		var p pull
		err = c.do(ctx, q, maxAnswer, one(&p))
		if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound {
			return nil, nil
		}
		if err == nil {
			add(p)
		}
		return out, err
	}
	err = c.do(ctx, q, maxPage, func(_ http.Header, r io.Reader) error { out = nil; return each(r, "pull request", add) })
	return out, err
}

// Of tells where the API of the forge is, from which a repository is read, and what the repository is called there. api "": where
// that forge has it on the same host. Errors are about an address that no forge can be asked at; a token would go elsewhere.
func Of(k Kind, api, remote string) (Job, error) {
	j := Job{Forge: k, API: api}
	scheme, rest, isURL := strings.Cut(remote, "://")
	if host, name, scp := strings.Cut(remote, ":"); !isURL && scp && !strings.Contains(host, "/") {
		scheme, rest = "ssh", host+"/"+name
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Hostname() == "" || scheme != "https" && scheme != "http" && scheme != "ssh" {
		return j, errors.New("the repository is read from no forge: name it by its https or ssh address there")
	}
	host := u.Host
	if scheme == "ssh" {
		host, scheme = u.Hostname(), "https"
	}
	j.Repository = strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	below := ""
	if k != GitLab { // groups of GitLab lie within each other
		below, j.Repository = path.Dir(path.Dir("/"+j.Repository)), path.Join(path.Base(path.Dir(j.Repository)), path.Base(j.Repository))
	}
	if api == "" {
		j.API = scheme + "://" + host + strings.TrimSuffix(below, "/") + map[Kind]string{GitHub: "/api/v3", GitLab: "/api/v4", Gitea: "/api/v1"}[k]
		if k == GitHub && host == "github.com" {
			j.API = "https://api.github.com"
		}
	}
	if err := j.check(false); err != nil {
		return j, err
	}
	at, err := url.Parse(j.API)
	if err == nil && at.Scheme == "http" && at.Hostname() != "localhost" && !net.ParseIP(at.Hostname()).IsLoopback() {
		return j, errors.New("a token does not go over plain http to another machine: name the repository, or the API (--api), by its https address")
	}
	if err != nil || at.Hostname() != u.Hostname() && at.Hostname() != "api."+u.Hostname() {
		return j, fmt.Errorf("the forge's API is on another host than the repository, where the same name may be somebody else's: give --api of %s", u.Hostname())
	}
	return j, nil
}
