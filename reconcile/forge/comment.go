package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxPages bounds how far a pull request's comments are read: ten thousand on GitHub and GitLab.
const maxPages = 100

// Post is what is to be said on a pull request.
type Post struct {
	Marker string // how the first line of our comment begins; no other comment of this plan root is ours
	Body   string // begins with the marker
	Empty  bool   // it says that nothing would change: of no use where nothing was said before
	Head   string // the commit that it is of; nothing is posted when the pull request has another head by then
}

// Done is what became of a Post.
type Done string

// What becomes of a post.
const (
	Nothing   Done = "nothing" // there is nothing to say, and nothing was said before
	Created   Done = "created"
	Edited    Done = "edited"
	Unchanged Done = "unchanged" // what is there says the same already
)

// Said is a comment as it stands after a Post.
type Said struct {
	Done Done
	URL  string // its page; "": not known
	Tidy int    // further comments of ours that a race had left, now deleted
}

// note is a comment as the forges describe it.
type note struct {
	ID     int64   `json:"id"`
	Body   string  `json:"body"`
	URL    string  `json:"html_url"`
	User   account `json:"user"`
	Author account `json:"author"` // GitLab
	System bool    `json:"system"` // GitLab: words of its own
}

// Post makes or edits the one comment of this plan root. It never adds a second one; where a race has left several of ours,
// the oldest stays and is edited. Errors: *Moved, *Error, or the context's.
func (c *Client) Post(ctx context.Context, p Post) (Said, error) {
	if p.Marker == "" || !strings.HasPrefix(p.Body, p.Marker) {
		return Said{}, fmt.Errorf("a comment must begin with its marker %q, or it is never found again", p.Marker)
	}
	me, err := c.self(ctx)
	if err != nil {
		return Said{}, err
	}
	for try := 1; ; try++ {
		ours, err := c.ours(ctx, me, p.Marker)
		if err != nil {
			return Said{}, err
		}
		said, err := c.settle(ctx, me, p, ours)
		if e, ok := errors.AsType[*Error](err); ok && e.unsure && try < maxTries {
			continue // it may have been made all the same: look again before another is
		}
		return said, err
	}
}

// settle brings what is there to what should be there.
func (c *Client) settle(ctx context.Context, me account, p Post, ours []note) (Said, error) {
	if len(ours) == 0 && p.Empty {
		return Said{Done: Nothing}, nil
	}
	if err := c.still(ctx, p.Head); err != nil {
		return Said{}, err
	}
	if len(ours) > 0 {
		return c.edit(ctx, p, ours)
	}
	var made note
	q := request{method: http.MethodPost, path: c.commentsPath(), body: map[string]string{"body": p.Body}, asking: writeComment, once: true}
	if err := c.do(ctx, q, maxAnswer, one(&made)); err != nil {
		return Said{}, err
	}
	// Another run may have made one in the same moment; each of the two sees both here, and both keep the same one.
	ours, err := c.ours(ctx, me, p.Marker)
	if err != nil || len(ours) < 2 {
		return Said{Done: Created, URL: link(made.URL)}, err
	}
	return c.edit(ctx, p, ours)
}

// still asks whether the head is the one that was planned.
func (c *Client) still(ctx context.Context, head string) error {
	now, err := c.Pull(ctx)
	if err == nil && now.Head != head {
		return &Moved{Planned: head, Live: now.Head}
	}
	return err
}

// edit makes the oldest of our comments say the body, and deletes the others.
func (c *Client) edit(ctx context.Context, p Post, ours []note) (Said, error) {
	keep := ours[0]
	said := Said{Done: Unchanged, URL: link(keep.URL)}
	if plain(keep.Body) != plain(p.Body) {
		method := http.MethodPatch
		if c.job.Forge == GitLab {
			method = http.MethodPut
		}
		q := request{method: method, path: c.commentPath(keep.ID), body: map[string]string{"body": p.Body}, asking: writeComment}
		if err := c.do(ctx, q, maxAnswer, nil); err != nil {
			return Said{}, err
		}
		said.Done = Edited
	}
	for _, n := range ours[1:] {
		err := c.do(ctx, request{method: http.MethodDelete, path: c.commentPath(n.ID), asking: writeComment}, maxAnswer, nil)
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status != http.StatusNotFound) {
			return said, err
		}
		said.Tidy++
	}
	return said, nil
}

// plain is a text as it is compared: forges change line ends, and cut what is white at the ends.
func plain(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// link is a page's address where it is one that can be printed.
func link(s string) string {
	if u, err := url.Parse(s); err != nil || u.User != nil || u.Scheme != "https" && u.Scheme != "http" || !printable(s, maxAddress) {
		return ""
	}
	return s
}

// commentsPath is where comments are listed and made; commentPath is one of them.
func (c *Client) commentsPath() string {
	if c.job.Forge == GitLab {
		return c.pullPath() + "/notes"
	}
	return c.project() + "/issues/" + strconv.Itoa(c.job.Pull) + "/comments"
}

func (c *Client) commentPath(id int64) string {
	if c.job.Forge == GitLab {
		return c.pullPath() + "/notes/" + strconv.FormatInt(id, 10)
	}
	return c.project() + "/issues/comments/" + strconv.FormatInt(id, 10)
}

// isOurs: the marker alone proves nothing, anybody can write it; an author who never wrote it is somebody else's run.
func (c *Client) isOurs(n note, me account, marker string) bool {
	by := n.User
	if c.job.Forge == GitLab {
		by = n.Author
	}
	return by.ID == me.ID && !n.System && strings.HasPrefix(strings.TrimLeft(n.Body, " \t\r\n"), marker)
}

// ours lists our comments, the oldest first.
func (c *Client) ours(ctx context.Context, me account, marker string) ([]note, error) {
	query := url.Values{"per_page": {"100"}}
	switch c.job.Forge {
	case GitLab:
		query.Set("sort", "asc")
		query.Set("order_by", "created_at")
	case Gitea:
		query = url.Values{"limit": {"50"}}
	}
	var ours []note
	seen := map[int64]bool{} // a forge that knows no pages gives the same ones again
	for page := 1; page <= maxPages; page++ {
		query.Set("page", strconv.Itoa(page))
		before, more := len(seen), false
		q := request{method: http.MethodGet, path: c.commentsPath(), query: query, asking: readComments}
		err := c.do(ctx, q, maxPage, func(h http.Header, r io.Reader) error {
			err := each(r, "comment", func(n note) {
				if !seen[n.ID] && c.isOurs(n, me, marker) {
					ours = append(ours, n)
				}
				seen[n.ID] = true
			})
			more = c.more(h, len(seen))
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(seen) == before || !more {
			slices.SortFunc(ours, func(a, b note) int { return cmp.Compare(a.ID, b.ID) })
			return ours, nil
		}
	}
	return nil, &Error{Text: fmt.Sprintf("the pull request has more than %d comments, and ours is not among them: it may be further on, so none is made", len(seen)),
		Hint: "open a new pull request for the branch"}
}

// more reports whether the forge has further pages.
func (c *Client) more(h http.Header, seen int) bool {
	if c.job.Forge != Gitea {
		return slices.ContainsFunc(h.Values("Link"), func(l string) bool { return strings.Contains(l, `rel="next"`) })
	}
	total, err := strconv.Atoi(h.Get("X-Total-Count"))
	return err != nil || seen < total
}

// portion bounds how much is read for one of a list.
type portion struct {
	r    io.Reader
	what string
	left int
}

func (p *portion) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, &Error{Text: fmt.Sprintf("a %s is longer than %d MiB", p.what, maxComment>>20), Hint: "delete it, or make it shorter"}
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}

// each reads a list one by one, so that little of a long one is held.
func each[T any](r io.Reader, what string, see func(T)) error {
	p := &portion{r: r, what: what, left: maxComment}
	d := json.NewDecoder(p)
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("expected a list")
	}
	for d.More() {
		var n T
		if err := d.Decode(&n); err != nil {
			return err
		}
		see(n)
		p.left = maxComment
	}
	_, err = d.Token()
	return err
}
