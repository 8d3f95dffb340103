package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Object is one listed object; Age is by the store's own stamps of the listing, 0 where it gave none.
type Object struct {
	Key  string
	Size int64
	Age  time.Duration
}

// View is what a decision about one work rests on.
type View struct {
	Work    string
	Objects []Object         // under work/<work>/, in the order of keys, listed before the witness was read
	Witness *witness.Record  // nil: absent, or not to be understood
	Age     time.Duration    // of the witness's last write, by the store's stamps
	Bad     string           // why the witness cannot be relied on
	Kept    []record.Pointer // the resume pointer and what retention keeps behind it, newest first
	Pinned  bool             // a lane object names the work
}

// Deletion is one thing that goes.
type Deletion struct {
	Reason  Reason
	Prefix  string
	Phases  [][]string // keys: a phase begins when the one before it is done
	Unseen  []string   // not listed, and deleted before the first phase should it be there
	Objects int
	Bytes   int64
	Noted   bool // a pointer may once have named it: the trim record must allow it first
}

// Verdict is what is decided of one work.
type Verdict struct {
	Deletions []Deletion
	Stuck     []string // keys that would go, and that no store deletes
	Left      string   // why the work is left wholly alone, when something may be wrong there
	Young     int      // objects that would go and are younger than the grace period

	// Trim is what the work's trim record must allow before the first deletion; zero: none is needed, since nothing that
	// goes was ever named by a pointer.
	Trim record.Trim
}

// Decide says what of one work goes. Pure: no clock, no store.
func Decide(v View, o Options) Verdict {
	r := v.Witness
	switch {
	case v.Pinned:
		return Verdict{}
	case v.Bad != "":
		return Verdict{Left: v.Bad}
	case r == nil:
		return Verdict{Left: "it has no witness: either no launch has captured yet, or the witness was lost"}
	}
	grace := max(o.Grace, 2*r.Lease.Length())
	if o.off.grace {
		grace = 0
	}
	d := decision{v: v, o: o, grace: grace, over: v.over(o)}
	things := d.things()
	if d.left != "" {
		return Verdict{Left: d.left}
	}
	for _, t := range things {
		reason := d.reason(t)
		switch {
		case reason == "":
		case t.youngest < grace:
			d.out.Young += len(t.keys) + len(t.odd)
		case len(t.keys) == 0:
			d.out.Stuck = append(d.out.Stuck, t.odd...)
		default:
			d.out.Stuck = append(d.out.Stuck, t.odd...)
			del, trim := t.deletion(reason), d.trim(t)
			del.Noted = trim != record.Trim{}
			d.out.Deletions, d.out.Trim = append(d.out.Deletions, del), d.out.Trim.Join(trim)
		}
	}
	return d.out
}

type decision struct {
	v     View
	o     Options
	grace time.Duration
	over  bool  // finished, longer ago than retention keeps
	last  int64 // highest dispatch number there is
	out   Verdict
	left  string
}

// kind of a thing.
type kind uint8

const (
	snapshot kind = iota // a milestone, or the result when its number is 0
	launch
	segments
)

// thing is what lives and dies together.
type thing struct {
	kind     kind
	prefix   string
	attempt  int64 // snapshot, segments
	number   int64 // snapshot: of the milestone; launch: of the dispatch
	keys     []string
	odd      []string // keys that no store deletes: none that headway wrote
	bytes    int64
	youngest time.Duration
	complete bool // a snapshot whose manifest is listed
}

// things groups what may be deleted at all. Whatever it does not know stays.
func (d *decision) things() []*thing {
	var out []*thing
	for _, ob := range d.v.Objects {
		t, ok := thingOf(d.v.Work, ob.Key)
		if t.attempt > d.v.Witness.Attempt {
			d.left = fmt.Sprintf("attempt %d has written, and its witness is at attempt %d: run headway doctor --deep", t.attempt, d.v.Witness.Attempt)
			return nil
		}
		if !ok {
			continue
		}
		if n := len(out); n == 0 || out[n-1].prefix != t.prefix {
			t.youngest = ob.Age
			out = append(out, &t)
		}
		in := out[len(out)-1]
		if in.kind == launch {
			d.last = max(d.last, in.number)
		}
		in.youngest = min(in.youngest, ob.Age)
		if bucket.CheckKey("delete", ob.Key) != nil {
			in.odd = append(in.odd, ob.Key)
			continue
		}
		in.keys = append(in.keys, ob.Key)
		in.bytes += ob.Size
		in.complete = in.complete || ob.Key == in.prefix+"manifest.json"
	}
	return out
}

// thingOf says what a key belongs to; ok is false for what is never deleted. The attempt is set wherever there is one.
func thingOf(work, key string) (t thing, ok bool) {
	p, ok := record.Parse(key)
	if !ok {
		return t, false
	}
	t.attempt = p.Attempt
	switch {
	case p.Dispatch > 0:
		t.kind, t.number = launch, p.Dispatch
		t.prefix = strings.TrimSuffix(record.ClaimKey(work, p.Dispatch), "json")
	case p.Attempt == 0:
		return t, false
	case strings.HasPrefix(p.Rest, "result/"):
		t.prefix = record.ResultPrefix(work, p.Attempt)
	case strings.HasPrefix(p.Rest, "milestone/"):
		number, _, _ := strings.Cut(strings.TrimPrefix(p.Rest, "milestone/"), "/")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 1 {
			return t, false
		}
		t.number = n
		t.prefix = record.MilestonePrefix(work, p.Attempt, t.number)
	case strings.HasPrefix(p.Rest, "log/"):
		t.kind, t.prefix = segments, record.LogPrefix(work, p.Attempt)
	case strings.HasPrefix(p.Rest, "events/"):
		t.kind, t.prefix = segments, record.EventPrefix(work, p.Attempt)
	}
	return t, t.prefix != "" && strings.HasPrefix(key, t.prefix)
}

// reason says why a thing goes, or "".
func (d *decision) reason(t *thing) Reason {
	r := d.v.Witness
	if t.kind == launch {
		// The first one tells whoever looks at a work without a lease that it is not new, the last one keeps the numbering.
		if d.over && t.number > 1 && t.number < d.last {
			return Launches
		}
		return ""
	}
	if r.State == witness.Held && t.attempt == r.Attempt && !d.o.off.held {
		return ""
	}
	if t.kind == segments {
		if t.youngest >= d.o.Logs {
			return Logs
		}
		return ""
	}
	kept := func(p record.Pointer) bool { return p.Attempt == t.attempt && p.Milestone == t.number }
	switch {
	case t.number == 0 && r.Finished != nil && r.Finished.Attempt == t.attempt:
		return ""
	case t.number > 0 && !d.over && slices.ContainsFunc(d.v.Kept, kept):
		return ""
	case !t.complete:
		return Partial
	case t.number > 0 && d.over:
		return Finished
	case t.number > 0 && d.behind(t):
		return Behind
	}
	return Unnamed
}

// behind reports a milestone before the oldest one that is kept: one of the line, or of an attempt that left it.
func (d *decision) behind(t *thing) bool {
	if len(d.v.Kept) == 0 {
		return false
	}
	k := d.v.Kept[len(d.v.Kept)-1]
	return cmp.Or(cmp.Compare(t.attempt, k.Attempt), cmp.Compare(t.number, k.Milestone)) < 0
}

// deletion puts the keys in a safe order: a manifest before its files, also one that the listing did not show; a claim
// after the answers to it; the end of a log before its beginning.
func (t *thing) deletion(why Reason) Deletion {
	d := Deletion{Reason: why, Prefix: t.prefix, Objects: len(t.keys), Bytes: t.bytes}
	switch t.kind {
	case snapshot:
		manifest := t.prefix + "manifest.json"
		files := slices.DeleteFunc(t.keys, func(k string) bool { return k == manifest })
		if d.Phases = [][]string{{manifest}, files}; !t.complete {
			d.Unseen, d.Phases = d.Phases[0], d.Phases[1:]
		}
	case launch:
		claim := t.prefix + "json"
		answers := slices.DeleteFunc(t.keys, func(k string) bool { return k == claim })
		d.Phases = [][]string{answers, {claim}}
	case segments:
		slices.Reverse(t.keys)
		d.Phases = [][]string{t.keys}
	}
	return d
}

// trim is what must be allowed before a thing goes. Whether a milestone is of the line or left it is not known without
// reading every manifest, so all before the oldest one that is kept are allowed to be missing.
func (d *decision) trim(t *thing) record.Trim {
	switch {
	case t.kind != snapshot || t.number == 0:
	case d.over:
		return record.Trim{Attempt: d.v.Witness.Attempt + 1}
	case d.behind(t):
		k := d.v.Kept[len(d.v.Kept)-1]
		return record.Trim{Attempt: k.Attempt, Milestone: k.Milestone}
	}
	return record.Trim{}
}
