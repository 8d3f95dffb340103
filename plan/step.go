package plan

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// maxStep is how many files one step changes at most: with more, the whole is read.
const maxStep = 256

// step makes the plan of a tree from the last one, at a cost that goes with what changed between the two and not with how
// much there is. It answers only where that is all there is to it: plan files that were quiet, or are new, whose jobs stand
// alone and are leaned on by nobody, while headway.yaml and all code are as they were. For everything else, and wherever
// something would have to be said, ok is false and nothing was changed.
func (c *Cache) step(t Tree) (p *Plan, ok bool) {
	s := stepping{c: c, now: t, old: map[string]Entry{}, new: map[string]Entry{}, ids: map[string]string{}}
	if !s.compare() {
		return nil, false
	}
	if len(s.old)+len(s.new) == 0 {
		c.rests = s.ids
		return c.last, true
	}
	if !s.sift() || !s.read() || !s.fits() {
		return nil, false
	}
	return s.done(), true
}

// stepping is one step on its way.
type stepping struct {
	c        *Cache
	now      Tree
	old, new map[string]Entry  // files that changed, by path
	ids      map[string]string // of what the plan rests on, as it is now
	gone     map[string]int    // jobs of the changed files as they were: where they stand in the last plan, by name
	files    []planFile        // that are to be read, sorted
	l        *loader
	made     []canonical // of l.jobs
	removed  []string    // plan files, sorted
	added    []string
}

// compare finds the files that differ in the folders that plans are looked for in.
func (s *stepping) compare() bool {
	roots := map[string]bool{}
	for _, g := range s.c.last.Config.Plans {
		if roots[fixedPart(g)] = true; strings.Count(g, "/") > MaxDepth/2 {
			return false // nobody goes that deep, and the finder has an end there
		}
	}
	for at, was := range s.c.rests {
		id, ok := objectAt(s.now, at)
		if !ok {
			return false
		}
		if s.ids[at] = id; id == was {
			continue
		}
		if _, isCode := s.c.code[at]; isCode || !roots[at] || id[0] != was[0] || id[0] != '0'+byte(KindDir) {
			return false
		}
		if !s.folder(at, true, true) {
			return false
		}
	}
	return true
}

// folder compares one folder, of which one side may be missing.
func (s *stepping) folder(dir string, before, after bool) bool {
	if strings.Count(dir, "/") > MaxDepth/2 {
		return false
	}
	var was, is []Entry
	var err error
	if before {
		if was, err = s.c.tree.Entries(dir); err != nil {
			return false
		}
	}
	if after {
		if is, err = s.now.Entries(dir); err != nil {
			return false
		}
	}
	known := make(map[string]Entry, len(was))
	for _, e := range was {
		known[e.Name] = e
	}
	for _, e := range is {
		old, both := known[e.Name]
		delete(known, e.Name)
		if both && old.Kind == e.Kind && old.Hash == e.Hash && e.Hash != "" {
			continue
		}
		if both && (old.Kind != e.Kind || old.Hash == "") || e.Hash == "" || !s.differs(dir, e, s.new, both, true) {
			return false
		}
		if both && e.Kind == KindFile {
			s.old[path.Join(dir, e.Name)] = old
		}
	}
	for _, e := range known {
		if !s.differs(dir, e, s.old, true, false) {
			return false
		}
	}
	return len(s.old) <= maxStep && len(s.new) <= maxStep
}

// differs notes one entry that is new, gone or another one.
func (s *stepping) differs(dir string, e Entry, into map[string]Entry, before, after bool) bool {
	full := path.Join(dir, e.Name)
	switch {
	case oddName(e.Name):
	case e.Kind == KindFile:
		into[full] = e
		return true
	case e.Kind == KindDir && !s.matched(full):
		return s.folder(full, before, after)
	}
	return false
}

// matched says whether a glob of plans matches a path.
func (s *stepping) matched(p string) bool {
	segs := strings.Split(p, "/")
	return p != ConfigFile && slices.ContainsFunc(s.c.last.Config.Plans, func(g string) bool { return globMatches(strings.Split(g, "/"), segs) })
}

// globMatches matches a path against a glob, segment by segment, as the finder walks it.
func globMatches(glob, segs []string) bool {
	switch {
	case len(glob) == 0 || len(segs) == 0:
		return len(glob) == len(segs)
	case glob[0] == "**" && len(glob) == 1:
		return true
	case glob[0] == "**":
		return globMatches(glob[1:], segs) || globMatches(glob, segs[1:])
	}
	ok, _ := path.Match(glob[0], segs[0]) // patterns were checked when headway.yaml was read
	return ok && globMatches(glob[1:], segs[1:])
}

// sift keeps the plan files among what changed, and finds the jobs that they held.
func (s *stepping) sift() bool {
	s.gone = map[string]int{}
	for p := range s.old {
		if !s.matched(p) {
			continue
		}
		k, ok := s.c.files[p]
		if !ok {
			return false
		}
		for _, name := range k.names {
			i, ok := s.c.last.at(name)
			if !ok || s.c.leaned[name] {
				return false
			}
			s.gone[name] = i
		}
		if _, stays := s.new[p]; !stays {
			s.removed = append(s.removed, p)
		}
	}
	for p, e := range s.new {
		if !s.matched(p) {
			continue
		}
		s.files = append(s.files, planFile{path: p, size: e.Size, hash: e.Hash})
		if _, was := s.old[p]; !was {
			s.added = append(s.added, p)
		}
	}
	slices.SortFunc(s.files, func(a, b planFile) int { return strings.Compare(a.path, b.path) })
	slices.Sort(s.removed)
	slices.Sort(s.added)
	return len(s.c.last.Files)+len(s.added) <= MaxPlanFiles && (len(s.removed) == 0 || s.globsHold())
}

// globsHold says that every glob still matches a file.
func (s *stepping) globsHold() bool {
	for _, g := range s.c.last.Config.Plans {
		glob := strings.Split(g, "/")
		if !slices.ContainsFunc(s.merged(), func(p string) bool { return globMatches(glob, strings.Split(p, "/")) }) {
			return false
		}
	}
	return true
}

// merged is the list of plan files as it is now.
func (s *stepping) merged() []string {
	if len(s.added)+len(s.removed) == 0 {
		return s.c.last.Files
	}
	out := make([]string, 0, len(s.c.last.Files)+len(s.added))
	for _, p := range s.c.last.Files {
		if _, drop := slices.BinarySearch(s.removed, p); !drop {
			out = append(out, p)
		}
	}
	out = append(out, s.added...)
	slices.Sort(out)
	return out
}

// read makes the jobs of the changed files, as Load would if there were no others.
func (s *stepping) read() bool {
	c := s.c
	l := &loader{tree: s.now, most: defaultLimits, ps: problems{most: maxAllProblems}, plan: &Plan{}, config: c.last.Config, defaults: c.defaults,
		code: make(map[string]*codeFolder), gpus: make(map[string]gpuName), modes: make(map[string]modes), kept: &Cache{code: c.code}, files: s.files}
	l.broken = make([]bool, len(l.files))
	s.l = l
	l.readFiles()
	for _, e := range l.entries {
		if e.like != "" || len(e.needs) > 0 || len(e.axes) > 0 || c.groups[e.name] || c.leaned[e.name] {
			return false
		}
		if code := e.job.Code; code != "" && c.code[code] == "" || c.defaults.job.Code != "" && c.code[c.defaults.job.Code] == "" {
			return false // a folder that no plan has named before
		}
	}
	l.bind()
	l.resolveLike()
	for _, e := range l.entries {
		l.finish(e)
	}
	l.connect()
	return len(l.ps.list) == 0 && len(l.jobs) == len(l.entries)
}

// fits says that the jobs go with all the others, without a word: no name and no work twice, and within the bounds.
func (s *stepping) fits() bool {
	c, l := s.c, s.l
	if len(c.last.Frozen) > 0 || slices.ContainsFunc(c.last.Problems, func(q Problem) bool { return q.Code == "SharedWork" }) {
		return false
	}
	works := make(map[Digest]bool, len(l.jobs))
	total := c.canonical
	for _, i := range s.gone {
		k := c.last.canonical(i)
		total -= len(k.identity) + len(k.placement) + len(k.metadata)
	}
	s.made = make([]canonical, len(l.jobs))
	for i := range l.jobs {
		j := &l.jobs[i]
		at, exists := c.last.at(j.Name)
		if _, was := s.gone[j.Name]; exists && !was || works[j.Work] {
			return false
		}
		works[j.Work] = true
		s.made[i] = l.forms(i)
		if exists {
			s.made[i].reuse(c.last.canonical(at))
		}
		total += len(s.made[i].identity) + len(s.made[i].placement) + len(s.made[i].metadata)
	}
	if total > defaultLimits.canonical || len(c.last.Jobs)-len(s.gone)+len(l.jobs) > defaultLimits.jobs {
		return false
	}
	c.canonical = total
	for i := range c.last.Jobs {
		if j := &c.last.Jobs[i]; works[j.Work] {
			if _, was := s.gone[j.Name]; !was {
				return false
			}
		}
	}
	return len(c.last.Jobs)-len(s.gone)+len(l.jobs) > 0
}

// reuse takes what is the same from an earlier form, so that it is in memory once.
func (c *canonical) reuse(old canonical) {
	if bytes.Equal(c.identity, old.identity) {
		c.identity = old.identity
	}
	if bytes.Equal(c.placement, old.placement) {
		c.placement = old.placement
	}
	if bytes.Equal(c.metadata, old.metadata) {
		c.metadata = old.metadata
	}
}

// done puts the plan together, and leaves in the cache what belongs to it.
func (s *stepping) done() *Plan {
	c, l, old := s.c, s.l, s.c.last
	order := make([]int, len(l.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(l.jobs[a].Name, l.jobs[b].Name) })
	cuts := make([]int, 0, len(s.gone)) // where old jobs are left out
	for _, i := range s.gone {
		cuts = append(cuts, i)
	}
	slices.Sort(cuts)
	n := len(old.Jobs) - len(cuts) + len(order)
	p := &Plan{Config: old.Config, Files: s.merged(), Problems: slices.Clone(old.Problems), Jobs: make([]Job, 0, n), canon: make([]canonical, 0, n)}
	from := 0
	upTo := func(i int) {
		i = max(i, from)
		p.Jobs, p.canon = append(p.Jobs, old.Jobs[from:i]...), append(p.canon, old.canon[from:i]...)
		from = i
	}
	for len(cuts)+len(order) > 0 {
		at := len(old.Jobs)
		if len(order) > 0 {
			at, _ = old.at(l.jobs[order[0]].Name)
		}
		if len(cuts) > 0 && (len(order) == 0 || cuts[0] <= at) {
			upTo(cuts[0])
			from, cuts = from+1, cuts[1:]
			continue
		}
		upTo(at)
		p.Jobs, p.canon, order = append(p.Jobs, l.jobs[order[0]]), append(p.canon, s.made[order[0]]), order[1:]
	}
	upTo(len(old.Jobs))
	for _, f := range s.removed {
		delete(c.files, f)
	}
	for i, f := range s.files {
		names := make([]string, 0, 1)
		for _, e := range l.entries {
			if e.file == i {
				names = append(names, e.name)
			}
		}
		c.files[f.path] = keptFile{f.hash, names}
	}
	c.rests = s.ids
	return p
}
