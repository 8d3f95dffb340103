//go:build linux

package round

import (
	"fmt"
	"strings"

	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// somebody is the beginning of the name of a process that had ended, or closed its connection, before the kernel could be
// asked whose it was.
const somebody = "somebody at "

// attributed returns the history with a name in place of somebody, where what was written tells whose it is: a lease's
// nonce is its holder's, a claim names its dispatcher's process, and a prefix is its reserver's. That says nothing more
// of these writes than their writers do; of all others the kernel has said whose they are. How many there were is counted.
func (l *ledger) attributed() (out []history.Entry, count Writers) {
	k := knowing{by: map[string]string{}, pids: map[string]string{}}
	for _, e := range l.all() {
		if e.Op != history.Note {
			count.Writes++
		}
		if strings.HasPrefix(e.Actor, somebody) {
			if who := k.guess(e); who == "" {
				count.Unknown++
			} else {
				count.Named++
				e.Actor, e.Text = who, strings.TrimSpace(e.Text+" (named by what it wrote: its connection was gone before it could be asked for)")
			}
		}
		k.learn(e)
		out = append(out, e)
	}
	return out, count
}

// Writers is how many writes were judged, and of how many the kernel could not say whose they were.
type Writers struct {
	Writes  int // refused ones too
	Named   int // got the name that belongs to what they wrote
	Unknown int // stayed somebody's
}

// Add adds another count.
func (w *Writers) Add(o Writers) {
	w.Writes += o.Writes
	w.Named += o.Named
	w.Unknown += o.Unknown
}

// Share is the part of all writes that the kernel has not said whose they were, 0 to 1.
func (w Writers) Share() float64 {
	return float64(w.Named+w.Unknown) / float64(max(w.Writes, 1))
}

// knowing is what earlier entries say of who is who.
type knowing struct {
	by   map[string]string // nonce of a holder, prefix of an attempt, number of a dispatch → actor
	pids map[string]string // process number of a watcher → actor
}

func (k knowing) learn(e history.Entry) {
	var pid int
	if _, err := fmt.Sscanf(e.Actor, string(kin.Watcher)+" %d.", &pid); err == nil {
		k.pids[fmt.Sprint(pid)] = e.Actor
	}
	if !e.Applied() || e.Op != history.Put {
		return
	}
	for _, mark := range marks(e) {
		if k.by[mark] == "" {
			k.by[mark] = e.Actor
		}
	}
}

func (k knowing) guess(e history.Entry) string {
	if p, ok := record.Parse(e.Key); ok && p.Dispatch > 0 && p.Rest == "json" {
		var c record.Claim
		if record.Decode(e.Body, record.MaxRecord, &c) == nil {
			return k.pids[c.Dispatcher[strings.LastIndexByte(c.Dispatcher, '/')+1:]]
		}
	}
	for _, mark := range marks(e) {
		if who := k.by[mark]; who != "" {
			return who
		}
	}
	return ""
}

// marks are what ties a write to its writer's other ones.
func marks(e history.Entry) (out []string) {
	if work, is := strings.CutPrefix(e.Key, record.WitnessPrefix); is {
		r, err := witness.Decode(work, e.Body)
		switch {
		case err != nil || r.State == witness.Revoked:
			return nil
		case r.Holder != "":
			return []string{r.Holder, record.AttemptPrefix(work, r.Attempt)}
		}
		return []string{record.AttemptPrefix(work, r.Attempt)}
	}
	p, ok := record.Parse(e.Key)
	switch {
	case ok && p.Attempt > 0:
		return []string{record.AttemptPrefix(p.Work, p.Attempt)}
	case ok && p.Dispatch > 0 && !strings.HasPrefix(p.Rest, "release."):
		return []string{record.ClaimKey(p.Work, p.Dispatch)}
	}
	return nil
}
