package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

// maxPermits bounds the commits of one merge whose messages are read.
const maxPermits = 1000

// permitted adds what the commits that a merge brings allow: a forge writes the merge's own message, and the trailers stand in
// those of the pull request. Only commits that the merge has and the one in force has not, and only where the merge says nothing
// itself. What allows something is said, by commit.
func permitted(ctx context.Context, d *reconcile.Desired, git *repo.Repo, message, over string) error {
	own := repo.ParseTrailers(message)
	tip, err := git.Commit(d.Commit)
	if err != nil {
		return repoFailure(err)
	}
	if len(tip.Parents) < 2 {
		return nil
	}
	brought, err := git.Brought(ctx, over, d.Commit, maxPermits)
	if e, ok := errors.AsType[*repo.Error](err); ok && (e.Class == repo.TooLarge || e.Class == repo.Unsupported) {
		return nil // the merge's own message alone counts, as it does of every commit
	}
	if err != nil {
		return repoFailure(err)
	}
	var all []repo.Trailers
	for _, hash := range brought {
		if hash == d.Commit {
			continue
		}
		c, err := git.Commit(hash)
		if err != nil {
			return repoFailure(err)
		}
		t := repo.ParseTrailers(c.Message)
		for i, text := range t.Problems {
			t.Problems[i] = fmt.Sprintf("%.12s, which the merge brings: %s", hash, text)
		}
		all = append(all, t)
	}
	allow(d, own.With(all))
	return nil
}

// allow takes over what trailers say; what is wrong with them is a warning, once.
func allow(d *reconcile.Desired, t repo.Trailers) {
	d.AllowStops, d.AllowEmpty, d.AllowReplace = t.AllowStops, t.AllowEmpty, t.AllowReplace
	said := map[string]bool{}
	for _, q := range d.Warnings {
		said[q.Text] = true
	}
	for _, text := range t.Problems {
		if !said[text] {
			d.Warnings = append(d.Warnings, plan.Problem{Pos: plan.Pos{File: "commit message"}, Severity: plan.Warning, Code: "Trailer", Text: text})
		}
	}
}
