package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/repo"
)

// job is one entry of a plan file, as people write it.
type job struct {
	name     string
	version  int // of the program: another one is other work
	steps    int64
	every    int64 // steps between milestones
	k        float64
	needs    string // "": nothing
	on       []string
	onDelete string
	suspend  bool
	retries  int
	wall     time.Duration
	paid     float64 // USD
	then     string  // what a line of its output does; "": no policy
	team     bool    // it has the label that headway.yaml bounds
	card     bool
}

// commit is one commit: its files, and what they are read as.
type commit struct {
	hash     string
	parents  []*commit
	message  string
	jobs     []job // what the files say, when they say it without an error
	files    map[string]string
	plan     func() *plan.Plan
	unusable bool // headway.yaml has an error
}

// git is the remote repository. World.mu guards it: dispatchers read it at any time.
type git struct {
	w       *World
	rng     *rand.Rand
	commits map[string]*commit
	head    *commit
	before  *commit   // where the branch was before its last move
	tips    []*commit // all that were ever its head
	past    [][]job   // job lists of earlier commits
	n       int
}

func newGit(w *World) *git {
	g := &git{w: w, rng: rand.New(rand.NewPCG(w.cfg.Seed, 3)), commits: map[string]*commit{}}
	g.push(nil, w.s.jobs, "")
	return g
}

// push makes a commit and moves the branch to it.
func (g *git) push(parents []*commit, jobs []job, breakage string) *commit {
	g.n++
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if !slices.ContainsFunc(jobs, func(j job) bool { return j.name == jobs[i].needs }) {
			jobs[i].needs = ""
		}
	}
	c := &commit{hash: fmt.Sprintf("%040x", g.n), parents: parents, message: fmt.Sprintf("commit %d", g.n), jobs: jobs}
	c.files = g.files(jobs)
	switch breakage {
	case "broken":
		c.files["plans/0.yaml"] += "    steps: [\n"
	case "config":
		c.files["headway.yaml"] += "  nonsense: yes\n"
		c.unusable = true
	case "no file":
		delete(c.files, "plans/0.yaml")
		delete(c.files, "plans/1.yaml")
	case "allowed":
		c.message += fmt.Sprintf("\n\nAllow-Stops: %d\nAllow-Empty: yes\n", g.rng.IntN(5))
	}
	c.plan = sync.OnceValue(func() *plan.Plan {
		p, _ := plan.Load(plan.NewMemTree(c.files))
		if len(p.Errors()) == 1 { // an empty plan is left to the guards, as the command does
			p.Problems = slices.DeleteFunc(p.Problems, func(q plan.Problem) bool { return q.Code == "EmptyPlan" })
		}
		if !p.OK() && (breakage == "" || breakage == "allowed") {
			panic(fmt.Sprintf("%v\n%v", p.Problems, c.files)) // a plan of ours has no error but those that are put in
		}
		return p
	})
	g.commits[c.hash] = c
	g.move(c)
	return c
}

func (g *git) move(to *commit) {
	g.before, g.head = g.head, to
	g.tips = append(g.tips, to)
	if g.before == nil {
		g.before = to
	}
	for i := range to.plan().Jobs {
		j := &to.plan().Jobs[i]
		g.w.know(j)
	}
}

// files writes the plan.
func (g *git) files(jobs []job) map[string]string {
	var b strings.Builder
	b.WriteString("headway: v1\nplans: [plans/*.yaml]\nplatforms:\n")
	for _, p := range g.w.s.places {
		fmt.Fprintf(&b, "  %s: {runner: sim, slots: %d, capture: %s%s}\n", p.name, p.slots, p.capture, p.more())
	}
	b.WriteString("guard:\n  prune: 100%\n")
	if n := g.w.s.team; n > 0 {
		fmt.Fprintf(&b, "limits:\n  parallel: {team=a: %d}\n", n)
	}
	out := map[string]string{"headway.yaml": b.String()}
	for i := range 2 {
		var b strings.Builder
		b.WriteString("jobs:\n")
		some := false
		for k, j := range jobs {
			if k%2 == i {
				some = true
				b.WriteString(j.yaml() + j.more(g.w.s.perStep()))
			}
		}
		if len(jobs) == 0 {
			out["plans/0.yaml"] = "jobs: {}\n"
		}
		if some {
			out[fmt.Sprintf("plans/%d.yaml", i)] = b.String()
		}
	}
	return out
}

func (j *job) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    run: train %s\n    params: {version: %d}\n    on: [%s]\n    on_delete: %s\n", j.name, j.name, j.version, strings.Join(j.on, ", "), j.onDelete)
	fmt.Fprintf(&b, "    milestones: {every: %d steps}\n    lease: {k: %g}\n", j.every, j.k)
	if j.needs != "" {
		fmt.Fprintf(&b, "    needs: [%s]\n", j.needs)
	}
	if j.suspend {
		b.WriteString("    suspend: true\n")
	}
	return b.String()
}

// change is somebody's commit, of any sort. The scheduler calls it.
func (g *git) change() {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	jobs := slices.Clone(g.head.jobs)
	g.past = append(g.past, slices.Clone(jobs))
	parents, breakage, what := []*commit{g.head}, "", ""
	pick := func() int { return g.rng.IntN(len(jobs)) }
	kind := g.rng.IntN(14)
	if len(jobs) == 0 {
		kind = 4
	}
	switch kind {
	case 0, 1:
		what = "another program"
		jobs[pick()].version++
	case 2, 3:
		what = "a job less"
		i := pick()
		jobs = slices.DeleteFunc(jobs, func(j job) bool { return j.name == jobs[i].name || j.needs == jobs[i].name })
	case 4:
		what = "as it was before"
		jobs = slices.Clone(g.past[g.rng.IntN(len(g.past))])
		breakage = "allowed"
	case 5:
		what = "another placement"
		i := pick()
		jobs[i].every, jobs[i].k = pickOf[int64](g.rng, 1, 3, 7), g.w.s.k*2
	case 6:
		what = "a job is suspended, or not any more"
		i := pick()
		jobs[i].suspend = !jobs[i].suspend
	case 7:
		what, breakage = "a plan file is broken", "broken"
	case 8:
		what, breakage = "headway.yaml is broken", "config"
	case 9:
		what, jobs = "no jobs at all", nil
		breakage = pickOf(g.rng, "", "allowed", "no file")
	case 10:
		what = "history is rewritten"
		if len(g.head.parents) > 0 {
			parents = g.head.parents
		}
		jobs[pick()].version += 10
	case 11:
		what = "the branch goes back"
		if len(g.head.parents) > 0 {
			g.moved(what)
			g.move(g.head.parents[0])
			return
		}
	case 12:
		what = "a job more"
		if len(jobs) < 5 {
			j := g.w.s.jobs[g.rng.IntN(len(g.w.s.jobs))]
			j.name, j.version, j.needs = fmt.Sprintf("n%d", g.n), g.n, ""
			jobs = append(jobs, j)
		}
	case 13:
		what = "another on_delete"
		jobs[pick()].onDelete = pickOf(g.rng, "drain", "revoke", "orphan")
	}
	g.moved(what)
	g.push(parents, jobs, breakage)
}

func (g *git) moved(what string) {
	g.w.stats.Faults[Fault("commit: "+what)]++
	g.w.note(nil, "commit: %s", what)
}

// settle is the last commit: it descends from all that ever was, has no error, and suspends nothing.
func (g *git) settle() {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	jobs := slices.Clone(g.head.jobs)
	if len(jobs) == 0 {
		jobs = slices.Clone(g.w.s.jobs)
	}
	for i := range jobs {
		jobs[i].suspend = false
		jobs[i].lift()
	}
	g.w.note(nil, "commit: the last one")
	g.push(slices.Clone(g.tips), jobs, "")
}

// usable finds what a clone at hand says of a commit.
func (g *git) find(hash string) *commit {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.commits[hash]
}

// relate says how a commit stands to another, as repo.Repo does.
func (g *git) relate(base, at string) repo.Relation {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	switch {
	case base == at:
		return repo.Same
	case g.reaches(at, base):
		return repo.Ahead
	case g.reaches(base, at):
		return repo.Behind
	}
	return repo.Diverged
}

func (g *git) reaches(from, to string) bool {
	seen := map[*commit]bool{}
	queue := []*commit{g.commits[from]}
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		if c == nil || seen[c] {
			continue
		}
		if c.hash == to {
			return true
		}
		seen[c] = true
		queue = append(queue, c.parents...)
	}
	return false
}
