//go:build linux

package round

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"sync"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
)

// ledger keeps the history of a round, and which work is whose.
type ledger struct {
	mu      sync.Mutex
	entries []history.Entry
	jobs    map[string]string // work → job, as the claims say
}

var _ history.Sink = (*ledger)(nil)

func newLedger() *ledger { return &ledger{jobs: map[string]string{}} }

// Take implements history.Sink.
func (l *ledger) Take(e history.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	if p, ok := record.Parse(e.Key); ok && e.Op == history.Put && p.Dispatch > 0 && p.Rest == "json" {
		var c record.Claim
		if record.Decode(e.Body, record.MaxRecord, &c) == nil {
			l.jobs[p.Work] = c.Job
		}
	}
}

// works maps jobs to works.
func (l *ledger) works() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]string{}
	for work, job := range l.jobs {
		out[job] = work
	}
	return out
}

func (l *ledger) all() []history.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// line is an entry for people and for jq.
type line struct {
	At      float64 `json:"at_s"`
	Actor   string  `json:"actor"`
	Op      string  `json:"op"`
	Key     string  `json:"key,omitempty"`
	Cond    string  `json:"cond,omitempty"`
	Refused string  `json:"refused,omitempty"`
	Version string  `json:"version,omitempty"`
	Text    string  `json:"text,omitempty"`
	Bytes   int     `json:"bytes,omitempty"`
	Body    any     `json:"body,omitempty"` // of a record
}

// save writes the history, a line for each entry.
func (l *ledger) save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, e := range l.all() {
		out := line{At: e.At.Seconds(), Actor: e.Actor, Op: string(e.Op), Key: e.Key, Version: string(e.Version), Text: e.Text, Bytes: len(e.Body)}
		if is, swap := e.Cond.Is(); swap {
			out.Cond = "is " + string(is)
		} else if e.Cond.Absent() {
			out.Cond = "absent"
		}
		if e.Refused {
			out.Refused = e.Code.String()
		}
		if raw := json.RawMessage(strings.TrimSpace(string(e.Body))); len(raw) < record.MaxRecord && json.Valid(raw) {
			out.Body = raw
		}
		if err := enc.Encode(out); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
