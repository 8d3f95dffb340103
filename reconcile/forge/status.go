package forge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// State is what a commit status says.
type State string

// The states.
const (
	Success State = "success"
	Failure State = "failure" // a safety rule refuses it
	Broken  State = "error"   // nothing could be said of it
)

// Status is a commit's mark beside its name.
type Status struct {
	Commit, Context string
	State           State
	Text            string // one line; cut at 140 characters, which all forges take
}

// maxStatus is how much of a status's text GitHub takes, in characters.
const maxStatus = 140

// Status sets a commit status, with a link to the run. Errors: *Error, or the context's.
func (c *Client) Status(ctx context.Context, s Status) error {
	if !isCommit(s.Commit) {
		return fmt.Errorf("a status is of a commit, and %q is none", s.Commit)
	}
	if r := []rune(s.Text); len(r) > maxStatus {
		s.Text = string(r[:maxStatus-1]) + "…"
	}
	run := link(c.job.Run)
	q := request{method: http.MethodPost, path: c.project() + "/statuses/" + s.Commit, asking: writeStatus}
	if c.job.Forge != GitLab {
		body := map[string]string{"state": string(s.State), "context": s.Context, "description": s.Text}
		if run != "" {
			body["target_url"] = run
		}
		q.body = body
		return c.do(ctx, q, maxAnswer, nil)
	}
	state := "failed" // GitLab knows no error
	if s.State == Success {
		state = "success"
	}
	q.query = url.Values{"state": {state}, "name": {s.Context}, "description": {s.Text}}
	if run != "" {
		q.query.Set("target_url", run)
	}
	err := c.do(ctx, q, maxAnswer, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusBadRequest && strings.Contains(e.Text, "from :"+state) {
		return nil // it stands there already
	}
	return err
}
