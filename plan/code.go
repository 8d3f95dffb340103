package plan

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Bounds on one code folder. What goes beyond them is data, and belongs into the store.
const (
	MaxCodeFiles   = 50_000    // files
	MaxCodeBytes   = 256 << 20 // bytes of all files together, as far as the tree gives sizes
	MaxCodeEntries = 100_000   // files and folders
)

// codeFolder is what is known of one folder, read once however many jobs name it.
type codeFolder struct {
	tree  string // Git tree hash
	code  string // of the problem; "" when all is well
	text  string
	wants string
	hint  string
	near  string // path from the root of a folder that was most likely meant
}

// folder checks a code folder and finds its tree hash. What it refuses is what cannot be packed for a worker: an error
// here comes before anything is launched, the same one there after a claim. Two things are seen only while packing:
// sizes, where the tree does not give them, and files that change meanwhile.
func (l *loader) folder(dir string) *codeFolder {
	if c := l.code[dir]; c != nil {
		return c
	}
	c := &codeFolder{}
	l.code[dir] = c
	w := codeWalk{tree: l.tree, root: dir, out: c}
	if !w.locate() || l.kept.known(dir, c.tree) {
		return c
	}
	if w.walk(dir, 0) && w.files == 0 {
		w.fail("EmptyFolder", "the folder "+show(dir)+" has no files", "the program", "commit the code, or leave code out")
	}
	if c.code == "" {
		l.kept.sound(dir, c.tree)
	}
	return c
}

type codeWalk struct {
	tree  Tree
	root  string
	out   *codeFolder
	n     int // files and folders
	files int
	bytes int64 // of the files whose size is known
}

func (w *codeWalk) fail(code, text, wants, hint string) bool {
	*w.out = codeFolder{code: code, text: text, wants: wants, hint: hint}
	return false
}

// locate goes down to the folder and refuses links and submodules on the way.
func (w *codeWalk) locate() bool {
	dir, segs := "", strings.Split(w.root, "/")
	for n, seg := range segs {
		es, err := w.tree.Entries(dir)
		if err != nil { // also when it is "not there": it was listed, so an object is missing
			return w.fail("Unreadable", "the code folder could not be read: "+err.Error(), "", "look again")
		}
		full := path.Join(dir, seg)
		i := -1
		var folders []string
		for k, e := range es {
			if e.Name == seg {
				i = k
			}
			if e.Kind == KindDir {
				folders = append(folders, e.Name)
			}
		}
		if i < 0 {
			w.fail("NoSuchFolder", "there is no folder "+show(full), "a folder of this repository at this commit", "paths are relative to the plan file")
			if near := nearest(seg, folders); near != "" {
				w.out.near = path.Join(append([]string{dir, near}, segs[n+1:]...)...)
			}
			return false
		}
		switch es[i].Kind {
		case KindLink:
			return w.fail("SymlinkInCode", show(full)+" is a symbolic link", "a folder", "name the folder that it points to")
		case KindSubmodule:
			return w.fail("SubmoduleInCode", show(full)+" is a submodule, whose files are not in this repository", "a folder of this repository", "copy the code in")
		case KindFile:
			return w.fail("NotAFolder", show(full)+" is a file", "a folder", "name the folder that holds it")
		}
		dir, w.out.tree = full, es[i].Hash
	}
	return true
}

func (w *codeWalk) walk(dir string, depth int) bool {
	es, err := w.tree.Entries(dir)
	switch {
	case err != nil:
		return w.fail("Unreadable", "the code folder could not be read: "+err.Error(), "", "look again")
	case depth > 4*MaxDepth:
		return w.fail("TooDeep", "folders in "+show(w.root)+" are nested too deeply", fmt.Sprintf("at most %d levels", 4*MaxDepth), "")
	}
	if w.n += len(es); w.n > MaxCodeEntries {
		return w.tooMany()
	}
	lower := make(map[string]string, len(es)) // name in lower case → as written
	for _, e := range es {
		if why := unpackable(e.Name); why != "" {
			return w.fail("BadFileName", show(w.root)+" holds "+show(dir+"/"+e.Name)+", whose name "+why, "a name that every disk can hold", "rename it")
		}
		low := strings.ToLower(e.Name)
		if other, twice := lower[low]; twice {
			return w.fail("CaseClash", show(path.Join(dir, e.Name))+" differs from "+show(path.Join(dir, other))+" only in case", "names that differ on every disk", "rename one of them")
		}
		lower[low] = e.Name
		if !w.entry(path.Join(dir, e.Name), e, depth) {
			return false
		}
	}
	return true
}

func (w *codeWalk) entry(full string, e Entry, depth int) bool {
	switch e.Kind {
	case KindDir:
		return w.walk(full, depth+1)
	case KindSubmodule:
		return w.fail("SubmoduleInCode", show(full)+" is a submodule, whose files are not in this repository", "files of this repository", "copy the code in or name a folder without it")
	case KindLink:
		return w.fail("SymlinkInCode", show(full)+" is a symbolic link", "files and folders", "links are never followed: commit the file itself")
	}
	if w.files++; w.files > MaxCodeFiles {
		return w.tooMany()
	}
	size, ok := w.content(full, e.Size)
	if w.bytes += size; ok && w.bytes > MaxCodeBytes {
		return w.fail("TooLarge", fmt.Sprintf("the files of %s have more than %d MiB together", show(w.root), MaxCodeBytes>>20), fmt.Sprintf("at most %d MiB", MaxCodeBytes>>20),
			"keep data out of it: read it from the store, or make it with a job of kind dataset")
	}
	return ok
}

func (w *codeWalk) tooMany() bool {
	return w.fail("TooManyFiles", show(w.root)+" holds too many files", fmt.Sprintf("at most %d files, and %d files and folders", MaxCodeFiles, MaxCodeEntries), "keep data out of it, or name a smaller folder")
}

// content looks into a file that may be a pointer, and gives the size as far as it is known.
func (w *codeWalk) content(full string, size int64) (int64, bool) {
	if size > 1024 {
		return size, true
	}
	b, err := w.tree.Read(full, 1024)
	switch {
	case errors.Is(err, ErrTooLarge):
		return max(size, 1025), true
	case err != nil:
		return 0, w.fail("Unreadable", show(full)+" could not be read: "+err.Error(), "", "look again")
	case isLFSPointer(b):
		return 0, w.fail("LFSPointer", show(full)+" is a Git LFS pointer, its content is not in this repository", "the file itself", "take it out of LFS, or fetch the data with a job of kind dataset")
	}
	return int64(len(b)), true
}

// unpackable says what keeps a name of one path element off a worker's disk; "" when nothing does.
func unpackable(name string) string {
	low := strings.ToLower(name)
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x200c || r == 0x200d || r == 0xfeff }
	switch {
	case name == "" || name == "." || name == "..":
		return "is no file name"
	case low == ".git" || low == "git~1" || strings.TrimRight(low, ". ") == ".git":
		return "is a disguise of .git"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.ContainsAny(name, `/\`) || strings.ContainsFunc(name, odd):
		return "has a slash, a backslash or a control character"
	case len(name) > 255:
		return "is longer than 255 bytes"
	}
	return ""
}

// meant is a folder that a path most likely stands for, written as in a file: the same words further up (a path is
// often written from the root), or a name that is nearly the same. "" when nothing is near.
func (l *loader) meant(file string, c *codeFolder, code string) string {
	from := strings.Split(file, "/")
	from = from[:len(from)-1]
	to := strings.Split(code, "/")
	same := 0
	for same < len(from) && same < len(to)-1 && from[same] == to[same] {
		same++
	}
	for up := same - 1; up >= 0; up-- {
		if p := path.Join(append(append([]string{}, from[:up]...), to[same:]...)...); l.isFolder(p) {
			return relative(from, strings.Split(p, "/"))
		}
	}
	if c.near != "" {
		return relative(from, strings.Split(c.near, "/"))
	}
	return ""
}

func (l *loader) isFolder(p string) bool {
	es, err := l.tree.Entries(parentOf(p))
	for _, e := range es {
		if err == nil && e.Name == path.Base(p) {
			return e.Kind == KindDir
		}
	}
	return false
}

// relative writes the path to as it is seen from the folder from.
func relative(from, to []string) string {
	same := 0
	for same < len(from) && same < len(to)-1 && from[same] == to[same] {
		same++
	}
	return strings.Repeat("../", len(from)-same) + strings.Join(to[same:], "/")
}
