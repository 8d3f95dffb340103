package witness

import (
	"fmt"
	"strings"
	"sync"

	"github.com/headway-run/headway/runners/record"
)

// judge holds every write that lands against the invariants. It knows nothing of the code under test but the records.
type judge struct {
	mu      sync.Mutex
	w       *world
	seed    uint64
	last    *Record           // the witness as it is
	holders map[string]bool   // nonces of all captures
	owner   map[string]int    // attempt prefix → the actor that writes under it
	named   map[string][]byte // manifests that the witness has named, frozen
	bodies  map[string]bool   // every body a witness had
	writes  map[string]bool   // every write nonce that landed
	broken  error
	over    bool
}

func newJudge(w *world, seed uint64) *judge {
	return &judge{w: w, seed: seed, holders: map[string]bool{}, owner: map[string]int{}, named: map[string][]byte{}, bodies: map[string]bool{}, writes: map[string]bool{}}
}

func (j *judge) fail(invariant, format string, args ...any) {
	if j.broken == nil {
		j.broken = fmt.Errorf("%s: %s", invariant, fmt.Sprintf(format, args...))
	}
}

// found is the first broken invariant.
func (j *judge) found() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

// stop ends the judgement: the world comes down.
func (j *judge) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
}

func (j *judge) state() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil {
		return ""
	}
	return j.last.State
}

// deleted begins another life: what was named may now be forgotten, and a late twin of the first creation may bring
// the same bytes back. The owners of prefixes may not be forgotten: that is what the reservation is for.
func (j *judge) deleted() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last, j.named = nil, map[string][]byte{}
	j.bodies, j.holders = map[string]bool{}, map[string]bool{}
}

// landed is called for every put that changed the store.
func (j *judge) landed(a *actor, key string, b []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return
	}
	switch p, under := record.Parse(key); {
	case strings.HasPrefix(key, record.WitnessPrefix):
		j.witness(b)
	case key == "pointer":
		j.pointer(a, string(b))
	case under && p.Attempt > 0 && p.Rest != "open.json":
		prefix := record.AttemptPrefix(j.w.work, p.Attempt)
		if who, has := j.owner[prefix]; has && who != a.id {
			j.fail("I1", "%s is written by actor %d and by actor %d", prefix, who, a.id)
		}
		j.owner[prefix] = a.id
		if old, has := j.named[key]; has && string(old) != string(b) {
			j.fail("I1", "%s changed after it was named", key)
		}
	}
}

// pointer is for the mutant that keeps the pointer in an object of its own: who moves it must hold the lease.
func (j *judge) pointer(_ *actor, b string) {
	holder, _, _ := strings.Cut(b, " ")
	if j.last == nil || j.last.Holder != holder {
		j.fail("I2", "the pointer was moved by a holder that is deposed")
	}
}

func (j *judge) witness(b []byte) {
	if j.bodies[string(b)] {
		j.fail("ABA", "two versions are byte-identical")
	}
	j.bodies[string(b)] = true
	r, err := Decode(j.w.work, b)
	if err != nil {
		j.fail("format", "%v", err)
		return
	}
	old := j.last
	j.last = &r
	j.writes[r.Write] = true
	if old == nil {
		j.captured(r)
		return
	}
	if old.State == Finished {
		j.fail("I5", "a finished work became %s", r.State)
	}
	if r.Rev != old.Rev+1 || r.Attempt < old.Attempt || r.Floor < old.Floor {
		j.fail("order", "rev %d→%d, attempt %d→%d, floor %d→%d", old.Rev, r.Rev, old.Attempt, r.Attempt, old.Floor, r.Floor)
	}
	switch {
	case r.Holder != "" && r.Holder != old.Holder:
		if old.State == Held {
			j.fail("I6", "the holder was replaced without a revoke")
		}
		if r.Attempt != old.Attempt+1 {
			j.fail("I6", "attempt %d has two holders", r.Attempt)
		}
		j.captured(r)
		if !samePointer(old.Resume, r.Resume) {
			j.fail("I4", "the pointer changed at a capture")
		}
	case !samePointer(old.Resume, r.Resume):
		if r.Holder != old.Holder || r.State != Held {
			j.fail("I2", "the pointer was moved by somebody else than the holder")
		}
		j.moved(old.Resume, r)
	}
	if r.State == Finished {
		j.names(r.Finished.Manifest, r.Finished.SHA256)
	}
}

func (j *judge) captured(r Record) {
	if r.State != Held {
		return
	}
	if j.holders[r.Holder] {
		j.fail("I6", "a capture nonce was used twice")
	}
	j.holders[r.Holder] = true
	if r.Dispatch < r.Floor {
		j.fail("I8", "dispatch %d captured below the floor %d", r.Dispatch, r.Floor)
	}
}

// moved is I2, I3 and I4 for one step of the pointer.
func (j *judge) moved(from *record.Pointer, r Record) {
	to := r.Resume
	if to == nil {
		j.fail("I2", "the pointer vanished")
		return
	}
	if to.Attempt != r.Attempt || from != nil && to.Step <= from.Step {
		j.fail("I2", "the pointer went from %+v to %+v at attempt %d", from, to, r.Attempt)
	}
	b := j.names(to.Manifest, to.SHA256)
	var m record.Manifest
	if b == nil || record.Decode(b, record.MaxManifest, &m) != nil {
		return
	}
	if !samePointer(m.Parent, from) {
		j.fail("I4", "%s grew from %+v, the pointer was %+v", to.Manifest, m.Parent, from)
	}
}

// names is I3: what is named exists, whole, and is frozen from here on.
func (j *judge) names(key, sum string) []byte {
	j.w.s.mu.Lock()
	o, has := j.w.s.objects[key]
	j.w.s.mu.Unlock()
	if !has || record.Hash(o.body) != sum {
		j.fail("I3", "%s is named and incomplete", key)
		return nil
	}
	j.named[key] = o.body
	return o.body
}

// won checks a holder's claim that its last write is in the history.
func (j *judge) won(h *Holder) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over && !j.writes[h.Seen().Record.Write] {
		j.fail("Won", "a write was said to be won and is in no version")
	}
}
