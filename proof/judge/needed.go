package judge

import (
	"fmt"
	"strings"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// delete is I9: nothing goes that somebody may still need.
func (j *Judge) delete(e *history.Entry) {
	if id, is := strings.CutPrefix(e.Key, record.WitnessPrefix); is {
		w := j.work(id)
		if !w.has {
			return
		}
		if e.Actor != "" || j.deletes >= j.o.HandDeletes {
			j.fail("I9", w, e.Key, "%s deleted the %s; no witness is ever deleted", who(e.Actor), history.Name(e.Key))
		}
		j.deletes++
		w.deletedByHand()
		return
	}
	if j.objects[e.Key] == nil {
		return
	}
	if strings.HasPrefix(e.Key, "code/") {
		for _, w := range j.users[e.Key] {
			if w.mayRun() {
				j.fail("I9", w, e.Key, "%s deleted %s, which dispatch %d of work %s may still run", who(e.Actor), history.Name(e.Key), w.lastClaim, history.Short(w.id))
			}
		}
	}
	if p, under := record.Parse(e.Key); under {
		w := j.work(p.Work)
		if why := j.needed(w, e.Key, p); why != "" {
			j.fail("I9", w, e.Key, "%s deleted %s, which is needed: %s", who(e.Actor), history.Name(e.Key), why)
		}
	} else {
		j.besideGone(e)
	}
	delete(j.objects, e.Key)
}

// mayRun: some launch of this work may be running, or may still begin.
func (w *work) mayRun() bool {
	if w.done || w.lastClaim == 0 {
		return false
	}
	return !w.has || w.last.State == witness.Held || w.lastClaim >= max(w.last.Floor, w.barred)
}

// needed says why a stored object under work/ must stay; "": it may go.
func (j *Judge) needed(w *work, key string, p record.ParsedKey) string {
	switch {
	case p.Attempt > 0:
		return j.neededOfAttempt(w, key, p)
	case p.Dispatch == 0:
		return "it says what the work is"
	case w.done && j.o.FinishedRecords:
		return ""
	case w.done:
		return "it is a record of what the work cost"
	}
	return "the work is not finished, and its budget and numbering follow from it"
}

func (j *Judge) neededOfAttempt(w *work, key string, p record.ParsedKey) string {
	n := p.Attempt
	if w.has && w.last.State == witness.Held && w.last.Attempt == n {
		return fmt.Sprintf("attempt %d holds the lease (%s)", n, who(w.holder))
	}
	if f := w.last.Finished; w.done && f != nil && f.Attempt == n && (strings.HasPrefix(p.Rest, "result/") || p.Rest == "open.json") {
		return "it belongs to the result"
	}
	if p.Rest == "open.json" || p.Rest == "end.json" {
		return "it says that the attempt was, and how it ended"
	}
	tail, is := strings.CutPrefix(p.Rest, "milestone/")
	num, _, cut := strings.Cut(tail, "/")
	if !is || !cut || w.done && j.o.FinishedMilestones {
		return ""
	}
	at, on := w.onChain[record.AttemptPrefix(w.id, n)+"milestone/"+num+"/manifest.json"]
	if !on || !j.listed(key) {
		return ""
	}
	switch back := len(w.chain) - 1 - at; {
	case back == 0:
		return "the resume pointer names it"
	case j.o.Ancestors == 0 || back < j.o.Ancestors:
		return fmt.Sprintf("it is an ancestor of the resume pointer, %d back", back)
	}
	return ""
}

// listed: the object belongs to a snapshot that was named, and does not merely lie in its folder.
func (j *Judge) listed(key string) bool { return j.objects[key].named }
