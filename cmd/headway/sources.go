package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners/bucket"
)

// source is a repository and its branch as a person named it: REPOSITORY or REPOSITORY#BRANCH.
type source struct{ remote, branch string }

func parseSource(s, branch string) source {
	if i := strings.LastIndexByte(s, '#'); i > 0 && i < len(s)-1 {
		return source{s[:i], s[i+1:]}
	}
	return source{s, branch}
}

// here writes a repository on this machine in one way, however it was spelled: what is kept for it goes by its name.
func (s source) here(dir string) source {
	local := strings.TrimPrefix(s.remote, "file://")
	if local == "" || strings.Contains(local, ":") {
		return source{strings.TrimRight(s.remote, "/"), s.branch}
	}
	if !filepath.IsAbs(local) {
		local = filepath.Join(dir, local)
	}
	if real, err := filepath.EvalSymlinks(local); err == nil {
		local = real
	}
	return source{filepath.Clean(local), s.branch}
}

// named is a source with the branch that HEAD of a repository on this machine names now, where none was given: two that are the same
// branch are so whichever way it was said. Nothing goes by it but that: whoever watches asks HEAD again.
func (s source) named() source {
	if s.branch != "" || strings.Contains(s.remote, ":") {
		return s
	}
	r, err := repo.Open(repo.Options{Remote: s.remote})
	if err != nil {
		return s
	}
	defer r.Close()
	if _, err := r.Head(context.Background()); err == nil {
		s.branch = r.Branch()
	}
	return s
}

// unclear refuses a repository elsewhere that is named once with a branch and once without: which one that is only it knows, and it may be the
// same, which two would follow then.
func unclear(list []source) error {
	for _, a := range list {
		for _, b := range list {
			if a.remote == b.remote && a.branch == "" && b.branch != "" && strings.Contains(a.remote, ":") {
				return &exit{code: exitError, err: fmt.Errorf("the repository is named with the branch %s and without one, which may be the same", clean(b.branch)), hint: "name the branch of each: REPOSITORY#BRANCH"}
			}
		}
	}
	return nil
}

// slug names a source among several: for its lines and for its folder. The address itself may hold what no line may show.
func (s source) slug() string {
	base := strings.TrimSuffix(strings.TrimRight(s.remote, "/"), ".git")
	base = base[strings.LastIndexAny(base, "/:")+1:]
	base = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, base)
	sum := sha256.Sum256([]byte(s.remote + "\x00" + s.branch))
	return strings.TrimLeft(base[:min(len(base), 32)], ".") + "-" + hex.EncodeToString(sum[:3])
}

// sources makes one watcher for each repository, in the order of the command line. Several keep apart all that they have:
// loop, trouble, health, metrics and the folder of their state.
func (v *watching) sources(e env, args []string) ([]*watcher, error) {
	var list []source
	for _, a := range args {
		list = append(list, parseSource(a, v.branch).here(e.dir))
	}
	if err := unclear(list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		list = []source{{"", v.branch}}
	}
	seen := map[source]bool{}
	var out []*watcher
	for i, s := range list {
		key := s
		if len(list) > 1 {
			key = s.named()
		}
		if seen[key] {
			return nil, &exit{code: exitError, err: fmt.Errorf("the same branch of the same repository is named twice"), hint: "name each once; REPOSITORY#BRANCH names a branch of its own"}
		}
		seen[key] = true
		w := &watcher{trouble: map[string]string{}, interval: v.interval, branch: s.branch, wake: make(chan struct{}, 1)}
		id := v.id
		if len(list) > 1 {
			w.name, id = s.slug(), fmt.Sprintf("%s/%d", v.id, i+1)
		}
		w.meter, w.health = meter.New(id, version), newHealth(v.interval)
		w.env = e
		w.env.id, w.env.wrap = id, func(b bucket.Bucket) bucket.Bucket { return w.meter.Bucket(b, w.health.lives) }
		if w.env.log != nil {
			w.env.log = w.env.log.With("dispatcher", id)
		}
		if w.name != "" {
			if w.env.log != nil {
				w.env.log = w.env.log.With("source", w.name)
			}
			w.env.stdout, w.env.stderr = &prefixed{to: e.stdout, mark: "[" + w.name + "] "}, &prefixed{to: e.stderr, mark: "[" + w.name + "] "}
		}
		w.options = repo.Options{Branch: s.branch, Auth: v.auth(e)}
		if err := w.place(s.remote, v.state, &w.options); err != nil {
			return nil, err
		}
		w.lanes = newLanes(w)
		out = append(out, w)
	}
	return out, nil
}

// maxToken bounds the file that holds a token, in bytes.
const maxToken = 64 << 10

// auth is how to prove who we are. A token is asked for at each use, so that one that was renewed counts at once.
func (v *watching) auth(e env) repo.Auth {
	a := repo.Auth{KeyFile: v.key}
	if v.known != "" {
		a.KnownHosts = []string{v.known}
	}
	file := e.getenv("HEADWAY_GIT_TOKEN_FILE")
	switch {
	case file != "":
		if !filepath.IsAbs(file) {
			file = filepath.Join(e.dir, file)
		}
		a.Token = func() (string, error) {
			f, err := os.Open(file)
			if err != nil {
				return "", err
			}
			defer f.Close()
			b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
			token := string(bytes.TrimSpace(b))
			if err == nil && (token == "" || len(b) > maxToken) {
				err = fmt.Errorf("%s holds %d bytes, expected a token", file, len(b))
			}
			e.hidden.add(token)
			return token, err
		}
	case e.getenv("HEADWAY_GIT_TOKEN") != "":
		a.Token = func() (string, error) { return e.getenv("HEADWAY_GIT_TOKEN"), nil }
	}
	return a
}

// open opens a watcher's repository. What cannot be opened is tried again for ever where there are others to go on with.
func (w *watcher) open(ctx context.Context, alone bool) error {
	for {
		var err error
		if w.git, err = repo.Open(w.options); err == nil {
			w.well("repository")
			return nil
		}
		if alone {
			return repoFailure(err)
		}
		w.say("repository", "%v: it is tried again; nothing is launched before a plan could be read", repoFailure(err))
		w.health.polled(false)
		w.meter.Repository(false)
		if err := w.pause(ctx, w.interval); err != nil {
			return err
		}
	}
}

// follow runs every watcher until all are over. One that ends, or fails, ends no other. The answer is that of the first
// one that has something to say.
func follow(ctx context.Context, ws []*watcher, once bool) error {
	errs := make([]error, len(ws))
	var all sync.WaitGroup
	for i, w := range ws {
		all.Go(func() {
			err := w.open(ctx, len(ws) == 1)
			if err == nil {
				err = w.run(ctx, once)
				if w.sender != nil {
					w.waits = append(w.waits, w.sender.Close)
				}
				for _, wait := range w.waits {
					wait()
				}
				if closed := w.git.Close(); err == nil {
					err = closed
				}
			}
			if len(ws) > 1 && err != nil && ctx.Err() == nil {
				if x, ok := errors.AsType[*exit](err); !ok || x.err != nil {
					w.say("end", "this repository is no longer watched: %v", err)
				}
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !(ctx.Err() != nil && errors.Is(err, ctx.Err())) {
			return err
		}
	}
	return nil
}

// prefixed puts a mark before each line. Whoever writes writes whole lines.
type prefixed struct {
	mu   sync.Mutex
	to   io.Writer
	mark string
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []byte
	for line := range bytes.Lines(b) {
		out = append(append(out, p.mark...), line...)
	}
	if _, err := p.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
