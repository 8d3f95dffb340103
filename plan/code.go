package plan

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// MaxCodeEntries bounds what one code folder may hold.
const MaxCodeEntries = 100_000

// LinkReader is the optional side of a [Tree] that can give a symbolic link's target text without following it. With
// it, links that stay inside a code folder are accepted; without it every link in one is refused.
type LinkReader interface {
	ReadLink(path string) (string, error)
}

// codeFolder is what is known of one folder, read once however many jobs name it.
type codeFolder struct {
	tree  string // Git tree hash
	code  string // of the problem; "" when all is well
	text  string
	wants string
	hint  string
}

// folder checks a code folder and finds its tree hash.
func (l *loader) folder(dir string) *codeFolder {
	if c := l.code[dir]; c != nil {
		return c
	}
	c := &codeFolder{}
	l.code[dir] = c
	w := codeWalk{tree: l.tree, root: dir, out: c}
	if w.locate() {
		w.walk(dir, 0)
	}
	return c
}

type codeWalk struct {
	tree Tree
	root string
	out  *codeFolder
	n    int
}

func (w *codeWalk) fail(code, text, wants, hint string) bool {
	*w.out = codeFolder{code: code, text: text, wants: wants, hint: hint}
	return false
}

// locate goes down to the folder and refuses links and submodules on the way.
func (w *codeWalk) locate() bool {
	dir := ""
	for _, seg := range strings.Split(w.root, "/") {
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
			hint := "paths are relative to the plan file"
			if near := nearest(seg, folders); near != "" {
				hint = "did you mean " + path.Join(dir, near) + "?"
			}
			return w.fail("NoSuchFolder", "there is no folder "+show(full), "a folder of this repository at this commit", hint)
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
	case len(es) == 0 && depth == 0:
		return w.fail("EmptyFolder", "the folder "+show(dir)+" is empty", "the program", "")
	}
	if w.n += len(es); w.n > MaxCodeEntries {
		return w.fail("TooManyFiles", show(w.root)+" holds too many files", fmt.Sprintf("at most %d", MaxCodeEntries), "name a smaller folder")
	}
	for _, e := range es {
		if !w.entry(dir, e, depth) {
			return false
		}
	}
	return true
}

func (w *codeWalk) entry(dir string, e Entry, depth int) bool {
	full := path.Join(dir, e.Name)
	if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
		return w.fail("BadFileName", show(w.root)+" holds a file named "+show(e.Name), "an ordinary name", "")
	}
	switch e.Kind {
	case KindDir:
		return w.walk(full, depth+1)
	case KindSubmodule:
		return w.fail("SubmoduleInCode", show(full)+" is a submodule, whose files are not in this repository", "files of this repository", "copy the code in or name a folder without it")
	case KindLink:
		return w.link(full)
	}
	if e.Size > 1024 {
		return true
	}
	b, err := w.tree.Read(full, 1024)
	switch {
	case errors.Is(err, ErrTooLarge):
		return true
	case err != nil:
		return w.fail("Unreadable", show(full)+" could not be read: "+err.Error(), "", "look again")
	case isLFSPointer(b):
		return w.fail("LFSPointer", show(full)+" is a Git LFS pointer, its content is not in this repository", "the file itself", "take it out of LFS, or fetch the data with a job of kind dataset")
	}
	return true
}

// link accepts a link whose target stays inside the code folder.
func (w *codeWalk) link(full string) bool {
	r, ok := w.tree.(LinkReader)
	if !ok {
		return w.fail("SymlinkInCode", show(full)+" is a symbolic link", "files and folders", "put the file itself there")
	}
	target, err := r.ReadLink(full)
	if err != nil {
		return w.fail("Unreadable", show(full)+" could not be read: "+err.Error(), "", "look again")
	}
	to := path.Join(path.Dir(full), target)
	down := strings.TrimLeft(target, "./") // after the leading ../ no other may follow: x/.. is elsewhere when x is a link
	if path.IsAbs(target) || strings.Contains("/"+down+"/", "/../") || to != w.root && !strings.HasPrefix(to, w.root+"/") {
		return w.fail("SymlinkInCode", show(full)+" is a symbolic link that leaves the code folder", "a target inside "+show(w.root), "put the file itself there")
	}
	return true
}
