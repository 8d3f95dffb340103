package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"

	"github.com/headway-run/headway/plan"
)

// scan finds out which files a WorkTree has.
type scan struct {
	w     *WorkTree
	above []rule          // rules of the folders above, and of info/exclude
	under map[string]bool // folders that hold something tracked
	files int
}

// maxIgnore bounds one file of ignore rules.
const maxIgnore = 1 << 20

// rules reads the ignore rules that hold for the folder as a whole, and which folders must be entered anyway. The
// user's own rules for all repositories are left out: a plan must not read differently on another machine.
func (s *scan) rules() error {
	s.under = map[string]bool{}
	for p := range s.w.index {
		for d := path.Dir(p); d != "." && !s.under[d]; d = path.Dir(d) {
			s.under[d] = true
		}
	}
	b, err := os.ReadFile(filepath.Join(s.w.common, "info", "exclude"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.above = parseIgnore(b, nil)
	if s.w.prefix == "" {
		return nil
	}
	parts := strings.Split(s.w.prefix, "/")
	top := s.w.dir
	for range parts {
		top = filepath.Dir(top)
	}
	for i := range parts {
		b, err := os.ReadFile(filepath.Join(top, filepath.Join(parts[:i]...), ".gitignore"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		s.above = append(s.above, parseIgnore(b, parts[:i])...)
	}
	return nil
}

// full is a path's elements below the root of the Git work tree.
func (s *scan) full(p string) []string {
	return strings.Split(path.Join(s.w.prefix, p), "/")
}

// folder lists one folder and all below it into the WorkTree, and reports whether it holds anything. In an ignored
// one only what is tracked counts.
func (s *scan) folder(dir string, excluded bool, rules []rule) (bool, error) {
	names, err := s.list(dir)
	if dir != "" && errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed since the folder above was listed
	}
	if err != nil {
		return false, err
	}
	if s.w.Git() && slices.ContainsFunc(names, func(d fs.DirEntry) bool { return d.Name() == ".gitignore" && d.Type().IsRegular() }) {
		more, err := s.ignore(dir)
		if err != nil {
			return false, err
		}
		rules = append(slices.Clip(rules), more...)
	}
	list := []plan.Entry{}
	for _, d := range names {
		e, ok, err := s.entry(path.Join(dir, d.Name()), d, excluded, rules)
		if err != nil {
			return false, err
		}
		if ok {
			list = append(list, e)
		}
	}
	if len(list) == 0 && dir != "" {
		return false, nil
	}
	slices.SortFunc(list, func(a, b plan.Entry) int { return strings.Compare(sortName(a), sortName(b)) })
	s.w.folders[dir] = list
	return true, nil
}

// ignore reads the rules of a folder that has some.
func (s *scan) ignore(dir string) ([]rule, error) {
	f, st, err := s.w.open(path.Join(dir, ".gitignore"))
	if errors.Is(err, fs.ErrNotExist) {
		s.w.pause() // without its rules a folder is another one
		f, st, err = s.w.open(path.Join(dir, ".gitignore"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(st.Size(), maxIgnore))
	n, _ := f.ReadAt(b, 0) // a short read ends the rules early, as an edit at this moment would
	_ = f.Close()          // only read
	var domain []string
	if at := path.Join(s.w.prefix, dir); at != "" {
		domain = strings.Split(at, "/")
	}
	return parseIgnore(b[:n], domain), nil
}

func (s *scan) list(dir string) ([]fs.DirEntry, error) {
	if dir == "" {
		dir = "."
	}
	f, err := s.w.root.Open(filepath.FromSlash(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// entry decides about one name of a folder.
func (s *scan) entry(p string, d fs.DirEntry, excluded bool, rules []rule) (plan.Entry, bool, error) {
	e := plan.Entry{Name: d.Name(), Size: -1}
	if s.files++; s.files > maxFiles {
		return e, false, &Error{Class: TooLarge, Text: fmt.Sprintf("%s has more than %d files", s.w.dir, maxFiles), Hint: "put data outside, or into .gitignore"}
	}
	if d.Name() == ".git" || !s.w.Git() && d.IsDir() && d.Name()[0] == '.' {
		return e, false, nil
	}
	tracked := s.w.index[p]
	out := s.w.Git() && (excluded || p == ownFolder || ignored(rules, s.full(p), d.IsDir()))
	switch {
	case d.IsDir():
		if out && !s.under[p] && tracked == nil {
			return e, false, nil
		}
		return s.below(p, e, tracked, out, rules)
	case out && tracked == nil:
		return e, false, nil
	case d.Type()&fs.ModeSymlink != 0:
		e.Kind = plan.KindLink
		return e, true, nil
	case !d.Type().IsRegular():
		return e, false, nil
	}
	st, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil // removed since the folder was listed
	}
	if err != nil {
		return e, false, err
	}
	e.Size, e.Exec = st.Size(), st.Mode()&0o100 != 0
	return e, true, nil
}

// below decides about a folder.
func (s *scan) below(p string, e plan.Entry, tracked *index.Entry, out bool, rules []rule) (plan.Entry, bool, error) {
	e.Kind = plan.KindDir
	if s.w.Git() {
		_, err := s.w.root.Lstat(filepath.FromSlash(path.Join(p, ".git")))
		if err == nil || tracked != nil && tracked.Mode == filemode.Submodule {
			e.Kind, e.Hash = plan.KindSubmodule, plumbing.ZeroHash.String()
			if tracked != nil {
				e.Hash = tracked.Hash.String()
			}
			return e, true, nil
		}
	}
	some, err := s.folder(p, out, rules)
	return e, some, err
}

// Head is the commit that the work tree is on; "" when there is none yet, or outside Git.
func (w *WorkTree) Head() (string, error) {
	if !w.Git() {
		return "", nil
	}
	r := remote{shown: w.dir, gitDir: w.gitDir, common: w.common}
	refs, err := r.localRefs()
	if err != nil {
		return "", err
	}
	var to plumbing.ReferenceName
	for _, ref := range refs {
		if ref.Name() == plumbing.HEAD {
			to = ref.Target()
		}
	}
	if to == "" { // detached: HEAD holds the id itself
		b, err := os.ReadFile(filepath.Join(w.gitDir, "HEAD"))
		return strings.TrimSpace(string(b)), err
	}
	for _, ref := range refs {
		if ref.Name() == to {
			return ref.Hash().String(), nil
		}
	}
	return "", nil
}

// Changes lists, sorted, the paths below the folder where it differs from the commit it is on: changed, staged,
// removed, or not added yet. Without a commit, or outside Git, that is every file.
func (w *WorkTree) Changes() ([]string, error) {
	head, err := w.Head()
	if err != nil {
		return nil, err
	}
	committed := map[string]plan.Entry{}
	if head != "" {
		if committed, err = w.committed(head); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.entries(""); err != nil {
		return nil, err
	}
	var out []string
	for dir, list := range w.folders {
		for _, e := range list {
			p := path.Join(dir, e.Name)
			was, ok := committed[p]
			delete(committed, p)
			if e.Kind != plan.KindDir && (!ok || was.Kind != e.Kind || was.Exec != e.Exec || was.Hash != e.Hash) {
				out = append(out, p)
			}
		}
	}
	for p := range committed {
		out = append(out, p)
	}
	slices.Sort(out)
	return out, nil
}

// Dirty reports whether anything differs from the commit.
func (w *WorkTree) Dirty() (bool, error) {
	c, err := w.Changes()
	return len(c) > 0, err
}

// committed lists the files of a commit below the folder.
func (w *WorkTree) committed(head string) (map[string]plan.Entry, error) {
	s, err := openStore(w.common)
	if err != nil {
		return nil, err
	}
	defer s.close()
	h, err := parseHash(head)
	if err != nil {
		return nil, err
	}
	c, err := s.commit(h)
	if err != nil {
		return nil, err
	}
	out := map[string]plan.Entry{}
	t := &Tree{hash: plumbing.NewHash(c.Tree), from: s}
	err = eachFile(t, w.prefix, func(p string, e plan.Entry) error {
		if w.prefix != "" {
			p = strings.TrimPrefix(p, w.prefix+"/")
		}
		out[p] = e
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the folder is not in the commit
	}
	return out, err
}

// eachFile calls f for everything below dir that is no folder, in Git's order.
func eachFile(t plan.Tree, dir string, f func(p string, e plan.Entry) error) error {
	list, err := t.Entries(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		p := under(dir, e.Name)
		if e.Kind == plan.KindDir {
			err = eachFile(t, p, f)
		} else {
			err = f(p, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
