package plan

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// MemFile is one file of a [MemTree].
type MemFile struct {
	Data []byte    // content of a file, target text of a link
	Kind EntryKind // file, link or submodule; folders come from the paths
	Exec bool
	Hash string // commit of a submodule, 40 hex digits; otherwise computed
}

// MemTree is a [Tree] in memory with the object ids that Git would give: what a folder that is not committed yet, and
// a test, are read through. It does not change after it was made, and may be read by many goroutines. Empty folders
// do not exist in it, as in Git.
type MemTree struct {
	dirs  map[string][]Entry
	files map[string]MemFile
	root  string
}

// NewMemTree makes a tree of regular files from their contents by path.
func NewMemTree(files map[string]string) *MemTree {
	m := make(map[string]MemFile, len(files))
	for p, s := range files {
		m[p] = MemFile{Data: []byte(s)}
	}
	return MakeMemTree(m)
}

// MakeMemTree makes a tree from files by path. Paths are relative, with /, and taken as they are: odd names are what
// the readers of a tree must bear. The bytes are not copied.
func MakeMemTree(files map[string]MemFile) *MemTree {
	m := &MemTree{dirs: map[string][]Entry{"": nil}, files: files}
	children := map[string]map[string]Entry{"": {}}
	for p, f := range files {
		e := Entry{Name: path.Base(p), Kind: f.Kind, Exec: f.Exec, Hash: f.Hash, Size: int64(len(f.Data))}
		if f.Kind != KindSubmodule {
			e.Hash = objectID("blob", f.Data)
		}
		dir := parentOf(p)
		for d := dir; ; d = parentOf(d) {
			if children[d] == nil {
				children[d] = make(map[string]Entry)
			}
			if d == "" {
				break
			}
		}
		children[dir][e.Name] = e
	}
	dirs := make([]string, 0, len(children))
	for d := range children {
		dirs = append(dirs, d)
	}
	slices.SortFunc(dirs, func(a, b string) int { return depthOf(b) - depthOf(a) }) // deepest first
	for _, d := range dirs {
		es := make([]Entry, 0, len(children[d]))
		for _, e := range children[d] {
			es = append(es, e)
		}
		hash := TreeID(es)
		m.dirs[d] = es
		if d == "" {
			m.root = hash
			continue
		}
		children[parentOf(d)][path.Base(d)] = Entry{Name: path.Base(d), Kind: KindDir, Hash: hash}
	}
	return m
}

func parentOf(p string) string {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return ""
	}
	return p[:i]
}

func depthOf(d string) int {
	if d == "" {
		return 0
	}
	return 1 + strings.Count(d, "/")
}

// objectID is the SHA-1 that Git names an object by.
func objectID(kind string, data []byte) string {
	h := sha1.New()
	h.Write([]byte(kind + " " + strconv.Itoa(len(data)) + "\x00"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// TreeID sorts the entries of one folder in Git's order and gives the id of its tree object.
func TreeID(es []Entry) string {
	key := func(e Entry) string {
		if e.Kind == KindDir {
			return e.Name + "/"
		}
		return e.Name
	}
	slices.SortFunc(es, func(a, b Entry) int { return strings.Compare(key(a), key(b)) })
	var b []byte
	for _, e := range es {
		mode := "100644"
		switch {
		case e.Kind == KindDir:
			mode = "40000"
		case e.Kind == KindLink:
			mode = "120000"
		case e.Kind == KindSubmodule:
			mode = "160000"
		case e.Exec:
			mode = "100755"
		}
		raw, _ := hex.DecodeString(e.Hash) // a bad id gives an id that no repository has
		b = append(append(append(b, mode...), ' '), e.Name...)
		b = append(append(b, 0), raw...)
	}
	return objectID("tree", b)
}

// Root is the id of the whole tree.
func (m *MemTree) Root() string { return m.root }

// Entries lists one folder in Git's order. The slice is the caller's.
func (m *MemTree) Entries(dir string) ([]Entry, error) {
	es, ok := m.dirs[dir]
	if !ok {
		return nil, fmt.Errorf("folder %q: %w", dir, fs.ErrNotExist)
	}
	return slices.Clone(es), nil
}

// Read returns a regular file's bytes, which the caller must not change.
func (m *MemTree) Read(p string, max int64) ([]byte, error) {
	f, ok := m.files[p]
	switch {
	case !ok:
		return nil, fmt.Errorf("file %q: %w", p, fs.ErrNotExist)
	case f.Kind != KindFile:
		return nil, fmt.Errorf("%q is not a regular file", p)
	case int64(len(f.Data)) > max:
		return nil, fmt.Errorf("file %q has %d bytes, at most %d: %w", p, len(f.Data), max, ErrTooLarge)
	}
	return f.Data, nil
}

// Compile-time assertion.
var _ Tree = (*MemTree)(nil)
