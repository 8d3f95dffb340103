package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/plan/flops"
)

// entry is one job as a file writes it: its own fields first, those of `like` and of the defaults after resolve.
type entry struct {
	name   string
	namePo Pos
	file   int    // index of the file
	pos    []spot // per leaf: where it was written; line 0 where it was not
	from   *loader
	job    Job

	like  string
	needs []need
	axes  []axis
	work  *workSpec // shared by all that are like one another and say nothing of their own

	bad     map[string]bool // leaves whose value was refused: nothing more is said about them
	members map[string]bool // names that the matrix makes, once somebody asked

	frozen   string // why it must not be acted on; "" while all is well
	resolved progress
	quiet    bool       // nothing was said about it while it was finished
	made     *canonical // of its one job, which stands alone and may be taken again (Cache); pos is nil where it was
}

// workSpec is a `work` mapping, and what it comes to.
type workSpec struct {
	values   map[string]flops.Value
	pos      map[string]Pos
	flops    flops.Work
	err      error
	computed bool
}

// spot is a small Pos: a plan has a million of them. file is an index into the loader's files, -1 for headway.yaml.
type spot struct{ file, line, col int32 }

// progress of a depth-first walk.
type progress uint8

const (
	untouched progress = iota
	underWay
	done
)

// at is where a leaf was written, or the entry's name where it was not.
func (e *entry) at(leaf string) Pos {
	if !e.has(leaf) {
		return e.namePo
	}
	p := e.pos[leafIndex[leaf]]
	file := ConfigFile
	if p.file >= 0 {
		file = e.from.files[p.file].path
	}
	return Pos{File: file, Line: int(p.line), Col: int(p.col)}
}

func (e *entry) has(leaf string) bool { return e.pos != nil && e.pos[leafIndex[leaf]].line > 0 }

func (e *entry) freeze(why string) {
	if e.frozen == "" {
		e.frozen = redact(why)
	}
}

// newEntry reads one job.
func (d *decoder) newEntry(l *loader, k, v *node) *entry {
	e := &entry{name: k.Value, namePo: at(d.file, k), file: d.index, pos: make([]spot, len(leaves)), from: l}
	f := &Field{Name: "job " + clip(k.Value)}
	if !isName(k.Value, "._-") {
		d.badName(k, "this job", k.Value)
	}
	d.fields(v, f, "", topKeys, e)
	return e
}

// fields reads the keys of a job, or of the composite that prefix names.
func (d *decoder) fields(n *node, f *Field, prefix string, known []string, e *entry) {
	d.pairs(n, f, func(k, v *node) {
		name := prefix + k.Value
		if !slices.Contains(known, k.Value) {
			d.unknown(k, strings.TrimSuffix(prefix, "."), known)
			return
		}
		if i, ok := leafIndex[name]; ok {
			d.leaf(i, v, e)
			return
		}
		if name == "gpu" && v.Kind == sequenceNode { // gpu: [A100] is short for gpu: {any: [A100]}
			d.leaf(leafIndex["gpu.any"], v, e)
			return
		}
		d.fields(v, &Field{Name: name}, name+".", objectKeys[k.Value], e)
	})
}

func (d *decoder) leaf(i int, v *node, e *entry) {
	e.pos[i] = spot{int32(d.index), int32(v.Line), int32(v.Column)}
	before := d.ps.errors
	leaves[i].set(d, v, &leaves[i].Field, e)
	if d.ps.errors > before || isNull(v) {
		if e.bad == nil {
			e.bad = make(map[string]bool)
		}
		e.bad[leaves[i].Name] = true
	}
}

// inherit copies what src has and e does not say itself.
func (e *entry) inherit(src *entry) {
	for i := range leaves {
		if src.pos[i].line == 0 || leaves[i].copy == nil {
			continue
		}
		if e.pos[i].line > 0 && !leaves[i].merges() {
			continue
		}
		leaves[i].copy(e, src)
		if e.pos[i].line == 0 {
			e.pos[i] = src.pos[i]
		}
	}
}

// maxCopied bounds the entries of maps that `like` may copy in one plan.
const maxCopied = 1_000_000

// resolveLike applies `like` to every entry, parents first. Cycles and unknown parents are reported.
func (l *loader) resolveLike() {
	for _, e := range l.entries {
		l.resolve(e)
	}
}

// resolve walks up a chain of `like` and comes down again. It keeps its own stack: a chain may be as long as the
// plan has jobs.
func (l *loader) resolve(e *entry) {
	var chain []*entry
	for e.resolved == untouched {
		e.resolved = underWay
		chain = append(chain, e)
		if e.like == "" {
			break
		}
		parent := l.byName[e.like]
		if parent == nil {
			l.ps.refuse(e.at("like"), "UnknownJob", "like names "+show(e.like)+", which no file has", "the name of a job",
				l.near(e.like, func() []string { return l.names }))
			e.freeze("its `like` names no job")
			break
		}
		if parent.resolved == underWay {
			l.likeCycle(chain, parent)
			break
		}
		e = parent
	}
	for _, e := range slices.Backward(chain) {
		if parent := l.byName[e.like]; parent != nil && e.frozen == "" {
			if l.unusable(parent) {
				e.freeze("it is like " + parent.name + ", which has an error")
			}
			if l.copied > l.most.copied {
				l.fail(e, e.at("like"), "PlanTooLarge", "jobs that are like others have too many settings in all", "a smaller plan", "put large settings into files of the code folders")
				e.resolved = done
				continue
			}
			l.thaw(parent)
			e.inherit(parent)
		}
		e.resolved = done
		l.likeOrder = append(l.likeOrder, e)
	}
}

func (l *loader) likeCycle(chain []*entry, first *entry) {
	i := slices.Index(chain, first)
	var names []string
	for _, e := range chain[i:] {
		names = append(names, e.name)
		e.freeze("its `like` goes round in a circle")
	}
	names = append(names, first.name)
	last := chain[len(chain)-1]
	l.ps.refuse(last.at("like"), "Cycle", "like goes round in a circle: "+joinCycle(names), "a job that copies nobody", "")
}

// joinCycle prints a cycle whole, or its two ends when it is very long.
func joinCycle(names []string) string {
	if len(names) > 40 {
		names = slices.Concat(names[:20], []string{fmt.Sprintf("(%d more)", len(names)-40)}, names[len(names)-20:])
	}
	return strings.Join(names, " → ")
}

// expandMatrix turns one resolved entry into its jobs.
func (l *loader) expandMatrix(e *entry) []Job {
	e.job.Name, e.job.Group, e.job.Pos = e.name, e.name, e.namePo
	if len(e.axes) == 0 && len(l.jobs) < l.most.jobs {
		return []Job{e.job}
	}
	total := 1
	for _, a := range e.axes {
		if total *= len(a.values); total > MaxMatrix {
			l.ps.refuse(e.at("matrix"), "MatrixTooLarge", fmt.Sprintf("matrix of %s makes more than %d jobs", show(e.name), MaxMatrix),
				fmt.Sprintf("at most %d combinations", MaxMatrix), "split it into several entries")
			return nil
		}
	}
	if len(l.jobs)+total > l.most.jobs {
		l.ps.refuse(e.namePo, "TooManyJobs", fmt.Sprintf("with this entry the plan has more than %d jobs", l.most.jobs), "fewer jobs", "")
		return nil
	}
	if size := len(e.job.IdentityJSON()) * total; size > l.most.canonical/4 {
		l.ps.refuse(e.at("matrix"), "MatrixTooLarge", fmt.Sprintf("matrix of %s makes %d MiB of settings", show(e.name), size>>20), fmt.Sprintf("at most %d MiB", l.most.canonical>>22), "put large settings into a file of the code folder")
		return nil
	}
	out := make([]Job, 0, total)
	seen := make(map[string]bool, total)
	for i := range total {
		j := e.job
		name, rest := e.name, i
		for k := len(e.axes) - 1; k >= 0; k-- { // the last axis turns fastest
			a := e.axes[k]
			a.set(&j, a.values[rest%len(a.values)])
			rest /= len(a.values)
		}
		rest, stride := i, total
		for _, a := range e.axes {
			stride /= len(a.values)
			name += "-" + a.label() + "=" + safeName(a.values[rest/stride])
			rest %= stride
		}
		j.Name = name
		if len(name) > MaxNameLength || seen[name] {
			what := "two combinations of the matrix get the same name " + show(name)
			if len(name) > MaxNameLength {
				what = fmt.Sprintf("the matrix makes the name %s of %d bytes", show(name), len(name))
			}
			l.ps.refuse(e.at("matrix"), "BadName", what, fmt.Sprintf("different names of at most %d bytes", MaxNameLength), "use short values: names of configurations, not the configurations themselves")
			return nil
		}
		seen[name] = true
		out = append(out, j)
	}
	return out
}

// label is how an axis shows in the names of its jobs.
func (a axis) label() string { return a.name[strings.IndexByte(a.name, '.')+1:] }

func (a axis) set(j *Job, v string) {
	setKey := func(m map[string]string, k string) map[string]string {
		m = maps.Clone(m)
		if m == nil {
			m = make(map[string]string, 1)
		}
		m[k] = v
		return m
	}
	switch kind, key, _ := strings.Cut(a.name, "."); kind {
	case "params":
		j.Params = setKey(j.Params, key)
	case "env":
		j.Env = setKey(j.Env, key)
	case "seed":
		j.Seed = wholeNumber(v)
	case "replica":
		j.Replica = wholeNumber(v)
	}
}

// wholeNumber reads back what the decoder formatted, and so cannot fail.
func wholeNumber(s string) int64 {
	v, _ := strconv.ParseInt(s, 10, 64)
	return v
}

// safeName keeps what a name may hold and writes anything else as an underscore.
func safeName(s string) string {
	ok := func(r rune) rune {
		if r < 0x80 && (isName(string(r), "") || strings.ContainsRune("._-+", r)) {
			return r
		}
		return '_'
	}
	return strings.Map(ok, s)
}

// memberNames are the names that the entry's matrix makes.
func (e *entry) memberNames() map[string]bool {
	names := []string{e.name}
	for _, a := range e.axes {
		var next []string
		for _, n := range names {
			for _, v := range a.values {
				next = append(next, n+"-"+a.label()+"="+safeName(v))
			}
		}
		if names = next; len(names) > MaxMatrix {
			break // refused where the matrix is expanded
		}
	}
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
