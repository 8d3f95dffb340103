package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Diff holds a plan against what was accepted last and what was observed. It is pure, and never nil. accepted may be
// nil (nothing yet); a work that observed does not list counts as absent.
//
// It says what each job means, not what a reconciler may do: with Errored set no stop may be carried out, and
// guard.prune is judged by the caller from Totals.Live and Totals.Leaving.
func Diff(desired *Plan, accepted *Accepted, observed map[Digest]Observed) *Changes {
	d := newDiffer(desired, accepted, observed)
	for i := range desired.Jobs {
		d.job(i)
	}
	for _, f := range desired.Frozen {
		d.frozen(f)
	}
	for i := range d.accepted.Jobs {
		d.left(&d.accepted.Jobs[i])
	}
	slices.SortFunc(d.out.Changes, func(a, b Change) int { return strings.Compare(a.Job, b.Job) }) // a job has one change
	d.count()
	d.out.Settle(desired)
	return d.out
}

type differ struct {
	plan     *Plan
	accepted *Accepted
	observed map[Digest]Observed
	out      *Changes

	old     map[string]*AcceptedJob   // by name
	oldWork map[Digest][]*AcceptedJob // by work
	newWork map[Digest][]int          // jobs of the plan
	moved   map[string]bool           // accepted names whose work goes on under another name
	groups  map[string][]*AcceptedJob // members of the accepted groups, once somebody asked
	words   []string                  // scratch space

	compared map[string][]FieldChange // what two values of a field come to
	pairs    []pair                   // scratch space, as is the next
	scratch  []byte
}

func newDiffer(p *Plan, a *Accepted, observed map[Digest]Observed) *differ {
	if a == nil {
		a = &Accepted{}
	}
	d := &differ{plan: p, accepted: a, observed: observed, moved: make(map[string]bool),
		out:     &Changes{FormatVersion: FormatVersion, Root: p.Config.Name, Base: a.Commit, Errored: !p.OK(), Problems: p.Problems},
		old:     make(map[string]*AcceptedJob, len(a.Jobs)),
		oldWork: make(map[Digest][]*AcceptedJob, len(a.Jobs)),
		newWork: make(map[Digest][]int, len(p.Jobs)), compared: make(map[string][]FieldChange)}
	d.out.Changes = make([]Change, 0, len(p.Jobs))
	for i := range a.Jobs {
		j := &a.Jobs[i]
		d.old[j.Name] = j
		d.oldWork[j.Work] = append(d.oldWork[j.Work], j)
	}
	for i := range p.Jobs {
		d.newWork[p.Jobs[i].Work] = append(d.newWork[p.Jobs[i].Work], i)
	}
	return d
}

// seen is what is known of a work, or nil when nothing is.
func (d *differ) seen(w Digest) *Observed {
	o, ok := d.observed[w]
	if !ok || o.State == StateAbsent || o.State == "" {
		return nil
	}
	o.Reason = redact(o.Reason)
	return &o
}

// job judges the i-th job of the plan.
func (d *differ) job(i int) {
	j := &d.plan.Jobs[i]
	c := Change{Job: j.Name, Group: j.Group, Pos: j.Pos, NewWork: j.Work, On: j.On, FLOPs: j.FLOPs.Total, Now: d.seen(j.Work)}
	for _, in := range j.Inputs {
		if d.observed[in.Work].State != StateFinished {
			c.After = append(c.After, in.Job)
		}
	}
	d.sharing(&c, j, i)
	switch old := d.old[j.Name]; {
	case old == nil:
		d.appeared(&c, i)
	case old.Work == j.Work:
		d.stayed(&c, old, i)
	default:
		d.replaced(&c, old, i)
	}
	d.out.Changes = append(d.out.Changes, c)
}

func (d *differ) sharing(c *Change, j *Job, i int) {
	for _, k := range d.newWork[j.Work] {
		if k != i {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the same work as %s: give one of them another seed or replica if it should be computed twice", d.plan.Jobs[k].Name))
			return
		}
	}
}

// appeared judges a job whose name was not accepted before.
func (d *differ) appeared(c *Change, i int) {
	j := &d.plan.Jobs[i]
	if from := d.previous(j.Work); from != nil {
		c.Op, c.Previous, c.OldWork = OpAdopt, from.Name, from.Work
		c.Reason = "moved from " + from.Name + ": the same work, nothing is disturbed"
		d.moved[from.Name] = true
		d.compare(c, from, i)
		return
	}
	if c.Now != nil && c.Now.State == StateFinished {
		c.Op, c.Reason = OpAdopt, fmt.Sprintf("already finished as attempt %d", c.Now.Attempt)
		return
	}
	if c.Now != nil && c.Now.begun() {
		c.Op, c.Reason = OpAdopt, "already under way"
		return
	}
	if j.Suspend {
		c.Op, c.Reason = OpWaiting, "suspended"
		return
	}
	c.Op, c.Reason = OpCreate, d.waits(c)
}

// previous finds an accepted job of the same work whose name the plan no longer has.
func (d *differ) previous(w Digest) *AcceptedJob {
	for _, a := range d.oldWork[w] {
		if _, kept := d.plan.Job(a.Name); !kept && !d.moved[a.Name] && !d.isFrozen(a.Name) {
			return a
		}
	}
	return nil
}

func (d *differ) isFrozen(name string) bool {
	_, ok := slices.BinarySearchFunc(d.plan.Frozen, name, func(f Frozen, n string) int { return strings.Compare(f.Name, n) })
	return ok
}

// held says that a frozen job was accepted with this work: it stays as it was, and so does the work.
func (d *differ) held(w Digest) bool {
	return slices.ContainsFunc(d.oldWork[w], func(a *AcceptedJob) bool { return d.isFrozen(a.Name) })
}

func (d *differ) waits(c *Change) string {
	if len(c.After) > 0 {
		return "after " + strings.Join(c.After, ", ")
	}
	return ""
}

// stayed judges a job that asks for the same work as before.
func (d *differ) stayed(c *Change, old *AcceptedJob, i int) {
	j := &d.plan.Jobs[i]
	c.OldWork = old.Work
	d.compare(c, old, i)
	running := c.Now != nil && (c.Now.State == StateClaimed || c.Now.State == StateHeld)
	over := c.Now != nil && (c.Now.State == StateFinished || c.Now.State == StateFailed || c.Now.State == StateUnknown)
	switch {
	case len(c.Fields) > 0:
		c.Op = OpUpdate
	case running || over:
		c.Op = OpUnchanged
		if over {
			c.Reason = c.Now.Reason
		}
	case j.Suspend:
		c.Op, c.Reason = OpWaiting, "suspended"
	case len(c.After) > 0:
		c.Op, c.Reason = OpWaiting, "waits for "+strings.Join(c.After, ", ")
	default:
		c.Op, c.Reason = OpWaiting, "waits for a place"
		if c.Now != nil && c.Now.Reason != "" {
			c.Reason = c.Now.Reason
		}
	}
}

// replaced judges a job whose name now stands for other work.
func (d *differ) replaced(c *Change, old *AcceptedJob, i int) {
	j := &d.plan.Jobs[i]
	c.OldWork = old.Work
	d.compare(c, old, i)
	for _, in := range j.Inputs {
		if before := d.old[in.Job]; before != nil && before.Work != in.Work {
			c.Cascade = append(c.Cascade, in.Job)
		}
	}
	c.Op = OpReplace
	switch {
	case c.Now != nil && c.Now.State == StateFinished:
		c.Op, c.Reason = OpAdopt, fmt.Sprintf("already finished as attempt %d: nothing is trained twice", c.Now.Attempt)
	case c.Now != nil && c.Now.begun():
		c.Op, c.Reason = OpAdopt, "already under way"
	case len(c.Cascade) > 0:
		c.Reason = "because " + strings.Join(c.Cascade, ", ") + " changes"
	default:
		c.Reason = d.waits(c)
	}
	d.leaves(c, old)
}

// leaves says what happens to the work that a name no longer stands for.
func (d *differ) leaves(c *Change, old *AcceptedJob) {
	if len(d.newWork[old.Work]) > 0 || d.held(old.Work) {
		return // another job still asks for it
	}
	o := d.seen(old.Work)
	if o == nil {
		return
	}
	c.Leaving = o
	if o.Live() {
		c.OnDelete = old.OnDelete
		if old.OnDelete != Orphan {
			c.Lost, c.LostPaid = o.LostGPUHours, o.LostPaid
		}
	}
}

// frozen reports a job that the files name but that must not be touched.
func (d *differ) frozen(f Frozen) {
	c := Change{Op: OpRefused, Job: f.Name, Pos: f.Pos, Reason: f.Reason}
	if old := d.old[f.Name]; old != nil {
		c.Group, c.OldWork, c.Now = old.Group, old.Work, d.seen(old.Work)
		c.Reason += "; it stays as it was"
	}
	d.out.Changes = append(d.out.Changes, c)
}

// left judges an accepted job whose name the plan no longer has.
func (d *differ) left(old *AcceptedJob) {
	if _, kept := d.plan.Job(old.Name); kept || d.moved[old.Name] || d.isFrozen(old.Name) {
		return
	}
	c := Change{Op: OpRemove, Job: old.Name, Group: old.Group, OldWork: old.Work}
	d.leaves(&c, old)
	switch {
	case d.out.Errored:
		c.Op, c.Now, c.Leaving, c.OnDelete, c.Lost, c.LostPaid = OpWaiting, d.seen(old.Work), nil, "", 0, ""
		c.Reason = "it is not in the plan as far as that could be read; stops wait until the plan has no errors"
	case len(d.newWork[old.Work]) > 0:
		c.Reason = "its work goes on for " + d.plan.Jobs[d.newWork[old.Work][0]].Name
	case c.Leaving == nil:
		c.Reason = "nothing of it runs"
	case !c.Leaving.Live():
		c.Reason = c.Leaving.State + ", its results stay"
	case old.OnDelete == Drain:
		c.Reason = "stops after its next milestone"
	case old.OnDelete == Orphan:
		c.Reason = "may finish unmanaged"
	default:
		c.Reason = "stops now"
	}
	d.out.Changes = append(d.out.Changes, c)
}

// stops says that live work ends with this change.
func (c *Change) stops() bool { return c.Leaving != nil && c.Leaving.Live() && c.OnDelete != Orphan }

// count fills the totals.
func (d *differ) count() {
	t := &d.out.Totals
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		t.Lost += c.Lost
		switch c.Op {
		case OpCreate:
			t.Start++
		case OpUpdate:
			t.Update++
		case OpReplace:
			t.Replace++
		case OpRemove:
			if c.stops() {
				t.Stop++
			} else {
				t.Remove++
			}
		case OpAdopt:
			t.Adopt++
			if c.stops() {
				t.Stop++
			}
			if c.Previous != "" {
				t.Moved++
			}
		case OpRefused:
			t.Refused++
		case OpWaiting:
			t.Waiting++
		case OpUnchanged:
			t.Unchanged++
		}
	}
	for w := range d.oldWork {
		if !d.observed[w].Live() {
			continue
		}
		t.Live++
		if len(d.newWork[w]) == 0 && !d.held(w) {
			t.Leaving++
		}
	}
}

// compare fills in the fields that differ between what was accepted and the i-th job of the plan.
func (d *differ) compare(c *Change, old *AcceptedJob, i int) {
	now := d.plan.canonical(i)
	same := old.Work == c.NewWork
	if same && bytes.Equal(old.Placement, now.placement) && bytes.Equal(old.Metadata, now.metadata) {
		return
	}
	if !same {
		c.Fields = d.fields(c.Fields, old.Identity, now.identity, Identity)
	}
	c.Fields = d.fields(c.Fields, old.Placement, now.placement, Placement)
	c.Fields = d.fields(c.Fields, old.Metadata, now.metadata, Metadata)
	d.nameInputs(c, &d.plan.Jobs[i])
	d.derive(c, old, i)
}

// fields lists the differences of two canonical objects. Only values whose bytes differ are decoded and compared.
func (d *differ) fields(out []FieldChange, old, now []byte, sort Sort) []FieldChange {
	if bytes.Equal(old, now) {
		return out
	}
	pairs, oldErr, nowErr := differences(d.pairs[:0], old, now)
	switch {
	case oldErr != nil:
		return append(out, FieldChange{Field: string(sort), Sort: sort, Old: "unreadable: " + oldErr.Error()})
	case nowErr != nil:
		return append(out, FieldChange{Field: string(sort), Sort: sort, New: "unreadable: " + nowErr.Error()})
	}
	d.pairs = pairs
	start := len(out)
	for _, p := range pairs {
		out = append(out, d.changes(p, sort)...)
	}
	slices.SortFunc(out[start:], func(a, b FieldChange) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// changes compares the two values of one field. One commit changes thousands of jobs alike, so each pair of values is
// compared once. The answer is shared: it is copied, never changed.
func (d *differ) changes(p pair, sort Sort) []FieldChange {
	k := append(append(d.scratch[:0], sort...), 0)
	k = append(binary.AppendUvarint(k, uint64(len(p.key))), p.key...)
	k = append(binary.AppendUvarint(k, uint64(len(p.old))), p.old...)
	k = append(k, p.now...)
	d.scratch = k
	if got, ok := d.compared[string(k)]; ok {
		return got
	}
	got, err := p.compare()
	if err != nil {
		got = []FieldChange{{Field: string(sort), New: err.Error()}}
	}
	for i := range got {
		got[i].Sort, got[i].Old, got[i].New = sort, redact(got[i].Old), redact(got[i].New)
	}
	d.compared[string(k)] = got
	return got
}

// compare compares objects key by key, and everything else by its canonical text.
func (p pair) compare() ([]FieldChange, error) {
	if len(p.old) > 0 && p.old[0] == '{' || len(p.now) > 0 && p.now[0] == '{' {
		return compareValues(flatten(p.key, p.old), flatten(p.key, p.now))
	}
	if p.old == nil || p.now == nil {
		return []FieldChange{{Field: p.key, Old: string(p.old), New: string(p.now)}}, nil
	}
	list, err := compareValues(string(p.old), string(p.now))
	for i := range list {
		list[i].Field = p.key
	}
	return list, err
}

// compareValues runs go-cmp over two decoded values. A panic of it, which is a bug of that package or of ours, comes
// back as an error: it must not stop a reconciler.
func compareValues(x, y any) (out []FieldChange, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("the fields could not be compared: %v", r)
		}
	}()
	r := &fieldReporter{}
	cmp.Equal(x, y, cmp.Reporter(r))
	slices.SortFunc(r.out, func(a, b FieldChange) int { return strings.Compare(a.Field, b.Field) })
	return r.out, nil
}

// fieldReporter turns go-cmp's walk into field changes.
type fieldReporter struct {
	path cmp.Path
	out  []FieldChange
}

func (r *fieldReporter) PushStep(s cmp.PathStep) { r.path = append(r.path, s) }
func (r *fieldReporter) PopStep()                { r.path = r.path[:len(r.path)-1] }

func (r *fieldReporter) Report(res cmp.Result) {
	if res.Equal() {
		return
	}
	var name []string
	for _, s := range r.path {
		if m, ok := s.(cmp.MapIndex); ok {
			name = append(name, m.Key().String())
		}
	}
	c := FieldChange{Field: strings.Join(name, ".")}
	vx, vy := r.path.Last().Values()
	if vx.IsValid() {
		c.Old = canonicalText(vx.Interface())
	}
	if vy.IsValid() {
		c.New = canonicalText(vy.Interface())
	}
	r.out = append(r.out, c)
}

func canonicalText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	return string(b)
}
