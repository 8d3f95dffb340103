package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/bucket"
)

func newApply(e env) *cobra.Command {
	var wait, accept bool
	var at string
	c := &cobra.Command{Use: "apply [FILE]", Short: "one pass over the commit that is checked out, or of a plan that was saved", Args: cobra.MaximumNArgs(1),
		Long: "Makes one pass over a commit: launches what is missing, recovers what is silent, stops what left the plan. With --wait\nit goes on until everything is over: 0 finished, 100 a job failed, 101 stopped by a person, 104 parked. FILE is a plan that\nheadway plan --out saved: its commit is applied, unless what it would do is not the same any more (exit code 4).",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			e := e.at(c)
			var earlier saved
			if len(args) == 1 {
				var err error
				if earlier, err = readSaved(e, args[0]); err != nil {
					return err
				}
				at = earlier.Commit
			}
			root, err := findRoot(e)
			if err != nil {
				return err
			}
			p, git, err := openCommit(e, root, at)
			if err != nil {
				return err
			}
			defer git.Close()
			if earlier.Commit != "" {
				now, err := p.diff(ctx)
				if err == nil {
					err = earlier.stale(savedOf(p.commit, now.Changes))
				}
				if err != nil {
					return err
				}
			}
			patience := time.Duration(0)
			if !wait {
				patience = time.Hour // nobody comes back for what is under way: each call has a bound of its own
			}
			l, err := newLoop(ctx, p, git, patience)
			if err != nil {
				return err
			}
			defer l.r.Wait()
			p.printProblems()
			l.acceptHistory = accept
			return l.apply(ctx, wait)
		}}
	c.Flags().BoolVar(&wait, "wait", false, "until everything is over")
	c.Flags().StringVar(&at, "at", "HEAD", "which commit (a full hash)")
	c.Flags().BoolVar(&accept, "accept-history", false, "follow this commit although it does not descend from the accepted one")
	return c
}

// apply makes one pass, or with wait as many as it takes until everything is over.
func (l *loop) apply(ctx context.Context, wait bool) error {
	for first := true; ; first = false {
		report, err := l.pass(ctx, true)
		if err != nil {
			return err
		}
		if first {
			printRefusals(l.p.env, report.Refusals)
		}
		l.say(report)
		code, over := verdict(report)
		switch {
		case !over && wait:
			if err := pause(ctx, min(max(report.Next, 200*time.Millisecond), 2*time.Second)); err != nil {
				return err
			}
			continue
		case len(report.Refusals) > 0:
			return &exit{code: exitRefused}
		case len(report.Errors) > 0 && !wait:
			return &exit{code: exitError, err: errors.New(count(len(report.Errors), "failure") + " in this pass"), hint: "the next pass tries again; headway doctor looks at the store and the platforms"}
		case wait && code != exitOK:
			return &exit{code: code}
		}
		return nil
	}
}

// loop is one repository, one reconciler, and what was said last.
type loop struct {
	p             *project
	git           *repo.Repo
	r             *reconcile.Reconciler
	acceptHistory bool
	said          map[plan.Digest]string
	warned        map[string]bool // errors of the last pass
	message       string          // of the commit
}

func newLoop(ctx context.Context, p *project, git *repo.Repo, patience time.Duration) (*loop, error) {
	l := &loop{p: p, git: git, said: map[plan.Digest]string{}}
	b, url, err := p.openStore(ctx, true)
	if err != nil {
		return nil, err
	}
	floor, err := proven(ctx, p.env, b, url)
	if err != nil {
		return nil, err
	}
	l.r, _, err = p.reconciler(ctx, true, reconcile.Config{Bundle: l.bundle(b), Load: l.load, LeaseFloor: floor, Patience: patience})
	if err != nil {
		return nil, err
	}
	l.message, err = commitMessage(git, p.commit)
	return l, err
}

// bundle packs a job's code from the commit that the job was read from, never from a newer one.
func (l *loop) bundle(b bucket.Bucket) func(context.Context, *plan.Job, string) error {
	return func(ctx context.Context, j *plan.Job, commit string) error {
		tree, err := l.git.Tree(commit)
		if err != nil {
			return err
		}
		return bundler(b, tree)(ctx, j)
	}
}

// load reads the plan of an earlier accepted commit again.
func (l *loop) load(_ context.Context, commit string) (*plan.Plan, error) {
	earlier := &project{env: l.p.env, root: l.p.root}
	if err := earlier.load(l.git, commit); err != nil {
		return nil, err
	}
	return earlier.plan, nil
}

// commitMessage is where trailers such as Allow-Stops stand.
func commitMessage(git *repo.Repo, hash string) (string, error) {
	commit, err := git.Commit(hash)
	if err != nil {
		return "", repoFailure(err)
	}
	return commit.Message, nil
}

// pass reconciles once. fresh says that the repository answered just now.
func (l *loop) pass(ctx context.Context, fresh bool) (*reconcile.Report, error) {
	accepted, err := l.r.Accepted(ctx, l.p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	d := l.p.desired()
	d.Fresh = fresh
	if err := ask(ctx, d, l.git, l.message, accepted, l.acceptHistory); err != nil {
		return nil, err
	}
	return l.r.Pass(ctx, d)
}

// ask adds to what a plan desires what its commit says of it: the trailers of its message, and whether it descends from
// the commit that is in force.
func ask(ctx context.Context, d *reconcile.Desired, git *repo.Repo, message string, accepted *plan.Accepted, anyHistory bool) error {
	trailers := repo.ParseTrailers(message)
	d.AllowStops, d.AllowEmpty = trailers.AllowStops, trailers.AllowEmpty
	if anyHistory || accepted == nil || accepted.Commit == d.Commit {
		return nil
	}
	relation, err := git.Relate(ctx, accepted.Commit, d.Commit)
	if err != nil {
		return repoFailure(err)
	}
	hint := fmt.Sprintf("check out %.12s and run headway apply --accept-history to follow it", d.Commit)
	switch relation {
	case repo.Behind:
		d.Refusals = append(d.Refusals, reconcile.Refusal{Code: "WentBack", Whole: true, Hint: hint,
			Text: fmt.Sprintf("the branch went back to %.12s, an ancestor of the accepted commit %.12s", d.Commit, accepted.Commit)})
	case repo.Diverged:
		d.Refusals = append(d.Refusals, reconcile.Refusal{Code: "HistoryRewritten", Whole: true, Hint: hint,
			Text: fmt.Sprintf("commit %.12s does not descend from the accepted commit %.12s: history was rewritten", d.Commit, accepted.Commit)})
	case repo.Same, repo.Ahead:
	}
	return nil
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
	warned := map[string]bool{}
	for _, err := range report.Errors {
		text := err.Error()
		if !l.warned[text] && !warned[text] { // once, for as long as it lasts
			warn(l.p.env, "%s", text)
		}
		warned[text] = true
	}
	l.warned = warned
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
