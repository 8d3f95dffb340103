package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
)

// stateFolder lies beside headway.yaml: the embedded store, the local runner's scratch, caches. It is never committed.
const stateFolder = ".headway"

// project is one plan repository as a verb sees it.
type project struct {
	env      env
	root     string // folder that holds headway.yaml
	plan     *plan.Plan
	problems []plan.Problem
	differ   []string                                          // of a work tree: files that count and no commit holds as they are
	commit   string                                            // what the plan was read from: a full hash, or "work tree"
	plans    *plan.Cache                                       // what earlier commits came to; nil: nothing is kept
	branch   string                                            // that it is judged for; "": the one that HEAD names
	approved func(ctx context.Context, jobs []string) []string // of jobs that may be replaced, as in reconcile.Desired
}

// findRoot walks up from the working folder to the one that holds headway.yaml.
func findRoot(e env) (string, error) {
	dir := e.dir
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", &exit{code: exitError, err: fmt.Errorf("there is no folder %s", dir), hint: "check the path that -C names"}
	}
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
		return folderURL(filepath.Join(root, stateFolder, "store"))
	}
	return c.Store
}

// folderURL is the URL of an absolute folder, escaped: its name may hold what means something else in a URL.
func folderURL(dir string) string {
	return (&url.URL{Scheme: "dir", Path: filepath.ToSlash(dir)}).String()
}

// openStore opens the project's store. For reading verbs the answer refuses every write, and an embedded store that
// does not exist yet reads as an empty one.
func (p *project) openStore(ctx context.Context, write bool) (bucket.Bucket, string, error) {
	if err := p.unusable(); err != nil {
		return nil, "", err
	}
	store := storeURL(p.plan.Config, p.root)
	if p.plan.Config.Store == "embedded" {
		b, err := openEmbedded(ctx, store, filepath.Join(p.root, stateFolder), write)
		return b, store, err
	}
	return p.openURL(ctx, store, write)
}

// openURL opens a store that a URL names, with the keys that this program finds.
func (p *project) openURL(ctx context.Context, store string, write bool) (bucket.Bucket, string, error) {
	getenv := p.env.getenv
	o := open.Options{Getenv: getenv}
	if strings.HasPrefix(store, "s3:") {
		chain, _, err := storeKeys(ctx)
		if err != nil {
			return nil, "", &exit{code: exitError, err: fmt.Errorf("store %s: %w", withoutSecrets(store), err), hint: keysHint}
		}
		o.Credentials = chain.Credentials
		o.Getenv = func(name string) string {
			if v := getenv(name); v != "" || name != "AWS_REGION" {
				return v
			}
			return chain.Region // of the profile
		}
	}
	b, err := open.URL(ctx, store, o)
	if err != nil {
		return nil, "", storeFailure(store, err)
	}
	if !write {
		return readonly.New(b), store, nil
	}
	return b, store, nil
}

// unusable says that headway.yaml has an error of its own: what it leaves out would be read as a default, and nothing
// may be launched, or even looked for, in a store that nobody meant.
func (p *project) unusable() error {
	for _, q := range p.plan.Errors() {
		if p.plan.Config.Store == "" || q.Pos.File == plan.ConfigFile && q.Pos.Line > 0 && q.Code != "GlobMatchesNothing" {
			return &exit{code: exitError, err: errors.New(q.String()), hint: "neither store nor platforms are touched while " + plan.ConfigFile + " has an error; headway validate lists all"}
		}
	}
	return nil
}

// storeMark lies in the state folder from the moment when the embedded store was made, so that one that vanishes is
// not mistaken for one that was never made.
const storeMark = "store.made"

// openEmbedded opens the folder store of a project. The first writer makes it; until then it reads as an empty one.
func openEmbedded(ctx context.Context, url, state string, write bool) (bucket.Bucket, error) {
	mark := filepath.Join(state, storeMark)
	b, err := open.URL(ctx, url, open.Options{})
	if bucket.Is(err, bucket.NoBucket) {
		if _, serr := os.Stat(mark); serr == nil {
			return nil, &exit{code: exitError, err: fmt.Errorf("the embedded store %s is gone, with every lease and result in it", withoutSecrets(url)),
				hint: "put the folder back; to begin anew without what it held, delete " + mark}
		}
		if !write {
			return readonly.New(mem.New()), nil
		}
		b, err = open.URL(ctx, url, open.Options{Create: true})
	}
	if err != nil {
		return nil, storeFailure(url, err)
	}
	if !write {
		return readonly.New(b), nil
	}
	if _, err := os.Stat(mark); err != nil {
		if err := os.WriteFile(mark, []byte("the embedded store was made here; headway refuses to begin a new one while this file is here\n"), 0o644); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// storeFailure puts the store's name in front, says nothing twice, and keeps the store's own hint.
func storeFailure(url string, err error) error {
	text := strings.TrimPrefix(err.Error(), "store: ")
	if e, ok := errors.AsType[*bucket.Error](err); ok && e.Op == "open" {
		text = strings.TrimPrefix(text, "open "+e.Key+": ")
	}
	return &exit{code: exitError, err: &reworded{"store " + withoutSecrets(url) + ": " + text, err}, hint: hintWithin(err)}
}

// reworded is an error in other words. Unwrap leads to the whole.
type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }

// withoutSecrets drops user information from a store's URL; what stands behind the question mark names a place.
func withoutSecrets(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); ok && i >= 0 {
		return scheme + "://" + host[i+1:] + "/" + path
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
		if p.env.events {
			p.env.log.Warn("a file of the plan has a problem", "severity", kind, "problem", clean(once(q)))
			continue
		}
		fmt.Fprintf(p.env.stderr, "%s: %s\n", kind, clean(once(q)))
	}
	return bad
}

// once leaves a problem's own word for a warning out: it stands in front of the line.
func once(q plan.Problem) string {
	if q.Severity == plan.Warning {
		return strings.Replace(q.String(), ": warning: ", ": ", 1)
	}
	return q.String()
}

// printWarnings writes what people should know of files without an error: the verbs that only look say no more of them.
func (p *project) printWarnings() {
	for _, q := range p.problems {
		if q.Severity == plan.Warning && (slices.Contains([]string{"RunnerNotBuilt", "SecretsOnAny", "Trailer"}, q.Code) || strings.HasPrefix(q.Code, "Guard")) {
			warn(p.env, "%s", once(q))
		}
	}
}

// reader is a reconciler that writes nothing, and its store.
func (p *project) reader(ctx context.Context) (*reconcile.Reconciler, bucket.Bucket, error) {
	return p.reconciler(ctx, false, reconcile.Config{})
}

// reconciler joins the store, the platforms and the secrets into what decides; c brings what only a writer needs. write
// false makes it a reader.
func (p *project) reconciler(ctx context.Context, write bool, c reconcile.Config) (*reconcile.Reconciler, bucket.Bucket, error) {
	b, url, err := p.openStore(ctx, write)
	if err != nil {
		return nil, nil, err
	}
	rs := p.declared()
	if write {
		if rs, err = p.platforms(b); err != nil {
			return nil, nil, err
		}
	}
	if write {
		b = p.env.wrapped(b)
	}
	c.Bucket, c.StoreURL, c.Runners, c.Dry = b, url, rs, !write
	c.ID, c.Log = cmp.Or(p.env.id, madeUpID()), p.env.logger()
	e := p.env // and not p: what the reconciler holds on to must not hold the first plan for as long
	c.Secrets = func(name string) (string, bool) {
		v := e.getenv(name)
		e.hidden.add(v)
		return v, v != ""
	}
	r, err := reconcile.New(c)
	return r, b, err
}

// madeUpID is the name of a dispatcher that was given none: its machine, its process, and something random, since numbers of
// processes come again.
func madeUpID() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d-%s", runners.Bound(runners.Sanitize([]byte(host)), 40), os.Getpid(), record.Nonce()[:6])
}

// desired is what this project's read asks for.
func (p *project) desired() *reconcile.Desired {
	return &reconcile.Desired{Plan: p.plan, Commit: p.commit, Fresh: true, Complete: true, AllowStops: -1, Approved: p.approved}
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

// named finds the work that a person means: a job's name in the accepted plan, which is what runs, or in the files, or
// the first digits of a work.
func (p *project) named(ctx context.Context, b bucket.Bucket, name string, accepted *plan.Accepted) (job string, work plan.Digest, err error) {
	var known []string
	if accepted != nil {
		for _, j := range accepted.Jobs {
			known = append(known, j.Name)
			if j.Name == name {
				return j.Name, j.Work, nil
			}
		}
	}
	if j, ok := p.plan.Job(name); ok {
		return j.Name, j.Work, nil
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
		if w, err := stored(ctx, b, name); err != nil || w != "" {
			return name, w, err
		}
	}
	hint := "the plan has no jobs"
	if len(known) > 0 {
		sort.Strings(known)
		known = slices.Compact(known)
		hint = "known jobs: " + runners.Bound(strings.Join(known, ", "), 400)
	}
	return "", "", &exit{code: exitError, err: fmt.Errorf("no job and no work is called %q", name), hint: hint}
}

// stored finds a work of an earlier plan by the first digits of its digest; "" when the store has none.
func stored(ctx context.Context, b bucket.Bucket, digits string) (plan.Digest, error) {
	if b == nil {
		return "", nil
	}
	page, err := b.List(ctx, record.WitnessKey(digits), "", 2)
	if err != nil || len(page.Items) == 0 {
		return "", err
	}
	if len(page.Items) > 1 {
		return "", &exit{code: exitError, err: fmt.Errorf("more than one work begins with %s", digits), hint: "give more digits"}
	}
	return plan.Digest(strings.TrimPrefix(page.Items[0].Key, record.WitnessPrefix)), nil
}

// notExist says whether a file is simply not there.
func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
