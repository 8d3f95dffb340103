package plan

import (
	"fmt"
	"slices"
	"strings"
)

// connect turns needs into inputs, in the order in which they can be digested, and refuses cycles. A job that needs a
// frozen one is frozen too: what it would compute is not known.
func (l *loader) connect() {
	l.index = make(map[string]int, len(l.jobs))
	l.groups = make(map[string][]int)
	for i := range l.jobs {
		j := &l.jobs[i]
		if k, twice := l.index[j.Name]; twice && l.owner[k].name != l.owner[i].name { // else it was reported before
			a, b := l.owner[k], l.owner[i]
			l.fail(b, b.namePo, "DuplicateJob", "the matrix makes job "+show(j.Name)+", which is also in "+a.namePo.String(), "each name once", "rename one of them")
			l.fail(a, a.namePo, "DuplicateJob", "job "+show(j.Name)+" is also made by the matrix in "+b.namePo.String(), "each name once", "rename one of them")
		}
		l.index[j.Name] = i
		if j.Group != j.Name {
			l.groups[j.Group] = append(l.groups[j.Group], i)
		}
	}
	l.identity = make([][]byte, len(l.jobs))
	l.groupWords = make(map[int][]string)
	g := &graph{l: l, state: make([]progress, len(l.jobs)), needs: make(map[*entry][]int)}
	for i := range l.jobs {
		g.visit(i)
	}
	l.spread(g.order)
}

// spread freezes what leans on something that has an error, now that every error is known: first what copies it, then
// what needs it.
func (l *loader) spread(order []int) {
	for _, e := range l.likeOrder {
		if parent := l.byName[e.like]; parent != nil && l.unusable(parent) {
			e.freeze("it is like " + parent.name + ", which has an error")
		}
	}
	for _, i := range order {
		for _, in := range l.jobs[i].Inputs {
			if l.unusable(l.owner[l.index[in.Job]]) {
				l.owner[i].freeze("it needs " + in.Job + ", which has an error")
			}
		}
	}
}

// graph is the depth-first walk over needs.
type graph struct {
	l     *loader
	state []progress
	needs map[*entry][]int // resolved needs: the same for all members of a matrix
	stack []frame
	order []int // jobs, each after everything it needs
}

type frame struct {
	job, next int
	needs     []int
}

// visit digests a job after everything it needs. It keeps its own stack, since a chain may be as long as the plan.
func (g *graph) visit(i int) {
	if g.state[i] != untouched {
		return
	}
	g.push(i)
	for len(g.stack) > 0 {
		top := &g.stack[len(g.stack)-1]
		if top.next == len(top.needs) {
			g.digest(top.job, top.needs)
			g.state[top.job] = done
			g.stack = g.stack[:len(g.stack)-1]
			continue
		}
		n := top.needs[top.next]
		top.next++
		switch g.state[n] {
		case untouched:
			g.push(n)
		case underWay:
			g.cycle(n)
		}
	}
}

func (g *graph) push(i int) {
	g.state[i] = underWay
	g.stack = append(g.stack, frame{job: i, needs: g.resolve(g.l.owner[i])})
}

// resolve finds the jobs that an entry's needs name: a job, or all members of a group.
func (g *graph) resolve(e *entry) []int {
	if got, ok := g.needs[e]; ok || len(e.needs) == 0 {
		return got
	}
	l := g.l
	var out []int
	for _, n := range e.needs {
		if members := l.groups[n.name]; members != nil {
			out = append(out, members...)
			continue
		}
		if i, ok := l.index[n.name]; ok {
			out = append(out, i)
			continue
		}
		base, made, _ := strings.Cut(n.name, "=")
		up := l.byName[n.name]
		if up == nil && made != "" {
			up = l.frozenBase(base)
		}
		if up != nil && l.unusable(up) {
			e.freeze("it needs " + n.name + ", which has an error")
			continue
		}
		l.fail(e, n.pos, "UnknownJob", "needs "+show(n.name)+", which no file has", "the name of a job or of a group", l.near(n.name, l.allNames))
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > MaxNeeds {
		l.fail(e, e.at("needs"), "TooManyNeeds", fmt.Sprintf("needs stand for %d jobs", len(out)), fmt.Sprintf("at most %d", MaxNeeds), "let one job gather what a group made")
		out = nil
	}
	g.needs[e] = out
	return out
}

// frozenBase finds the frozen entry whose matrix would have made a name that starts like this.
func (l *loader) frozenBase(start string) *entry {
	for cut := strings.LastIndexByte(start, '-'); cut > 0; cut = strings.LastIndexByte(start[:cut], '-') {
		if e := l.byName[start[:cut]]; e != nil && l.unusable(e) {
			return e
		}
	}
	return nil
}

// near is a hint for a mistyped job, as long as there are not so many mistakes that looking would take long.
func (l *loader) near(name string, known func() []string) string {
	if l.ps.errors > 200 {
		return ""
	}
	return didYouMean(name, known(), "")
}

func (l *loader) allNames() []string {
	out := slices.Clone(l.names)
	for i := range l.jobs {
		if l.jobs[i].Name != l.jobs[i].Group {
			out = append(out, l.jobs[i].Name)
		}
	}
	return out
}

// cycle reports the circle that closes at job first, whole.
func (g *graph) cycle(first int) {
	i := slices.IndexFunc(g.stack, func(f frame) bool { return f.job == first })
	var names []string
	for _, f := range g.stack[i:] {
		names = append(names, g.l.jobs[f.job].Name)
	}
	names = append(names, g.l.jobs[first].Name)
	text := "needs goes round in a circle: " + joinCycle(names)
	e := g.l.owner[g.stack[len(g.stack)-1].job]
	for _, f := range g.stack[i:] {
		g.l.owner[f.job].freeze("it is part of a circle of needs")
		g.l.broken[g.l.owner[f.job].file] = true
	}
	g.l.fail(e, e.at("needs"), "Cycle", text, "an order in which the jobs can run", "take one of these needs out")
}

// digest fills a job's inputs and its work digest. The order of inputs is that of their names.
func (g *graph) digest(i int, needs []int) {
	l := g.l
	j := &l.jobs[i]
	g.order = append(g.order, i)
	m := l.owner[i].made
	if m != nil && m.identity != nil {
		if l.identity[i] = m.identity; !l.room(l.owner[i], len(m.identity)) {
			l.owner[i].freeze("the plan is too large")
		}
		return
	}
	for _, n := range needs[:min(len(needs), max(0, l.most.inputs-l.inputs))] {
		j.Inputs = append(j.Inputs, Input{Job: l.jobs[n].Name, Work: l.jobs[n].Work})
	}
	if l.inputs += len(needs); l.inputs > l.most.inputs {
		l.fail(l.owner[i], l.owner[i].at("needs"), "TooManyNeeds", fmt.Sprintf("with this job the plan has more than %d needs", l.most.inputs), "fewer needs", "let one job gather what a group made")
		j.Inputs = nil
	}
	l.splitGroups(j)
	slices.SortFunc(j.Inputs, func(a, b Input) int { return strings.Compare(a.Job, b.Job) })
	id := l.encode(j, identityParts)
	if len(id) > MaxIdentity {
		l.fail(l.owner[i], j.Pos, "TooLong", fmt.Sprintf("job %q has %d KiB of identity", clip(j.Name), len(id)>>10), fmt.Sprintf("at most %d KiB", MaxIdentity>>10), "put large settings into a file of the code folder, and let one job gather what a large group made")
		return
	}
	if !l.room(l.owner[i], len(id)) {
		l.owner[i].freeze("the plan is too large")
		return
	}
	if l.identity[i], j.Work = id, digestOf(id); m != nil {
		m.identity = id
	}
}
