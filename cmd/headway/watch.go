package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/reconcile/notify"
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
	meter    *meter.Meter
	health   *health
	lanes    *lanes         // page of releases; nil: there is none
	labels   *labels        // of pull requests; nil: no forge is asked
	sender   *notify.Sender // of the newest loop's store; nil: there is none yet
	plans    plan.Cache
	name     string // among several; empty: there is one
	options  repo.Options
	wake     chan struct{} // somebody wants a look now

	following struct { // asked by others than the loop
		sync.Mutex
		branch string
	}
}

// watching is the verb watch and its flags.
type watching struct {
	branch, state, key, known, listen, id string
	forge, api                            string
	interval                              time.Duration
	once                                  bool
	logs                                  logFlags
}

func newWatch(e env) *cobra.Command {
	v := &watching{}
	c := &cobra.Command{Use: "watch [REPOSITORY[#BRANCH] ...]", Short: "the loop over a branch, for ever",
		Long: "Polls a branch and makes pass after pass over its newest commit. REPOSITORY is a folder, https://…, ssh://… or\nuser@host:path; left out, it is the repository of the working folder, read where it lies. Several are watched side by\nside, each by itself. A token for https is taken from HEADWAY_GIT_TOKEN, or from the file that HEADWAY_GIT_TOKEN_FILE\nnames, at each use. SIGHUP, and a webhook, make it look at once. Any number of them may watch one store. How a branch is\nfollowed, webhooks and signatures: docs/watch.md; metrics, health and logs: docs/observability.md; messages about jobs:\ndocs/notifications.md.",
		RunE: func(c *cobra.Command, args []string) error {
			e, err := v.logs.into(e.at(c))
			if err != nil {
				return err
			}
			return e.logged(v.run(c.Context(), e, args, c.Flags().Changed("id")))
		}}
	f := c.Flags()
	f.StringVar(&v.branch, "branch", "", "which branch, where REPOSITORY names none (default: the one that HEAD names)")
	f.DurationVar(&v.interval, "interval", 5*time.Second, "how often to look")
	f.StringVar(&v.state, "state", "", "folder for the embedded store and caches (default: .headway beside headway.yaml)")
	f.StringVar(&v.key, "ssh-key", "", "private key file for ssh")
	f.StringVar(&v.known, "known-hosts", "", "known_hosts file for ssh")
	f.BoolVar(&v.once, "once-done", false, "end when nothing is left to do, with the exit code of apply --wait")
	f.StringVar(&v.id, "id", "", "this dispatcher's name in claims, logs and metrics (default: machine, process and something random)")
	f.StringVar(&v.forge, "forge", "", "github, gitlab or gitea: ask it for the label by which a pull request may replace running work, with HEADWAY_FORGE_TOKEN")
	f.StringVar(&v.api, "api", "", "where the forge's API is (default: on the host of REPOSITORY, where that forge has it)")
	f.StringVar(&v.listen, "listen", "", "ADDRESS:PORT that /metrics, /healthz and /readyz are served on, /lanes where headway.yaml names some, and /hook with HEADWAY_HOOK_SECRET; an address left out is 127.0.0.1")
	v.logs.flags(f)
	return c
}

func (v *watching) run(ctx context.Context, e env, args []string, named bool) error {
	if e.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	bound(e)
	if err := checkInterval(v.interval); err != nil {
		return err
	}
	if !named {
		v.id = madeUpID()
	} else if err := checkID(v.id); err != nil {
		return err
	}
	ws, err := v.sources(e, args)
	if err != nil {
		return err
	}
	if err := v.labelled(e, ws); err != nil {
		return err
	}
	if v.listen != "" {
		own := e
		if own.log != nil {
			own.log = own.log.With("dispatcher", v.id)
		}
		stop, err := serve(ctx, own, v.listen, ws)
		if err != nil {
			return err
		}
		defer stop()
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	hangups(ctx, ws)
	return follow(ctx, ws, v.once)
}

// place decides where the repository and the state folder are.
func (w *watcher) place(remote, state string, o *repo.Options) error {
	if remote == "" {
		root, err := findRoot(w.env)
		if err != nil {
			return err
		}
		o.Remote, w.state = root, root
	} else {
		o.Remote = remote
		if local := strings.TrimPrefix(remote, "file://"); !strings.Contains(local, ":") && !filepath.IsAbs(local) {
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
	if w.name != "" { // two plans never share an embedded store
		w.state = filepath.Join(w.state, stateFolder, "sources", w.name)
	}
	o.Cache = filepath.Join(w.state, stateFolder, "git")
	return os.MkdirAll(filepath.Join(w.state, stateFolder), 0o755)
}

func (w *watcher) run(ctx context.Context, once bool) error {
	var kept uint64
	for {
		w.health.lives()
		calm, told := func() {}, w.told
		if w.loop != nil { // the first look clones and reads everything: nobody waits for a commit, and memory counts
			calm = hurry(w.env)
		}
		fresh := w.poll(ctx)
		if w.told == told {
			calm() // there is no new commit
		}
		w.health.polled(fresh)
		w.meter.Repository(fresh)
		next := w.interval
		if w.loop != nil {
			start := time.Now()
			w.loop.calm = calm
			report, err := w.loop.pass(ctx, fresh)
			calm()
			w.passed(ctx, report, err, time.Since(start))
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				w.say("pass", "the pass failed, the next one tries again: %v", err)
			default:
				w.well("pass")
				w.loop.say(report)
				for _, r := range report.Refusals {
					if r.New && w.events {
						w.refused([]reconcile.Refusal{r})
					} else if r.New {
						fmt.Fprintf(w.stdout, "refused: %s: %s\n  %s\n", r.Code, clean(r.Text), clean(r.Hint))
					}
				}
				if code, over := verdict(report); once && over && fresh && !unfollowed(report) {
					if len(report.Refusals) > 0 {
						code = exitRefused
					}
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
		calm()
		kept = rest(next, kept)
		bound(w.env)
		if err := w.pause(ctx, next); err != nil {
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
		note(w.env, "the %s is well again", what)
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
		if gone, ok := errors.AsType[*repo.Error](o.Err); ok && w.branch == "" && gone.Text == repo.HeadNamesNone {
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
	w.following.Lock()
	w.following.branch = w.git.Branch()
	w.following.Unlock()
	if w.loop != nil && w.loop.p.commit == head.Hash {
		w.well("commit")
		return true
	}
	return w.take(ctx, head)
}

// take makes a commit's plan the desired one. One that cannot be used leaves the last good plan in place.
func (w *watcher) take(ctx context.Context, head repo.Commit) bool {
	p := &project{env: w.env, root: w.state, plans: &w.plans}
	if err := p.load(w.git, head.Hash); err != nil {
		w.say("commit", "commit %.12s cannot be read whole: %v: %s", head.Hash, err, w.meanwhile())
		return false
	}
	if w.loop == nil { // everything was read, and the pass over it needs room
		w.git.Rest()
	}
	if w.told != head.Hash {
		w.told = head.Hash
		note(w.env, "commit %.12s %s: %s in %s", head.Hash, head.Subject(), count(len(p.plan.Jobs), "job"), count(len(p.plan.Files), "file"))
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
		if w.sender != nil {
			w.waits = append(w.waits, w.sender.Close)
		}
		w.sender = w.newSender(ctx, l.store)
	} else {
		message, err := commitMessage(w.git, head.Hash)
		if err != nil {
			w.say("commit", "commit %.12s: %v", head.Hash, err)
			return false
		}
		w.loop.p, w.loop.message = p, message
	}
	w.loop.labels = w.labels
	w.lanes.follow(p.plan)
	warnOfPlaces(w.env, p.plan.Config.Notify, true)
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
