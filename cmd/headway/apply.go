package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

func newApply(e env) *cobra.Command {
	var wait, accept bool
	var at string
	c := &cobra.Command{Use: "apply", Short: "one pass over the commit that is checked out", Args: cobra.NoArgs,
		Long: "Makes one pass over a commit: launches what is missing, recovers what is silent, stops what left the plan. With --wait\nit goes on until everything is over: 0 finished, 100 a job failed, 101 stopped by a person, 104 parked.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			e := e.at(c)
			root, err := findRoot(e)
			if err != nil {
				return err
			}
			p, git, err := openCommit(e, root, at)
			if err != nil {
				return err
			}
			defer git.Close()
			p.printProblems()
			l, err := newLoop(ctx, p, git)
			if err != nil {
				return err
			}
			l.acceptHistory = accept
			for {
				report, err := l.pass(ctx, true)
				if err != nil {
					return err
				}
				l.say(report)
				if code, over := verdict(report); over || !wait {
					if len(report.Refusals) > 0 {
						printRefusals(e, report.Refusals)
						return &exit{code: exitRefused}
					}
					if len(p.plan.Errors()) > 0 {
						return &exit{code: exitError}
					}
					if wait && code != exitOK {
						return &exit{code: code}
					}
					return nil
				}
				if err := pause(ctx, min(max(report.Next, 200*time.Millisecond), 2*time.Second)); err != nil {
					return err
				}
			}
		}}
	c.Flags().BoolVar(&wait, "wait", false, "until everything is over")
	c.Flags().StringVar(&at, "at", "HEAD", "which commit (a full hash)")
	c.Flags().BoolVar(&accept, "accept-history", false, "follow this commit although it does not descend from the accepted one")
	return c
}

// loop is one repository, one reconciler, and what was said last.
type loop struct {
	p             *project
	git           *repo.Repo
	r             *reconcile.Reconciler
	acceptHistory bool
	said          map[plan.Digest]string
	complete      bool
	message       string // of the commit
}

func newLoop(ctx context.Context, p *project, git *repo.Repo) (*loop, error) {
	l := &loop{p: p, git: git, said: map[plan.Digest]string{}, complete: true}
	b, url, err := p.openStore(ctx, true)
	if err != nil {
		return nil, err
	}
	floor, err := proven(ctx, p.env, b, url)
	if err != nil {
		return nil, err
	}
	bundle := func(ctx context.Context, j *plan.Job) error {
		tree, err := git.Tree(l.p.commit)
		if err != nil {
			return err
		}
		return bundler(b, tree)(ctx, j)
	}
	l.r, _, err = p.reconciler(ctx, actor{write: true, bundle: bundle, floor: floor, load: func(_ context.Context, commit string) (*plan.Plan, error) {
		earlier := &project{env: p.env, root: p.root}
		err := earlier.load(git, commit)
		return earlier.plan, err
	}})
	if err != nil {
		return nil, err
	}
	return l, l.read(p.commit)
}

// read takes the message of the commit whose plan is loaded.
func (l *loop) read(hash string) error {
	commit, err := l.git.Commit(hash)
	if err != nil {
		return repoFailure(err)
	}
	l.message = commit.Message
	return nil
}

// pass reconciles once. fresh says that the repository answered just now.
func (l *loop) pass(ctx context.Context, fresh bool) (*reconcile.Report, error) {
	d := l.p.desired()
	allow(d, l.message)
	d.Fresh, d.Complete = fresh, l.complete
	if !l.acceptHistory {
		accepted, err := l.r.Accepted(ctx, l.p.plan.Config.Name)
		if err != nil {
			return nil, err
		}
		if d.Refusals, err = l.p.history(ctx, l.git, accepted); err != nil {
			return nil, err
		}
	}
	return l.r.Pass(ctx, d)
}

// allow takes what a commit's trailers allow.
func allow(d *reconcile.Desired, message string) {
	t := repo.ParseTrailers(message)
	d.AllowStops, d.AllowEmpty = t.AllowStops, t.AllowEmpty
}

// history refuses a commit that does not descend from the one in force.
func (p *project) history(ctx context.Context, git *repo.Repo, accepted *plan.Accepted) ([]reconcile.Refusal, error) {
	if accepted == nil || accepted.Commit == p.commit {
		return nil, nil
	}
	relation, err := git.Relate(ctx, accepted.Commit, p.commit)
	if err != nil {
		return nil, repoFailure(err)
	}
	hint := fmt.Sprintf("check out %.12s and run headway apply --accept-history to follow it", p.commit)
	switch relation {
	case repo.Behind:
		return []reconcile.Refusal{{Code: "WentBack", Whole: true, Hint: hint,
			Text: fmt.Sprintf("the branch went back to %.12s, an ancestor of the accepted commit %.12s", p.commit, accepted.Commit)}}, nil
	case repo.Diverged:
		return []reconcile.Refusal{{Code: "HistoryRewritten", Whole: true, Hint: hint,
			Text: fmt.Sprintf("commit %.12s does not descend from the accepted commit %.12s: history was rewritten", p.commit, accepted.Commit)}}, nil
	case repo.Same, repo.Ahead:
	}
	return nil, nil
}

// say prints what was done and what changed since it was said last.
func (l *loop) say(report *reconcile.Report) {
	for _, a := range report.Actions {
		text := fmt.Sprintf("%s: %s", a.Kind, a.Reason)
		if a.Result != "" {
			text += ": " + a.Result
		}
		if a.Err != nil {
			text += ": " + a.Err.Error()
		}
		if l.said[a.Work] == text || a.Kind == reconcile.Wait && a.Until > 0 && l.said[a.Work] != "" {
			continue
		}
		l.said[a.Work] = text
		name := a.Job
		if name == "" {
			name = a.Work.Short()
		}
		fmt.Fprintf(l.p.env.stdout, "%s: %s\n", name, clean(text))
	}
	for _, err := range report.Errors {
		warn(l.p.env, "%v", err)
	}
}

// verdict says whether every work that was looked at is over, and with which exit code.
func verdict(report *reconcile.Report) (code int, over bool) {
	for _, a := range report.Actions {
		switch a.Kind {
		case reconcile.Launch, reconcile.WriteOff, reconcile.Stop, reconcile.Release, reconcile.Wait:
			return 0, false
		case reconcile.None, reconcile.Blocked, reconcile.Fail:
		}
	}
	for _, a := range report.Actions {
		switch a.Kind {
		case reconcile.Fail:
			code = exitFailed
		case reconcile.Blocked:
			if code == exitOK {
				code = exitParked
			}
		default:
		}
	}
	for _, s := range report.States {
		switch s.State {
		case plan.StateHeld, plan.StateClaimed:
			return 0, false
		case plan.StateRevoked:
			if code == exitOK {
				code = exitCancelled
			}
		default:
		}
	}
	return code, true
}

// pause waits, or ends with the context.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
