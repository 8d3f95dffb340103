package plan

import "slices"

// Plan is what the files at one commit ask for: everything that could be read without doubt. Stops may be derived
// from it only when OK says so; starts and updates of the jobs it lists may go on in any case (git.md §4.3).
type Plan struct {
	Config   Config
	Jobs     []Job     // sorted by name: whole, checked, digested; none from a broken file, none that needs a frozen one
	Frozen   []Frozen  // sorted by name: named by the files but not to be acted on; they stay as last accepted
	Files    []string  // plan files that the globs matched, sorted
	Broken   []string  // those of Files with at least one error, sorted: none of their jobs is in Jobs
	Problems []Problem // all of them, sorted by position: what Load returned

	canon []canonical // canonical JSON per job, in the order of Jobs; nil for a plan made by hand
}

// Frozen is a job that the files name but that must not be acted on, and why.
type Frozen struct {
	Name   string
	Pos    Pos
	Reason string
}

// Job finds a job by name.
func (p *Plan) Job(name string) (*Job, bool) {
	i, ok := p.at(name)
	if !ok {
		return nil, false
	}
	return &p.Jobs[i], true
}

// at is where a job stands among Jobs, or would.
func (p *Plan) at(name string) (int, bool) {
	at, end := 0, len(p.Jobs)
	for at < end {
		mid := int(uint(at+end) >> 1)
		if p.Jobs[mid].Name < name {
			at = mid + 1
		} else {
			end = mid
		}
	}
	return at, at < len(p.Jobs) && p.Jobs[at].Name == name
}

// Group lists the members of a group (the jobs that one entry's matrix made), sorted by name.
func (p *Plan) Group(name string) []*Job {
	var out []*Job
	for i := range p.Jobs {
		if p.Jobs[i].Group == name {
			out = append(out, &p.Jobs[i])
		}
	}
	return out
}

// Errors lists the problems that refuse something; warnings are left out.
func (p *Plan) Errors() []Problem {
	var out []Problem
	for _, q := range p.Problems {
		if q.Severity == Error {
			out = append(out, q)
		}
	}
	return out
}

// OK says that the read was whole and free of errors: only then may a missing job mean "stop".
func (p *Plan) OK() bool {
	return !slices.ContainsFunc(p.Problems, func(q Problem) bool { return q.Severity == Error })
}
