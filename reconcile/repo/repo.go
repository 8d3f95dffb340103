// Package repo watches one branch of one Git repository and reads its commits: what the branch did since the last
// look (moved on, was rewritten, went back, vanished), the files of any commit as a [plan.Tree], the files of a work
// tree as they lie on disk, and code folders as reproducible bundles.
//
// It never checks anything out, never runs git and follows no link. A repository on this machine is read where it
// lies; one behind https or ssh is kept as a bare store in a folder of the caller's, and a poll that finds nothing
// new fetches nothing. A missing object is an error, never an absent file. Nothing here is trusted to be well formed:
// sizes, names and counts are bounded.
package repo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Options say what to watch. Only Remote is needed for a repository on this machine.
type Options struct {
	Remote string // https://…, ssh://…, user@host:path, file:///path, or a path of this machine
	Branch string // empty: the one that HEAD names
	Cache  string // folder for the copies of remote repositories; made when missing; several Repos may share it
	Auth   Auth

	MaxPack int64         // bytes of one fetch; 0: 512 MiB
	Timeout time.Duration // of one poll, network and all; 0: 2 minutes
}

// Auth is how to prove who we are. The zero value means none for https and the SSH agent for ssh.
type Auth struct {
	User        string                 // default "git"
	Token       func() (string, error) // https: asked again before each use, so a renewed token counts at once
	KeyFile     string                 // ssh: private key; empty: the agent
	KeyPassword string
	KnownHosts  []string // ssh: files; empty: the usual ones
}

// Counters count what was done since Open.
type Counters struct {
	Polls   int64
	Lists   int64 // times a remote was asked for its branches
	Fetches int64
	Bytes   int64 // of packs fetched
}

// Repo watches one branch. All methods may be called from any goroutine; polls run one at a time.
type Repo struct {
	o      Options
	remote remote
	own    chan struct{} // holds one token: whoever took it owns the fetching side
	dir    string        // the copy; empty for a repository on this machine
	packs  int           // of the copy, beyond which it is made anew
	reads  *store

	polls, lists, fetches, bytes atomic.Int64

	mu     sync.Mutex // guards what follows
	branch string     // resolved
	head   *Commit    // last good one
	since  time.Time  // of the first poll in a row without an answer; zero: the last one had one

	changes map[string]change // by path
}

// Open prepares to watch. It asks no remote: a wrong address or branch shows at the first Poll. For a repository on
// this machine a missing folder or one that is no repository is an *Error at once.
//
// What an earlier process fetched into the same cache is at hand: Head answers before the first poll. A cache that
// is damaged is made anew.
func Open(o Options) (*Repo, error) {
	if o.MaxPack == 0 {
		o.MaxPack = 512 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	r := &Repo{o: o, own: make(chan struct{}, 1), packs: maxPacks, branch: o.Branch}
	r.own <- struct{}{}
	if o.Branch != "" {
		if err := checkBranch(o.Branch); err != nil {
			return nil, err
		}
	}
	var err error
	if r.remote, err = parseRemote(o.Remote); err != nil {
		return nil, err
	}
	if r.remote.local() {
		r.reads, err = openStore(r.remote.common)
		return r, err
	}
	if err := r.openCache(); err != nil {
		return nil, err
	}
	return r, nil
}

func checkBranch(name string) error {
	ref := plumbing.NewBranchReferenceName(name)
	if ref.Validate() != nil || strings.ContainsAny(name, "*\x00") || strings.HasPrefix(name, "refs/") {
		return &Error{Class: BranchNotFound, Text: "the branch name " + shorten(name) + " is not one that Git allows",
			Hint: "write the short name, such as main"}
	}
	return nil
}

// openCache opens or makes the bare store of a remote repository: one folder per address under Options.Cache.
func (r *Repo) openCache() error {
	if r.o.Cache == "" {
		return &Error{Class: Unsupported, Remote: r.remote.shown, Text: "there is no folder for the copy", Hint: "set a cache folder"}
	}
	sum := sha256.Sum256([]byte(r.remote.url))
	dir := filepath.Join(r.o.Cache, hex.EncodeToString(sum[:8])+".git")
	r.dir = dir
	err := r.openBare(dir)
	if e, ok := errors.AsType[*Error](err); ok && (e.Class == Corrupt || e.Class == MissingObject) {
		// Nothing in a cache is precious, and a damaged one would stay so.
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		err = r.openBare(dir)
	}
	return err
}

// openBare opens the store at dir, made when missing, and reads the head that it holds.
func (r *Repo) openBare(dir string) error {
	if err := r.remote.useCache(dir); err != nil {
		return err
	}
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	r.reads = s
	h, err := r.remote.fetched(r.branch)
	if err != nil || h.IsZero() {
		return err
	}
	c, err := s.commit(h)
	if err == nil {
		_, err = s.listing(plumbing.NewHash(c.Tree))
	}
	if err != nil {
		s.close()
		return err
	}
	r.head = &c
	return nil
}

// maxPacks is how many packs a copy may have: each fetch writes one, and each makes every look-up slower.
const maxPacks = 200

// tidy makes the copy anew beside the old one and swaps the two, once it has too many packs. Commits that left the
// branch by a rewrite are gone then. A failure changes nothing; the next fetch tries again.
func (r *Repo) tidy(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(r.dir, "objects", "pack", "pack-*.pack"))
	if err != nil || len(found) <= r.packs {
		return err
	}
	next, old := r.dir+".next", r.dir+".old"
	for _, d := range []string{next, old} {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
	}
	fresh := r.remote
	if err := fresh.useCache(next); err != nil {
		return err
	}
	empty, err := openStore(next)
	if err != nil {
		return err
	}
	defer empty.close()
	r.fetches.Add(1)
	n, err := fresh.fetch(ctx, empty, r.Branch(), r.o.Auth, r.o.MaxPack)
	r.bytes.Add(n)
	if err != nil {
		return err
	}
	err = r.reads.swap(func() error {
		if err := os.Rename(r.dir, old); err != nil {
			return err
		}
		if err := os.Rename(next, r.dir); err != nil {
			return errors.Join(err, os.Rename(old, r.dir))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.remote.useCache(r.dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// Close gives everything back. Trees of this Repo answer with an error from then on.
func (r *Repo) Close() error {
	r.reads.close()
	return nil
}

// Rest gives back the memory of the objects that were read, for whoever has read much and will not soon again. A poll that
// finds nothing new does the same.
func (r *Repo) Rest() { r.reads.rest() }

// Counters returns what was done so far.
func (r *Repo) Counters() Counters {
	return Counters{Polls: r.polls.Load(), Lists: r.lists.Load(), Fetches: r.fetches.Load(), Bytes: r.bytes.Load()}
}

// Remote is the address as it may be shown: without credentials.
func (r *Repo) Remote() string { return r.remote.shown }

// Branch is the watched branch; empty until the first poll has asked which one HEAD names.
func (r *Repo) Branch() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.branch
}

// Head is the newest commit that was seen on the branch and could be read; it stays while the remote is away. When none
// was seen yet it polls once.
func (r *Repo) Head(ctx context.Context) (Commit, error) {
	if c := r.last(); c != nil {
		return *c, nil
	}
	switch o := r.Poll(ctx).(type) {
	case BranchGone:
		return Commit{}, o.Err
	case Unreachable:
		return Commit{}, o.Err
	}
	if c := r.last(); c != nil {
		return *c, nil
	}
	return Commit{}, errClosed
}

func (r *Repo) last() *Commit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

// Commit reads one commit by its full hash.
func (r *Repo) Commit(hash string) (Commit, error) {
	h, err := parseHash(hash)
	if err != nil {
		return Commit{}, err
	}
	return r.reads.commit(h)
}

// Tree opens the files of one commit, named by its full hash. The root is read at once, so a commit that is not
// complete there is an *Error here; deeper holes show where they are met.
func (r *Repo) Tree(hash string) (*Tree, error) {
	c, err := r.Commit(hash)
	if err != nil {
		return nil, err
	}
	t := &Tree{hash: plumbing.NewHash(c.Tree), from: r.reads}
	if _, err := t.folder(""); err != nil {
		return nil, err
	}
	return t, nil
}

func parseHash(s string) (plumbing.Hash, error) {
	if len(s) != 40 || !plumbing.IsHash(s) {
		return plumbing.ZeroHash, errors.New("found " + shorten(s) + ", expected a full commit hash of 40 hex digits")
	}
	return plumbing.NewHash(s), nil
}
