package repo

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/headway-run/headway/plan"
)

// WorkTree is the files of a folder as they lie on disk now, with the ids that Git would give them. Inside a Git work
// tree these are the tracked files and the untracked ones that no .gitignore rule excludes; elsewhere all files, but
// none in folders whose name starts with a dot. Links are listed and never followed, sockets and devices are left out,
// a repository inside is listed as a submodule. Of headway's own folder, .headway at the root, only what is tracked counts.
//
// Which files there are is settled when it is opened; their bytes are read when they are asked for. What goes before its
// bytes were first read is as if it had never been there; one that is listed and missing is looked for twice. Ids are those of
// the bytes on disk: filters and line-ending conversion of Git are not applied. Any number of goroutines may use it.
type WorkTree struct {
	dir    string
	root   *os.Root
	prefix string // of dir below the root of the Git work tree, "" or "a/b"
	gitDir string // "" outside a work tree
	common string
	index  map[string]*index.Entry // tracked, by path below dir
	stamp  time.Time               // of the index file: entries not older than it may be racy
	trust  bool                    // an unchanged stat means an unchanged blob
	pause  func()                  // before a file that is listed and missing is looked for again

	mu      sync.Mutex // guards what follows
	folders map[string][]plan.Entry
	hashed  map[string]bool
}

// maxFiles bounds the entries of a WorkTree and of a bundle.
const maxFiles = 1_000_000

// Folder opens the files of a folder. The caller closes it.
func Folder(dir string) (*WorkTree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	w := &WorkTree{dir: abs, index: map[string]*index.Entry{}, folders: map[string][]plan.Entry{}, hashed: map[string]bool{}, pause: wait}
	if w.root, err = os.OpenRoot(abs); err != nil {
		return nil, err
	}
	if err := w.load(); err != nil {
		_ = w.root.Close() // nothing was written
		return nil, err
	}
	return w, nil
}

// Close gives the folder back.
func (w *WorkTree) Close() error { return w.root.Close() }

// Root is the absolute path of the folder.
func (w *WorkTree) Root() string { return w.dir }

// Git reports whether the folder lies in a Git work tree.
func (w *WorkTree) Git() bool { return w.gitDir != "" }

func (w *WorkTree) load() error {
	for up := w.dir; ; up = filepath.Dir(up) {
		if _, err := os.Lstat(filepath.Join(up, ".git")); err == nil {
			gitDir, common, err := gitDirs(up)
			if err != nil {
				return err
			}
			if common != "" {
				rel, err := filepath.Rel(up, w.dir)
				if err != nil {
					return err
				}
				if rel = filepath.ToSlash(rel); rel == "." {
					rel = ""
				}
				w.gitDir, w.common, w.prefix = gitDir, common, rel
				break
			}
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	s := &scan{w: w}
	if w.Git() {
		if err := w.readIndex(); err != nil {
			return err
		}
		if err := s.rules(); err != nil {
			return err
		}
	}
	_, err := s.folder("", false, s.above)
	return err
}

// readIndex reads which files are tracked.
func (w *WorkTree) readIndex() error {
	if err := checkFormat(w.common); err != nil {
		return err
	}
	file := filepath.Join(w.gitDir, "index")
	st, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	w.stamp, w.trust = st.ModTime(), true
	idx, err := filesystem.NewStorage(osfs.New(w.gitDir), cache.NewObjectLRU(0)).Index()
	if err != nil {
		return &Error{Class: Unsupported, Text: "the index of " + w.dir + " cannot be read (" + shorten(err.Error()) + ")",
			Hint: "git update-index --no-split-index --index-version 2", Err: err}
	}
	for _, e := range idx.Entries {
		name := e.Name
		if path.Base(name) == ".gitattributes" {
			w.trust = false // a filter may make the bytes on disk differ from the blob
		}
		if w.prefix != "" {
			in := false
			if name, in = strings.CutPrefix(name, w.prefix+"/"); !in {
				continue
			}
		}
		if e.SkipWorktree {
			return &Error{Class: Unsupported, Text: fmt.Sprintf("%s is a sparse work tree: %q is not on disk", w.dir, name),
				Hint: "git sparse-checkout disable, or read the committed branch"}
		}
		w.index[name] = e
	}
	return nil
}

// Hash is the Git tree hash of the whole folder.
func (w *WorkTree) Hash() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, err := w.entries("")
	return treeHash(entries), err
}

// Entries lists one folder in Git's order, with ids and sizes.
func (w *WorkTree) Entries(dir string) ([]plan.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, err := w.entries(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return slices.Clone(e), nil
}

// ownFolder is headway's own at the root of a project: workers write in it all the time, and none of it is a plan's.
const ownFolder = ".headway"

// wait is how long whoever replaces a file by removing it first may take.
func wait() { time.Sleep(20 * time.Millisecond) }

// entries fills in the ids of one folder and of all below it, and drops what went since the names were listed.
func (w *WorkTree) entries(dir string) ([]plan.Entry, error) {
	list, ok := w.folders[dir]
	if !ok {
		return nil, w.absent(dir)
	}
	if w.hashed[dir] {
		return list, nil
	}
	kept := list[:0]
	for _, was := range list {
		e, p := &was, path.Join(dir, was.Name)
		var err error
		switch e.Kind {
		case plan.KindDir:
			var below []plan.Entry
			below, err = w.entries(p)
			if err == nil && len(below) == 0 {
				err = fs.ErrNotExist // all of it went; Git knows no empty folders
			}
			e.Hash = treeHash(below)
		case plan.KindFile:
			e.Hash, err = w.hashFile(p, e)
		case plan.KindLink:
			e.Hash, err = w.hashLink(p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			delete(w.folders, p)
			continue
		}
		if err != nil {
			return nil, err
		}
		kept = append(kept, was)
	}
	w.folders[dir], w.hashed[dir] = kept, true
	return kept, nil
}

// parent is the folder that a path lies in, "" for the root.
func parent(p string) string {
	dir, _ := path.Split(p)
	return strings.TrimSuffix(dir, "/")
}

// absent says why there is no such folder; nil when there is one.
func (w *WorkTree) absent(dir string) error {
	if _, there := w.folders[dir]; there {
		return nil
	}
	if dir != "" && !fs.ValidPath(dir) {
		return fmt.Errorf("%w: write a clean path relative to the root", fs.ErrInvalid)
	}
	for at := dir; at != "." && at != ""; at = path.Dir(at) {
		if e, ok := w.entry(at); ok && e.Kind != plan.KindDir {
			return notA("folder", e)
		}
	}
	return fs.ErrNotExist
}

func (w *WorkTree) entry(p string) (plan.Entry, bool) {
	for _, e := range w.folders[parent(p)] {
		if e.Name == path.Base(p) {
			return e, true
		}
	}
	return plan.Entry{}, false
}

// unchanged reports whether the index already knows the id of these bytes, by size and time of change.
func (w *WorkTree) unchanged(p string, st fs.FileInfo) (string, bool) {
	e, ok := w.index[p]
	if !ok || !w.trust || !e.Mode.IsFile() || e.Stage != 0 || e.IntentToAdd || int64(e.Size) != st.Size() || !e.ModifiedAt.Equal(st.ModTime()) ||
		!st.ModTime().Before(w.stamp) {
		return "", false
	}
	return e.Hash.String(), true
}

func (w *WorkTree) hashFile(p string, e *plan.Entry) (string, error) {
	f, st, err := w.open(p)
	if ext := path.Ext(p); errors.Is(err, fs.ErrNotExist) && (ext == ".yaml" || ext == ".yml") { // a plan without one of its files is another plan
		w.pause()
		f, st, err = w.open(p)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if h, ok := w.unchanged(p, st); ok {
		return h, nil
	}
	e.Size = st.Size()
	sum := sha1.New() // Git's own ids
	fmt.Fprintf(sum, "blob %d\x00", st.Size())
	n, err := io.Copy(sum, f)
	if err != nil {
		return "", err
	}
	if n != st.Size() {
		return "", changing(p)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func changing(p string) error {
	return fmt.Errorf("%q changed while it was read: try again when nothing writes to it", p)
}

func (w *WorkTree) hashLink(p string) (string, error) {
	to, err := w.root.Readlink(filepath.FromSlash(p))
	if err != nil {
		return "", err
	}
	return plumbing.ComputeHash(plumbing.BlobObject, []byte(filepath.ToSlash(to))).String(), nil
}

// open opens a regular file that no link leads to.
func (w *WorkTree) open(p string) (*os.File, fs.FileInfo, error) {
	name := filepath.FromSlash(p)
	before, err := w.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, changing(p)
	}
	f, err := w.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !os.SameFile(before, st) {
		err = changing(p)
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, nil, err
	}
	return f, st, nil
}

// Read returns a file's bytes, refusing one of more than max bytes before it is read.
func (w *WorkTree) Read(p string, max int64) ([]byte, error) {
	b, err := w.readFile(p, max)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	return b, nil
}

func (w *WorkTree) readFile(p string, max int64) ([]byte, error) {
	w.mu.Lock()
	e, ok := w.entry(p)
	var why error
	if !ok {
		if why = w.absent(parent(p)); why == nil {
			why = fs.ErrNotExist
		}
	}
	w.mu.Unlock()
	if !ok {
		return nil, why
	}
	if e.Kind != plan.KindFile {
		return nil, notA("file", e)
	}
	f, st, err := w.open(p)
	if errors.Is(err, fs.ErrNotExist) {
		w.pause()
		f, st, err = w.open(p)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Size() > max {
		return nil, &Error{Class: TooLarge, Err: plan.ErrTooLarge, Text: fmt.Sprintf("it has %d bytes, at most %d are read", st.Size(), max), Hint: "make it smaller"}
	}
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) != st.Size() {
		err = changing(p)
	}
	return b, err
}
