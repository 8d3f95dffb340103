package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan/flops"
)

// Load reads headway.yaml and every plan file of a tree. All problems of all files come in one run, sorted by
// position. The plan is never nil and holds what could be read without doubt: a file with an error gives no jobs, and
// a job that copies or needs one of those is frozen with it.
func Load(t Tree) (*Plan, []Problem) { return load(t, defaultLimits) }

// limits bound the sums over a whole plan.
type limits struct{ jobs, inputs, copied, canonical int }

// defaultLimits are those of Load; tests of the bounds use smaller ones. (Table of values.)
var defaultLimits = limits{jobs: MaxJobs, inputs: MaxInputs, copied: maxCopied, canonical: MaxCanonical}

func load(t Tree, most limits) (*Plan, []Problem) { return loadWith(t, most, nil) }

// loadWith takes from what an earlier reading left what is still so, and leaves there what the next one may take; kept may
// be nil.
func loadWith(t Tree, most limits, kept *Cache) (*Plan, []Problem) {
	l := &loader{tree: t, most: most, ps: problems{most: maxAllProblems}, code: make(map[string]*codeFolder), gpus: make(map[string]gpuName), modes: make(map[string]modes), kept: kept}
	l.run()
	l.plan.Problems = sortProblems(l.ps.list)
	return l.plan, l.plan.Problems
}

// loader is one run of Load.
type loader struct {
	tree    Tree
	most    limits
	ps      problems
	plan    *Plan
	config  Config
	planPos []Pos // of config.Plans
	unsure  bool  // headway.yaml has an error: where and how to run is in doubt, so every job is frozen

	defaults *entry
	files    []planFile
	broken   []bool // per file
	entries  []*entry
	byName   map[string]*entry
	names    []string // sorted
	// likeOrder has every entry after the one that it is like.
	likeOrder []*entry
	code      map[string]*codeFolder
	gpus      map[string]gpuName
	modes     map[string]modes // by card

	scratch   []byte
	copied    int                          // map entries copied by `like`
	canonical int                          // bytes of canonical JSON so far
	encoded   map[string][]byte            // placement and metadata, by their text
	maps      map[string]map[string]string // labels and parameters, likewise

	jobs   []Job
	owner  []*entry // per job
	index  map[string]int
	groups map[string][]int // members by entry name

	identity [][]byte // canonical identity per job
	inputs   int      // needs so far, groups expanded
	// groupWords has the words that a group stands for in a command, by its first member.
	groupWords map[int][]string
	kept       *Cache // nil: nothing is kept
}

// gpuName is what a card's name means.
type gpuName struct {
	match flops.Match
	err   error
}

// modes is what the cards of one name can compute in, all together.
type modes struct{ list []string }

func (l *loader) run() {
	l.plan = &Plan{}
	if !l.readConfig() {
		return
	}
	l.plan.Config = l.config
	l.find()
	l.broken = make([]bool, len(l.files))
	l.readFiles()
	l.bind()
	l.resolveLike()
	l.jobs, l.owner = make([]Job, 0, l.estimate()), make([]*entry, 0, l.estimate())
	for _, e := range l.entries {
		l.finish(e)
	}
	l.connect()
	l.collect()
	l.keep()
}

// readConfig reads headway.yaml. Without a usable one there is nothing to look for.
func (l *loader) readConfig() bool {
	data, ok := l.read(ConfigFile, MaxConfig)
	if !ok {
		return false
	}
	root, ps := parse(ConfigFile, data)
	l.merge(ps)
	if root == nil {
		return false
	}
	l.kept.under(data)
	mine := &problems{}
	d := &decoder{file: ConfigFile, index: -1, ps: mine}
	l.defaults = &entry{pos: make([]spot, len(leaves)), from: l}
	l.config, l.planPos = d.config(root, l.defaults)
	l.merge(*mine)
	l.unsure = l.ps.bad()
	return len(l.config.Plans) > 0
}

func (l *loader) merge(ps problems) {
	l.ps.list = append(l.ps.list, ps.list...)
	l.ps.errors += ps.errors
}

// read gives a file's bytes, or reports why there are none. What the entry is was checked by the finder, except for
// headway.yaml.
func (l *loader) read(name string, most int64) ([]byte, bool) {
	pos := Pos{File: name}
	if name == ConfigFile {
		es, err := l.tree.Entries("")
		if err != nil {
			l.ps.refuse(pos, "Unreadable", "the root could not be read: "+err.Error(), "", "look again")
			return nil, false
		}
		i := slices.IndexFunc(es, func(e Entry) bool { return e.Name == ConfigFile })
		if i < 0 {
			l.ps.refuse(pos, "NoConfig", "there is no "+ConfigFile+" at the root", "one", "run headway init")
			return nil, false
		}
		if es[i].Kind != KindFile {
			l.ps.refuse(pos, "NotAFile", ConfigFile+" is not a regular file", "a file", "")
			return nil, false
		}
	}
	data, err := l.tree.Read(name, most)
	switch {
	case errors.Is(err, ErrTooLarge):
		l.ps.refuse(pos, "TooLarge", fmt.Sprintf("the file has more than %d KiB", most>>10), "a smaller file", "split it")
	case errors.Is(err, fs.ErrNotExist):
		l.ps.refuse(pos, "Unreadable", "the file is listed but cannot be found", "", "an object of the repository is missing: fetch it again")
	case err != nil:
		l.ps.refuse(pos, "Unreadable", "the file could not be read: "+err.Error(), "", "look again")
	default:
		return data, true
	}
	return nil, false
}

// parsing is one file on its way through the parser.
type parsing struct {
	index int
	root  *node
	ps    problems
	done  chan struct{}
}

// maxParsers bounds how many files are parsed at a time, and so the memory for their nodes.
const maxParsers = 4

// readFiles reads all plan files. Parsing is most of the work, and each file is parsed for itself, so that goes on on
// all processors; the tree is read, and the entries are made, here and in the files' order.
func (l *loader) readFiles() {
	width := min(runtime.GOMAXPROCS(0), maxParsers)
	var flight []*parsing // oldest first
	for i, f := range l.files {
		l.plan.Files = append(l.plan.Files, f.path)
		if l.again(i) {
			continue
		}
		before := l.ps.errors
		data, ok := l.readFile(f)
		l.broken[i] = l.ps.errors > before
		if !ok {
			continue
		}
		p := &parsing{index: i, done: make(chan struct{})}
		go func() {
			defer close(p.done)
			p.root, p.ps = parse(f.path, data)
		}()
		if flight = append(flight, p); len(flight) > width {
			l.parsed(flight[0])
			flight = flight[1:]
		}
	}
	for _, p := range flight {
		l.parsed(p)
	}
	if l.kept != nil { // what was taken again was there before what was still being parsed
		slices.SortStableFunc(l.entries, func(a, b *entry) int { return a.file - b.file })
	}
}

// readFile reads one plan file's bytes.
func (l *loader) readFile(f planFile) ([]byte, bool) {
	if f.size > MaxFileBytes {
		l.ps.refuse(Pos{File: f.path}, "TooLarge", fmt.Sprintf("the file has %d KiB", f.size>>10), fmt.Sprintf("at most %d KiB", MaxFileBytes>>10), "split it")
		return nil, false
	}
	return l.read(f.path, MaxFileBytes)
}

// parsed waits for a file's nodes and makes its entries.
func (l *loader) parsed(p *parsing) {
	<-p.done
	ps := &p.ps
	defer func() {
		l.broken[p.index], l.files[p.index].loud = ps.bad(), len(ps.list) > 0
		l.merge(*ps)
		p.root = nil
	}()
	if p.root == nil {
		return
	}
	d := &decoder{file: l.files[p.index].path, index: p.index, ps: ps}
	top := &Field{Name: "the file"}
	seen := false
	d.pairs(p.root, top, func(k, v *node) {
		if k.Value != "jobs" {
			d.unknown(k, "a plan file", []string{"jobs"})
			return
		}
		seen = true
		d.pairs(v, &Field{Name: "jobs"}, func(k, v *node) {
			if looksSecret(k.Value) == "" { // else it was reported, and its name must not be
				e := d.newEntry(l, k, v)
				l.once(&e.job.Labels)
				l.once(&e.job.Params)
				l.entries = append(l.entries, e)
			}
		})
	})
	if !seen && !ps.bad() {
		d.refuse(p.root, "NoJobs", "the file has no jobs", "jobs: and below it one entry per job", "")
	}
}

// bind finds entries by name. A name in two files freezes both.
func (l *loader) bind() {
	l.byName = make(map[string]*entry, len(l.entries))
	all := make(map[string][]*entry)
	for _, e := range l.entries {
		if first := l.byName[e.name]; first == nil {
			l.byName[e.name] = e
			l.names = append(l.names, e.name)
		} else if first.file != e.file { // in one file it is a duplicate key, and reported
			if all[e.name] == nil {
				all[e.name] = []*entry{first}
			}
			all[e.name] = append(all[e.name], e)
		}
	}
	slices.Sort(l.names)
	for name, same := range all {
		for _, e := range same {
			var where []string
			for _, o := range same {
				if o != e {
					where = append(where, o.namePo.String())
				}
			}
			l.fail(e, e.namePo, "DuplicateJob", "job "+show(name)+" is also in "+strings.Join(where, ", "), "each name once", "rename or delete one; until then none of them is touched")
		}
	}
}

// fail reports an error that belongs to an entry, and breaks the file that holds the position.
func (l *loader) fail(e *entry, pos Pos, code, text, expected, hint string) {
	l.ps.refuse(pos, code, text, expected, hint)
	l.broken[e.file] = true
	e.freeze(text)
}

// unusable says that an entry or its file has an error.
func (l *loader) unusable(e *entry) bool { return e.frozen != "" || l.broken[e.file] }

// estimate is how many jobs the entries will make, so that they are laid out once.
func (l *loader) estimate() int {
	n := 0
	for _, e := range l.entries {
		m := 1
		for _, a := range e.axes {
			if m *= len(a.values); m > MaxMatrix {
				m = 0 // it will be refused
			}
		}
		n += m
	}
	return min(n, l.most.jobs)
}

// finish completes a resolved entry: defaults, checks, matrix.
func (l *loader) finish(e *entry) {
	if e.frozen != "" && e.like != "" && l.byName[e.like] == nil {
		l.broken[e.file] = true
	}
	if l.asBefore(e) {
		l.jobs, l.owner = append(l.jobs, e.job), append(l.owner, e)
		return
	}
	said := len(l.ps.list)
	if l.defaults != nil {
		e.inherit(l.defaults)
	}
	e.fill()
	l.check(e)
	if e.frozen != "" {
		return
	}
	before := l.ps.errors
	jobs := l.expandMatrix(e)
	for i := range jobs {
		l.argv(e, &jobs[i])
	}
	if l.ps.errors > before {
		l.broken[e.file] = true
		e.freeze("it has an error")
		return
	}
	if e.quiet = len(l.ps.list) == said; e.alone() {
		e.pos = nil // nothing more is said about it, and a plan has a million of them
	}
	for i := range jobs {
		l.jobs, l.owner = append(l.jobs, jobs[i]), append(l.owner, e)
	}
}

// fill puts in the defaults that no file says.
func (e *entry) fill() {
	j := &e.job
	j.Generation = 1
	if j.Kind == "" {
		j.Kind = "train"
	}
	if !e.has("limits.retries") {
		j.Limits.Retries = 5
	}
	if j.Trust == "" {
		j.Trust = "any"
	}
	if j.OnDelete == "" {
		j.OnDelete = Drain
	}
	if len(j.GPU.Any) > 0 && j.GPU.Count == 0 {
		j.GPU.Count = 1
	}
}

// collect sorts what is sound into the plan and names what is frozen.
func (l *loader) collect() {
	frozen := make(map[string]Frozen)
	for _, e := range l.entries {
		if l.broken[e.file] {
			e.freeze("its file has an error")
		}
		if l.unsure {
			e.freeze(ConfigFile + " has an error")
		}
		if e.frozen == "" {
			continue
		}
		frozen[e.name] = Frozen{Name: e.name, Pos: e.namePo, Reason: e.frozen}
	}
	order := make([]int, 0, len(l.jobs))
	for i := range l.jobs {
		if e := l.owner[i]; e.frozen != "" {
			frozen[l.jobs[i].Name] = Frozen{Name: l.jobs[i].Name, Pos: e.namePo, Reason: e.frozen}
			continue
		}
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(l.jobs[a].Name, l.jobs[b].Name) })
	p := l.plan
	p.canon = make([]canonical, 0, len(order))
	for _, i := range order {
		c := l.forms(i)
		if !l.room(l.owner[i], len(c.placement)+len(c.metadata)) {
			order = order[:len(p.canon)]
			break
		}
		p.canon = append(p.canon, c)
	}
	p.Jobs = arranged(l.jobs, order)
	for _, f := range frozen {
		p.Frozen = append(p.Frozen, f)
	}
	slices.SortFunc(p.Frozen, func(a, b Frozen) int { return strings.Compare(a.Name, b.Name) })
	for i, f := range l.files {
		if l.broken[i] {
			p.Broken = append(p.Broken, f.path)
		}
	}
	l.shared()
	if len(p.Jobs)+len(p.Frozen) == 0 && len(l.files) > 0 && !l.ps.bad() {
		l.ps.refuse(Pos{File: ConfigFile}, "EmptyPlan", "the plan files hold no job", "at least one job", "an empty plan stops nothing; to end everything on purpose, say so in the commit")
	}
}

// arranged gives jobs in an order, each once at most. Nearly always it has all of them: then they change places where they
// lie, since two copies of a large plan are most of what its reading occupies.
func arranged(jobs []Job, order []int) []Job {
	if len(order) < len(jobs) {
		out := make([]Job, len(order))
		for k, i := range order {
			out[k] = jobs[i]
		}
		return out
	}
	for start := range order { // of each circle of places, every one is filled from the next
		if order[start] < 0 {
			continue // in a circle that was seen
		}
		at, first := start, jobs[start]
		for order[at] != start {
			next := order[at]
			jobs[at], order[at], at = jobs[next], -1, next
		}
		jobs[at], order[at] = first, -1
	}
	return slices.Clip(jobs)
}

// encode gives canonical JSON of exactly its own length. Most jobs of a large plan share theirs, which is kept once.
func (l *loader) encode(j *Job, parts []part) []byte {
	l.scratch = j.appendObject(l.scratch[:0], parts)
	b, ok := l.encoded[string(l.scratch)]
	if !ok {
		if l.encoded == nil {
			l.encoded = map[string][]byte{}
		}
		b = bytes.Clone(l.scratch)
		l.encoded[string(b)] = b
	}
	return b
}

// once has a map that many jobs say alike in memory one time: nobody writes into a map that was read.
func (l *loader) once(m *map[string]string) {
	if len(*m) == 0 {
		return
	}
	l.scratch = putMap(l.scratch[:0], *m)
	known, ok := l.maps[string(l.scratch)]
	if ok && maps.Equal(known, *m) {
		*m = known
	} else if !ok {
		if l.maps == nil {
			l.maps = map[string]map[string]string{}
		}
		l.maps[string(l.scratch)] = *m
	}
}

// room counts canonical bytes and says whether the plan still has room for them.
func (l *loader) room(e *entry, n int) bool {
	before := l.canonical
	if l.canonical += n; before <= l.most.canonical && l.canonical > l.most.canonical {
		l.fail(e, e.namePo, "PlanTooLarge", fmt.Sprintf("the plan's jobs have more than %d MiB of settings in all", l.most.canonical>>20), "a smaller plan", "put large settings into files of the code folders")
	}
	return l.canonical <= l.most.canonical
}

// shared warns about jobs that ask for the same work.
func (l *loader) shared() {
	first := make(map[Digest]int, len(l.plan.Jobs))
	for i := range l.plan.Jobs {
		j := &l.plan.Jobs[i]
		f, ok := first[j.Work]
		if !ok {
			first[j.Work] = i
			continue
		}
		l.ps.warn(j.Pos, "SharedWork", fmt.Sprintf("job %q asks for the same work as %q (%s): it is computed once and both have it", j.Name, l.plan.Jobs[f].Name, j.Work.Short()),
			"give one of them another seed or replica if it should be computed twice")
	}
}
