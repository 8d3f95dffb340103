package forge

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Error is what a forge would not do. Neither text holds the token.
type Error struct {
	Status int    // of HTTP; 0: there was no answer that could be used
	Text   string // one sentence
	Hint   string // what to do; "": the text says it

	after  time.Duration // what the forge asks to wait; 0: nothing
	again  bool          // trying again may help
	unsure bool          // the forge may have done it all the same
}

func (e *Error) Error() string { return e.Text }

// Moved is a pull request whose head is another one by now: what was planned is of an old commit, and is not posted.
type Moved struct {
	Planned, Live string
}

func (e *Moved) Error() string {
	return fmt.Sprintf("the pull request moved from %.12s to %.12s while this was planned", e.Planned, e.Live)
}

func (c *Client) failed(q request, status int, what string) *Error {
	return &Error{Status: status, Text: fmt.Sprintf("%s could not %s: %s", c.job.Forge.title(), q.asking, what)}
}

func (k Kind) title() string {
	switch k {
	case GitHub:
		return "GitHub"
	case GitLab:
		return "GitLab"
	default:
		return "Gitea"
	}
}

// unanswered is a request without an answer. A proxy's or a resolver's words are shown, bounded, a server's are not.
func (c *Client) unanswered(q request, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the rest is the URL
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	_, network := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	what := "no answer of HTTP that could be read"
	if network || certificate || slow(err) {
		what = c.quote(err.Error())
	}
	e := c.failed(q, 0, what)
	e.again, e.unsure, e.Hint = true, true, "is the forge up, and --api (or the job's environment) its address? Run the job again when it is"
	return e
}

func slow(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// refused turns an answer that is no success into a sentence, and what to do.
func (c *Client) refused(q request, a *http.Response, body io.Reader) error {
	var said struct {
		Message json.RawMessage `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	b, _ := io.ReadAll(io.LimitReader(body, 64<<10))
	what := fmt.Sprintf("the answer was %d %s", a.StatusCode, http.StatusText(a.StatusCode))
	if json.Unmarshal(b, &said) == nil {
		for _, m := range []json.RawMessage{said.Message, said.Error} {
			text := string(m) // GitLab also answers with lists, which are shown as they are
			_ = json.Unmarshal(m, &text)
			if text = c.quote(text); text != "" && text != "null" {
				what += " (" + text + ")"
				break
			}
		}
	}
	e := c.failed(q, a.StatusCode, what)
	limited := a.Header.Get("Retry-After") != "" || a.Header.Get("X-Ratelimit-Remaining") == "0"
	switch s := a.StatusCode; {
	case s == http.StatusTooManyRequests || s == http.StatusForbidden && limited:
		e.again, e.after = true, waitOf(a.Header)
		e.Hint = "the forge's limit for this token is used up: run the job again later"
		if e.after > 0 {
			e.Hint = fmt.Sprintf("the forge's limit for this token is used up: run the job again in %s", e.after.Round(time.Second))
		}
	case s/100 == 5:
		e.again, e.unsure, e.after = true, true, waitOf(a.Header)
		e.Hint = "the forge is in trouble: run the job again when it is well"
	case s/100 == 3:
		e.Hint = "it was sent elsewhere, and the token does not go along: the repository was renamed, or --api is not the address that the forge goes by"
	case s == http.StatusUnauthorized:
		e.Hint = "the token is not accepted: it is expired, revoked, or of another forge; it was taken from " + strings.Join(Tokens(c.job.Forge), " or ") + c.ofJob()
	case s == http.StatusForbidden:
		e.Hint = c.permission(q.asking)
		if wants := c.quote(a.Header.Get("X-Accepted-Github-Permissions")); wants != "" {
			e.Hint += " (it asks for " + wants + ")"
		}
	case s == http.StatusNotFound && q.asking == readMerged:
		e.Hint = fmt.Sprintf("either there is no %s, or the token may not see it: %s", c.quote(c.job.Repository), c.permission(q.asking))
	case s == http.StatusNotFound:
		e.Hint = fmt.Sprintf("either %s has no pull request %d, or the token may not see it: %s", c.quote(c.job.Repository), c.job.Pull, c.permission(q.asking))
	}
	return e
}

// permission is what a token must be given for what was asked, in the words of each forge's settings.
func (c *Client) permission(a asking) string {
	write := a == writeComment || a == writeStatus
	switch c.job.Forge {
	case GitHub:
		switch a {
		case writeComment:
			return "give the job permissions: {pull-requests: write}"
		case writeStatus:
			return "give the job permissions: {statuses: write}"
		default:
			return "give the job permissions: {pull-requests: read}, or a token that may read the repository"
		}
	case Gitea:
		switch {
		case a == whoAmI:
			return "give the token the scope read:user, or use the one of the job"
		case a == writeStatus:
			return "give the token the scope write:repository, and its account the right to write the repository's code"
		case write:
			return "give the token the scope write:issue, and its account the right to comment"
		default:
			return "give the token the scopes read:repository and read:issue"
		}
	default:
		if a == writeStatus {
			return "give the token the scope api and the role Developer" + c.ofJob()
		}
		return "give the token the scope api and the role Reporter or above" + c.ofJob()
	}
}

// ofJob says that a job's own token does not suffice where that is so.
func (c *Client) ofJob() string {
	if !c.job.Token.ofJob {
		return ""
	}
	return "; GitLab lets no job's own token comment: make a project access token and set it as the masked variable GITLAB_TOKEN"
}

// quote is a stranger's text, on one line, short, and without the token.
func (c *Client) quote(s string) string {
	if !c.job.Token.Empty() {
		s = strings.ReplaceAll(s, c.job.Token.Value(), "***")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	if n := 0; len(s) > 300 {
		for n = 300; n > 0 && s[n]&0xC0 == 0x80; n-- {
		}
		s = s[:n] + "…"
	}
	return strings.TrimSpace(s)
}

// waitOf is what an answer asks to wait: seconds, a date, or when a limit is full again. Dates are held against the
// answer's own date: the forge's clock is not this one.
func waitOf(h http.Header) time.Duration {
	now, dated := http.ParseTime(h.Get("Date"))
	after := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.Atoi(after); err == nil {
		return clamp(time.Duration(min(n, 1<<20)) * time.Second)
	}
	if at, err := http.ParseTime(after); err == nil && dated == nil {
		return clamp(at.Sub(now))
	}
	if n, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64); err == nil && dated == nil && h.Get("X-Ratelimit-Remaining") == "0" {
		return clamp(time.Unix(n, 0).Sub(now))
	}
	return 0
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), 24*time.Hour) }
