package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Coverage is how often real writes took each action, and which writes are in no action: those that the model leaves
// out on purpose (logs, receipts, …), by a word for what they are, and those of no known sort, under "unknown".
type Coverage struct {
	Taken   map[Kind]int
	Outside map[string]int
}

// Add counts another coverage in.
func (c *Coverage) Add(o Coverage) {
	if c.Taken == nil {
		c.Taken, c.Outside = map[Kind]int{}, map[string]int{}
	}
	for k, n := range o.Taken {
		c.Taken[k] += n
	}
	for k, n := range o.Outside {
		c.Outside[k] += n
	}
}

// Untaken lists the actions that were never taken.
func (c *Coverage) Untaken() (out []Kind) {
	for _, k := range Kinds() {
		if c.Taken[k] == 0 {
			out = append(out, k)
		}
	}
	return out
}

// NoBehaviour is the first write of a history that the model does not make.
type NoBehaviour struct {
	Work  string
	Entry int // index in what the follower took
	Key   string
	Actor string
	Move  Move
	Err   error
}

func (e *NoBehaviour) Error() string {
	actor := e.Actor
	if actor == "" {
		actor = "nobody"
	}
	return fmt.Sprintf("entry %d, %s by %s: no behaviour of the model: %v", e.Entry, history.Name(e.Key), actor, e.Err)
}

// Unwrap returns what the model has against it.
func (e *NoBehaviour) Unwrap() error { return e.Err }

// Follower holds the writes of one work against the model. Make one with Follow; one goroutine uses it. After the first
// write that is none of the model's it follows no more.
type Follower struct {
	work     string
	n        int
	err      *NoBehaviour
	coverage Coverage
	store    *store
	version  bucket.Version
	ids      map[string]int32 // nonce of a capture → identity
	actors   map[captor]int32 // who writes as which capture of an attempt
	foreign  map[string]int32 // actors that captured nothing, as identities that no guard lets pass
}

type captor struct {
	actor   string
	attempt int32
}

var _ history.Sink = (*Follower)(nil)

// Follow returns a follower of one work (64 hex digits), from an empty store on.
func Follow(work string) *Follower {
	return &Follower{work: work, store: newStore(), ids: map[string]int32{}, actors: map[captor]int32{}, foreign: map[string]int32{},
		coverage: Coverage{Taken: map[Kind]int{}, Outside: map[string]int{}}}
}

// Err is the first write that is no behaviour of the model, a *NoBehaviour; nil: there is none.
func (f *Follower) Err() error {
	if f.err == nil {
		return nil
	}
	return f.err
}

// Coverage is what was taken so far.
func (f *Follower) Coverage() Coverage { return f.coverage }

// Take follows one entry. Those of other works, remarks and refused requests change nothing.
func (f *Follower) Take(e history.Entry) {
	defer func() { f.n++ }()
	if f.err != nil || !e.Applied() {
		return
	}
	if id, is := strings.CutPrefix(e.Key, record.WitnessPrefix); is {
		if id == f.work {
			f.lease(&e)
		}
		return
	}
	if p, under := record.Parse(e.Key); under && p.Work == f.work {
		f.object(&e, p)
	}
}

// outside counts a write that the model leaves out.
func (f *Follower) outside(what string) { f.coverage.Outside[what]++ }

func (f *Follower) fail(e *history.Entry, m Move, format string, args ...any) {
	f.err = &NoBehaviour{Work: f.work, Entry: f.n, Key: e.Key, Actor: e.Actor, Move: m, Err: fmt.Errorf(format, args...)}
}

// move makes a move, if the model lets it pass.
func (f *Follower) move(e *history.Entry, m Move) bool {
	if err := Allowed(f.store, m); err != nil {
		f.fail(e, m, "%w", err)
		return false
	}
	Apply(f.store, m)
	f.coverage.Taken[m.Kind]++
	return true
}

// object follows a write under work/<work>/.
func (f *Follower) object(e *history.Entry, p record.ParsedKey) {
	if e.Op == history.Delete {
		f.outside("deleted")
		return
	}
	tail := p.Rest[strings.LastIndexByte(p.Rest, '/')+1:]
	snapshot := strings.HasPrefix(p.Rest, "milestone/") || strings.HasPrefix(p.Rest, "result/")
	switch {
	case p.Dispatch > 0 && p.Rest == "json":
		if !e.Cond.Absent() {
			f.fail(e, Move{Kind: Claim}, "claims without the condition that nobody has")
			return
		}
		f.move(e, Move{Kind: Claim, Dispatch: int32(p.Dispatch)})
	case p.Dispatch > 0:
		f.outside("answer of a platform")
	case p.Rest == "spec.json":
		f.outside("spec")
	case p.Attempt > 0 && p.Rest == "open.json":
		f.open(e, int32(p.Attempt))
	case p.Attempt > 0 && p.Rest == "end.json":
		f.outside("account of an end")
	case p.Attempt > 0 && (strings.HasPrefix(p.Rest, "log/") || strings.HasPrefix(p.Rest, "events/")):
		f.outside("segment")
	case p.Attempt > 0 && snapshot:
		f.upload(e, p, tail == "manifest.json")
	default:
		f.outside("unknown")
	}
}

func (f *Follower) open(e *history.Entry, attempt int32) {
	var o record.Open
	m := Move{Kind: Open, Attempt: attempt}
	if err := record.Decode(e.Body, record.MaxRecord, &o); err != nil || !e.Cond.Absent() {
		f.fail(e, m, "reserves with a record that cannot be read (%v), or without the condition that nobody has", err)
		return
	}
	m.By = f.ids[o.Holder]
	f.move(e, m)
}

// upload follows a file or a manifest of a snapshot. A manifest that arrives twice, with the same bytes, is one move.
func (f *Follower) upload(e *history.Entry, p record.ParsedKey, manifest bool) {
	at := Point{A: int32(p.Attempt)}
	if num, is := strings.CutPrefix(p.Rest, "milestone/"); is {
		var n int32
		if _, err := fmt.Sscanf(num, "%08d/", &n); err != nil || n < 1 {
			f.outside("unknown")
			return
		}
		at.M = n
	}
	m := Move{Kind: Half, By: f.by(e.Actor, at.A), At: at}
	if manifest {
		var r record.Manifest
		if err := record.Decode(e.Body, record.MaxManifest, &r); err != nil {
			f.fail(e, m, "completes %s with a manifest that cannot be read: %w", at, err)
			return
		}
		m.Kind, m.Parent = Complete, point(r.Parent)
	}
	f.move(e, m)
}

// by is the identity under which an actor writes in an attempt's prefix.
func (f *Follower) by(actor string, attempt int32) int32 {
	if id, is := f.actors[captor{actor, attempt}]; is {
		return id
	}
	id, known := f.foreign[actor]
	if !known {
		id = -int32(len(f.foreign)) - 1
		f.foreign[actor] = id
	}
	return id
}

func point(p *record.Pointer) Point {
	if p == nil {
		return Point{}
	}
	return Point{int32(p.Attempt), int32(p.Milestone)}
}

// lease follows a version of the witness: which action it is follows from the one before, and it must do that action
// and no more.
func (f *Follower) lease(e *history.Entry) {
	if e.Op == history.Delete {
		if f.store.lease.State == Absent {
			return // nothing went
		}
		if e.Actor != "" {
			f.fail(e, Move{Kind: Delete}, "deletes the witness: only nobody does, as a fault")
			return
		}
		f.move(e, Move{Kind: Delete})
		f.version = ""
		return
	}
	r, err := witness.Decode(f.work, e.Body)
	if err != nil {
		if json.Unmarshal(e.Body, &r) != nil {
			f.fail(e, Move{}, "writes a lease that cannot be read: %w", err)
			return
		}
	}
	m := f.classify(&r)
	if old := f.store.lease; old.State != Absent {
		if is, swap := e.Cond.Is(); !swap || f.version != "" && is != f.version {
			f.fail(e, m, "%s without the condition that the version before is still there", m.Kind)
			return
		}
	} else if !e.Cond.Absent() {
		f.fail(e, m, "%s without the condition that there is no lease", m.Kind)
		return
	}
	if !f.move(e, m) {
		return
	}
	f.version = e.Version
	if m.Kind == Create || m.Kind == Capture {
		f.actors[captor{e.Actor, f.store.lease.Attempt}] = m.By
	}
	if got, want := f.abstract(&r), f.store.lease; got != want {
		f.fail(e, m, "%s leaves %+v, the model %+v", m.Kind, got, want)
		return
	}
	f.holder(e, m)
}

// holder: what a holder writes comes from the process that captured.
func (f *Follower) holder(e *history.Entry, m Move) {
	switch m.Kind {
	case Renew, Advance, Yield, Finish:
		if f.by(e.Actor, f.store.lease.Attempt) != m.By {
			f.fail(e, m, "%s with the nonce of another process's capture", m.Kind)
		}
	default:
	}
}

// id is the identity that a nonce stands for.
func (f *Follower) id(nonce string) int32 {
	if nonce == "" {
		return 0
	}
	id, known := f.ids[nonce]
	if !known {
		id = int32(len(f.ids)) + 1
		f.ids[nonce] = id
	}
	return id
}

// abstract is a record as the model sees it.
func (f *Follower) abstract(r *witness.Record) Lease {
	l := Lease{Attempt: int32(r.Attempt), Holder: f.id(r.Holder), Dispatch: int32(r.Dispatch), Floor: int32(r.Floor), Pointer: point(r.Resume)}
	switch r.State {
	case witness.Held:
		l.State = Held
	case witness.Yielded:
		l.State = Yielded
	case witness.Revoked:
		l.State = Revoked
	case witness.Finished:
		l.State = Finished
	}
	return l
}

// classify says which action leads to a record, by what it looks like. Whether the model makes it is asked afterwards.
func (f *Follower) classify(r *witness.Record) Move {
	old, l := f.store.lease, f.abstract(r)
	m := Move{By: l.Holder}
	switch {
	case old.State == Absent && l.State == Held:
		m.Kind, m.Dispatch = Create, l.Dispatch
	case old.State == Absent && l.Attempt == 0:
		m.Kind, m.Floor = Bar, l.Floor
	case old.State == Absent:
		m.Kind, m.Attempt, m.Dispatch, m.Floor, m.At = Repair, l.Attempt, l.Dispatch, l.Floor, l.Pointer
	case l.State == Held && l.Holder != old.Holder:
		m.Kind, m.Dispatch = Capture, l.Dispatch
	case l.State == Held && l.Pointer != old.Pointer:
		m.Kind, m.At = Advance, l.Pointer
	case l.State == Held:
		m.Kind = Renew
	case l.State == Yielded:
		m.Kind, m.By = Yield, old.Holder
	case l.State == Finished:
		m.Kind, m.By = Finish, old.Holder
		if r.Finished != nil {
			m.At = Point{A: int32(r.Finished.Attempt)}
		}
	case l.Floor != old.Floor:
		m.Kind, m.Floor = Stop, l.Floor
	default:
		m.Kind = Revoke
	}
	return m
}

// Followers follows every work of a history.
type Followers struct {
	of map[string]*Follower
	n  int
}

var _ history.Sink = (*Followers)(nil)

// FollowAll returns a sink that follows every work that it meets.
func FollowAll() *Followers { return &Followers{of: map[string]*Follower{}} }

// Take passes an entry to the follower of its work; entries are numbered in all.
func (a *Followers) Take(e history.Entry) {
	defer func() { a.n++ }()
	work, is := strings.CutPrefix(e.Key, record.WitnessPrefix)
	if !is {
		p, _ := record.Parse(e.Key)
		work = p.Work
	}
	if work == "" {
		return
	}
	f := a.of[work]
	if f == nil {
		f = Follow(work)
		a.of[work] = f
	}
	f.n = a.n
	f.Take(e)
}

// Err is the first work's, in the order of digests, that left the model; nil: none did.
func (a *Followers) Err() error {
	for _, work := range slices.Sorted(maps.Keys(a.of)) {
		if err := a.of[work].Err(); err != nil {
			return err
		}
	}
	return nil
}

// Coverage is the sum over all works.
func (a *Followers) Coverage() (c Coverage) {
	c.Add(Coverage{})
	for _, f := range a.of {
		c.Add(f.coverage)
	}
	return c
}
