package repo

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/headway-run/headway/plan"
)

// origin is a bare repository made without a git binary, object by object, so that it may hold what git refuses.
type origin struct {
	t   testing.TB
	dir string
	st  storage.Storer
	n   int // commits made, for distinct times
	has map[plumbing.Hash]bool
}

// file is one entry of a commit: content, or the target of a link, or the id of a submodule.
type file struct {
	kind plan.EntryKind
	exec bool
	body string
}

// files makes a commit's content of plain files.
func files(kv ...string) map[string]file {
	m := map[string]file{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = file{body: kv[i+1]}
	}
	return m
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	o := &origin{t: t, dir: filepath.Join(t.TempDir(), "origin.git"), has: map[plumbing.Hash]bool{}}
	o.st = filesystem.NewStorage(osfs.New(o.dir), cache.NewObjectLRUDefault())
	if _, err := git.Init(o.st, nil); err != nil {
		t.Fatal(err)
	}
	o.head("main")
	return o
}

func (o *origin) head(branch string) {
	o.t.Helper()
	if err := o.st.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.NewBranchReferenceName(branch))); err != nil {
		o.t.Fatal(err)
	}
}

func (o *origin) object(t plumbing.ObjectType, b []byte) plumbing.Hash {
	o.t.Helper()
	if h := plumbing.ComputeHash(t, b); o.has[h] {
		return h
	}
	e := &plumbing.MemoryObject{}
	e.SetType(t)
	if _, err := e.Write(b); err != nil {
		o.t.Fatal(err)
	}
	h, err := o.st.SetEncodedObject(e)
	if err != nil {
		o.t.Fatal(err)
	}
	o.has[h] = true
	return h
}

// packed writes the objects of many files as one pack, where single ones would take long.
func (o *origin) packed(content map[string]file) {
	o.t.Helper()
	disk, mem := o.st, memory.NewStorage()
	o.st = mem
	o.tree(content)
	o.st = disk
	w, err := disk.(storer.PackfileWriter).PackfileWriter()
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := packfile.NewEncoder(w, mem, false).Encode(slices.Collect(maps.Keys(mem.Objects)), 0); err != nil {
		o.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		o.t.Fatal(err)
	}
}

// tree writes the objects of nested files and returns the root's id.
func (o *origin) tree(content map[string]file) plumbing.Hash {
	o.t.Helper()
	var list []plan.Entry
	below := map[string]map[string]file{}
	for p, f := range content {
		if top, rest, nested := strings.Cut(p, "/"); nested {
			if below[top] == nil {
				below[top] = map[string]file{}
			}
			below[top][rest] = f
			continue
		}
		e := plan.Entry{Name: p, Kind: f.kind, Exec: f.exec, Hash: f.body}
		if f.kind != plan.KindSubmodule {
			e.Hash = o.object(plumbing.BlobObject, []byte(f.body)).String()
		}
		list = append(list, e)
	}
	for name, m := range below {
		list = append(list, plan.Entry{Name: name, Kind: plan.KindDir, Hash: o.tree(m).String()})
	}
	slices.SortFunc(list, func(a, b plan.Entry) int { return strings.Compare(sortName(a), sortName(b)) })
	return o.rawTree(list)
}

func (o *origin) rawTree(list []plan.Entry) plumbing.Hash {
	o.t.Helper()
	var b []byte
	for _, e := range list {
		h := plumbing.NewHash(e.Hash)
		b = append(append(b, modeOf(e)+" "+e.Name+"\x00"...), h[:]...)
	}
	return o.object(plumbing.TreeObject, b)
}

// commitTree writes a commit without moving a branch.
func (o *origin) commitTree(tree plumbing.Hash, message string, parents ...string) string {
	o.t.Helper()
	o.n++
	who := object.Signature{Name: "Ann", Email: "ann@example.com", When: time.Unix(1_700_000_000+int64(o.n), 0).UTC()}
	c := &object.Commit{Author: who, Committer: who, Message: message, TreeHash: tree}
	for _, p := range parents {
		c.ParentHashes = append(c.ParentHashes, plumbing.NewHash(p))
	}
	e := &plumbing.MemoryObject{}
	if err := c.Encode(e); err != nil {
		o.t.Fatal(err)
	}
	h, err := o.st.SetEncodedObject(e)
	if err != nil {
		o.t.Fatal(err)
	}
	return h.String()
}

func (o *origin) point(branch, commit string) {
	o.t.Helper()
	ref := plumbing.NewHashReference(plumbing.NewBranchReferenceName(branch), plumbing.NewHash(commit))
	if err := o.st.SetReference(ref); err != nil {
		o.t.Fatal(err)
	}
}

func (o *origin) drop(branch string) {
	o.t.Helper()
	if err := o.st.RemoveReference(plumbing.NewBranchReferenceName(branch)); err != nil {
		o.t.Fatal(err)
	}
}

// commit puts a commit on top of a branch.
func (o *origin) commit(branch, message string, content map[string]file) string {
	o.t.Helper()
	var parents []string
	if ref, err := o.st.Reference(plumbing.NewBranchReferenceName(branch)); err == nil {
		parents = append(parents, ref.Hash().String())
	}
	c := o.commitTree(o.tree(content), message, parents...)
	o.point(branch, c)
	return c
}

// web serves repositories over smart HTTP on loopback. Its faults are switched on by the test.
type web struct {
	*httptest.Server
	lists, packs atomic.Int64
	sent         atomic.Int64 // bytes of packs that went out
	token        atomic.Pointer[string]
	down         atomic.Bool
	cut          atomic.Int64  // > 0: packs end after so many bytes
	stall        chan struct{} // non-nil: a pack stops after its first bytes until this closes
}

func serve(t testing.TB, o *origin) *web {
	t.Helper()
	w := &web{}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, rq *http.Request) {
		if err := w.answer(o, rw, rq); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	}))
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are broken off on purpose
	w.Start()
	t.Cleanup(w.Close)
	return w
}

func (w *web) answer(o *origin, rw http.ResponseWriter, rq *http.Request) error {
	if w.down.Load() {
		http.Error(rw, "maintenance", http.StatusServiceUnavailable)
		return nil
	}
	if tok := w.token.Load(); tok != nil {
		if _, pass, ok := rq.BasicAuth(); !ok || pass != *tok {
			http.Error(rw, "who are you", http.StatusUnauthorized)
			return nil
		}
	}
	if !strings.HasPrefix(rq.URL.Path, "/team/plans.git/") {
		http.NotFound(rw, rq)
		return nil
	}
	ep, err := transport.NewEndpoint("file:///origin")
	if err != nil {
		return err
	}
	st := filesystem.NewStorage(osfs.New(o.dir), cache.NewObjectLRUDefault())
	s, err := server.NewServer(server.MapLoader{ep.String(): st}).NewUploadPackSession(ep, nil)
	if err != nil {
		return err
	}
	if strings.HasSuffix(rq.URL.Path, "/info/refs") {
		w.lists.Add(1)
		refs, err := s.AdvertisedReferencesContext(rq.Context())
		if err != nil {
			return err
		}
		rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		e := pktline.NewEncoder(rw)
		if err := e.EncodeString("# service=git-upload-pack\n"); err != nil {
			return err
		}
		if err := e.Flush(); err != nil {
			return err
		}
		return refs.Encode(rw)
	}
	w.packs.Add(1)
	ask := packp.NewUploadPackRequest()
	if err := ask.Decode(rq.Body); err != nil {
		return err
	}
	pack, err := s.UploadPack(rq.Context(), ask)
	if err != nil {
		return err
	}
	rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	return pack.Encode(&faulty{rw: rw, w: w, rq: rq})
}

// faulty ends or stops an answer in the middle.
type faulty struct {
	rw   http.ResponseWriter
	w    *web
	rq   *http.Request
	sent int64
}

func (f *faulty) Write(p []byte) (int, error) {
	if max := f.w.cut.Load(); max > 0 && f.sent+int64(len(p)) > max {
		_, _ = f.rw.Write(p[:max-f.sent])
		panic(http.ErrAbortHandler) // the documented way to break a connection off
	}
	if f.w.stall != nil && f.sent > 0 {
		f.rw.(http.Flusher).Flush()
		select {
		case <-f.w.stall:
		case <-f.rq.Context().Done():
		}
	}
	n, err := f.rw.Write(p)
	f.sent += int64(n)
	f.w.sent.Add(int64(n))
	return n, err
}

func (w *web) address() string { return w.URL + "/team/plans.git" }

// watch opens a Repo and closes it with the test.
func watch(t testing.TB, o Options) *Repo {
	t.Helper()
	if o.Cache == "" {
		o.Cache = t.TempDir()
	}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// gitCLI runs the git binary, the oracle of these tests, in a folder.
func gitCLI(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.autocrlf=false", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// write makes files on disk.
func write(t testing.TB, dir string, kv ...string) {
	t.Helper()
	for i := 0; i < len(kv); i += 2 {
		p := filepath.Join(dir, filepath.FromSlash(kv[i]))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(kv[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// class is the class of an error, or a description of what it is instead.
func class(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Class(fmt.Sprintf("%T: %v", err, err))
}
