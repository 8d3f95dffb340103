package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// remote is where the watched branch lives: a repository on this machine, or one behind a network address together
// with the bare store that its objects are fetched into.
type remote struct {
	shown string // address for people
	// On this machine.
	gitDir string // holds HEAD and the index
	common string // holds objects and refs; equal to gitDir but in a linked work tree
	// Elsewhere.
	url  string // without credentials
	user string // from the address
	pass string
	bare *filesystem.Storage // written by the one who owns Repo.own

	calls chan struct{} // what is asked of an ssh host now, calls that were left behind among it
}

func (r remote) local() bool { return r.common != "" }

// scpLike is the form user@host:path.
func scpLike(s string) bool {
	ok, err := regexp.MatchString(`^[^/:@\s]+@[^/:@\s]+:[^\s]+$`, s)
	return err == nil && ok
}

func parseRemote(s string) (remote, error) {
	if scpLike(s) {
		user, _, _ := strings.Cut(s, "@")
		return remote{shown: s, url: s, user: user}, nil
	}
	if !strings.Contains(s, "://") {
		return localRemote(s)
	}
	u, err := url.Parse(s)
	if err != nil {
		return remote{}, &Error{Class: Unsupported, Text: "the address of the Git repository cannot be read", Hint: "write https://host/path, ssh://git@host/path or a path"}
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return remote{}, &Error{Class: Unsupported, Text: "a file address names the host " + shorten(u.Host), Hint: "write file:///path"}
		}
		return localRemote(u.Path)
	case "ssh":
		r := remote{user: u.User.Username()}
		if _, has := u.User.Password(); has {
			u.User = url.User(r.user)
		}
		r.url, r.shown = u.String(), u.String()
		return r, nil
	case "https", "http":
		r := remote{user: u.User.Username()}
		r.pass, _ = u.User.Password()
		u.User = nil
		r.url, r.shown = u.String(), u.String()
		if u.Host == "" {
			return remote{}, &Error{Class: Unsupported, Remote: r.shown, Text: "the address has no host", Hint: "write https://host/path"}
		}
		return r, nil
	}
	return remote{}, &Error{Class: Unsupported, Text: "addresses of the form " + shorten(u.Scheme) + ":// are not read", Hint: "use https, ssh, file or a path"}
}

// localRemote finds the parts of a repository on this machine: a bare one, a work tree, or a linked work tree.
func localRemote(path string) (remote, error) {
	r := remote{shown: path}
	abs, err := filepath.Abs(path)
	if err != nil {
		return r, err
	}
	r.shown = abs
	if _, err := os.Stat(abs); errors.Is(err, os.ErrNotExist) {
		return r, &Error{Class: RemoteNotFound, Remote: abs, Text: "there is no such folder", Hint: "check the path", Err: err}
	} else if err != nil {
		return r, err
	}
	if r.gitDir, r.common, err = gitDirs(abs); err != nil {
		return r, err
	}
	if r.common == "" {
		e := &Error{Class: NotRepository, Remote: abs, Text: "this folder is not a Git repository", Hint: "run git init there and commit"}
		for up := filepath.Dir(abs); ; up = filepath.Dir(up) {
			if _, found, err := gitDirs(up); err == nil && found != "" {
				e.Hint = "name the root of the repository it lies in: " + up
				break
			}
			if up == filepath.Dir(up) {
				break
			}
		}
		return r, e
	}
	return r, checkFormat(r.common)
}

// gitDirs finds the Git folder of dir and the one that holds the objects; empty when dir is neither a bare repository
// nor the root of a work tree.
func gitDirs(dir string) (gitDir, common string, err error) {
	gitDir = filepath.Join(dir, ".git")
	switch st, err := os.Stat(gitDir); {
	case err == nil && !st.IsDir():
		b, err := os.ReadFile(gitDir)
		if err != nil {
			return "", "", err
		}
		to, is := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir: ")
		if !is {
			return "", "", nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		gitDir = to
	case err != nil:
		gitDir = dir
	}
	common = gitDir
	if b, err := os.ReadFile(filepath.Join(gitDir, "commondir")); err == nil {
		common = strings.TrimSpace(string(b))
		if !filepath.IsAbs(common) {
			common = filepath.Join(gitDir, common)
		}
	}
	for _, need := range []string{filepath.Join(gitDir, "HEAD"), filepath.Join(common, "objects"), filepath.Join(common, "refs")} {
		if _, err := os.Stat(need); err != nil {
			return "", "", nil
		}
	}
	return gitDir, common, nil
}

// checkFormat refuses repositories whose objects or refs are in a form that would be misread.
func checkFormat(common string) error {
	f, err := os.Open(filepath.Join(common, "config"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := config.ReadConfig(f)
	if err != nil {
		return &Error{Class: NotRepository, Remote: common, Text: "its config cannot be read (" + shorten(err.Error()) + ")", Hint: "mend it with git config", Err: err}
	}
	ext := c.Raw.Section("extensions")
	if v := ext.Option("objectFormat"); v != "" && v != "sha1" {
		return &Error{Class: Unsupported, Remote: common, Text: "its objects are named by " + shorten(v), Hint: "only sha1 repositories are read"}
	}
	if v := ext.Option("refStorage"); v != "" && v != "files" {
		return &Error{Class: Unsupported, Remote: common, Text: "its refs are stored as " + shorten(v), Hint: "git refs migrate --ref-format=files"}
	}
	return nil
}

// staleFetch is how old a half-written pack must be to be nobody's.
const staleFetch = 24 * time.Hour

// useCache opens the bare store at dir, made when missing, and sweeps up what a fetch that died left there long ago.
func (r *remote) useCache(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if r.calls == nil {
		r.calls = make(chan struct{}, maxCalls)
	}
	r.bare = filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(16<<20), filesystem.Options{})
	if _, err := git.Init(r.bare, nil); err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return &Error{Class: Corrupt, Remote: r.shown, Text: "the copy at " + dir + " cannot be opened", Hint: "remove that folder", Err: err}
	}
	iter, err := r.bare.IterReferences()
	if err != nil {
		return &Error{Class: Corrupt, Remote: r.shown, Text: "the refs of the copy at " + dir + " cannot be read", Hint: "remove that folder", Err: err}
	}
	iter.Close()
	left, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "tmp_pack_*"))
	if err != nil {
		return err
	}
	for _, f := range left {
		// Another process may be fetching into the same cache.
		if st, err := os.Stat(f); err != nil || time.Since(st.ModTime()) < staleFetch {
			continue
		}
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// watched is the private name under which a branch is kept, out of the way of everything else.
func watched(branch string) plumbing.ReferenceName {
	return plumbing.ReferenceName("refs/watch/" + branch)
}

// fetched is where the copy has the branch; zero when it has it not.
func (r *remote) fetched(branch string) (plumbing.Hash, error) {
	if branch == "" {
		return plumbing.ZeroHash, nil
	}
	ref, err := r.bare.Reference(watched(branch))
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, nil
	}
	if err != nil || ref.Hash().IsZero() {
		return plumbing.ZeroHash, &Error{Class: Corrupt, Remote: r.shown, Text: "the copy's ref cannot be read", Hint: "remove the cache folder", Err: err}
	}
	return ref.Hash(), nil
}

// tip asks where the branch is, and which one an empty name means.
func (r *remote) tip(ctx context.Context, branch string, a Auth) (plumbing.Hash, string, error) {
	var refs []*plumbing.Reference
	var err error
	if r.local() {
		refs, err = r.localRefs()
	} else {
		refs, err = r.list(ctx, a)
	}
	if err != nil {
		return plumbing.ZeroHash, branch, err
	}
	at := map[string]plumbing.Hash{}
	for _, ref := range refs {
		switch {
		case ref.Name() == plumbing.HEAD && ref.Type() == plumbing.SymbolicReference && branch == "":
			branch = ref.Target().Short()
		case ref.Name().IsBranch() && ref.Type() == plumbing.HashReference:
			at[ref.Name().Short()] = ref.Hash()
		}
	}
	if h, ok := at[branch]; ok {
		return h, branch, nil
	}
	names := make([]string, 0, len(at))
	for n := range at {
		names = append(names, n)
	}
	slices.Sort(names)
	return plumbing.ZeroHash, branch, branchNotFound(r.shown, branch, names)
}

// HeadNamesNone is the text of a BranchNotFound where no branch was asked for and HEAD names none: a commit is checked out.
const HeadNamesNone = "HEAD names no branch"

func branchNotFound(shown, branch string, have []string) *Error {
	e := &Error{Class: BranchNotFound, Remote: shown, Text: fmt.Sprintf("there is no branch %q", branch)}
	if branch == "" {
		e.Text = HeadNamesNone
	}
	switch near := nearest(branch, have); {
	case len(have) == 0:
		e.Hint = "the repository has no branch with a commit yet: commit, or push one"
	case near != "":
		e.Hint = fmt.Sprintf("did you mean %q?", near)
	default:
		e.Hint = "it has " + shorten(strings.Join(have[:min(8, len(have))], ", "))
	}
	return e
}

// localRefs reads the branches of a repository on this machine, and HEAD of the work tree that was named.
func (r *remote) localRefs() ([]*plumbing.Reference, error) {
	s := filesystem.NewStorage(osfs.New(r.common), cache.NewObjectLRU(0))
	iter, err := s.IterReferences()
	if err != nil {
		return nil, err
	}
	var out []*plumbing.Reference
	err = iter.ForEach(func(ref *plumbing.Reference) error {
		if ref.Name() != plumbing.HEAD {
			out = append(out, ref)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(r.gitDir, "HEAD"))
	if err != nil {
		return nil, err
	}
	if to, is := strings.CutPrefix(strings.TrimSpace(string(b)), "ref: "); is {
		out = append(out, plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName(to)))
	}
	return out, nil
}

func (r *remote) handle(s storage.Storer) *git.Remote {
	return git.NewRemote(s, &config.RemoteConfig{Name: "origin", URLs: []string{r.url}})
}

func (r *remote) list(ctx context.Context, a Auth) ([]*plumbing.Reference, error) {
	auth, err := r.auth(a)
	if err != nil {
		return nil, err
	}
	var refs []*plumbing.Reference
	h, g := r.handle(r.bare), &gate{}
	err = r.within(ctx, g, func() error {
		found, err := h.ListContext(ctx, &git.ListOptions{Auth: auth})
		if left := g.enter(); left != nil {
			return left
		}
		refs = found
		return err
	})
	return refs, err
}

// fetch brings the branch into the bare store and returns the bytes of the pack. The refspec always forces: without
// it the library would answer a rewritten branch with "up to date" for ever.
func (r *remote) fetch(ctx context.Context, reads *store, branch string, a Auth, maxPack int64) (int64, error) {
	return r.fetchInto(ctx, reads, "refs/heads/"+branch, watched(branch), a, maxPack)
}

func (r *remote) fetchInto(ctx context.Context, reads *store, from string, into plumbing.ReferenceName, a Auth, maxPack int64) (int64, error) {
	auth, err := r.auth(a)
	if err != nil {
		return 0, err
	}
	s := &bounded{Storage: r.bare, at: reads, max: maxPack}
	spec := config.RefSpec("+" + from + ":" + into.String())
	h := r.handle(s)
	err = r.within(ctx, &s.gate, func() error {
		return h.FetchContext(ctx, &git.FetchOptions{RefSpecs: []config.RefSpec{spec}, Auth: auth, Tags: git.NoTags})
	})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		err = nil
	}
	if s.over {
		err = &Error{Class: TooLarge, Remote: r.shown, Text: fmt.Sprintf("the fetch is larger than %d bytes", maxPack),
			Hint: "keep data out of the plan repository, or raise the bound", Err: err}
	}
	return s.n, err
}

// auth makes the credentials of one call.
func (r *remote) auth(a Auth) (transport.AuthMethod, error) {
	user := r.user
	if a.User != "" {
		user = a.User
	}
	if strings.HasPrefix(r.url, "http") {
		pass := r.pass
		if a.Token != nil {
			t, err := a.Token()
			if err != nil {
				return nil, &Error{Class: AuthFailed, Remote: r.shown, Text: "the token cannot be read (" + shorten(err.Error()) + ")", Hint: "check where it is kept", Err: err}
			}
			pass = t
		}
		if user == "" && pass == "" {
			return nil, nil
		}
		if u, err := url.Parse(r.url); err != nil || u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, &Error{Class: NotAllowed, Remote: r.shown, Text: "credentials are not sent over plain http", Hint: "use https"}
		}
		if user == "" {
			user = "git"
		}
		return &githttp.BasicAuth{Username: user, Password: pass}, nil
	}
	return r.sshAuth(user, a)
}

func (r *remote) sshAuth(user string, a Auth) (transport.AuthMethod, error) {
	if user == "" {
		user = "git"
	}
	var helper *gitssh.HostKeyCallbackHelper
	var method transport.AuthMethod
	if a.KeyFile != "" {
		m, err := gitssh.NewPublicKeysFromFile(user, a.KeyFile, a.KeyPassword)
		if err != nil {
			return nil, &Error{Class: AuthFailed, Remote: r.shown, Text: "the key file cannot be used (" + shorten(err.Error()) + ")", Hint: "check the path and the password", Err: err}
		}
		helper, method = &m.HostKeyCallbackHelper, m
	} else {
		m, err := gitssh.NewSSHAgentAuth(user)
		if err != nil {
			return nil, &Error{Class: AuthFailed, Remote: r.shown, Text: "no SSH agent answers", Hint: "start one and add your key (ssh-add), or name a key file", Err: err}
		}
		helper, method = &m.HostKeyCallbackHelper, m
	}
	db, err := gitssh.NewKnownHostsDb(a.KnownHosts...) // none named: the person's own and the machine's
	if err != nil {
		return nil, err
	}
	ep, err := transport.NewEndpoint(r.url)
	if err != nil {
		return nil, err
	}
	// Without the algorithms the client may settle on a kind of key that the file does not list, and refuse a
	// host that it knows. The library asks for them only where it is given neither callback nor file.
	helper.HostKeyCallback, helper.HostKeyAlgorithms = db.HostKeyCallback(), db.HostKeyAlgorithms(dialed(ep))
	return method, nil
}

// dialed is where the library goes for an endpoint: what a person's ssh config says of the name, as known_hosts has it too.
func dialed(ep *transport.Endpoint) string {
	host, port := ep.Host, ep.Port
	if name := gitssh.DefaultSSHConfig.Get(ep.Host, "Hostname"); name != "" {
		host = name
		if n, err := strconv.Atoi(gitssh.DefaultSSHConfig.Get(ep.Host, "Port")); err == nil {
			port = n
		}
	}
	if port == 0 {
		port = 22
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bounded stops a fetch that brings more than max bytes. Objects that are at hand are read where all others are, and a pack is
// written without a look at its neighbours: the library's storage would load the index of each.
type bounded struct {
	*filesystem.Storage
	at     *store
	max, n int64
	over   bool
	gate   gate
}

// IterReferences is what the library asks of a storage first, once the remote has answered.
func (b *bounded) IterReferences() (storer.ReferenceIter, error) {
	if err := b.gate.enter(); err != nil {
		return nil, err
	}
	return b.Storage.IterReferences()
}

func (b *bounded) PackfileWriter() (io.WriteCloser, error) {
	w, err := dotgit.New(b.Filesystem()).NewObjectPack()
	if err != nil {
		return nil, err
	}
	return &boundedWriter{w, b}, nil
}

func (b *bounded) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	return b.at.encoded(t, h)
}

func (b *bounded) HasEncodedObject(h plumbing.Hash) error {
	_, err := b.at.encoded(plumbing.AnyObject, h)
	return err
}

type boundedWriter struct {
	io.WriteCloser
	b *bounded
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	w.b.n += int64(len(p))
	if w.b.n > w.b.max {
		w.b.over = true
		return 0, errors.New("pack is too large")
	}
	return w.WriteCloser.Write(p)
}
