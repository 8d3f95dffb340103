package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/forge"
	"github.com/headway-run/headway/reconcile/repo"
)

// commenting is the verb comment and its flags.
type commenting struct {
	job    forge.Job // what the flags say, over what the environment says
	kind   string
	base   string
	dry    bool
	client *forge.Client // nil: nothing can be posted
	lets   []string      // jobs that the label of the pull request lets be replaced
}

func newComment(e env) *cobra.Command {
	v := &commenting{}
	c := &cobra.Command{Use: "comment", Short: "the plan of a pull request, as one comment and a commit status there", Args: cobra.NoArgs,
		Long: "Plans the commit that is checked out and says it on its pull request: one comment for each plan repository, edited on each\npush, and a commit status. In a CI job of GitHub, GitLab, Gitea or Forgejo everything is known from its environment; elsewhere\nthe flags name it. The token comes from GITHUB_TOKEN, GITEA_TOKEN, FORGEJO_TOKEN or GITLAB_TOKEN. Exit code: as plan.",
		RunE: func(c *cobra.Command, _ []string) error {
			return v.run(c.Context(), e.at(c))
		}}
	f := c.Flags()
	f.StringVar(&v.kind, "forge", "", "github, gitlab or gitea (which Forgejo is too)")
	f.StringVar(&v.job.API, "api", "", "where its API is: https://api.github.com, https://gitlab.com/api/v4, https://HOST/api/v1")
	f.StringVar(&v.job.Repository, "repository", "", "OWNER/NAME; on GitLab also the project's number")
	f.IntVar(&v.job.Pull, "pull", 0, "the number of the pull request")
	f.StringVar(&v.base, "base", "", "the ref that it would be merged into (default: what the forge says)")
	f.BoolVar(&v.dry, "dry-run", false, "print what would be posted, and ask no forge")
	return c
}

func (v *commenting) run(ctx context.Context, e env) error {
	if e.hidden == nil {
		e.hidden = hide(e.getenv)
	}
	if err := v.prepare(ctx, e); err != nil {
		return err
	}
	p, err := readProject(ctx, e, "HEAD")
	if err != nil {
		return v.broken(ctx, e, "", err)
	}
	p.hide()
	p.branch = v.job.Into // a guard of that branch is one of its pull requests
	if err := v.checkedOut(p); err != nil {
		return err
	}
	v.branchedOff(ctx, p)
	if v.client != nil {
		p.approved = v.approving(p)
	}
	d, text, err := v.plan(ctx, p)
	if p.unusable() != nil { // nothing can be asked by such a headway.yaml; what is wrong with it can be said
		d, err = plan.Diff(p.plan, nil, nil), nil
		d.Root, d.Commit, d.Problems, d.Alone = v.rootOf(ctx, p), p.commit, p.problems, true
		d.Settle(p.plan)
	}
	if err != nil {
		return v.broken(ctx, e, v.rootOf(ctx, p), err)
	}
	text += v.letting(p)
	quiet := text == ""
	text += v.unseen(p)
	body := e.hidden.known(d.Markdown(maxComment - len(text) - 1))
	marker, rest, _ := strings.Cut(body, "\n") // the marker stays the first line
	body = marker + "\n" + text + rest
	if d.Errored {
		p.printProblems()
	}
	said := exitOf(d)
	post := forge.Post{Marker: plan.Marker(d.Root), Body: body, Empty: said == nil && quiet, Head: v.job.Head}
	if err := v.say(ctx, e, post, v.status(e, d)); err != nil {
		return err
	}
	return said
}

// prepare joins environment, flags and what the forge knows of the pull request.
func (v *commenting) prepare(ctx context.Context, e env) error {
	j, err := forge.Detect(e.getenv, readBounded)
	if err != nil {
		return err
	}
	flags := v.job
	if v.kind != "" && forge.Kind(v.kind) != j.Forge {
		j = forge.Job{Forge: forge.Kind(v.kind), Token: forge.TokenOf(forge.Kind(v.kind), e.getenv)}
	}
	if flags.Pull != 0 && flags.Pull != j.Pull || flags.Repository != "" && flags.Repository != j.Repository {
		j.Head, j.Base, j.Into, j.Fork = "", "", "", false // of the pull request that started the job
	}
	j.API, j.Repository, j.Pull = cmp.Or(flags.API, j.API), cmp.Or(flags.Repository, j.Repository), cmp.Or(flags.Pull, j.Pull)
	if j.API == "" && j.Forge == forge.GitHub {
		j.API = "https://api.github.com"
	}
	e.hidden.add(j.Token.Value())
	v.job = j
	if v.dry {
		return nil
	}
	if err := j.Check(); err != nil {
		return &exit{code: exitError, err: err, hint: "--dry-run prints the comment without a forge"}
	}
	if j.Fork && j.Token.Empty() {
		return nil
	}
	if v.client, err = forge.New(j, nil); err != nil {
		return forgeFailure(err)
	}
	if j.Head != "" {
		return nil
	}
	now, err := v.client.Pull(ctx)
	if err != nil {
		return forgeFailure(err)
	}
	v.job.Head, v.job.Base, v.job.Into, v.job.Fork = now.Head, now.Base, now.Into, now.Fork
	return nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("%s is longer than %d MiB", name, max>>20)
	}
	return b, err
}

// checkedOut holds what is planned against what would be commented: the head itself, or its merge into the base.
func (v *commenting) checkedOut(p *project) error {
	if v.job.Head == "" || v.job.Head == p.commit {
		return nil
	}
	git, err := repo.Open(repo.Options{Remote: p.root})
	if err != nil {
		return repoFailure(err)
	}
	defer git.Close()
	c, err := git.Commit(p.commit)
	if err != nil {
		return repoFailure(err)
	}
	if slices.Contains(c.Parents, v.job.Head) {
		return nil
	}
	return &exit{code: exitError, err: fmt.Errorf("commit %.12s is checked out, which is neither the head %.12s of the pull request nor a merge of it", p.commit, v.job.Head),
		hint: "check out the pull request: on GitHub and Gitea that is what on: pull_request does, and pull_request_target does not"}
}

// branchedOff finds the base where the forge named a branch and no commit of it, as GitLab does for some pipelines: the commit at
// which this branch left that one. Where it can't be found there is no base, and the comment tells nothing apart.
func (v *commenting) branchedOff(ctx context.Context, p *project) {
	if v.base != "" || v.job.Base != "" || v.job.Into == "" {
		return
	}
	into, err := resolve(p.root, "branch", "refs/remotes/origin/"+v.job.Into)
	if err != nil {
		into, err = resolve(p.root, "branch", v.job.Into)
	}
	var git *repo.Repo
	if err == nil {
		git, err = repo.Open(repo.Options{Remote: p.root})
	}
	if err == nil {
		defer git.Close()
		v.job.Base, err = git.MergeBase(ctx, p.commit, into)
	}
	if err != nil {
		warn(p.env, "what is pending on %s already is not told apart: %v", v.job.Into, err)
	}
}

// plan is the diff of what is checked out, and a line for the comment about how it was made. A stranger's branch names a
// store and platforms of his choice, so none of them is asked: its files are held against those of the base.
func (v *commenting) plan(ctx context.Context, p *project) (*plan.Changes, string, error) {
	base := cmp.Or(v.base, v.job.Base)
	if base != "" {
		if _, err := p.basis(ctx, base); err != nil && v.base == "" {
			warn(p.env, "what is pending on the base already is not told apart: %v", err)
			base = ""
		} else if err != nil {
			return nil, "", err
		}
	}
	if !v.job.Fork {
		d, err := p.diff(ctx, base)
		if err == nil && d.Pending != nil && v.base == "" {
			d.Pending.Ref = cmp.Or(v.job.Into, d.Pending.Ref) // people know the branch, not its commit
		}
		return d, "", err
	}
	var d *plan.Changes
	text := "> From a fork: its files alone, held against nothing. What runs or is finished is not known here.\n\n"
	if base != "" {
		other, err := p.basis(ctx, base)
		if err != nil {
			return nil, "", err
		}
		over := plan.Accept(other.plan, other.commit) // as if the base were in force, and nothing of it known
		d = plan.DiffOver(p.plan, other.plan, &over, nil)
		d.Pending = nil
		text = "> From a fork: its files alone, held against those of the base. What runs or is finished is not known here.\n\n"
	} else {
		d = plan.Diff(p.plan, nil, nil)
	}
	d.Problems, d.Commit, d.Alone = p.problems, p.commit, true
	d.Settle(p.plan)
	return d, text, nil
}

// unseen says that the store is a folder beside the plans which is not in this checkout: a CI job's never has it.
func (v *commenting) unseen(p *project) string {
	if _, err := os.Stat(filepath.Join(p.root, stateFolder, "store")); v.job.Fork || p.plan.Config.Store != "embedded" || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return "> The store is a folder beside the plans (`store: embedded`), and this checkout has none: what is in force, runs or is finished is not known here, " +
		"and no guard could look at it. A store that this job may read, such as `s3://…`, is known.\n\n"
}

// rootOf is the name of the plan repository, which a headway.yaml with an error may not say: then the base's does.
func (v *commenting) rootOf(ctx context.Context, p *project) string {
	base := cmp.Or(v.base, v.job.Base)
	if p.plan.Config.Name != "" || base == "" {
		return p.plan.Config.Name
	}
	other, err := p.basis(ctx, base)
	if err != nil {
		return ""
	}
	return other.plan.Config.Name
}

// status is what a diff comes to, as the mark on its commit.
func (v *commenting) status(e env, d *plan.Changes) forge.Status {
	s := forge.Status{Commit: v.job.Head, Context: contextOf(d.Root), State: forge.Success, Text: d.Summary()}
	switch d.Verdict {
	case plan.VerdictError:
		s.State, s.Text = forge.Broken, "the plan has errors"
	case plan.VerdictRefused:
		s.State, s.Text = forge.Failure, "refused by a guard"
		if len(d.Refusals) > 0 {
			s.Text = "refused: " + d.Refusals[0].Code + ": " + d.Refusals[0].Text
			if d.Refusals[0].Code == reconcile.CodeGuardReplaceAfter {
				s.Text = "refused: " + d.Refusals[0].Hint // names the label, and the trailer
			}
		}
	case plan.VerdictChanges, plan.VerdictNothing:
	}
	s.Text = e.hidden.from(clean(s.Text))
	return s
}

func contextOf(root string) string {
	if root == "" {
		return "headway/plan"
	}
	return "headway/plan (" + clean(root) + ")"
}

// broken says on the pull request that there is no plan, so that an older one is not taken for it, and returns why: that is
// for the run's own log, since it may name places.
func (v *commenting) broken(ctx context.Context, e env, root string, why error) error {
	marker := plan.Marker(root)
	body := fmt.Sprintf("%shead=%.12s digest=- -->\n### No plan of %.12s\n\nIt could not be made; the run says why.\n", marker, cmp.Or(v.job.Head, "-"), cmp.Or(v.job.Head, "this commit"))
	if v.job.Run != "" {
		body += "\n" + clean(v.job.Run) + "\n"
	}
	post := forge.Post{Marker: marker, Body: body, Empty: true, Head: v.job.Head}
	status := forge.Status{Commit: v.job.Head, Context: contextOf(root), State: forge.Broken, Text: "the plan could not be made: see the run"}
	if err := v.say(ctx, e, post, status); err != nil {
		warn(e, "nor could that be said on the pull request: %v", err)
	}
	return why
}

// say posts comment and status, and prints what became of them.
func (v *commenting) say(ctx context.Context, e env, p forge.Post, s forge.Status) error {
	v.summarise(e, p.Body)
	if v.dry {
		if _, err := io.WriteString(e.stdout, p.Body); err != nil {
			return err
		}
		if p.Empty {
			fmt.Fprintln(e.stderr, "a plan without changes: posted only in place of one that had some")
		}
		fmt.Fprintf(e.stderr, "status %s: %s: %s\n", s.Context, s.State, s.Text)
		return nil
	}
	if v.client == nil {
		return v.unsaid(e, p.Body, errors.New("there is no token"))
	}
	said, err := v.client.Post(ctx, p)
	if m, ok := errors.AsType[*forge.Moved](err); ok {
		fmt.Fprintf(e.stdout, "dropped: %v; the run of the new head posts its own\n", m)
		return nil
	}
	serr := err
	if err == nil || !refusedToFork(v.job, err) {
		serr = v.client.Status(ctx, s)
	}
	if refusedToFork(v.job, err) || refusedToFork(v.job, serr) {
		return v.unsaid(e, p.Body, cmp.Or(err, serr))
	}
	if err == nil {
		switch said.Done {
		case forge.Nothing:
			fmt.Fprintln(e.stdout, "no comment: nothing would change, and nothing was said before")
		default:
			fmt.Fprintf(e.stdout, "comment %s %s\n", said.Done, said.URL)
		}
	}
	if serr == nil {
		fmt.Fprintf(e.stdout, "status %s: %s\n", s.Context, s.State)
	}
	if err != nil && serr != nil {
		warn(e, "%v", serr)
	}
	return forgeFailure(cmp.Or(err, serr))
}

// refusedToFork: the token of a stranger's branch may only read, which is as it should be.
func refusedToFork(j forge.Job, err error) bool {
	e, ok := errors.AsType[*forge.Error](err)
	return ok && j.Fork && slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, e.Status)
}

// unsaid shows in the run what a fork's token may not post.
func (v *commenting) unsaid(e env, body string, why error) error {
	warn(e, "nothing is posted for a branch of a fork, whose token may only read (%v): the plan stands here instead", why)
	_, err := io.WriteString(e.stdout, body)
	return err
}

// summarise adds the plan to the page of the run, where the forge has one.
func (v *commenting) summarise(e env, body string) {
	name := e.getenv("GITHUB_STEP_SUMMARY")
	if name == "" || v.dry {
		return
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(e.dir, name)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err == nil {
		_, err = io.WriteString(f, body+"\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		warn(e, "the run's summary (GITHUB_STEP_SUMMARY) cannot be written: %v", err)
	}
}

// forgeFailure gives an error of the forge its hint.
func forgeFailure(err error) error {
	if f, ok := errors.AsType[*forge.Error](err); ok {
		return &exit{code: exitError, err: err, hint: f.Hint}
	}
	return err
}
