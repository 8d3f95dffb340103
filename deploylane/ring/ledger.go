package ring

import (
	"fmt"
)

// Op is what an event of a load says.
type Op string

const (
	OpSent      Op = "sent"      // a command is about to leave; written first
	OpAnswer    Op = "answer"    // what came back, or that nothing did
	OpCanary    Op = "canary"    // failed; a passed one is followed by OpSwitched
	OpCleared   Op = "cleared"   // the catalog is about to stop naming the load
	OpSwitched  Op = "switched"  // the canary passed, and the catalog names the load
	OpServing   Op = "serving"   // the end of a release
	OpGone      Op = "gone"      // every node of it is absent: the record has done its duty
	OpAbandoned Op = "abandoned" // no command of it ever left
	OpStopped   Op = "stopped"   // a person has to look; nothing more was changed
)

// LoadEvent is load/<generation>/event/<k>.json, created once: one command, answer or step.
type LoadEvent struct {
	Schema     int     `json:"schema"` // 1
	Generation uint64  `json:"generation"`
	Number     int     `json:"number"` // from 1, without a gap
	Op         Op      `json:"op"`
	Command    string  `json:"command,omitempty"` // load, unload
	Node       string  `json:"node,omitempty"`
	Answer     *Answer `json:"answer,omitempty"` // nil: none came
	Detail     string  `json:"detail,omitempty"`
	By         string  `json:"by"`
	Nonce      string  `json:"nonce"`
	At         string  `json:"at"` // for people
}

const (
	maxEvent  = 64 << 10
	maxEvents = 20_000 // of one load
)

// DecodeLoadEvent reads an event strictly.
func DecodeLoadEvent(b []byte) (LoadEvent, error) {
	var e LoadEvent
	if err := strict(b, maxEvent, &e); err != nil {
		return LoadEvent{}, fmt.Errorf("an event of a load: %w", err)
	}
	switch e.Op {
	case OpSent, OpAnswer, OpCanary, OpCleared, OpSwitched, OpServing, OpGone, OpAbandoned, OpStopped:
	default:
		return LoadEvent{}, fmt.Errorf("an event of a load: op %q is not known here: it is of a newer lane", clip(string(e.Op)))
	}
	if e.Schema != 1 || e.Number < 1 {
		return LoadEvent{}, fmt.Errorf("an event of a load: schema %d, number %d: not one of ours", e.Schema, e.Number)
	}
	return e, nil
}

// Ledger is what the events of one load add up to.
type Ledger struct {
	Sent     bool // a LOAD has left, or was about to
	Unloads  bool // an UNLOAD has
	Failed   bool // the canary failed, or a stage answered so
	Switched bool // the catalog names it
	Serving  bool
	Served   bool // it did once, so its release is good
	Cleared  bool // the catalog may have stopped naming it
	Stopped  string
	Closed   Op // OpGone, OpAbandoned; "": it is open
}

// Fold adds events up, in their order. Nothing is believed after a load was closed.
func Fold(events []LoadEvent) Ledger {
	var l Ledger
	for _, e := range events {
		if l.Closed != "" {
			break
		}
		switch e.Op {
		case OpSent:
			l.Sent = l.Sent || e.Command == "load"
			l.Unloads = l.Unloads || e.Command == "unload"
			l.Stopped = ""
		case OpAnswer:
			l.Failed = l.Failed || e.Command == "load" && e.Answer != nil && e.Answer.Status != Succeeded
		case OpCanary:
			l.Failed = true
		case OpCleared:
			l.Cleared, l.Switched, l.Serving = true, false, false
		case OpSwitched:
			l.Switched, l.Cleared = true, false
		case OpServing:
			l.Serving, l.Served, l.Stopped = true, true, ""
		case OpGone, OpAbandoned:
			l.Closed = e.Op
		case OpStopped:
			l.Stopped = e.Detail
		}
	}
	return l
}

// Load is one load as the store has it.
type Load struct {
	Intent Intent
	Events []LoadEvent
	Ledger Ledger
}
