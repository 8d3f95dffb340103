// Package judge holds every write that a store took against the invariants I1 to I9 of the lease protocol, one by one
// and in the store's order: the oracle of the proofs. It shares the records and their decoders with the product and not
// one decision, keeps its own copy of what is stored, and sees a broken invariant at the write that breaks it.
//
// Beside the invariants it knows eight rules that hold them up, and names them REV (rev grows by one, no nonce twice),
// MOVE (the moves that a lease has), FORMAT (records that can be read), OPEN (a prefix is reserved before it is used),
// COND (a witness is written under a condition that holds), and STATS, NOTIFY and BOARD for what lies beside the works
// (learnt.go). What it cannot see: reads, and anything that was never sent.
package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Options say what this history was allowed to do.
type Options struct {
	// HandDeletes is how many times a witness may be deleted by nobody (Actor ""): an injected fault, after which the work
	// has another life. A delete by anybody else breaks I9 always.
	HandDeletes int

	// Ancestors is how many snapshots of a resume pointer's line, the pointer's own counted, must be kept; 0: all of them.
	// (gc.Options.Milestones counts those behind the pointer: one less.)
	Ancestors int

	// FinishedMilestones: of a finished work only the result must be kept, none of its milestones.
	FinishedMilestones bool

	// FinishedRecords: claims, receipts and releases of a finished work may go, the last claim too. If somebody then counts
	// from one again, that is found when it happens (I8).
	FinishedRecords bool

	// AllFinish: at End every work that has a witness or a claim must be finished (I7).
	AllFinish bool
}

// Violation is one broken invariant.
type Violation struct {
	Invariant string // I1, I1b, I2 … I9; or REV, MOVE, FORMAT, OPEN, COND, STATS, NOTIFY, BOARD
	Key       string
	Work      string // 64 hex digits; "" when the key is of no work
	Text      string // one sentence, names key and actors
	Entry     int    // index of the entry at which it broke, counted from 0; of End: number of entries
	At        time.Duration
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at entry %d (%s): %s", v.Invariant, v.Entry, v.At, v.Text)
}

// Bounds on what is kept of a history that is broken all over.
const (
	keepAll  = 1000 // violations in all
	keepEach = 8    // of one invariant in one work
)

// Judge is a history.Sink. Make one with New; one goroutine uses it.
type Judge struct {
	o       Options
	n       int // entries taken
	entry   *history.Entry
	at      time.Duration
	works   map[string]*work
	objects map[string]*object // all but the witnesses
	users   map[string][]*work // code bundle → the works whose spec names it
	deletes int                // witnesses deleted by nobody
	broken  []Violation
	counts  map[[2]string]int // of one invariant in one work
	ended   bool
}

var _ history.Sink = (*Judge)(nil)

// New returns a judge of an empty store.
func New(o Options) *Judge {
	return &Judge{o: o, works: map[string]*work{}, objects: map[string]*object{}, users: map[string][]*work{}, counts: map[[2]string]int{}}
}

// object is what the judge keeps of a stored object.
type object struct {
	body    []byte
	by      string         // who wrote it first
	sum     string         // sha256; "" until somebody asks
	version bucket.Version // of what lies beside the works
	named   bool           // belongs to a snapshot or a result that a witness has named
}

func (o *object) sha256() string {
	if o.sum == "" {
		o.sum = record.Hash(o.body)
	}
	return o.sum
}

// Take judges one entry.
func (j *Judge) Take(e history.Entry) {
	j.entry, j.at = &e, e.At
	if e.Applied() {
		switch e.Op {
		case history.Put:
			j.put(&e)
		case history.Delete:
			j.delete(&e)
		case history.Note:
		}
	}
	j.n++
	j.entry = nil
}

// Broken returns what was found so far, in the order of the entries. At most 1,000, and of one invariant in one work
// the first eight.
func (j *Judge) Broken() []Violation { return j.broken }

// Taken is how many entries were judged.
func (j *Judge) Taken() int { return j.n }

// Stopped tells the judge that a stop of this work was acknowledged: no dispatch below floor may capture from now on,
// whatever the record says (I8).
func (j *Judge) Stopped(work string, floor int64) {
	w := j.work(work)
	w.barred = max(w.barred, floor)
}

// End says what can only be said when nothing follows. Call it once.
func (j *Judge) End() {
	if j.ended {
		return
	}
	j.ended = true
	for _, id := range slices.Sorted(maps.Keys(j.works)) {
		w := j.works[id]
		if !j.o.AllFinish || !w.has && w.lastClaim == 0 {
			continue
		}
		switch {
		case !w.has:
			j.fail("I7", w, record.WitnessKey(id), "work %s was dispatched %d times and nobody captured it", history.Short(id), w.lastClaim)
		case !w.done:
			j.fail("I7", w, record.WitnessKey(id), "work %s did not finish: it is %s at attempt %d, last captured by %s", history.Short(id), w.last.State, w.last.Attempt, who(w.holder))
		}
	}
}

func (j *Judge) work(id string) *work {
	w := j.works[id]
	if w == nil {
		w = newWork(id)
		j.works[id] = w
	}
	return w
}

func (j *Judge) fail(invariant string, w *work, key, format string, args ...any) {
	id := ""
	if w != nil {
		id = w.id
	}
	count := [2]string{invariant, id}
	j.counts[count]++
	if len(j.broken) >= keepAll || j.counts[count] > keepEach {
		return
	}
	j.broken = append(j.broken, Violation{Invariant: invariant, Key: key, Work: id, Text: fmt.Sprintf(format, args...), Entry: j.n, At: j.at})
}

// put is one applied write.
func (j *Judge) put(e *history.Entry) {
	if id, is := strings.CutPrefix(e.Key, record.WitnessPrefix); is {
		j.witness(e, id)
		return
	}
	p, under := record.Parse(e.Key)
	if !under { // platforms' state, code bundles: written conditionally, or by their content; the rest: see beside
		old := j.objects[e.Key]
		j.beside(e, old)
		if old != nil {
			old.body, old.sum, old.version = e.Body, "", e.Version
			return
		}
		j.objects[e.Key] = &object{body: e.Body, by: e.Actor, version: e.Version}
		return
	}
	j.immutable(e, p)
}

// who names an actor.
func who(actor string) string {
	if actor == "" {
		return "nobody"
	}
	return actor
}
