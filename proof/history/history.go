// Package history is what really happened to one store, in the order in which the store took it: every request that
// changed an object or could have, who sent it, under which condition, and what became of it; and beside these,
// remarks (a launch, a crash, a pause) that make it readable. It is what proofs are held against: package judge asks
// whether the invariants hold over all of it, package model whether every write is a move that the protocol has.
package history

import (
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Op says what an entry is.
type Op string

const (
	Put    Op = "put"
	Delete Op = "delete"
	Note   Op = "note" // no request: something that happened beside the store; Text says what
)

// Entry is one line of a history.
type Entry struct {
	At    time.Duration // since the history's begin, on the run's own clock
	Actor string        // who sent it, one name for each life of a process: "worker 3 of dispatch 2"; "" for nobody
	Op    Op
	Key   string      // as the store was asked; "" in a Note
	Cond  bucket.Cond // of a Put
	Body  []byte      // of a Put: whole; never changed by anybody

	// Refused: the store decided and wrote nothing; Code says why (Condition, Raced, …) and means nothing otherwise. A
	// request that never reached the store is not in the history, but may be noted.
	Refused bool
	Code    bucket.Code
	Version bucket.Version // the key's version after an applied Put

	Text string // of a Note: what happened. Of a request: what befell it on the way ("answer lost", "landed late"), for people
}

// Applied reports whether the entry changed the store.
func (e *Entry) Applied() bool { return e.Op != Note && !e.Refused }

// Sink takes entries one by one, in order, from one goroutine at a time.
type Sink interface {
	Take(Entry)
}
