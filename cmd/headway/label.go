package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/forge"
	"github.com/headway-run/headway/reconcile/repo"
)

// How far back the commit is looked for by which a job was changed, and the one in force; how long a forge is asked in one pass, and
// after what time it is asked again about a commit without the label.
const (
	labelSteps    = 20
	labelHistory  = 1000
	labelPatience = 10 * time.Second
	labelPause    = time.Minute
)

// labels asks a forge whether the pull requests that replaced running work carry the label that allows it.
type labels struct {
	client *forge.Client
	say    func(format string, args ...any) // what is wrong with the forge
	well   func()                           // nothing is, any more

	read map[string]reading // by commit
	last map[string]answer  // by commit and label
}

// reading is what was read of a commit's plan: the work of each job that was asked about, "" for none.
type reading struct {
	works map[string]plan.Digest
	err   error
	at    time.Time
}

// answer is what a forge said of a commit.
type answer struct {
	labelled bool
	at       time.Time
}

// lineage is what is asked of a repository: a commit's parents, and the work of each job in its plan.
type lineage struct {
	parents func(commit string) ([]string, error)
	works   func(commit string) (map[string]plan.Digest, error)
	holds   func(commit, other string) (bool, error) // other is in the history of commit
}

func (h lineage) first(commit string) (string, error) {
	all, err := h.parents(commit)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0], nil
}

// leads says whether first parents lead from tip to over. Where a branch was moved on to a merge of itself into something else, they
// lead along that instead, past what is in force, to changes that were approved for another time.
func (h lineage) leads(tip, over string) (ok bool, err error) {
	for range labelHistory {
		if tip == over || tip == "" {
			break
		}
		if tip, err = h.first(tip); err != nil {
			return false, err
		}
	}
	return tip == over && over != "", nil
}

// remade says whether a merge is what a forge made of commits that it had put on top of its first parent (Gitea's rebase with a merge
// commit): they have other names there than in the pull request, so what is held against it is their form. Nothing but one line of
// them lies between its parents, so it changes what they do; and the pull request's own commits are nowhere in its history, as they are
// where somebody moved the branch by hand and the forge found a merge behind it.
func (h lineage) remade(commit string, parents []string, m forge.Merged) bool {
	if m.Made != commit || len(parents) != 2 || len(m.Heads) == 0 || parents[0] == parents[1] {
		return false
	}
	at := parents[1]
	for step := 0; at != parents[0]; step++ {
		before, err := h.parents(at)
		if err != nil || len(before) != 1 || step == labelHistory {
			return false
		}
		at = before[0]
	}
	return !slices.ContainsFunc(m.Heads, func(head string) bool {
		is, err := h.holds(commit, head)
		return is || err != nil
	})
}

// cameBy finds the commit by which each of these jobs came to stand for the work that it stands for at tip: back along first
// parents, so that a merge is one change, no further than over, and not very far. A job that it is not found of is left out. That
// the way does not lead to over is an error.
func cameBy(tip, over string, names []string, h lineage) (map[string]string, error) {
	out := map[string]string{}
	if ok, err := h.leads(tip, over); err != nil {
		return nil, err
	} else if !ok {
		return nil, fmt.Errorf("first parents do not lead from %.12s to %.12s, which is in force, within %d steps", tip, over, labelHistory)
	}
	after, err := h.works(tip)
	if err != nil {
		return nil, err
	}
	for range labelSteps {
		parent, err := h.first(tip)
		if err != nil {
			return nil, err
		}
		if tip == over || parent == "" || len(out) == len(names) {
			break
		}
		before, err := h.works(parent)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if out[n] == "" && before[n] != after[n] {
				out[n] = tip
			}
		}
		tip, after = parent, before
	}
	return out, nil
}

// approved lists those of these jobs that were changed last by a pull request which was merged into the branch and carries the
// label. What cannot be found out is not approved, which is said once.
func (l *labels) approved(ctx context.Context, d *reconcile.Desired, over string, names []string, h lineage) (out []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	came, err := cameBy(d.Commit, over, names, l.remembering(h, names))
	if err != nil {
		l.say("which commits replace running work cannot be told, so no label counts, and Allow-Replace alone does: %v", err)
		return nil
	}
	ctx, enough := context.WithTimeout(ctx, labelPatience)
	defer enough()
	for _, n := range names {
		if commit := came[n]; commit != "" {
			parents, err := h.parents(commit)
			if err == nil && l.carries(ctx, commit, parents, h, d.Branch, d.Plan.Config.Guard.ReplaceLabel) {
				out = append(out, n)
			}
		}
	}
	return out
}

// remembering reads no plan again for these jobs: a commit stays as it is. One that could not be read is tried again after a while,
// since an object that is missing may come.
func (l *labels) remembering(h lineage, names []string) lineage {
	works := h.works
	h.works = func(commit string) (map[string]plan.Digest, error) {
		r, ok := l.read[commit]
		missing := func(n string) bool { _, has := r.works[n]; return !has }
		if ok && r.err != nil && time.Since(r.at) < labelPause || ok && r.err == nil && !slices.ContainsFunc(names, missing) {
			return r.works, r.err
		}
		if l.read == nil || len(l.read) > 10*labelSteps {
			l.read = map[string]reading{}
		}
		all, err := works(commit)
		r = reading{works: make(map[string]plan.Digest, len(names)), err: err, at: time.Now()}
		for _, n := range names {
			r.works[n] = all[n]
		}
		l.read[commit] = r
		return r.works, err
	}
	return h
}

// carries says whether a pull request that brought a commit to a branch has the label. A commit that has none is asked about again.
// What a merge changes is its pull request's only where that was merged into its first parent: where the branch was moved on to a
// merge that a pull request ends in or holds, it is the branch's own changes that look as if the merge had brought them.
func (l *labels) carries(ctx context.Context, commit string, parents []string, h lineage, branch, label string) bool {
	key := commit + " " + label
	if a, ok := l.last[key]; ok && (a.labelled || time.Since(a.at) < labelPause) {
		return a.labelled
	}
	if l.last == nil || len(l.last) > 10*labelSteps {
		l.last = map[string]answer{}
	}
	merged, err := l.client.Merged(ctx, commit)
	l.last[key] = answer{at: time.Now()}
	if err != nil {
		l.say("%v: labels are not known, so Allow-Replace in the commit message alone counts; it is asked again", err)
		return false
	}
	merged = slices.DeleteFunc(merged, func(m forge.Merged) bool {
		return m.Into != branch || branch == "" || !slices.Contains(m.Labels, label)
	})
	has := slices.ContainsFunc(merged, func(m forge.Merged) bool {
		brought := func(parent string) bool { return slices.Contains(m.Heads, parent) }
		return len(parents) < 2 || slices.ContainsFunc(parents[1:], brought) || h.remade(commit, parents, m)
	})
	if has || len(merged) == 0 {
		l.well()
	} else {
		l.say("no label counts for %.12s, and Allow-Replace alone does: it is a merge, and not the one of pull request %d into %s", commit, merged[0].Number, clean(branch))
	}
	l.last[key] = answer{labelled: has, at: time.Now()}
	return has
}

// lineage reads the plans of commits that a loop follows.
func (l *loop) lineage(ctx context.Context) lineage {
	return lineage{
		parents: func(commit string) ([]string, error) {
			c, err := l.git.Commit(commit)
			return c.Parents, err
		},
		works: func(commit string) (map[string]plan.Digest, error) {
			if commit == l.p.commit {
				return worksByName(l.p.plan), nil
			}
			earlier, err := l.load(ctx, commit)
			if err != nil {
				return nil, err
			}
			return worksByName(earlier), nil
		},
		holds: func(commit, other string) (bool, error) {
			is, err := l.git.Relate(ctx, other, commit)
			return is == repo.Same || is == repo.Ahead, err
		}}
}

func worksByName(p *plan.Plan) map[string]plan.Digest {
	out := make(map[string]plan.Digest, len(p.Jobs))
	for i := range p.Jobs {
		out[p.Jobs[i].Name] = p.Jobs[i].Work
	}
	return out
}

// labelled gives the watchers what they ask the forge for labels with: --forge, --api and HEADWAY_FORGE_TOKEN.
func (v *watching) labelled(e env, ws []*watcher) error {
	if v.forge == "" {
		if v.api != "" {
			return &exit{code: exitError, err: fmt.Errorf("--api says where the API of a forge is, and no forge is named"), hint: "add --forge github, gitlab or gitea"}
		}
		return nil
	}
	token := forge.NewToken(e.getenv("HEADWAY_FORGE_TOKEN"))
	api := ""
	for _, w := range ws {
		j, err := forge.Of(forge.Kind(v.forge), v.api, w.options.Remote)
		if err == nil && api != "" && j.API != api {
			err = fmt.Errorf("the repositories lie on several forges, and one token goes to one")
		}
		if err != nil {
			return &exit{code: exitError, err: fmt.Errorf("--forge %s: %w", clean(v.forge), err), hint: "without --forge no label counts, and Allow-Replace in commit messages does"}
		}
		if api, j.Token = j.API, token; token.Empty() {
			continue
		}
		client, err := forge.Reader(j, nil)
		if err != nil {
			return forgeFailure(err)
		}
		w.labels = &labels{client: client, say: func(format string, args ...any) { w.say("forge", format, args...) }, well: func() { w.well("forge") }}
	}
	if token.Empty() {
		warn(e, "HEADWAY_FORGE_TOKEN is not set, so no label counts: Allow-Replace in commit messages alone does")
		return nil
	}
	return nil
}

// approving asks for the label of the pull request that this run is of. It speaks for what the branch changes: what is pending on its
// base came by another one.
func (v *commenting) approving(p *project) func(context.Context, []string) []string {
	return func(ctx context.Context, jobs []string) []string {
		now, err := v.client.Pull(ctx)
		if err != nil {
			warn(p.env, "the labels of the pull request are not known, so Allow-Replace in the commit message alone counts: %v", err)
			return nil
		}
		if !slices.Contains(now.Labels, p.plan.Config.Guard.ReplaceLabel) {
			return nil
		}
		mine, before := worksByName(p.plan), map[string]plan.Digest{}
		if base := cmp.Or(v.base, v.job.Base); base != "" {
			if other, err := p.basis(ctx, base); err == nil {
				before = worksByName(other.plan)
			}
		}
		v.lets = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(jobs))), func(n string) bool { return mine[n] == before[n] })
		return v.lets
	}
}

// letting says in the comment what the label allows, and where.
func (v *commenting) letting(p *project) string {
	if len(v.lets) == 0 {
		return ""
	}
	names := strings.Join(v.lets[:min(3, len(v.lets))], ", ")
	trailer := names
	if more := len(v.lets) - 3; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
		trailer = strings.Join(v.lets[:3], ", ") + ", …"
	}
	return fmt.Sprintf("> The label `%s` lets this replace work that has run for longer than `guard.replace_after`: %s. Whoever may merge may do so while the label is there. "+
		"It counts where `headway watch --forge` asks for it; elsewhere the message of the merge has to say `Allow-Replace: %s`.\n\n", p.plan.Config.Guard.ReplaceLabel, names, trailer)
}
