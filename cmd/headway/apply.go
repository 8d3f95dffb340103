package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/bucket"
)

// applying is the verb apply and its flags.
type applying struct {
	wait, accept bool
	at           string
	logs         logFlags
}

func newApply(e env) *cobra.Command {
	a := &applying{}
	c := &cobra.Command{Use: "apply [FILE]", Short: "one pass over the commit that is checked out, or of a plan that was saved", Args: cobra.MaximumNArgs(1),
		Long: "Makes one pass over a commit: launches what is missing, recovers what is silent, stops what left the plan. With --wait\nit goes on until everything is over: 0 finished, 100 a job failed, 101 stopped by a person, 104 parked. FILE is a plan that\nheadway plan --out saved: its commit is applied, unless what it would do is not the same any more (exit code 4).",
		RunE: func(c *cobra.Command, args []string) error {
			e, err := a.logs.into(e.at(c))
			if err != nil {
				return err
			}
			return e.logged(a.run(c.Context(), e, args))
		}}
	a.logs.flags(c.Flags())
	c.Flags().BoolVar(&a.wait, "wait", false, "until everything is over")
	c.Flags().StringVar(&a.at, "at", "HEAD", "which commit (a full hash)")
	c.Flags().BoolVar(&a.accept, "accept-history", false, "follow this commit although it does not descend from the accepted one")
	return c
}

func (a *applying) run(ctx context.Context, e env, args []string) error {
	var earlier *plan.Changes
	if len(args) == 1 {
		var err error
		if earlier, err = readSaved(e, args[0]); err != nil {
			return err
		}
		a.at = earlier.Commit
	}
	root, err := findRoot(e)
	if err != nil {
		return err
	}
	p, git, err := openCommit(e, root, a.at)
	if err != nil {
		return err
	}
	defer git.Close()
	if earlier != nil {
		now, err := p.diff(ctx, "")
		if err == nil {
			err = stale(earlier, now)
		}
		if err != nil {
			return err
		}
	}
	patience := time.Duration(0)
	if !a.wait {
		patience = time.Hour // nobody comes back for what is under way: each call has a bound of its own
	}
	l, err := newLoop(ctx, p, git, patience)
	if err != nil {
		return err
	}
	defer l.r.Wait()
	p.printProblems()
	l.acceptHistory = a.accept
	if earlier != nil {
		l.over = &earlier.Base
	}
	return l.apply(ctx, a.wait)
}

// apply makes one pass, or with wait as many as it takes until everything is over.
func (l *loop) apply(ctx context.Context, wait bool) error {
	for first := true; ; first = false {
		report, err := l.pass(ctx, true)
		if err != nil {
			return err
		}
		if first {
			l.p.env.refused(report.Refusals)
		}
		l.say(report)
		if err := l.outrun(report); err != nil {
			return err
		}
		code, over := verdict(report)
		over = over && report.Owed == 0
		switch {
		case !over && wait:
			if err := pause(ctx, min(max(report.Next, 200*time.Millisecond), 2*time.Second)); err != nil {
				return err
			}
			continue
		case len(report.Refusals) > 0:
			return &exit{code: exitRefused}
		case len(report.Errors) > 0 && !wait, unfollowed(report):
			return &exit{code: exitError, err: errors.New(count(len(report.Errors), "failure") + " in this pass"), hint: "the next pass tries again; headway doctor looks at the store and the platforms"}
		case wait && code != exitOK:
			return &exit{code: code}
		}
		return nil
	}
}

// outrun refuses a saved plan that was taken up by another apply, or overtaken, between the look and the act.
func (l *loop) outrun(report *reconcile.Report) error {
	over := l.over
	l.over = nil // only the first pass takes the plan up
	if over == nil || !slices.ContainsFunc(report.Refusals, func(r reconcile.Refusal) bool { return r.Code == reconcile.CodeOvertaken }) {
		return nil
	}
	if report.Commit == l.p.commit {
		return applied(l.p.commit)
	}
	return &exit{code: exitStale, err: fmt.Errorf("the saved plan is stale: commit %.12s is in force now, it was %.12s", orNothing(report.Commit), orNothing(*over)),
		hint: "look at the plan again and save it anew: headway plan --out FILE"}
}

// loop is one repository, one reconciler, and what was said last.
type loop struct {
	p             *project
	git           *repo.Repo
	r             *reconcile.Reconciler
	acceptHistory bool
	over          *string           // of a saved plan: the commit that has to be in force still; nil: whatever is
	labels        *labels           // of pull requests; nil: no forge is asked
	demand        *reconcile.Demand // of the verb launch; nil: everything is done that there is to do
	calm          func()            // what a commit changed was acted on; nil: nobody waits for it
	said          map[plan.Digest]string
	drains        map[plan.Digest]bool // what was said last is that it drains
	warned        map[string]bool      // errors of the last pass
	message       string               // of the commit
	store         bucket.Bucket        // as it was opened
	before        *plan.Accepted       // in force when the newest pass began; nil: nothing was
}

func newLoop(ctx context.Context, p *project, git *repo.Repo, patience time.Duration) (*loop, error) {
	l := &loop{p: p, git: git, said: map[plan.Digest]string{}, drains: map[plan.Digest]bool{}}
	b, url, err := p.openStore(ctx, true)
	if err != nil {
		return nil, err
	}
	l.store = b
	b = p.env.wrapped(b)
	floor, err := proven(ctx, p.env, b, url)
	if err != nil {
		return nil, err
	}
	l.r, _, err = p.reconciler(ctx, true, reconcile.Config{Board: true, Bundle: l.bundle(b), Load: l.load, LeaseFloor: floor, Patience: patience, Ahead: l.acted})
	if err != nil {
		return nil, err
	}
	l.message, err = commitMessage(git, p.commit)
	return l, err
}

// acted is told that what a commit changed was acted on.
func (l *loop) acted() {
	if l.calm != nil {
		l.calm()
	}
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
	l.before = accepted
	d := l.p.desired()
	d.Fresh, d.Demand = fresh, l.demand
	if err := ask(ctx, d, l.git, l.message, accepted, l.acceptHistory); err != nil {
		return nil, err
	}
	if l.over != nil {
		d.Over, d.Once = l.over, true
	}
	if over := d.Over; l.labels != nil && over != nil {
		d.Approved = func(ctx context.Context, jobs []string) []string {
			return l.labels.approved(ctx, d, *over, jobs, l.lineage(ctx))
		}
	}
	return l.r.Pass(ctx, d)
}

// ask adds to what a plan desires what its commit says of it: the trailers of its message, and whether it descends from
// the commit that is in force.
func ask(ctx context.Context, d *reconcile.Desired, git *repo.Repo, message string, accepted *plan.Accepted, anyHistory bool) error {
	allow(d, repo.ParseTrailers(message))
	if d.Branch = git.Branch(); d.Branch == "" && (len(d.Plan.Config.Guard.Pinned) > 0 || d.Plan.Config.Guard.ReplaceAfter > 0) {
		_, _ = git.Head(ctx) // asks once which branch HEAD names; without one the guards say that they do not know
		d.Branch = git.Branch()
	}
	var over string
	if accepted != nil {
		over = accepted.Commit
	}
	d.Over = &over
	if err := vouched(ctx, d, git, over, anyHistory, time.Now()); err != nil {
		return repoFailure(err)
	}
	if anyHistory || accepted == nil || accepted.Commit == d.Commit {
		return nil
	}
	relation, err := git.Relate(ctx, accepted.Commit, d.Commit)
	if e, ok := errors.AsType[*repo.Error](err); ok && e.Class == repo.Unsupported { // a refusal: what is in force is tended all the same
		d.Refusals = append(d.Refusals, reconcile.Refusal{Code: "ShallowHistory", Whole: true, Hint: e.Hint + ", or fetch-depth: 0 in a workflow",
			Text: fmt.Sprintf("whether %.12s descends from the accepted commit %.12s cannot be told: this copy of the repository is shallow", d.Commit, accepted.Commit)})
		return nil
	}
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
	case repo.Ahead:
		return permitted(ctx, d, git, message, over)
	case repo.Same:
	}
	return nil
}

// say prints what was done and what changed since it was said last. Where events are wanted, the reconciler has logged what
// was decided and done, and what runs for nobody.
func (l *loop) say(report *reconcile.Report) {
	for _, a := range report.Actions {
		if l.p.env.events {
			break
		}
		text := fmt.Sprintf("%s: %s", a.Kind, a.Reason)
		if a.Result != "" {
			text += ": " + a.Result
		}
		if a.Err != nil {
			text += ": " + a.Err.Error()
		}
		if l.said[a.Work] == text || a.Kind == reconcile.Wait && a.Until > 0 && l.said[a.Work] != "" && (!a.Drains() || l.drains[a.Work]) {
			continue // a wait is said where nothing was said before, and where it is the beginning of an end
		}
		l.said[a.Work], l.drains[a.Work] = text, a.Drains()
		name := a.Job
		if name == "" {
			name = a.Work.Short()
		}
		fmt.Fprintf(l.p.env.stdout, "%s: %s\n", name, l.p.env.hidden.from(clean(text)))
	}
	warned := map[string]bool{}
	for _, err := range report.Errors {
		text := err.Error()
		if l.p.env.events && ofAction(report, err) {
			continue
		}
		if !l.warned[text] && !warned[text] { // once, for as long as it lasts
			warn(l.p.env, "%s", text)
		}
		warned[text] = true
	}
	for _, q := range report.Warnings {
		if text := once(q); !l.warned[text] && !warned[text] {
			warn(l.p.env, "%s", text)
		}
		warned[once(q)] = true
	}
	for _, d := range report.Drift {
		if d.Kind == plan.DriftOrphan {
			continue // said below
		}
		if text := "drift: " + d.String(); !l.warned[text] && !warned[text] {
			warn(l.p.env, "%s", text)
		}
		warned["drift: "+d.String()] = true
	}
	for _, o := range report.Orphans {
		if l.p.env.events {
			break
		}
		key := fmt.Sprintf("orphan %s %s %d %s", o.Platform, o.Work, o.Dispatch, o.Text)
		if !l.warned[key] {
			warn(l.p.env, "%s; to end it: %s", orphanText(o), clean(o.End))
		}
		warned[key] = true
	}
	l.warned = warned
}

// ofAction says whether an error of a pass is that of one of its acts, which has a line of its own.
func ofAction(report *reconcile.Report, err error) bool {
	return slices.ContainsFunc(report.Actions, func(a reconcile.Action) bool { return a.Err != nil && errors.Is(err, a.Err) })
}

// verdict says whether every work that was looked at is over, and with which exit code.
func verdict(report *reconcile.Report) (code int, over bool) {
	for _, a := range report.Actions {
		switch a.Kind {
		case reconcile.Launch, reconcile.WriteOff, reconcile.Move, reconcile.Stop, reconcile.Release, reconcile.Wait:
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

// unfollowed: trouble kept the commit from coming into force, so that nothing of it was done; that all else is over says nothing.
func unfollowed(report *reconcile.Report) bool {
	return !report.Accepted && len(report.Errors) > 0 && len(report.Refusals) == 0
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
