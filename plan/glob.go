package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// planFile is a file that a glob matched.
type planFile struct {
	path string
	size int64
	hash string
	loud bool // something was said about it while it was read
}

// finder collects the plan files of a tree.
type finder struct {
	tree  Tree
	ps    *problems
	dirs  map[string][]Entry // folders that were read
	found map[string]Entry   // by path
	odd   map[string]bool    // reported already
	full  bool
	err   error // the tree could not be read
}

// find walks the tree for each glob. A glob that matches nothing is an error: a renamed folder must never look like a
// plan without jobs.
func (l *loader) find() {
	f := &finder{tree: l.tree, ps: &l.ps, dirs: make(map[string][]Entry), found: make(map[string]Entry), odd: make(map[string]bool)}
	for i, g := range l.config.Plans {
		before := l.ps.errors
		n := f.glob(strings.Split(g, "/"), "", 0)
		pos := l.planPos[i]
		if f.err != nil {
			l.ps.refuse(pos, "Unreadable", "the plan files could not be read: "+f.err.Error(), "", "look again; nothing is stopped on this reading")
			return
		}
		if n == 0 && l.ps.errors == before {
			l.ps.refuse(pos, "GlobMatchesNothing", "plans: "+show(g)+" matches no file", "at least one plan file", "was a folder renamed? mend the glob, or take it out if it is no longer wanted; to end all jobs on purpose, say so in the commit message: Allow-Empty: yes")
		}
	}
	for p, e := range f.found {
		l.files = append(l.files, planFile{path: p, size: e.Size, hash: e.Hash})
	}
	slices.SortFunc(l.files, func(a, b planFile) int { return strings.Compare(a.path, b.path) })
}

// Matches says whether a path is headway.yaml or one that a glob of plans matches.
func (c *Config) Matches(p string) bool {
	segs := strings.Split(p, "/")
	return p == ConfigFile || slices.ContainsFunc(c.Plans, func(g string) bool { return matches(strings.Split(g, "/"), segs, 2*MaxDepth) })
}

func matches(glob, segs []string, depth int) bool {
	switch {
	case depth == 0:
		return false
	case len(glob) == 0 || len(segs) == 0:
		return len(glob) == 0 && len(segs) == 0
	case glob[0] == "**":
		return len(glob) > 1 && matches(glob[1:], segs, depth-1) || len(glob) == 1 && len(segs) == 1 || len(segs) > 1 && matches(glob, segs[1:], depth-1)
	}
	ok, _ := path.Match(glob[0], segs[0])
	return ok && matches(glob[1:], segs[1:], depth-1)
}

func (f *finder) entries(dir string) []Entry {
	if es, ok := f.dirs[dir]; ok {
		return es
	}
	es, err := f.tree.Entries(dir)
	if err != nil && f.err == nil { // also when it is "not there": it was listed, so an object is missing
		f.err = err
	}
	f.dirs[dir] = es
	return es
}

// glob matches the segments of a pattern below dir and answers how many entries matched.
func (f *finder) glob(segs []string, dir string, depth int) (n int) {
	if depth > 2*MaxDepth || f.full || f.err != nil {
		return 0
	}
	last := len(segs) == 1
	if segs[0] == "**" {
		if !last {
			n = f.glob(segs[1:], dir, depth+1)
		}
		for _, e := range f.entries(dir) {
			if f.refuseKind(path.Join(dir, e.Name), e) {
				continue
			}
			if e.Kind == KindDir {
				n += f.glob(segs, path.Join(dir, e.Name), depth+1)
			} else if last {
				n += f.add(path.Join(dir, e.Name), e)
			}
		}
		return n
	}
	for _, e := range f.entries(dir) {
		if ok, _ := path.Match(segs[0], e.Name); !ok { // patterns were checked when headway.yaml was read
			continue
		}
		full := path.Join(dir, e.Name)
		switch {
		case f.refuseKind(full, e):
		case !last && e.Kind == KindDir:
			n += f.glob(segs[1:], full, depth+1)
		case last:
			n += f.add(full, e)
		}
	}
	return n
}

// refuseKind reports links, submodules and names that would break a line of output. They are never followed.
func (f *finder) refuseKind(full string, e Entry) bool {
	code, what, expected := "", "", ""
	switch {
	case e.Kind == KindLink:
		code, what, expected = "SymlinkInPlanRoot", "a symbolic link", "a file or a folder"
	case e.Kind == KindSubmodule:
		code, what, expected = "SubmoduleInPlanRoot", "a submodule", "a file or a folder of this repository"
	case oddName(e.Name):
		code, what, expected = "BadFileName", "a file name that cannot be printed", "a name of printable UTF-8 characters"
	default:
		return false
	}
	if !f.odd[full] {
		f.ps.refuse(Pos{File: full}, code, what, expected, "move it out of the folders that `plans` looks into")
	}
	f.odd[full] = true
	return true
}

func oddName(s string) bool {
	if !utf8.ValidString(s) || strings.ContainsAny(s, `/\"`) || s == "." || s == ".." || s == "" {
		return true
	}
	return quoteOdd(s) != s
}

func (f *finder) add(full string, e Entry) int {
	if full == ConfigFile {
		return 0
	}
	if e.Kind == KindDir {
		if !f.odd[full] {
			f.ps.refuse(Pos{File: full}, "IsAFolder", "the plan file is a folder", "a file", "rename the folder so that no glob of `plans` matches it")
		}
		f.odd[full] = true
		return 0
	}
	if len(f.found) >= MaxPlanFiles {
		if !f.full {
			f.ps.refuse(Pos{File: ConfigFile}, "TooManyFiles", fmt.Sprintf("plans match more than %d files", MaxPlanFiles), "fewer plan files", "put several jobs into one file")
		}
		f.full = true
		return 0
	}
	f.found[full] = e
	return 1
}

// checkGlob says what is wrong with a pattern, or "".
func checkGlob(g string) string {
	switch {
	case g == "" || g[0] == '/' || strings.Contains(g, `\`) || path.Clean(g) != g:
		return "a clean relative path with /"
	case g == ".." || strings.HasPrefix(g, "../"):
		return "a path inside the repository"
	}
	for _, s := range strings.Split(g, "/") {
		if _, err := path.Match(s, "x"); err != nil || strings.Contains(s, "**") && s != "**" {
			return "a glob with *, ?, [a-z] and ** for any folders"
		}
	}
	return ""
}
