package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// run is one pass over a store.
type run struct {
	s     asked
	b     bucket.Bucket // nil: only look
	o     Options
	pins  *pins
	rep   Report
	asked atomic.Int64  // requests
	done  int           // objects deleted
	spent time.Duration // on deleting

	unsure int        // works that the store did not answer for
	barren int        // batches of deletes on end of which none went through
	first  Incomplete // what was due and stayed
	later  []string   // works whose trim record found no room
	late   bool       // these are looked at once more

	code  map[string]Object // bundles that nothing needs, so far
	lease time.Duration     // the longest seen
}

func newRun(s Store, b bucket.Bucket, o Options) *run {
	r := &run{o: o.filled(), b: b, code: map[string]Object{}}
	r.s = asked{s, &r.asked}
	lanes := make([]Store, len(o.Lanes))
	for i, s := range o.Lanes {
		lanes[i] = asked{s, &r.asked}
	}
	r.pins = newPins(r.s, lanes)
	r.rep.Applied, r.rep.Totals, r.rep.Items, r.rep.Left = b != nil, []Total{}, []Item{}, []Left{}
	return r
}

// asked counts the requests of a run.
type asked struct {
	Store
	n *atomic.Int64
}

func (a asked) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	a.n.Add(1)
	return a.Store.Get(ctx, key, r)
}

// Put is there for the types alone: a lease is only read here.
func (a asked) Put(_ context.Context, key string, _ bucket.Body, _ bucket.Cond) (bucket.Version, error) {
	return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unsupported}
}

func (a asked) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	a.n.Add(1)
	return a.Store.List(ctx, prefix, after, limit)
}

// all goes through the store: bundles are listed first, so that one that is uploaded meanwhile is not among them; then
// the works, each with its deletes; then the bundles that nothing needed.
func (r *run) all(ctx context.Context) (rep Report, err error) {
	defer func() {
		rep = r.rep
		rep.Requests = int(r.asked.Load())
	}()
	steps := []func(context.Context) error{r.pins.fresh, r.listCode, r.works, r.dropCode, r.again}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return rep, err
		}
	}
	if r.first.Failed > 0 {
		return rep, &r.first
	}
	return rep, nil
}

// full reports that a bound of this run is reached.
func (r *run) full() bool {
	if r.b != nil && (r.done >= r.o.Max || r.spent >= r.o.For) {
		r.rep.More = true
	}
	return r.rep.More
}

// works streams the listing, with the keys of a few works in memory, whose records are read side by side.
func (r *run) works(ctx context.Context) error {
	var batch []View
	for after := ""; ; {
		p, err := r.s.List(ctx, "work/", after, 0)
		if err != nil {
			return fmt.Errorf("list the works: %w", err)
		}
		for _, it := range p.Items {
			if after = it.Key; r.rep.More {
				return nil
			}
			work, _, inside := strings.Cut(strings.TrimPrefix(it.Key, "work/"), "/")
			if !inside {
				continue // no key of headway
			}
			n := len(batch)
			if n == 0 || batch[n-1].Work != work {
				if n == lanes {
					if err := r.batch(ctx, batch); err != nil {
						return err
					}
					batch = nil
				}
				batch = append(batch, View{Work: work, Pinned: r.pins.lane[work] && !r.o.off.pins})
			}
			v := &batch[len(batch)-1]
			v.Objects = append(v.Objects, r.listed(it, p.Date))
		}
		if !p.More || len(p.Items) == 0 {
			return r.batch(ctx, batch)
		}
	}
}

// batch reads the records of some works side by side, then sees to one after the other.
func (r *run) batch(ctx context.Context, vs []View) error {
	looks := make([]look, len(vs))
	var wg sync.WaitGroup
	for i := range vs {
		wg.Go(func() { looks[i] = r.look(ctx, vs[i]) })
	}
	wg.Wait()
	for _, l := range looks {
		if r.full() {
			return ctx.Err()
		}
		if err := r.work(ctx, l); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// look is what was read of one work.
type look struct {
	v      View
	lost   error  // the store did not answer
	tree   string // of the code that it needs; "": none
	noCode string // why that is not known
}

// look reads one work. It changes nothing of the run.
func (r *run) look(ctx context.Context, v View) (l look) {
	l.v = v
	if !isWork(v.Work) {
		l.v.Bad = "it is no work: a work is 64 hex digits"
		return l
	}
	l.lost = r.read(ctx, &l.v)
	if over := l.v.over(r.o); len(r.code) > 0 && (!over || v.Pinned) {
		var lost error
		l.tree, l.noCode, lost = r.needs(ctx, v.Work)
		l.lost = cmp.Or(l.lost, lost)
	}
	return l
}

// listed counts an object and gives it its age in the store's own time.
func (r *run) listed(it bucket.Info, date time.Time) Object {
	r.rep.Objects++
	r.rep.Bytes += it.Size
	return Object{Key: it.Key, Size: it.Size, Age: age(it.Modified, date)}
}

// age is 0 where a stamp is missing: what has no age is never old enough.
func age(modified, date time.Time) time.Duration {
	if modified.IsZero() || date.IsZero() {
		return 0
	}
	return max(date.Sub(modified), 0)
}

// work decides one work and, when this run deletes, does it.
func (r *run) work(ctx context.Context, l look) error {
	r.rep.Works++
	if l.v.Pinned {
		r.rep.Pinned++
	}
	if w := l.v.Witness; w != nil {
		r.lease = max(r.lease, w.Lease.Length())
	}
	if delete(r.code, l.tree); l.noCode != "" {
		clear(r.code)
		r.left("", l.noCode)
	}
	verdict := Decide(l.v, r.o)
	r.rep.Young += verdict.Young
	if verdict.Left != "" {
		r.left(l.v.Work, verdict.Left)
	}
	if l.lost != nil {
		if err := r.silent(ctx, l.lost); err != nil {
			return err
		}
	}
	r.stuck(l.v.Work, verdict.Stuck)
	if r.b != nil && len(verdict.Deletions) > 0 {
		return r.apply(ctx, l.v, verdict)
	}
	for _, d := range slices.Concat(of(verdict, false), of(verdict, true)) { // in the order of a run that deletes
		r.count(l.v.Work, d.Reason, d.Prefix, d.Objects, d.Bytes)
	}
	return nil
}

func isWork(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

func (r *run) left(work, why string) {
	if len(r.rep.Left) < mostItems {
		r.rep.Left = append(r.rep.Left, Left{printable(work, mostShown), printable(why, mostText)})
	}
}

// count adds to the report.
func (r *run) count(work string, why Reason, prefix string, objects int, bytes int64) {
	at := func(t Total) int { return slices.Index(Reasons(), t.Reason) }
	i, there := slices.BinarySearchFunc(r.rep.Totals, at(Total{Reason: why}), func(t Total, n int) int { return at(t) - n })
	if !there {
		r.rep.Totals = slices.Insert(r.rep.Totals, i, Total{Reason: why})
	}
	t := &r.rep.Totals[i]
	t.Items, t.Objects, t.Bytes = t.Items+1, t.Objects+objects, t.Bytes+bytes
	if len(r.rep.Items) < mostItems {
		r.rep.Items = append(r.rep.Items, Item{work, printable(prefix, mostShown), why, objects, bytes})
	}
}

// read fills in the witness, and the line behind its pointer as far as retention keeps it. An error is one of the store,
// which then did not answer; the view says so as well.
func (r *run) read(ctx context.Context, v *View) error {
	v.Witness, v.Bad, v.Kept = nil, "", nil
	seen, err := witness.Read(ctx, r.s, v.Work)
	if bad, is := errors.AsType[*witness.Unreadable](err); is {
		v.Bad = "its witness cannot be read: " + bad.Error()
		return nil
	}
	if errors.Is(err, witness.ErrAbsent) {
		return nil
	}
	if err != nil {
		v.Bad = "the store did not answer for its witness: " + err.Error()
		return err
	}
	v.Witness, v.Age = &seen.Record, age(seen.Modified, seen.Date)
	if v.Pinned || v.over(r.o) || seen.Record.Resume == nil {
		return nil
	}
	if r.o.off.kept {
		return nil
	}
	v.Kept = []record.Pointer{*seen.Record.Resume}
	if !r.prunable(v) {
		return nil
	}
	return r.line(ctx, v)
}

// over reports a work that finished longer ago than retention keeps what led to it.
func (v *View) over(o Options) bool {
	return v.Witness != nil && v.Witness.State == witness.Finished && v.Age >= o.Finished
}

// mostSilent is how many works a store may fail to answer for before a run gives up.
const mostSilent = 20

// silent notes that a work is left alone since the store did not answer. It is an error when it never will: the run was
// ended, the bucket is gone, or it has happened too often.
func (r *run) silent(ctx context.Context, err error) error {
	if r.unsure++; ctx.Err() != nil || bucket.Is(err, bucket.NoBucket) || r.unsure > mostSilent {
		return err
	}
	return nil
}

// prunable reports that a milestone is listed which is not the pointer's own: only then does the line matter.
func (r *run) prunable(v *View) bool {
	own := record.MilestonePrefix(v.Work, v.Kept[0].Attempt, v.Kept[0].Milestone)
	for _, ob := range v.Objects {
		if t, ok := thingOf(v.Work, ob.Key); ok && t.kind == snapshot && t.number > 0 && t.prefix != own {
			return true
		}
	}
	return false
}

// line follows the parents of the pointer, as many as retention keeps. Where it cannot be followed the work is left
// alone, unless retention ended it there before: what is left of that milestone is not kept then.
func (r *run) line(ctx context.Context, v *View) error {
	for {
		n := len(v.Kept) - 1
		p := v.Kept[n]
		if n == r.o.Milestones && (n == 0 || v.lists(p.Manifest)) {
			return nil
		}
		m, why, err := r.manifest(ctx, v.Work, p)
		var trim record.Trim
		if why != "" && n > 0 {
			trim, _, err = r.trim(ctx, v.Work)
		}
		switch q := m.Parent; {
		case err != nil:
			v.Bad = "the store did not answer for its line: " + err.Error()
			return err
		case why != "" && trim.Line(p):
			v.Kept = v.Kept[:n]
			return nil
		case why != "":
			v.Bad = fmt.Sprintf("%s %s: run headway doctor --deep", p.Manifest, why)
			return nil
		case n == r.o.Milestones || q == nil:
			return nil
		case q.Manifest != record.MilestoneManifestKey(v.Work, q.Attempt, q.Milestone) || q.Attempt > p.Attempt || q.Attempt == p.Attempt && q.Milestone >= p.Milestone:
			v.Bad = fmt.Sprintf("%s grew from what is not before it: run headway doctor --deep", p.Manifest)
			return nil
		default:
			v.Kept = append(v.Kept, *q)
		}
	}
}

// lists reports whether a key was listed.
func (v *View) lists(key string) bool {
	_, there := slices.BinarySearchFunc(v.Objects, key, func(o Object, key string) int { return strings.Compare(o.Key, key) })
	return there
}

// manifest reads a milestone that is named; why is what is wrong with it.
func (r *run) manifest(ctx context.Context, work string, p record.Pointer) (m record.Manifest, why string, err error) {
	b, _, err := whole(ctx, r.s, p.Manifest, record.MaxManifest)
	switch {
	case bucket.Is(err, bucket.NotFound):
		return m, "is named and does not exist", nil
	case errors.Is(err, errBig):
		return m, "is too big for a manifest", nil
	case err != nil:
		return m, "", err
	case record.Hash(b) != p.SHA256:
		return m, "is not what was named", nil
	}
	if err := record.Decode(b, record.MaxManifest, &m); err != nil || m.Work != work || m.Protocol > record.Protocol {
		return m, "is no manifest of this work that this version reads", nil
	}
	return m, "", nil
}

// errBig is an object of more bytes than are read.
var errBig = errors.New("too big")

// whole reads an object of at most most bytes, with its version. A body that is cut short is an error of the way.
func whole(ctx context.Context, s Store, key string, most int64) ([]byte, bucket.Version, error) {
	o, err := s.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = o.Body.Close() }()
	if o.Size > most {
		return nil, "", fmt.Errorf("%s has %d bytes, at most %d are read: %w", key, o.Size, most, errBig)
	}
	b, err := io.ReadAll(io.LimitReader(o.Body, most+1))
	if err == nil && int64(len(b)) != o.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", key, err)
	}
	return b, o.Version, nil
}
