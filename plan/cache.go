package plan

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"sync"
)

// Cache reads plans like [Load], and takes from the last reading what is still so: of a large repository in which one file
// changed, that one is read. What it answers is what Load would. The zero value is ready; calls wait for one another.
//
// A commit that touches neither headway.yaml, nor the folders that `plans` looks into, nor any code folder is the same
// plan again. One that touches a few plan files, and no job that another leans on, is a step from the last plan (step.go).
// In any other the whole is put together anew, and a file is taken again, unread, when its blob, its path and headway.yaml
// are the same, nothing was said about it, and its jobs stand alone: none is like another, needs another or is made by a
// matrix. Of such a job nothing is kept but the plan's own; who is like it has its file read again.
type Cache struct {
	mu     sync.Mutex
	config []byte // headway.yaml, under which all this was made
	files  map[string]keptFile
	code   map[string]string // tree hash of a folder without fault, by path
	from   *Plan             // the last one that was read: the jobs of files are in it
	last   *Plan             // from, without an error; nil: there is none, or what it rests on is not known
	rests  map[string]string // what last rests on: object ids by path
	tree   Tree              // that last was read from

	// What a step from last has to know beside its jobs.
	defaults  *entry
	leaned    map[string]bool // names that an entry is like, or needs
	groups    map[string]bool // entries with a matrix
	canonical int             // bytes of canonical JSON
}

// keptFile is what one file came to.
type keptFile struct {
	hash  string
	names []string // of its jobs
}

// Load is [Load].
func (c *Cache) Load(t Tree) (*Plan, []Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		if p, ok := c.step(t); ok {
			c.last, c.from, c.tree = p, p, t
			out := *p
			out.Problems = slices.Clone(p.Problems)
			return &out, out.Problems
		}
	}
	c.last, c.tree = nil, nil
	p, problems := loadWith(t, defaultLimits, c)
	kept := *p
	kept.Problems = slices.Clone(problems)
	if c.from = &kept; p.OK() && c.rest(t, p.Config.Plans) {
		c.last, c.tree = c.from, t
	}
	return p, problems
}

// fixedPart is the folder that a glob looks into, down to its first sign; "": it is the root, where everything is.
func fixedPart(glob string) string {
	fixed := ""
	for seg := range strings.SplitSeq(path.Dir(glob), "/") {
		if strings.ContainsAny(seg, "*?[") {
			break
		}
		fixed = path.Join(fixed, seg)
	}
	if fixed == "." {
		return ""
	}
	return fixed
}

// rest writes down what a plan without an error rests on, and reports whether all of it can be known.
func (c *Cache) rest(t Tree, globs []string) bool {
	c.rests = map[string]string{ConfigFile: ""}
	for _, g := range globs {
		fixed := fixedPart(g)
		if fixed == "" {
			return false
		}
		c.rests[fixed] = ""
	}
	for dir := range c.code {
		c.rests[dir] = ""
	}
	for at := range c.rests {
		id, ok := objectAt(t, at)
		if !ok {
			return false
		}
		c.rests[at] = id
	}
	return true
}

// objectAt finds the id of a file or folder that no link leads to.
func objectAt(t Tree, at string) (string, bool) {
	dir := ""
	for {
		seg, rest, more := strings.Cut(at, "/")
		es, err := t.Entries(dir)
		if err != nil {
			return "", false
		}
		i := slices.IndexFunc(es, func(e Entry) bool { return e.Name == seg })
		switch {
		case i < 0 || es[i].Hash == "":
			return "", false
		case !more:
			return string('0'+rune(es[i].Kind)) + es[i].Hash, true
		case es[i].Kind != KindDir:
			return "", false
		}
		dir, at = path.Join(dir, seg), rest
	}
}

// under forgets everything unless headway.yaml is as it was.
func (c *Cache) under(config []byte) {
	if c != nil && !bytes.Equal(c.config, config) {
		c.config, c.files, c.code, c.from = bytes.Clone(config), nil, map[string]string{}, nil
	}
}

// again takes a file's jobs from the last reading. All that they rest on beside their file and headway.yaml is their code.
func (l *loader) again(file int) bool {
	if l.kept == nil || l.kept.from == nil {
		return false
	}
	f := &l.files[file]
	k, ok := l.kept.files[f.path]
	if !ok || f.hash == "" || k.hash != f.hash {
		return false
	}
	at := make([]int, len(k.names))
	for n, name := range k.names {
		i, ok := l.kept.from.at(name)
		if !ok {
			return false
		}
		if at[n] = i; l.kept.from.Jobs[i].Code != "" && l.folder(l.kept.from.Jobs[i].Code).code != "" {
			return false
		}
	}
	for _, i := range at {
		made := l.kept.from.canonical(i)
		e := &entry{job: l.kept.from.Jobs[i], file: file, from: l, made: &made}
		if e.name, e.namePo = e.job.Name, e.job.Pos; e.job.Code != "" && l.folder(e.job.Code).tree != e.job.CodeTree {
			e.job.CodeTree, made.identity = l.folder(e.job.Code).tree, nil // the same job over other code
		}
		l.entries = append(l.entries, e)
	}
	return true
}

// asBefore says that a job comes out as it did at the last reading.
func (l *loader) asBefore(e *entry) bool {
	if e.made != nil && e.frozen == "" && len(l.jobs) < l.most.jobs {
		return true
	}
	l.thaw(e)
	return false
}

// thaw reads what a file says of a job that was taken again, for where more than its outcome is asked for.
func (l *loader) thaw(e *entry) {
	if e.made == nil {
		return
	}
	e.made, e.job, e.pos = nil, Job{}, make([]spot, len(leaves))
	data, ok := l.readFile(l.files[e.file])
	if !ok {
		l.broken[e.file] = true
		e.freeze("its file has an error")
		return
	}
	quiet := &problems{} // nothing was said about it when it was read before, and it is the same blob
	root, _ := parse(l.files[e.file].path, data)
	d := &decoder{file: l.files[e.file].path, index: e.file, ps: quiet}
	d.pairs(root, &Field{}, func(_, v *node) {
		d.pairs(v, &Field{}, func(k, v *node) {
			if k.Value == e.name {
				fresh := d.newEntry(l, k, v)
				e.job, e.pos, e.work, e.bad = fresh.job, fresh.pos, fresh.work, fresh.bad
			}
		})
	})
}

// alone says that a job's outcome rests on no other job.
func (e *entry) alone() bool { return e.like == "" && len(e.needs) == 0 && len(e.axes) == 0 && e.quiet }

// forms gives a finished job's canonical JSON.
func (l *loader) forms(i int) canonical {
	e := l.owner[i]
	if e.made != nil {
		return *e.made
	}
	j := &l.jobs[i]
	c := canonical{l.identity[i], l.encode(j, placementParts), l.encode(j, metadataParts)}
	if l.kept != nil && e.alone() {
		e.made = &c
	}
	return c
}

// keep leaves for the next reading what it may take.
func (l *loader) keep() {
	if l.kept == nil {
		return
	}
	c := l.kept
	c.files, c.leaned, c.groups = make(map[string]keptFile, len(l.files)), map[string]bool{}, map[string]bool{}
	defaults := *l.defaults
	defaults.from = nil // it is asked for the names of files, which defaults have none of, and holds all that was read
	c.defaults, c.canonical = &defaults, l.canonical
	for rest := l.entries; len(rest) > 0; {
		file, n, whole := rest[0].file, 0, true
		names := make([]string, 0, 1)
		for n < len(rest) && rest[n].file == file {
			e := rest[n]
			whole, names = whole && e.made != nil && e.frozen == "", append(names, e.name)
			c.leaned[e.like] = true
			for _, need := range e.needs {
				c.leaned[need.name] = true
			}
			if len(e.axes) > 0 {
				c.groups[e.name] = true
			}
			n++
		}
		if f := l.files[file]; whole && !f.loud && !l.broken[file] && f.hash != "" {
			c.files[f.path] = keptFile{f.hash, names}
		}
		rest = rest[n:]
	}
	for dir := range c.code {
		if l.code[dir] == nil {
			delete(c.code, dir)
		}
	}
}

// known says that a folder was walked before and is the same.
func (c *Cache) known(dir, tree string) bool { return c != nil && tree != "" && c.code[dir] == tree }

// sound notes that nothing is wrong with a folder.
func (c *Cache) sound(dir, tree string) {
	if c != nil {
		c.code[dir] = tree
	}
}
