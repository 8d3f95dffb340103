package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/lmittmann/tint"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/bucket/readonly"
)

// stateFolder lies beside headway.yaml: the embedded store, the local runner's scratch, caches. It is never committed.
const stateFolder = ".headway"

// project is one plan repository as a verb sees it.
type project struct {
	env      env
	root     string // folder that holds headway.yaml
	plan     *plan.Plan
	problems []plan.Problem
	commit   string // what the plan was read from: a full hash, or "work tree"
}

// findRoot walks up from the working folder to the one that holds headway.yaml.
func findRoot(e env) (string, error) {
	dir := e.dir
	for {
		if info, err := os.Stat(filepath.Join(dir, plan.ConfigFile)); err == nil && !info.IsDir() {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", &exit{code: exitError, err: fmt.Errorf("no %s in %s or a folder above it", plan.ConfigFile, e.dir),
				hint: "headway init makes one, or name the folder: headway -C DIR …"}
		}
		dir = up
	}
}

// storeURL resolves "embedded" to a folder; every other URL is taken as it is.
func storeURL(c plan.Config, root string) string {
	if c.Store == "embedded" || c.Store == "" {
		return "dir://" + filepath.ToSlash(filepath.Join(root, stateFolder, "store"))
	}
	return c.Store
}

// openStore opens the project's store. For reading verbs the answer refuses every write, and an embedded store that
// does not exist yet reads as an empty one.
func (p *project) openStore(ctx context.Context, write bool) (bucket.Bucket, string, error) {
	return openURL(ctx, p.env, storeURL(p.plan.Config, p.root), p.plan.Config.Store == "embedded" || p.plan.Config.Store == "", write)
}

func openURL(ctx context.Context, e env, url string, embedded, write bool) (bucket.Bucket, string, error) {
	o := open.Options{Create: write && embedded, Getenv: e.getenv}
	if strings.HasPrefix(url, "s3:") {
		chain, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, "", fmt.Errorf("credentials for %s: %w", url, err)
		}
		o.Credentials = chain.Credentials
	}
	b, err := open.URL(ctx, url, o)
	if err != nil {
		if embedded && !write && bucket.Is(err, bucket.NoBucket) {
			return readonly.New(mem.New()), url, nil
		}
		return nil, "", storeFailure(url, err)
	}
	if !write {
		return readonly.New(b), url, nil
	}
	return b, url, nil
}

// storeFailure puts the store's name in front and keeps the store's own hint.
func storeFailure(url string, err error) error {
	hint := ""
	if s, ok := errors.AsType[*bucket.Error](err); ok {
		hint = s.Hint
	}
	return &exit{code: exitError, err: fmt.Errorf("store %s: %w", withoutSecrets(url), err), hint: hint}
}

// withoutSecrets drops what a store URL may carry besides its place.
func withoutSecrets(url string) string {
	if i := strings.IndexByte(url, '?'); i >= 0 {
		url = url[:i]
	}
	if scheme, rest, ok := strings.Cut(url, "://"); ok {
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			return scheme + "://" + rest[i+1:]
		}
	}
	return url
}

// printProblems writes every problem of the files to standard error, and reports whether one is an error.
func (p *project) printProblems() bool {
	bad := false
	for _, q := range p.problems {
		kind := "warning"
		if q.Severity == plan.Error {
			kind, bad = "error", true
		}
		fmt.Fprintf(p.env.stderr, "%s: %s\n", kind, clean(q.String()))
	}
	return bad
}

// reconciler joins the store, the platforms and the secrets into what decides. write false makes it a reader.
func (p *project) reconciler(ctx context.Context, write bool, bundle func(context.Context, *plan.Job) error) (*reconcile.Reconciler, bucket.Bucket, error) {
	b, url, err := p.openStore(ctx, write)
	if err != nil {
		return nil, nil, err
	}
	rs, err := p.platforms(url)
	if err != nil {
		return nil, nil, err
	}
	host, _ := os.Hostname()
	r, err := reconcile.New(reconcile.Config{
		Bucket: b, StoreURL: url, Runners: rs, ID: fmt.Sprintf("%s/%d", host, os.Getpid()), Log: p.env.logger(),
		Secrets: func(name string) (string, bool) { v := p.env.getenv(name); return v, v != "" },
		Bundle:  bundle, Dry: !write,
	})
	return r, b, err
}

// desired is what this project's read asks for.
func (p *project) desired() *reconcile.Desired {
	return &reconcile.Desired{Plan: p.plan, Commit: p.commit, Fresh: true, Complete: true, AllowStops: -1}
}

// works lists every work that the plan names, and those of the accepted plan.
func (p *project) works(accepted *plan.Accepted) []plan.Digest {
	seen := map[plan.Digest]bool{}
	var out []plan.Digest
	add := func(w plan.Digest) {
		if w != "" && !seen[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	for i := range p.plan.Jobs {
		add(p.plan.Jobs[i].Work)
	}
	if accepted != nil {
		for _, j := range accepted.Jobs {
			add(j.Work)
		}
	}
	return out
}

// named finds the work that a person means: a job's name in the plan or in the accepted plan, or the first digits of a work.
func (p *project) named(name string, accepted *plan.Accepted) (job string, work plan.Digest, err error) {
	if j, ok := p.plan.Job(name); ok {
		return j.Name, j.Work, nil
	}
	var known []string
	if accepted != nil {
		for _, j := range accepted.Jobs {
			known = append(known, j.Name)
			if j.Name == name {
				return j.Name, j.Work, nil
			}
		}
	}
	for i := range p.plan.Jobs {
		known = append(known, p.plan.Jobs[i].Name)
	}
	if len(name) >= 6 && strings.Trim(name, "0123456789abcdef") == "" {
		for _, w := range p.works(accepted) {
			if strings.HasPrefix(string(w), name) {
				return name, w, nil
			}
		}
	}
	hint := "the plan has no jobs"
	if len(known) > 0 {
		sort.Strings(known)
		hint = "known jobs: " + runners.Bound(strings.Join(known, ", "), 400)
	}
	return "", "", &exit{code: exitError, err: fmt.Errorf("no job and no work is called %q", name), hint: hint}
}

func (e env) logger() *slog.Logger {
	level := slog.LevelWarn // what was done is printed by the verbs
	switch e.getenv("HEADWAY_LOG") {
	case "info":
		level = slog.LevelInfo
	case "debug":
		level = slog.LevelDebug
	}
	if e.errTTY {
		return slog.New(tint.NewHandler(e.stderr, &tint.Options{Level: level, TimeFormat: "15:04:05", NoColor: e.getenv("NO_COLOR") != ""}))
	}
	return slog.New(slog.NewJSONHandler(e.stderr, &slog.HandlerOptions{Level: level}))
}

// notExist says whether a file is simply not there.
func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
