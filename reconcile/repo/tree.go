package repo

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/headway-run/headway/plan"
)

// maxHeld bounds the entries of the trees that a handle keeps parsed. With more it keeps so many again, and of the trees
// from before those that are still asked for.
const maxHeld = 50_000

// listing is one tree object, parsed. It is never changed after it was made.
type listing struct {
	entries []plan.Entry
	byName  map[string]int
}

// Tree is the files of one commit. It answers from the object store alone, walks raw tree entries and follows
// nothing. Any number of goroutines may use it, also while the branch is polled.
type Tree struct {
	hash plumbing.Hash
	from *store
}

// Hash is the Git tree hash of the root.
func (t *Tree) Hash() string { return t.hash.String() }

// Entries lists one folder in Git's order, names as they are: one that no file system could hold is listed too. Sizes
// are -1. An absent folder answers fs.ErrNotExist; a path that leads through anything but folders answers an *Error
// of class NotAllowed; an object that should be there and is not answers one of class MissingObject.
func (t *Tree) Entries(dir string) ([]plan.Entry, error) {
	l, err := t.folder(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return append([]plan.Entry(nil), l.entries...), nil
}

// Read returns a file's bytes, refusing one of more than max bytes by its header. Links and submodules are refused.
func (t *Tree) Read(path string, max int64) ([]byte, error) {
	b, err := t.readFile(path, max)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}

func (t *Tree) readFile(path string, max int64) ([]byte, error) {
	l, err := t.folder(parent(path))
	if err != nil {
		return nil, err
	}
	i, ok := l.byName[path[strings.LastIndexByte(path, '/')+1:]]
	if !ok {
		return nil, fs.ErrNotExist
	}
	e := l.entries[i]
	if e.Kind != plan.KindFile {
		return nil, notA("file", e)
	}
	return t.from.read(plumbing.BlobObject, plumbing.NewHash(e.Hash), max)
}

// notA says why an entry is not what the path needs.
func notA(what string, e plan.Entry) *Error {
	err := &Error{Class: NotAllowed, Text: fmt.Sprintf("%q is a %s, expected a %s", e.Name, kindName(e.Kind), what)}
	switch e.Kind {
	case plan.KindLink:
		err.Hint = "symbolic links are never followed: commit the file itself"
	case plan.KindSubmodule:
		err.Hint = "submodules are not read: commit the files themselves"
	}
	return err
}

func kindName(k plan.EntryKind) string {
	switch k {
	case plan.KindDir:
		return "folder"
	case plan.KindLink:
		return "symbolic link"
	case plan.KindSubmodule:
		return "submodule"
	}
	return "file"
}

// folder walks from the root to a folder.
func (t *Tree) folder(dir string) (*listing, error) {
	l, err := t.from.listing(t.hash)
	if err != nil || dir == "" {
		return l, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		if name == "" || name == "." || name == ".." {
			return nil, fmt.Errorf("%w: write a clean path relative to the root", fs.ErrInvalid)
		}
		i, ok := l.byName[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		if l.entries[i].Kind != plan.KindDir {
			return nil, notA("folder", l.entries[i])
		}
		if l, err = t.from.listing(plumbing.NewHash(l.entries[i].Hash)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// listing reads one tree object, or remembers it.
func (s *store) listing(h plumbing.Hash) (*listing, error) {
	s.mu.Lock()
	l, ok := s.trees[h]
	if old := s.older[h]; !ok && old != nil {
		s.hold(h, old)
		l, ok = old, true
	}
	s.mu.Unlock()
	if ok {
		return l, nil
	}
	b, err := s.read(plumbing.TreeObject, h, maxTree)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(b)
	if err != nil {
		return nil, &Error{Class: Corrupt, Text: fmt.Sprintf("the tree %s is malformed (%s)", h, err), Hint: "make the commit again", Err: err}
	}
	l = &listing{entries: entries, byName: make(map[string]int, len(entries))}
	for i, e := range entries {
		if _, twice := l.byName[e.Name]; twice {
			return nil, &Error{Class: Corrupt, Text: fmt.Sprintf("the tree %s has two entries named %q", h, e.Name), Hint: "make the commit again"}
		}
		l.byName[e.Name] = i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(h, l)
	return l, nil
}

// hold keeps a tree.
func (s *store) hold(h plumbing.Hash, l *listing) {
	if s.held >= maxHeld {
		s.trees, s.older, s.held = map[plumbing.Hash]*listing{}, s.trees, 0
	}
	s.trees[h] = l
	s.held += 1 + len(l.entries)
}

// parseTree reads the bytes of a tree object: mode in octal, a space, the name, NUL, 20 bytes of id, and again.
func parseTree(b []byte) ([]plan.Entry, error) {
	var out []plan.Entry
	for len(b) > 0 {
		mode := 0
		i := 0
		for ; i < len(b) && i < 7 && b[i] >= '0' && b[i] <= '7'; i++ {
			mode = mode*8 + int(b[i]-'0')
		}
		if i == 0 || i == len(b) || b[i] != ' ' {
			return nil, fmt.Errorf("entry %d: no mode", len(out)+1)
		}
		b = b[i+1:]
		end := strings.IndexByte(string(b[:min(len(b), 4097)]), 0)
		if end <= 0 || len(b) < end+1+20 {
			return nil, fmt.Errorf("entry %d: no name or no id", len(out)+1)
		}
		e := plan.Entry{Name: string(b[:end]), Size: -1, Hash: plumbing.Hash(b[end+1 : end+21]).String()}
		switch mode & 0o170000 {
		case 0o040000:
			e.Kind = plan.KindDir
		case 0o100000:
			e.Kind, e.Exec = plan.KindFile, mode&0o100 != 0
		case 0o120000:
			e.Kind = plan.KindLink
		case 0o160000:
			e.Kind = plan.KindSubmodule
		default:
			return nil, fmt.Errorf("entry %d: unknown mode %o", len(out)+1, mode)
		}
		out, b = append(out, e), b[end+21:]
	}
	return out, nil
}

// modeOf is the mode that Git writes for an entry.
func modeOf(e plan.Entry) string {
	switch {
	case e.Kind == plan.KindDir:
		return "40000"
	case e.Kind == plan.KindLink:
		return "120000"
	case e.Kind == plan.KindSubmodule:
		return "160000"
	case e.Exec:
		return "100755"
	}
	return "100644"
}

// sortName is what Git sorts entries by: a folder sorts as if its name ended in a slash.
func sortName(e plan.Entry) string {
	if e.Kind == plan.KindDir {
		return e.Name + "/"
	}
	return e.Name
}

// treeHash is the id of the tree object with these entries, which must be in Git's order.
func treeHash(entries []plan.Entry) string {
	var b []byte
	for _, e := range entries {
		h := plumbing.NewHash(e.Hash)
		b = append(b, modeOf(e)+" "+e.Name+"\x00"...)
		b = append(b, h[:]...)
	}
	return plumbing.ComputeHash(plumbing.TreeObject, b).String()
}

// oddName says what keeps a name of one path element off a worker's disk; "" when nothing does.
func oddName(name string) string {
	low := strings.ToLower(name)
	switch {
	case name == "" || name == "." || name == "..":
		return "is no file name"
	case low == ".git" || low == "git~1" || strings.TrimRight(low, ". ") == ".git":
		return "is a disguise of .git"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.ContainsAny(name, "/\\\x7f") || strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == '\u200c' || r == '\u200d' || r == '\ufeff' }) >= 0:
		return "has a slash, a backslash or a control character"
	case len(name) > 255:
		return "is longer than 255 bytes"
	}
	return ""
}
