package history

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Print writes the timeline of a history: a line for each entry with the time since its begin, who, and what happened in
// the words of the protocol. Everything that comes from the history is bounded and escaped.
func Print(w io.Writer, entries []Entry) {
	p := printer{last: map[string]witness.Record{}, holders: map[string]bool{}, wide: 1}
	works := map[string]bool{}
	for i := range entries {
		p.wide = min(max(p.wide, utf8.RuneCountInString(who(entries[i].Actor))), 32)
		if work := workOf(entries[i].Key); work != "" {
			works[work] = true
		}
	}
	p.many = len(works) > 1
	b := bufio.NewWriter(w)
	defer func() { _ = b.Flush() }()
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(b, "%11s  %-*s  %s\n", clock(e.At), p.wide, who(e.Actor), p.event(e))
	}
}

func workOf(key string) string {
	if work, is := strings.CutPrefix(key, record.WitnessPrefix); is {
		return work
	}
	p, _ := record.Parse(key)
	return p.Work
}

// clock is h:mm:ss.mmm.
func clock(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	ms := d.Milliseconds()
	return fmt.Sprintf("%s%d:%02d:%02d.%03d", sign, ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}

func who(actor string) string {
	if actor == "" {
		return "nobody"
	}
	return clean(actor)
}

// printer knows the last version of each lease, to say what a next one means.
type printer struct {
	last    map[string]witness.Record
	holders map[string]bool // nonces of captures that were applied
	many    bool            // more than one work: each line says which
	wide    int
}

// event says in words what an entry is.
func (p *printer) event(e *Entry) string {
	if e.Op == Note {
		return "· " + clean(e.Text)
	}
	s := p.request(e)
	if e.Refused {
		s = fmt.Sprintf("✗ is refused (%s): %s", number(e.Code), s)
	}
	if work := workOf(e.Key); p.many && work != "" {
		s += " · " + Short(clean(work))
	}
	if e.Text != "" {
		s += " [" + clean(e.Text) + "]"
	}
	return s
}

// number is a refusal as HTTP says it, where it does.
func number(c bucket.Code) string {
	switch c {
	case bucket.Condition:
		return "412"
	case bucket.Raced:
		return "409"
	case bucket.Gone, bucket.NotFound:
		return "404"
	case bucket.Throttled:
		return "503"
	case bucket.Denied:
		return "403"
	case bucket.Full:
		return "507"
	case bucket.Unknown, bucket.NoBucket, bucket.BadKey, bucket.Unsupported:
	}
	return c.String()
}

func (p *printer) request(e *Entry) string {
	if work, is := strings.CutPrefix(e.Key, record.WitnessPrefix); is {
		if e.Op == Delete {
			if e.Applied() {
				delete(p.last, work)
			}
			return "DELETES the witness"
		}
		return p.lease(e, work)
	}
	name, _, _ := strings.Cut(Name(e.Key), " of ")
	k, under := record.Parse(e.Key)
	switch {
	case e.Op == Delete:
		return "deletes " + name
	case !under:
		return fmt.Sprintf("writes %s (%d B)", name, len(e.Body))
	case k.Dispatch > 0 && k.Rest == "json":
		var c record.Claim
		_ = record.Decode(e.Body, record.MaxRecord, &c) // what cannot be read is shown empty
		return fmt.Sprintf("claims dispatch %d%s", k.Dispatch, aside(" on ", c.Platform)+aside(": ", c.Reason))
	case k.Dispatch > 0 && k.Rest == "receipt.json":
		var r record.Receipt
		_ = record.Decode(e.Body, record.MaxRecord, &r)
		if r.OK {
			return fmt.Sprintf("notes that dispatch %d was taken", k.Dispatch)
		}
		return fmt.Sprintf("notes that dispatch %d was not taken%s", k.Dispatch, aside(": ", strings.TrimSpace(r.Class+" "+r.Text)))
	case k.Attempt > 0:
		return ofAttempt(e, k, name)
	}
	return fmt.Sprintf("writes %s (%d B)", name, len(e.Body))
}

func aside(before, text string) string {
	if text == "" {
		return ""
	}
	return before + clean(text)
}

func ofAttempt(e *Entry, k record.ParsedKey, name string) string {
	switch {
	case k.Rest == "open.json":
		var o record.Open
		_ = record.Decode(e.Body, record.MaxRecord, &o)
		return fmt.Sprintf("reserves the prefix of attempt %d, starting from %s", k.Attempt, place(o.Resume))
	case k.Rest == "end.json":
		var n record.End
		_ = record.Decode(e.Body, record.MaxRecord, &n)
		return fmt.Sprintf("says that attempt %d ended: %s%s", k.Attempt, clean(n.Class), aside(", ", n.Text))
	case strings.HasSuffix(k.Rest, "/manifest.json"):
		var m record.Manifest
		_ = record.Decode(e.Body, record.MaxManifest, &m)
		return fmt.Sprintf("completes %s at step %d, grown from %s", strings.TrimSuffix(name, " manifest.json"), m.Step, place(m.Parent))
	}
	return fmt.Sprintf("uploads %s (%d B)", name, len(e.Body))
}

func place(p *record.Pointer) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("attempt %d milestone %d step %d", p.Attempt, p.Milestone, p.Step)
}

// lease says what a version of a lease does to the one before.
func (p *printer) lease(e *Entry, work string) string {
	r, err := witness.Decode(work, e.Body)
	if err != nil {
		return fmt.Sprintf("writes an unreadable witness (%s)", clean(err.Error()))
	}
	old, had := p.last[work]
	if e.Applied() {
		p.last[work] = r
	}
	moved := r.Resume != nil && (old.Resume == nil || *old.Resume != *r.Resume)
	switch r.State {
	case witness.Held:
		switch {
		case !p.holders[r.Holder]:
			p.holders[r.Holder] = e.Applied()
			return fmt.Sprintf("captures attempt %d for dispatch %d from %s, rev %d", r.Attempt, r.Dispatch, place(r.Resume), r.Rev)
		case moved:
			return fmt.Sprintf("moves the pointer to %s, rev %d", place(r.Resume), r.Rev)
		}
		return fmt.Sprintf("renews attempt %d at step %d, rev %d%s", r.Attempt, r.Progress.Step, r.Rev, aside(", ", r.Lease.Phase))
	case witness.Yielded:
		return fmt.Sprintf("yields attempt %d, rev %d%s", r.Attempt, r.Rev, aside(": ", r.Reason))
	case witness.Finished:
		return fmt.Sprintf("FINISHES with the result of attempt %d, rev %d", r.Attempt, r.Rev)
	case witness.Revoked:
		if had && r.Floor == old.Floor {
			return fmt.Sprintf("revokes attempt %d, rev %d%s", r.Attempt, r.Rev, aside(": ", r.Reason))
		}
		if !had && r.Attempt > 0 {
			return fmt.Sprintf("repairs the witness at attempt %d with the pointer at %s%s", r.Attempt, place(r.Resume), aside(": ", r.Reason))
		}
		return fmt.Sprintf("stops the work: no dispatch below %d may capture, rev %d%s", r.Floor, r.Rev, aside(": ", r.Reason))
	}
	return "writes the witness" // Decode has refused every other state
}
