package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of one talk with a forge.
const (
	maxAnswer   = 1 << 20  // bytes of an answer that is one object
	maxComment  = 8 << 20  // bytes of one comment; GitLab takes a million characters
	maxPage     = 64 << 20 // bytes of one page of comments; Gitea gives all of them as one
	maxTries    = 5
	maxWait     = 2 * time.Minute // that is waited for one request in all
	tryTimeout  = time.Minute     // for one try
	maxRedirect = 3
)

// Client speaks with one forge about one pull request.
type Client struct {
	job  Job
	http *http.Client
	me   account // once it was asked for
}

// New makes a client. The job must be whole (Job.Check) and have a token. base nil: the network, with the proxies of the
// environment.
func New(j Job, base http.RoundTripper) (*Client, error) { return newClient(j, true, base) }

func newClient(j Job, pull bool, base http.RoundTripper) (*Client, error) {
	if err := j.check(pull); err != nil {
		return nil, err
	}
	if j.Token.Empty() {
		return nil, &Error{Text: "there is no token to ask the forge with", Hint: "set " + strings.Join(Tokens(j.Forge), " or ") + " in the job's environment"}
	}
	if base == nil {
		base = http.DefaultTransport
	}
	j.API = strings.TrimSuffix(j.API, "/")
	return &Client{job: j, http: &http.Client{Transport: base, CheckRedirect: sameHost}}, nil
}

// sameHost follows a redirect only where a token may be seen: on the same host, by the same scheme, and for questions. The
// library would hand headers that it does not know as secret, GitLab's among them, to any host.
func sameHost(to *http.Request, via []*http.Request) error {
	from := via[0]
	if from.Method != http.MethodGet || to.URL.Host != from.URL.Host || to.URL.Scheme != from.URL.Scheme || len(via) > maxRedirect {
		return http.ErrUseLastResponse
	}
	return nil
}

// request is one question to a forge.
type request struct {
	method, path string
	query        url.Values
	body         any
	asking       asking
	once         bool // it is not tried again where the forge may have done it
}

// asking is what a request wants, in the words of an error.
type asking string

const (
	whoAmI       asking = "ask whose token it is"
	readPull     asking = "read the pull request"
	readComments asking = "read the comments"
	readMerged   asking = "say by which pull request a commit came"
	writeComment asking = "write the comment"
	writeStatus  asking = "set the commit status"
)

// do sends a request until it is answered, and hands the answer's body to read.
func (c *Client) do(ctx context.Context, q request, max int64, read func(http.Header, io.Reader) error) error {
	var waited time.Duration
	for try := 1; ; try++ {
		err := c.try(ctx, q, max, read)
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.again || try == maxTries || e.unsure && q.once || ctx.Err() != nil {
			return err
		}
		wait := e.after
		if wait == 0 {
			wait = time.Second << (try - 1)
		}
		if waited += wait; waited > maxWait {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// try sends a request once.
func (c *Client) try(ctx context.Context, q request, max int64, read func(http.Header, io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var body io.Reader
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	to := q.path
	if !strings.Contains(to, "://") {
		to = c.job.API + "/" + q.path
	}
	if len(q.query) > 0 {
		to += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, to, body)
	if err != nil {
		return c.failed(q, 0, "no request can be made of its URL")
	}
	r.Header.Set("User-Agent", "headway")
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.job.Forge == GitHub:
		r.Header.Set("Accept", "application/vnd.github+json")
		r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
		r.Header.Set("Authorization", "Bearer "+c.job.Token.Value())
	case c.job.Forge == Gitea:
		r.Header.Set("Authorization", "token "+c.job.Token.Value())
	case c.job.Token.ofJob:
		r.Header.Set("JOB-TOKEN", c.job.Token.Value())
	default:
		r.Header.Set("PRIVATE-TOKEN", c.job.Token.Value())
	}
	a, err := c.http.Do(r)
	if err != nil {
		return c.unanswered(q, err)
	}
	defer a.Body.Close()
	limited := &io.LimitedReader{R: a.Body, N: max + 1}
	if a.StatusCode/100 != 2 {
		return c.refused(q, a, limited)
	}
	if read == nil {
		_, _ = io.CopyN(io.Discard, limited, 64<<10) // so that the connection can be used again
		return nil
	}
	err = read(a.Header, limited)
	if limited.N <= 0 {
		return c.failed(q, 0, fmt.Sprintf("its answer is longer than %d MiB", max>>20))
	}
	if e, ok := errors.AsType[*Error](err); err == nil || ok && e != nil {
		return err
	}
	if slow(err) || errors.Is(err, io.ErrUnexpectedEOF) {
		return c.unanswered(q, err)
	}
	return c.failed(q, 0, "its answer is not the JSON that this API gives")
}

// one reads an answer that is one object.
func one(into any) func(http.Header, io.Reader) error {
	return func(_ http.Header, r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// project is the path of everything about the repository.
func (c *Client) project() string {
	if c.job.Forge == GitLab {
		return "projects/" + url.PathEscape(c.job.Repository)
	}
	owner, name, _ := strings.Cut(c.job.Repository, "/")
	return "repos/" + url.PathEscape(owner) + "/" + url.PathEscape(name)
}

// pullPath is the path of the pull request.
func (c *Client) pullPath() string {
	n := strconv.Itoa(c.job.Pull)
	if c.job.Forge == GitLab {
		return c.project() + "/merge_requests/" + n
	}
	return c.project() + "/pulls/" + n
}

// pull is a pull request as the forges describe it, in an event and in their API.
type pull struct {
	Number int    `json:"number"`
	Head   side   `json:"head"`
	Base   side   `json:"base"`
	Common string `json:"merge_base"` // Gitea, whose jobs check out the head and no merge of it
	Labels labels `json:"labels"`

	MergedAt string `json:"merged_at"` // GitHub
	Merged   bool   `json:"merged"`    // Gitea
	Made     string `json:"merge_commit_sha"`

	// GitLab's names
	IID    int    `json:"iid"`
	State  string `json:"state"`
	SHA    string `json:"sha"`
	Squash string `json:"squash_commit_sha"`
	Source int64  `json:"source_project_id"`
	Target int64  `json:"target_project_id"`
	Into   string `json:"target_branch"`
	Refs   struct {
		Base string `json:"base_sha"`
	} `json:"diff_refs"`
	Called struct {
		Full string `json:"full"` // group/name!7, in the project that it goes to
	} `json:"references"`
}

type side struct {
	SHA  string `json:"sha"`
	Ref  string `json:"ref"`
	Repo *struct {
		ID   int64  `json:"id"`
		Name string `json:"full_name"`
	} `json:"repo"`
}

// Pull is how a pull request stands now.
type Pull struct {
	Head string // its newest commit
	Base string // the commit that it would be merged into; "": not said
	Into string // the branch that it would be merged into; "": not said
	Fork bool   // its branch lies in another repository, or in one that is gone

	Labels []string // it carries them now; only by [Client.Pull]
}

func (p *pull) facts(k Kind) Pull {
	if k == GitLab {
		return Pull{Head: p.SHA, Base: p.Refs.Base, Into: p.Into, Fork: p.Source != p.Target}
	}
	h, b := p.Head.Repo, p.Base.Repo
	return Pull{Head: p.Head.SHA, Base: cmp.Or(p.Common, p.Base.SHA), Into: p.Base.Ref, Fork: h == nil || b == nil || h.ID != b.ID || !strings.EqualFold(h.Name, b.Name)}
}

// Pull asks how the pull request stands now.
func (c *Client) Pull(ctx context.Context) (Pull, error) {
	var p pull
	q := request{method: http.MethodGet, path: c.pullPath(), asking: readPull}
	if err := c.do(ctx, q, maxAnswer, one(&p)); err != nil {
		return Pull{}, err
	}
	f := p.facts(c.job.Forge)
	if !isCommit(f.Head) {
		return Pull{}, c.failed(q, 0, "its answer names no head of the pull request")
	}
	if !isCommit(f.Base) {
		f.Base = ""
	}
	f.Labels = p.Labels
	return f, nil
}

// account is a user of a forge.
type account struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Name  string `json:"username"` // GitLab
	Type  string `json:"type"`     // GitHub: User or Bot
}

// self asks whose token it is. GitHub does not answer that to the token of a job, but tells it to another question.
func (c *Client) self(ctx context.Context) (account, error) {
	if c.me.ID != 0 {
		return c.me, nil
	}
	var me account
	err := c.do(ctx, request{method: http.MethodGet, path: "user", asking: whoAmI}, maxAnswer, one(&me))
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusForbidden && !e.again && c.job.Forge == GitHub {
		var v struct {
			Data struct {
				Viewer struct {
					ID    int64  `json:"databaseId"`
					Login string `json:"login"`
				} `json:"viewer"`
			} `json:"data"`
		}
		q := request{method: http.MethodPost, path: c.graph(), asking: whoAmI, body: map[string]string{"query": "query { viewer { login databaseId } }"}}
		if err = c.do(ctx, q, maxAnswer, one(&v)); err == nil {
			me = account{ID: v.Data.Viewer.ID, Login: v.Data.Viewer.Login}
		}
	}
	if err != nil {
		return account{}, err
	}
	if me.ID == 0 {
		return account{}, c.failed(request{asking: whoAmI}, 0, "its answer names no account")
	}
	c.me = me
	return me, nil
}

// graph is where GitHub answers GraphQL: beside the API of github.com, and beside v3 on a server of one's own.
func (c *Client) graph() string {
	return strings.TrimSuffix(c.job.API, "/v3") + "/graphql"
}
