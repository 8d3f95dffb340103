package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/repo"
)

// watcher follows one branch for ever. Git trouble never stops it: the last good plan stays in force, runs are watched
// and recovered, and what is wrong is said once.
type watcher struct {
	env
	git      *repo.Repo
	loop     *loop
	branch   string // as asked for; empty: the one that HEAD names
	state    string // folder for the embedded store, scratch and caches
	interval time.Duration
	waits    []func()          // for the launches of every loop there was
	trouble  map[string]string // what was said last about the repository, the commit and the pass, while it lasts
	told     string            // the commit whose line was printed last
}

func newWatch(e env) *cobra.Command {
	w := &watcher{trouble: map[string]string{}}
	var state, key, known string
	var once bool
	c := &cobra.Command{Use: "watch [REPOSITORY]", Short: "the loop over a branch, for ever", Args: cobra.MaximumNArgs(1),
		Long: "Polls a branch and makes pass after pass over its newest commit. REPOSITORY is a folder, https://…, ssh://… or\nuser@host:path; left out, it is the repository of the working folder, read where it lies. A token for https is taken\nfrom HEADWAY_GIT_TOKEN at each use.",
		RunE: func(c *cobra.Command, args []string) error {
			w.env = e.at(c)
			o := repo.Options{Branch: w.branch, Auth: repo.Auth{KeyFile: key}}
			if known != "" {
				o.Auth.KnownHosts = []string{known}
			}
			if w.getenv("HEADWAY_GIT_TOKEN") != "" {
				o.Auth.Token = func() (string, error) { return w.getenv("HEADWAY_GIT_TOKEN"), nil }
			}
			if err := w.place(args, state, &o); err != nil {
				return err
			}
			var err error
			if w.git, err = repo.Open(o); err != nil {
				return repoFailure(err)
			}
			defer w.git.Close()
			err = w.run(c.Context(), once)
			for _, wait := range w.waits {
				wait()
			}
			if c.Context().Err() != nil && errors.Is(err, c.Context().Err()) {
				return nil
			}
			return err
		}}
	f := c.Flags()
	f.StringVar(&w.branch, "branch", "", "which branch (default: the one that HEAD names)")
	f.DurationVar(&w.interval, "interval", 5*time.Second, "how often to look")
	f.StringVar(&state, "state", "", "folder for the embedded store and caches (default: .headway beside headway.yaml)")
	f.StringVar(&key, "ssh-key", "", "private key file for ssh")
	f.StringVar(&known, "known-hosts", "", "known_hosts file for ssh")
	f.BoolVar(&once, "once-done", false, "end when nothing is left to do, with the exit code of apply --wait")
	return c
}

// place decides where the repository and the state folder are.
func (w *watcher) place(args []string, state string, o *repo.Options) error {
	if len(args) == 0 {
		root, err := findRoot(w.env)
		if err != nil {
			return err
		}
		o.Remote, w.state = root, root
	} else {
		o.Remote = args[0]
		if local := strings.TrimPrefix(args[0], "file://"); !strings.Contains(local, ":") && !filepath.IsAbs(local) {
			o.Remote = filepath.Join(w.dir, local)
		}
		w.state = w.dir
	}
	if state != "" {
		if !filepath.IsAbs(state) {
			state = filepath.Join(w.dir, state)
		}
		w.state = state
	}
	o.Cache = filepath.Join(w.state, stateFolder, "git")
	return os.MkdirAll(filepath.Join(w.state, stateFolder), 0o755)
}

func (w *watcher) run(ctx context.Context, once bool) error {
	for {
		fresh := w.poll(ctx)
		next := w.interval
		if w.loop != nil {
			report, err := w.loop.pass(ctx, fresh)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				w.say("pass", "the pass failed, the next one tries again: %v", err)
			default:
				w.well("pass")
				w.loop.say(report)
				for _, r := range report.Refusals {
					if r.New {
						fmt.Fprintf(w.stdout, "refused: %s: %s\n  %s\n", r.Code, clean(r.Text), clean(r.Hint))
					}
				}
				if code, over := verdict(report); once && over && fresh {
					if code != exitOK {
						return &exit{code: code}
					}
					return nil
				}
				if report.Next > 0 {
					next = min(next, max(report.Next, 100*time.Millisecond))
				}
			}
		}
		if once && w.loop == nil {
			return &exit{code: exitError, err: fmt.Errorf("no plan could be read, so nothing will ever be done"), hint: "what is wrong stands above; without --once-done the loop goes on looking"}
		}
		if err := pause(ctx, next); err != nil {
			return err
		}
	}
}

// say reports trouble of one kind once, until something else is to be said of it.
func (w *watcher) say(what, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if alike := withoutRequests(text); alike != w.trouble[what] {
		w.trouble[what] = alike
		warn(w.env, "%s", text)
	}
}

// withoutRequests takes the store's request numbers out of a text: another one each time, and no other trouble.
func withoutRequests(text string) string {
	for {
		before, rest, found := strings.Cut(text, `, request "`)
		if !found {
			return text
		}
		_, after, _ := strings.Cut(rest, `"`)
		text = before + after
	}
}

// meanwhile says what goes on while a commit cannot be had.
func (w *watcher) meanwhile() string {
	if w.loop == nil {
		return "nothing is launched before a plan could be read"
	}
	return "the last good plan stays in force"
}

// well says once that trouble of one kind is over.
func (w *watcher) well(what string) {
	if w.trouble[what] != "" {
		delete(w.trouble, what)
		fmt.Fprintf(w.stdout, "the %s is well again\n", what)
	}
}

// poll looks at the repository, and takes a new commit's plan where it can be read. It reports whether the answer is
// fresh; a plan that could not be read whole leaves the last good one in place.
func (w *watcher) poll(ctx context.Context) (fresh bool) {
	var head repo.Commit
	switch o := w.git.Poll(ctx).(type) {
	case repo.Unchanged:
		head = o.Head
	case repo.Advanced:
		head = o.New
	case repo.Rewritten:
		head = o.New
	case repo.WentBack:
		head = o.New
	case repo.BranchGone:
		text := o.Err.Error()
		if gone, ok := errors.AsType[*repo.Error](o.Err); ok && w.branch == "" && gone.Class == repo.BranchNotFound && w.git.Branch() == "" {
			text = fmt.Sprintf("git remote %s: HEAD names no branch, since a commit is checked out: check out a branch, or name one with --branch NAME (%s)", gone.Remote, gone.Hint)
		}
		w.say("repository", "%s: %s", text, w.meanwhile())
		return false
	case repo.Unreachable:
		if ctx.Err() != nil {
			return false
		}
		w.say("repository", "the repository is away since %s: %v: %s", o.Since.UTC().Format(time.RFC3339), o.Err, w.meanwhile())
		if w.loop == nil { // started while the remote is away: what an earlier process fetched will do
			if last, err := w.git.Head(ctx); err == nil {
				w.take(ctx, last)
			}
		}
		return false
	}
	w.well("repository")
	if w.loop != nil && w.loop.p.commit == head.Hash {
		w.well("commit")
		return true
	}
	return w.take(ctx, head)
}

// take makes a commit's plan the desired one. One that cannot be used leaves the last good plan in place.
func (w *watcher) take(ctx context.Context, head repo.Commit) bool {
	p := &project{env: w.env, root: w.state}
	if err := p.load(w.git, head.Hash); err != nil {
		w.say("commit", "commit %.12s cannot be read whole: %v: %s", head.Hash, err, w.meanwhile())
		return false
	}
	if w.told != head.Hash {
		w.told = head.Hash
		fmt.Fprintf(w.stdout, "commit %.12s %s: %s in %s\n", head.Hash, clean(head.Subject()), count(len(p.plan.Jobs), "job"), count(len(p.plan.Files), "file"))
		p.printProblems()
	}
	if err := p.unusable(); err != nil {
		w.say("commit", "commit %.12s is not followed, since %s has an error: %s", head.Hash, plan.ConfigFile, w.meanwhile())
		return false
	}
	if w.loop == nil || w.loop.p.plan.Config.Store != p.plan.Config.Store || !samePlatforms(w.loop.p.plan.Config, p.plan.Config) {
		l, err := newLoop(ctx, p, w.git, 0)
		if err != nil {
			w.say("commit", "commit %.12s: %v: it is tried again; %s", head.Hash, err, w.meanwhile())
			return false
		}
		w.loop, w.waits = l, append(w.waits, l.r.Wait)
	} else {
		message, err := commitMessage(w.git, head.Hash)
		if err != nil {
			w.say("commit", "commit %.12s: %v", head.Hash, err)
			return false
		}
		w.loop.p, w.loop.message = p, message
	}
	w.well("commit")
	return true
}

// samePlatforms says whether two configurations make the same runners.
func samePlatforms(a, b plan.Config) bool {
	if len(a.Platforms) != len(b.Platforms) {
		return false
	}
	for name, x := range a.Platforms {
		y, ok := b.Platforms[name]
		if !ok || x.Runner != y.Runner || x.Slots != y.Slots || fmt.Sprint(x.Options) != fmt.Sprint(y.Options) {
			return false
		}
	}
	return true
}
