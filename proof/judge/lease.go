package judge

import (
	"encoding/json"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// work is what the judge knows of one work.
type work struct {
	id      string
	has     bool // there is a witness
	done    bool // it was finished; for ever
	last    witness.Record
	by      string // who wrote the last version
	holder  string // the actor of the last capture
	version bucket.Version
	lives   int // witnesses deleted by hand

	writes   map[string]string // write nonces of this life → who wrote
	captures map[int64][]capture
	owners   map[int64]string // attempt → who wrote under its prefix first
	opened   map[int64]bool
	claims   map[int64]claim
	code     string // key of the bundle that the spec names

	chain   []record.Pointer       // the pointer's line: every pointer it replaced, itself last
	onChain map[string]int         // manifest key → index in chain
	ever    map[record.Pointer]int // pointers that were ever on the line → entry at which the pointer came there

	lastClaim int64
	barred    int64 // no dispatch below may capture: a stop was acknowledged
}

// capture is one taking of the lease.
type capture struct {
	actor, holder string
	dispatch      int64
	from          *record.Pointer
	life          int
}

type claim struct{ actor, nonce string }

func newWork(id string) *work {
	return &work{id: id, writes: map[string]string{}, captures: map[int64][]capture{}, owners: map[int64]string{}, opened: map[int64]bool{},
		claims: map[int64]claim{}, onChain: map[string]int{}, ever: map[record.Pointer]int{}}
}

func same(a, b *record.Pointer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// witness judges one version of a lease.
func (j *Judge) witness(e *history.Entry, id string) {
	w := j.work(id)
	r, err := witness.Decode(id, e.Body)
	if err != nil {
		j.fail("FORMAT", w, e.Key, "%s wrote a %s that no reader accepts: %v", who(e.Actor), history.Name(e.Key), err)
		if json.Unmarshal(e.Body, &r) != nil { // what can be read of it is judged all the same
			return
		}
	}
	j.condition(w, e)
	if before, used := w.writes[r.Write]; used {
		j.fail("REV", w, e.Key, "%s wrote the %s with a nonce that %s had used before: two versions may be byte-identical", who(e.Actor), history.Name(e.Key), who(before))
	}
	w.writes[r.Write] = e.Actor
	switch {
	case !w.has:
		j.first(w, e, &r)
	case w.done:
		j.fail("I5", w, e.Key, "%s wrote %s attempt %d into the %s after %s had finished it", who(e.Actor), r.State, r.Attempt, history.Name(e.Key), who(w.holder))
	default:
		j.next(w, e, &r)
	}
	w.has, w.last, w.by, w.version = true, r, e.Actor, e.Version
	w.done = w.done || r.State == witness.Finished
}

// condition: an unconditional write that happened to do no harm is a defect all the same, and so is a store that
// applied one whose condition did not hold.
func (j *Judge) condition(w *work, e *history.Entry) {
	is, swap := e.Cond.Is()
	switch {
	case !swap && !e.Cond.Absent():
		j.fail("COND", w, e.Key, "%s wrote the %s without a condition", who(e.Actor), history.Name(e.Key))
	case e.Cond.Absent() && w.has:
		j.fail("COND", w, e.Key, "%s created the %s although %s's version was there: the store broke its word", who(e.Actor), history.Name(e.Key), who(w.by))
	case swap && (!w.has || w.version != "" && is != w.version):
		j.fail("COND", w, e.Key, "%s replaced a version of the %s that was not there: the store broke its word", who(e.Actor), history.Name(e.Key))
	}
}

// first judges a version that found none.
func (j *Judge) first(w *work, e *history.Entry, r *witness.Record) {
	name := history.Name(e.Key)
	if r.Rev != 1 {
		j.fail("REV", w, e.Key, "%s began the %s at rev %d, the first is 1", who(e.Actor), name, r.Rev)
	}
	switch {
	case r.State == witness.Held:
		if r.Attempt != 1 {
			j.fail("I6", w, e.Key, "%s captured attempt %d of a work without a witness, the first is 1 (%s)", who(e.Actor), r.Attempt, name)
		}
		if r.Resume != nil {
			j.fail("I2", w, e.Key, "%s created the %s with a resume pointer", who(e.Actor), name)
		}
		if r.Floor != 0 {
			j.fail("I8", w, e.Key, "%s created the %s with the floor %d", who(e.Actor), name, r.Floor)
		}
		w.chain, w.onChain = nil, map[string]int{} // another life begins from nothing
		j.captured(w, e, r, nil, 0)
	case r.State == witness.Revoked:
		j.barred(w, e, r)
	default:
		j.fail("MOVE", w, e.Key, "%s created the %s as %s", who(e.Actor), name, r.State)
	}
}

// barred judges a witness that was made without a capture: a stop before any, or a repair after a deletion by hand.
func (j *Judge) barred(w *work, e *history.Entry, r *witness.Record) {
	name := history.Name(e.Key)
	highest := int64(0)
	for n := range w.owners {
		highest = max(highest, n)
	}
	if r.Attempt != highest {
		j.fail("I6", w, e.Key, "%s made the %s at attempt %d, but the highest that left a byte is %d", who(e.Actor), name, r.Attempt, highest)
	}
	if r.Resume == nil {
		w.chain, w.onChain = nil, map[string]int{}
		return
	}
	m := j.name(w, e, r.Resume.Manifest, r.Resume.SHA256)
	at, was := w.onChain[r.Resume.Manifest]
	if _, ever := w.ever[*r.Resume]; !ever {
		j.fail("I4", w, e.Key, "%s repaired the %s with a pointer to %s, which never was on the pointer's line", who(e.Actor), name, place(r.Resume))
	}
	if m != nil && m.Parent != nil {
		if _, ever := w.ever[*m.Parent]; !ever {
			j.fail("I4", w, e.Key, "%s repaired the %s with a snapshot that grew from %s, which never was on the pointer's line", who(e.Actor), name, place(m.Parent))
		}
	}
	if was {
		for _, p := range w.chain[at+1:] {
			delete(w.onChain, p.Manifest)
		}
		w.chain = w.chain[:at+1]
		return
	}
	w.chain, w.onChain = nil, map[string]int{}
	w.append(*r.Resume, j.n)
}

func (w *work) append(p record.Pointer, entry int) {
	w.onChain[p.Manifest] = len(w.chain)
	w.chain = append(w.chain, p)
	w.ever[p] = entry
}

// next judges a version that replaces another.
func (j *Judge) next(w *work, e *history.Entry, r *witness.Record) {
	old, name := &w.last, history.Name(e.Key)
	if r.Rev != old.Rev+1 {
		j.fail("REV", w, e.Key, "%s took the %s from rev %d to rev %d, over a version of %s", who(e.Actor), name, old.Rev, r.Rev, who(w.by))
	}
	if r.Floor < old.Floor {
		j.fail("I8", w, e.Key, "%s let the floor of the %s fall from %d to %d", who(e.Actor), name, old.Floor, r.Floor)
	}
	if r.Floor > old.Floor && r.State != witness.Revoked {
		j.fail("MOVE", w, e.Key, "%s raised the floor of the %s without a stop", who(e.Actor), name)
	}
	if r.State == witness.Held && (old.State != witness.Held || r.Holder != old.Holder) {
		j.recaptured(w, e, r)
		return
	}
	if r.Attempt != old.Attempt || r.Dispatch != old.Dispatch {
		j.fail("I6", w, e.Key, "%s took the %s from attempt %d of dispatch %d to attempt %d of dispatch %d without a capture", who(e.Actor), name, old.Attempt, old.Dispatch, r.Attempt, r.Dispatch)
	}
	own := r.State == witness.Held || r.State == witness.Yielded || r.State == witness.Finished
	if own && old.State == witness.Held && e.Actor != w.holder && same(old.Resume, r.Resume) {
		j.fail("I6", w, e.Key, "%s wrote %s as the holder of the %s, but %s holds it", who(e.Actor), r.State, name, who(w.holder))
	}
	if !same(old.Resume, r.Resume) {
		j.moved(w, e, r)
	}
	switch {
	case old.State == witness.Held: // to any state
	case r.State == witness.Revoked && r.Floor > old.Floor: // a stop
	default:
		j.fail("MOVE", w, e.Key, "%s took the %s from %s to %s: no such move", who(e.Actor), name, old.State, r.State)
	}
	if r.State == witness.Finished {
		j.finished(w, e, r)
	}
}

// recaptured judges a capture of a work that has a witness.
func (j *Judge) recaptured(w *work, e *history.Entry, r *witness.Record) {
	old, name := &w.last, history.Name(e.Key)
	if old.State == witness.Held {
		j.fail("I6", w, e.Key, "%s took the %s from %s, which held it as attempt %d and was not revoked", who(e.Actor), name, who(w.holder), old.Attempt)
	}
	if r.Attempt != old.Attempt+1 {
		j.fail("I6", w, e.Key, "%s captured attempt %d of the %s after attempt %d of %s", who(e.Actor), r.Attempt, name, old.Attempt, who(w.holder))
	}
	if !same(old.Resume, r.Resume) {
		j.fail("I2", w, e.Key, "%s moved the pointer of the %s from %s to %s with a capture", who(e.Actor), name, place(old.Resume), place(r.Resume))
	}
	j.captured(w, e, r, r.Resume, old.Floor)
}

// captured notes a capture and judges what is true of every one.
func (j *Judge) captured(w *work, e *history.Entry, r *witness.Record, from *record.Pointer, floor int64) {
	name := history.Name(e.Key)
	w.holder = e.Actor
	for _, c := range w.captures[r.Attempt] {
		if c.life == w.lives {
			j.fail("I6", w, e.Key, "attempt %d of the %s was captured by %s and by %s", r.Attempt, name, who(c.actor), who(e.Actor))
		}
	}
	if floor = max(floor, r.Floor, w.barred); r.Dispatch < floor {
		j.fail("I8", w, e.Key, "%s captured the %s for dispatch %d, but every dispatch below %d was stopped", who(e.Actor), name, r.Dispatch, floor)
	}
	if c, claimed := w.claims[r.Dispatch]; !claimed {
		j.fail("I8", w, e.Key, "%s captured the %s for dispatch %d, which nobody claimed", who(e.Actor), name, r.Dispatch)
	} else if j.objects[record.ClaimKey(w.id, r.Dispatch)] == nil {
		j.fail("I9", w, e.Key, "%s captured the %s for dispatch %d, whose claim by %s was deleted", who(e.Actor), name, r.Dispatch, who(c.actor))
	}
	if by, used := w.writes["holder "+r.Holder]; used {
		j.fail("I6", w, e.Key, "%s captured the %s with the nonce of a capture of %s", who(e.Actor), name, who(by))
	}
	w.writes["holder "+r.Holder] = e.Actor
	w.captures[r.Attempt] = append(w.captures[r.Attempt], capture{e.Actor, r.Holder, r.Dispatch, from, w.lives})
}

// deletedByHand begins another life: nonces are forgotten, since a late twin of the first creation may bring its bytes
// back. Who owns a prefix and what was ever named is not: that is what reservations are for.
func (w *work) deletedByHand() {
	w.has, w.done, w.last, w.version = false, false, witness.Record{}, ""
	w.writes = map[string]string{}
	w.lives++
}
