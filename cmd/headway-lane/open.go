package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/local"
	"github.com/headway-run/headway/runners/witness"
)

// stateFolder holds the lane's copy of the repository and the files of its workers.
const stateFolder = ".headway-lane"

// where are the flags that say which lane is meant.
type where struct {
	branch, repoID, key, trust, state string
	roots                             []string
	create                            bool // the lane's store, where it is a folder that is not there
	fresh                             bool // such a store reads as an empty one: the verb comes before the first run too
}

func (w *where) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.branch, "branch", "main", "the protected branch")
	f.StringVar(&w.repoID, "repo", "", "canonical id of the repository, as tags name it; default: from its address")
	f.StringVar(&w.key, "key", "", "file with the lane's own SSH key (ed25519); default: HEADWAY_LANE_KEY")
	f.StringVar(&w.trust, "trust", "", "file with public keys of lanes whose records count beside this one's")
	f.StringVar(&w.state, "state", "", "folder for the copy of the repository and the workers' files; default: the working folder")
	f.StringSliceVar(&w.roots, "root", nil, "fingerprint (SHA256:…) of a key that may change who signs; default: HEADWAY_LANE_ROOTS, separated by commas")
}

// opened is a lane with everything that it needs.
type opened struct {
	git   *repo.Repo
	lane  *deploylane.Lane
	watch *tag.Watch
	conf  deploylane.Config

	refused bool // a tag was, at a look of this process
}

// open opens the repository and the stores that the tip of its protected branch names. write false makes everything that it
// gives refuse writes.
func (w *where) open(ctx context.Context, e env, args []string, write bool) (*opened, error) {
	remote := "."
	if len(args) > 0 {
		remote = args[0]
	}
	if !strings.Contains(remote, ":") {
		remote = e.path(remote)
	}
	state := filepath.Join(e.path(w.state), stateFolder)
	if w.state == "" {
		state = filepath.Join(e.dir, stateFolder)
	}
	git, err := repo.Open(repo.Options{Remote: remote, Branch: w.branch, Cache: filepath.Join(state, "git"), Auth: repo.Auth{Token: token(e)}})
	if err != nil {
		return nil, repoFailure(err)
	}
	o, err := w.build(ctx, e, git, remote, state, write)
	if err != nil {
		return nil, errors.Join(err, git.Close())
	}
	return o, nil
}

func token(e env) func() (string, error) {
	if e.getenv("HEADWAY_GIT_TOKEN") == "" {
		return nil
	}
	return func() (string, error) { return e.getenv("HEADWAY_GIT_TOKEN"), nil }
}

func (w *where) build(ctx context.Context, e env, git *repo.Repo, remote, state string, write bool) (*opened, error) {
	tip, err := tags{git}.Tip(ctx)
	if err != nil {
		return nil, repoFailure(err)
	}
	roots := w.roots
	if len(roots) == 0 && e.getenv("HEADWAY_LANE_ROOTS") != "" {
		roots = strings.Split(e.getenv("HEADWAY_LANE_ROOTS"), ",")
	}
	if len(roots) == 0 {
		return nil, &exit{code: exitError, err: errors.New("nobody may say what this lane does: no root key is named"), hint: "ssh-keygen -l -f root.pub prints a fingerprint; name it with --root or HEADWAY_LANE_ROOTS"}
	}
	from := plans{git, roots}
	conf, err := from.Lane(ctx, tip)
	if err != nil {
		return nil, &exit{code: exitError, err: err, hint: "docs/lane.md shows a whole " + deploylane.File}
	}
	o := &opened{git: git, conf: conf}
	l := &deploylane.Lane{StoreURL: conf.Store, Git: from, Platforms: conf.Platforms, Version: version, ID: id(), Log: e.logger(), Poll: 2 * time.Second}
	if l.Repo = w.repoID; l.Repo == "" {
		if l.Repo, err = canonicalID(remote); err != nil {
			return nil, err
		}
	}
	if err := w.keys(e, l, write); err != nil {
		return nil, err
	}
	if l.Research, err = store(ctx, e, conf.Research, "HEADWAY_RESEARCH_", false); err != nil {
		return nil, err
	}
	l.Research = readonly.New(l.Research)
	l.Store, err = store(ctx, e, conf.Store, "", w.create)
	switch missing := bucket.Is(err, bucket.NoBucket) && strings.HasPrefix(conf.Store, "dir:"); {
	case missing && w.fresh:
		l.Store = mem.New()
	case missing:
		return nil, &exit{code: exitError, err: err, hint: "is the disk mounted? an empty one would release again what was released; for the first run, headway-lane run --create-store"}
	case err != nil:
		return nil, err
	}
	if !write {
		l.Store = readonly.New(l.Store)
	}
	if strings.HasPrefix(conf.Store, "s3:") {
		l.Floor = witness.RemoteFloor
	}
	if l.Runners, err = places(e, conf, state); err != nil {
		return nil, err
	}
	l.Exec, l.Hook, l.Engines, l.State = e.exec, e.hook, engines(), state
	if len(conf.Keys) > 0 {
		l.Keys = func(ctx context.Context, p access.Policy) (map[string]string, error) {
			return e.workerKeys(ctx, conf.Keys, p)
		}
	}
	o.lane = l
	o.watch = &tag.Watch{Git: tags{git}, Keys: keysOf(), Facts: l, Store: l.Store, Seal: tag.Seal{Key: l.Key, Trusted: l.Trusted}, Repo: l.Repo, Roots: roots}
	return o, nil
}

// keys reads the lane's own key, and those that it trusts beside.
func (w *where) keys(e env, l *deploylane.Lane, write bool) error {
	file := w.key
	if file == "" {
		file = e.getenv("HEADWAY_LANE_KEY")
	}
	if file == "" && (write || w.trust == "") {
		return &exit{code: exitError, err: errors.New("the lane has no key"), hint: "ssh-keygen -t ed25519 -N '' -f lane-key makes one; name it with --key or HEADWAY_LANE_KEY (to look, --trust lane-key.pub does)"}
	}
	if file != "" {
		b, err := os.ReadFile(e.path(file))
		if err != nil {
			return err
		}
		if l.Attester, err = attest.ParseSigner(b); err != nil {
			return &exit{code: exitError, err: fmt.Errorf("%s: %w", file, err)}
		}
		raw, err := ssh.ParseRawPrivateKey(b)
		private, ok := raw.(*ed25519.PrivateKey)
		if err != nil || !ok {
			return &exit{code: exitError, err: fmt.Errorf("%s holds no ed25519 key", file)}
		}
		l.Key = *private
	}
	if w.trust == "" {
		return nil
	}
	b, err := os.ReadFile(e.path(w.trust))
	if err != nil {
		return err
	}
	if _, err := attest.ParseKeys(b); err != nil {
		return &exit{code: exitError, err: fmt.Errorf("%s: %w", w.trust, err)}
	}
	for len(b) > 0 {
		public, _, _, rest, err := ssh.ParseAuthorizedKey(b)
		if err != nil {
			break // no more keys: ParseKeys has read each line
		}
		if c, ok := public.(ssh.CryptoPublicKey); ok {
			if k, ok := c.CryptoPublicKey().(ed25519.PublicKey); ok {
				l.Trusted = append(l.Trusted, k)
			}
		}
		b = rest
	}
	return nil
}

// store opens a store with the variables that begin with a prefix, or else with the plain ones: research's keys are others.
func store(ctx context.Context, e env, raw, prefix string, create bool) (bucket.Bucket, error) {
	b, err := open.URL(ctx, raw, open.Options{Create: create, Getenv: func(name string) string {
		if v := e.getenv(prefix + name); v != "" {
			return v
		}
		if prefix != "" && e.getenv(prefix+"AWS_ACCESS_KEY_ID") != "" {
			return "" // one set of keys, never half of two
		}
		return e.getenv(name)
	}})
	if err != nil {
		return nil, &exit{code: exitError, err: err}
	}
	return b, nil
}

// places makes the runner of each trusted platform. lane.yaml was refused if it names another one than local.
func places(e env, conf deploylane.Config, state string) (map[string]runners.Runner, error) {
	out := map[string]runners.Runner{}
	for name, p := range conf.Platforms {
		r, err := local.New(local.Config{Platform: name, Slots: p.Slots, Options: p.Options, Scratch: filepath.Join(state, "scratch", name),
			Agent: []string{e.self, "agent"}, Environ: os.Environ()})
		if err != nil {
			return nil, &exit{code: exitError, err: fmt.Errorf("%s: %w", deploylane.File, err)}
		}
		out[name] = r
	}
	return out, nil
}

// canonicalID is how tags call a repository: host and path, without a user, a scheme or .git.
func canonicalID(remote string) (string, error) {
	id := ""
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		id = u.Hostname() + "/" + strings.Trim(u.Path, "/")
	} else if host, p, ok := strings.Cut(remote, ":"); ok && !strings.Contains(host, "/") {
		_, host, _ = strings.Cut("@"+host, "@")
		host = host[strings.LastIndexByte(host, '@')+1:]
		id = host + "/" + strings.Trim(p, "/")
	}
	if id = strings.TrimSuffix(path.Clean(id), ".git"); id == "." || id == "" {
		return "", &exit{code: exitError, err: fmt.Errorf("%s has no address that tags could name", remote), hint: "say what they call it: --repo git.example.com/team/models"}
	}
	return id, nil
}

func id() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("lane-%s-%d", runners.Bound(host, 40), os.Getpid())
}

// logger writes events to standard error as JSON lines where HEADWAY_LOG is json, and nothing else does.
func (e env) logger() *slog.Logger {
	if e.getenv("HEADWAY_LOG") == "json" {
		return slog.New(slog.NewJSONHandler(e.stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

func repoFailure(err error) error {
	if e, ok := errors.AsType[*repo.Error](err); ok {
		return &exit{code: exitError, err: errors.New(strings.TrimSuffix(e.Error(), ": "+e.Hint)), hint: e.Hint}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &exit{code: exitError, err: err, hint: "name the repository: headway-lane run REPOSITORY"}
	}
	return &exit{code: exitError, err: err}
}
