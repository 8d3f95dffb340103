package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Board is where every job stood after a pass, left in the store for whoever looks: reading it is one request, where the
// records of ten thousand jobs are twenty thousand. Nothing is decided by it. Each row names the version of the lease that
// it was made from, so a look at the leases says which rows are not true any more, and those alone are read again.
type Board struct {
	Format    int             `json:"format"`
	Plan      bucket.Version  `json:"plan"` // of the accepted plan that was in force
	Commit    string          `json:"commit"`
	Rows      []BoardRow      `json:"rows"`
	Platforms []PlatformState `json:"platforms"`
	Drift     []plan.Drift    `json:"drift,omitempty"` // what is otherwise than the plan says, and no commit asks for
	Wrong     []plan.Problem  `json:"wrong,omitempty"` // errors of the files of the newest commit, the first ones

	// AsOf is how old the rows are, by the store's own stamps; 0: they were brought up to date.
	AsOf time.Duration `json:"-"`
}

// BoardRow is one job, or a work that left the plan and still runs or may be paid for.
type BoardRow struct {
	plan.Observed
	Job     string         `json:"job"`
	Group   string         `json:"group,omitempty"`   // "": the job's own name
	Version bucket.Version `json:"version,omitempty"` // of its lease; "": there was none
	Changed int64          `json:"changed,omitempty"` // when that was written, by the store's stamp: seconds since 1970
}

const (
	boardFormat = 1
	boardPrefix = "board/"
	maxBoard    = 64 << 20
	// A board is written when it has changed, boardEvery apart, and also unchanged before it is boardOld: one that is older
	// says that no dispatcher is there.
	boardEvery = 10 * time.Second
	boardOld   = time.Minute
	// Of fewer jobs there is none: reading their records is as quick, and always up to the second.
	boardFrom = 500
	// Of so many rows each lease that may have changed is read again. Ten thousand workers renew fifty leases a second, so
	// that whoever wanted all of them to the second would read for longer than what he has read stays true.
	boardFresh = 1000
)

// boardKey is where a root's board lies.
func boardKey(root string) string { return boardPrefix + url.PathEscape(cmp.Or(root, "-")) }

// posted is what a dispatcher knows of the board that it wrote last.
type posted struct {
	at      time.Time
	version bucket.Version
	sum     [sha256.Size]byte
	size    int // of the newest board that was made, bytes: the next one is about as long

	done chan struct{} // closed when the writing that is under way is over; nil: none is
	next *posted       // what it came to
}

// wait returns when no board is being written.
func (p *posted) wait() {
	if p.done != nil {
		<-p.done
	}
}

// post writes the board after a pass. It is no part of the pass: what fails is tried again by the next one.
func (p *pass) post(ctx context.Context) {
	r := p.r
	if !r.c.Board || r.c.Dry || !r.posted.over() || len(p.base.force.jobs()) < boardFrom || p.byWork == nil || ctx.Err() != nil || time.Since(r.posted.at) < boardEvery {
		return
	}
	body, err := p.board(r.posted.size)
	sum := sha256.Sum256(body)
	if err != nil || len(body) > maxBoard || sum == r.posted.sum && time.Since(r.posted.at) < boardOld/2 {
		return
	}
	r.posted.size = len(body)
	done, was := make(chan struct{}), r.posted
	r.posted.done = done
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	go func() { // a store that is slow to take it holds no pass
		defer close(done)
		defer cancel()
		r.posted.next = was.write(ctx, r.b, boardKey(p.root), body, sum)
	}()
}

// over reports whether no writing is under way, and takes over what the last one came to.
func (p *posted) over() bool {
	if p.done == nil {
		return true
	}
	select {
	case <-p.done:
		p.next.size = p.size
		*p = *p.next
		return true
	default:
		return false
	}
}

// write puts a board into the store and returns what is known of it then.
func (p posted) write(ctx context.Context, store bucket.Bucket, key string, body []byte, sum [sha256.Size]byte) *posted {
	if p.version == "" {
		page, err := store.List(ctx, key, "", 1)
		if err != nil {
			return &posted{at: time.Now()}
		}
		if len(page.Items) > 0 && page.Items[0].Key == key {
			if p.version = page.Items[0].Version; page.Date.Sub(page.Items[0].Modified) < boardEvery {
				return &posted{at: time.Now(), version: p.version} // another dispatcher has just written it
			}
		}
	}
	cond := bucket.IfAbsent()
	if p.version != "" {
		cond = bucket.IfIs(p.version)
	}
	v, err := store.Put(ctx, key, bytes.NewReader(body), cond)
	if err != nil {
		return &posted{at: time.Now()} // another dispatcher's is as good; where it is not that, the next try finds out
	}
	return &posted{at: time.Now(), version: v, sum: sum}
}

// board says where everything stands, as a Board in JSON of about size bytes. It is written row by row: the rows of ten thousand
// jobs and their text, each in a buffer that doubles, would be the most that a pass ever needs at once.
func (p *pass) board(size int) ([]byte, error) {
	head, err := json.Marshal(Board{Format: boardFormat, Plan: p.base.version, Commit: p.base.force.commit(), Rows: []BoardRow{}, Platforms: platformStates(p.platforms), Drift: p.report.Drift, Wrong: wrongOf(p.d.Plan)})
	if err != nil {
		return nil, err
	}
	before, after, ok := bytes.Cut(head, []byte(`"rows":[`))
	if !ok {
		return nil, errors.New("a board has no rows")
	}
	out := bytes.NewBuffer(make([]byte, 0, size+size/50+len(head)+1024))
	out.Write(before)
	out.WriteString(`"rows":[`)
	enc, first := json.NewEncoder(out), true
	p.rows(func(row *BoardRow) bool {
		if !first {
			out.WriteByte(',')
		}
		first, err = false, enc.Encode(row)
		return err == nil
	})
	out.Write(after)
	return out.Bytes(), err
}

// wrongOf are the errors of a plan that a board carries.
func wrongOf(pl *plan.Plan) []plan.Problem {
	list := pl.Errors()
	return list[:min(len(list), driftMost)]
}

// rows calls f with each row of the board while it returns true.
func (p *pass) rows(f func(*BoardRow) bool) {
	shownWorks := make(map[plan.Digest]bool, len(p.targets))
	names := make(map[string]bool, len(p.targets))
	for _, j := range p.base.force.jobs() {
		if names[j.Name] {
			continue
		}
		names[j.Name], shownWorks[j.Work] = true, true
		row := p.row(j.Work, j.Name)
		if j.Group != j.Name {
			row.Group = j.Group
		}
		if !f(&row) {
			return
		}
	}
	for _, t := range p.targets {
		state := p.report.States[t.work].State
		if !shownWorks[t.work] && t.last.Kind != Launch && (t.last.Ending || state == plan.StateHeld || state == plan.StateClaimed) {
			o := plan.Observed{Work: t.work, State: state, Dispatch: t.last.Dispatch, Platform: t.last.Platform, Reason: t.last.Reason}
			row := BoardRow{Observed: o, Job: t.name}
			if s := p.world.works[t.work]; s != nil && s.seen != nil {
				row.Version = s.seen.Version
			}
			if !f(&row) {
				return
			}
		}
	}
}

// row is one job of the plan in force.
func (p *pass) row(w plan.Digest, name string) BoardRow {
	s := p.world.works[w]
	if s == nil {
		return BoardRow{Observed: plan.Observed{Work: w, State: plan.StateAbsent}, Job: name}
	}
	seen := *s
	t := p.byWork[w]
	if t != nil && seen.job == nil {
		seen.job = t.job
	}
	out := BoardRow{Observed: seen.observed(w), Job: name}
	out.Age, out.LostGPUHours = 0, 0
	if s.seen != nil {
		out.Version = s.seen.Version
		if !s.seen.Modified.IsZero() {
			out.Changed = s.seen.Modified.Unix()
		}
	}
	if l := p.r.looks[w]; out.Platform == "" && l != nil && l.claim != nil {
		out.Platform = shown(l.claim.Platform, 128)
	}
	if n := len(s.history.Attempts); out.Platform == "" && n > 0 {
		out.Platform = s.history.Attempts[n-1].Platform
	}
	standing := p.report.States[w]
	if t != nil && standing.Final == Fail {
		out.State, out.Reason = standing.State, standing.Reason
	}
	if t != nil && out.Reason == "" && standing.State != plan.StateFinished && (standing.State != plan.StateHeld || t.last.Kind == Wait || t.last.Kind == Stop) {
		out.Reason = t.last.Reason
	}
	return out
}

// ErrNoBoard says that there is no board that shows how things are: look at the records instead.
var ErrNoBoard = errors.New("there is no board of the plan in force, or it is old")

// ReadBoard reads the rows of the board of a root that are wanted (nil: all), and brings them up to date where they are
// no more than boardFresh: those whose lease has changed since are read again. Of more AsOf says how old they are; it is
// seconds as a rule, and never more than a minute. Age is filled in by the store's own stamps. It writes nothing.
// ErrNoBoard where no dispatcher has left one in the last minute, or another plan is in force by now. requests are what
// it cost.
func ReadBoard(ctx context.Context, store bucket.Bucket, root string, wanted func(*BoardRow) bool) (b *Board, requests int64, err error) {
	m := &meter{}
	c := counted{store, m}
	defer func() { requests = m.Load() }()
	var accepted *bucket.Page
	var aerr error
	done := make(chan struct{})
	go func() {
		accepted, aerr = c.List(ctx, forceKey(root), "", 1)
		close(done)
	}()
	body, o, err := whole(ctx, c, boardKey(root), maxBoard)
	<-done
	if bucket.Is(err, bucket.NotFound) || damaged(err) {
		return nil, 0, ErrNoBoard
	}
	if err = errors.Join(err, aerr); err != nil {
		return nil, 0, err
	}
	b, err = decodeBoard(string(body))
	if err != nil || b.Format != boardFormat || !b.sound() || o.Date.IsZero() || o.Date.Sub(o.Modified) > boardOld {
		return nil, 0, ErrNoBoard
	}
	if len(accepted.Items) == 0 || accepted.Items[0].Key != forceKey(root) || accepted.Items[0].Version != b.Plan {
		return nil, 0, ErrNoBoard
	}
	all := len(b.Rows)
	b.Drift, b.Wrong = b.Drift[:min(len(b.Drift), driftMost)], b.Wrong[:min(len(b.Wrong), driftMost)]
	if wanted != nil {
		b.Rows = slices.DeleteFunc(b.Rows, func(r BoardRow) bool { return !wanted(&r) })
	}
	switch {
	case len(b.Rows) <= atOnce:
		err = b.reread(ctx, c)
	case all <= boardFresh:
		err = b.update(ctx, c)
	default:
		b.AsOf = max(o.Date.Sub(o.Modified), time.Nanosecond)
		for i := range b.Rows {
			if r := &b.Rows[i]; r.Changed > 0 {
				r.Age = max(o.Date.Sub(time.Unix(r.Changed, 0)), 0)
			}
		}
	}
	if err != nil {
		return nil, 0, err
	}
	b.settleDrift(wanted != nil)
	return b, 0, nil
}

// settleDrift drops what the rows, which are newer, don't bear out any more, and with some what is of works that have no row here.
func (b *Board) settleDrift(some bool) {
	states := make(map[plan.Digest]string, len(b.Rows))
	for i := range b.Rows {
		states[b.Rows[i].Work] = b.Rows[i].State
	}
	b.Drift = slices.DeleteFunc(b.Drift, func(d plan.Drift) bool {
		state, here := states[d.Work]
		held := state == plan.StateHeld
		switch {
		case !here:
			return some
		case d.Kind == plan.DriftOrphan:
			return false
		case d.Kind == plan.DriftEnded:
			return held || state == plan.StateFinished
		}
		return !held
	})
}

// sound says whether a dispatcher can have written it: rows of works, and no number that nothing can have. Texts are escaped by
// whoever shows them.
func (b *Board) sound() bool {
	return !slices.ContainsFunc(b.Rows, func(r BoardRow) bool {
		return len(r.Work) != 64 || !hex(string(r.Work)) || r.Job == "" || min(r.Dispatch, r.Attempt, r.Step, r.Steps, r.MilestoneStep, r.Changed) < 0 || r.Dispatch > runners.MaxDispatch
	})
}

func hex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// fits says whether a row may be what its lease says: whether it is held or finished, and by whom.
func (r *BoardRow) fits(rec *witness.Record) bool {
	held, finished := rec.State == witness.Held, rec.State == witness.Finished
	unwhole := finished && r.State == plan.StateUnknown
	return held == (r.State == plan.StateHeld) && finished == (r.State == plan.StateFinished || unwhole) && (r.Attempt == 0 || r.Attempt == rec.Attempt) && r.Dispatch >= rec.Dispatch
}

// leased says whether one of the rows tells of a lease.
func leased(rows []*BoardRow) bool {
	return slices.ContainsFunc(rows, func(r *BoardRow) bool {
		return r.Version != "" || r.State == plan.StateHeld || r.State == plan.StateFinished
	})
}

// reread reads the lease of each row.
func (b *Board) reread(ctx context.Context, store bucket.Bucket) error {
	errs := make([]error, len(b.Rows))
	parallel(len(b.Rows), func(i int) { errs[i] = again(ctx, store, []*BoardRow{&b.Rows[i]}) })
	return errors.Join(errs...)
}

// update lists the leases and reads those that are others than their row says.
func (b *Board) update(ctx context.Context, store bucket.Bucket) error {
	rows := make(map[string][]*BoardRow, len(b.Rows))
	keys := make([]string, 0, len(b.Rows))
	for i := range b.Rows {
		key := record.WitnessKey(string(b.Rows[i].Work))
		if rows[key] == nil {
			keys = append(keys, key)
		}
		rows[key] = append(rows[key], &b.Rows[i])
	}
	slices.Sort(keys)
	var mu sync.Mutex
	var changed []string
	var errs error
	seen := make(map[string]bool, len(keys))
	parts := spans(keys)
	parallel(len(parts), func(i int) {
		err := eachPage(ctx, store, parts[i], func(p *bucket.Page, _ time.Time) {
			mu.Lock()
			defer mu.Unlock()
			for _, it := range p.Items {
				for _, row := range rows[it.Key] {
					seen[it.Key] = true
					if row.Age = max(p.Date.Sub(it.Modified), 0); row.Version != it.Version {
						changed = append(changed, it.Key)
					}
				}
			}
		})
		mu.Lock()
		errs = errors.Join(errs, err)
		mu.Unlock()
	})
	for key, of := range rows {
		if !seen[key] && leased(of) {
			return ErrNoBoard // a lease that vanished: whoever looks closely says why
		}
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	parallel(len(changed), func(i int) {
		err := again(ctx, store, rows[changed[i]])
		mu.Lock()
		errs = errors.Join(errs, err)
		mu.Unlock()
	})
	return errs
}

// again reads one lease for its rows. Where it has passed into other hands the board can't tell how the job stands.
func again(ctx context.Context, store bucket.Bucket, rows []*BoardRow) error {
	seen, err := witness.Read(ctx, store, string(rows[0].Work))
	if errors.Is(err, witness.ErrAbsent) && !leased(rows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBoard, err)
	}
	s := sight{seen: &seen, record: &seen.Record, lease: leaseOf(&look{seen: &seen})}
	for _, row := range rows {
		if row.Version == seen.Version {
			if !row.fits(&seen.Record) {
				return ErrNoBoard
			}
			row.Age = max(seen.Date.Sub(seen.Modified), 0)
			continue
		}
		if row.Dispatch != seen.Record.Dispatch || row.Attempt != seen.Record.Attempt && row.State == plan.StateHeld {
			return ErrNoBoard
		}
		switch seen.Record.State {
		case witness.Held, witness.Finished:
		case witness.Yielded, witness.Revoked:
			if row.State != string(seen.Record.State) {
				return ErrNoBoard // what comes next is for a pass to say
			}
		}
		now := s.observed(row.Work)
		if now.State == row.State {
			now.Reason = row.Reason
		}
		now.Platform, now.Steps, now.Age = row.Platform, row.Steps, max(seen.Date.Sub(seen.Modified), 0)
		row.Observed, row.Version = now, seen.Version
	}
	return nil
}
