package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// get reads one record. One that is too large is bad, not an error.
func (r *Reader) get(ctx context.Context, key string) (o object, found bool, err error) {
	limit := int64(record.MaxRecord)
	if k, _ := record.Parse(key); k.Attempt > 0 && k.Rest != "open.json" && k.Rest != "end.json" {
		limit = record.MaxManifest
	}
	got, err := r.b.Get(ctx, key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return o, false, nil
	}
	if err != nil {
		return o, false, err
	}
	defer got.Body.Close()
	o.modified = got.Modified
	if got.Size > limit {
		o.bad = fmt.Sprintf("%d bytes, at most %d are read", got.Size, limit)
		return o, true, nil
	}
	if o.body, err = io.ReadAll(io.LimitReader(got.Body, limit)); err == nil && int64(len(o.body)) != got.Size {
		err = io.ErrUnexpectedEOF
	}
	return o, true, err
}

// isStore tells an answer of the store from bytes that are no record.
func isStore(err error) bool {
	_, is := errors.AsType[*bucket.Error](err)
	return is || errors.Is(err, io.ErrUnexpectedEOF)
}

// decode reads a record of this protocol.
func decode(o object, max int, v any) error {
	if o.bad != "" {
		return errors.New(o.bad)
	}
	return record.Decode(o.body, max, v)
}

// lease tells how the lease stands, where that is the end of something. The records tell the rest.
func (t *teller) lease(seen witness.Seen) {
	rec := &seen.Record
	e := Event{Time: seen.Modified, Attempt: rec.Attempt, Dispatch: rec.Dispatch, Step: rec.Progress.Step, Reason: rec.Reason}
	switch rec.State {
	case witness.Finished:
		t.out.Over = true
		e.What, e.Reason = Finished, "its result is whole"
		if rec.Finished != nil && rec.Finished.ExitCode != 0 {
			e.Reason = fmt.Sprintf("with exit code %d", rec.Finished.ExitCode)
		}
		t.add(e)
	case witness.Yielded:
		e.What = Yielded
		t.lost[rec.Attempt] = e
	case witness.Revoked:
		e.What = Revoked
		t.lost[rec.Attempt] = e
	case witness.Held:
	}
}

// dispatch tells one record of a launch.
func (t *teller) dispatch(k record.ParsedKey, o object) {
	e := Event{Time: o.modified, Dispatch: k.Dispatch}
	_, isRelease := record.ReleaseNumber(k.Rest)
	switch {
	case k.Rest == "json":
		var c record.Claim
		if err := decode(o, record.MaxRecord, &c); err != nil || c.Protocol > record.Protocol || c.Work != k.Work || c.Dispatch != k.Dispatch {
			t.unreadable(e, "its claim")
			return
		}
		t.before(c.Before, o)
		e.What, e.Platform, e.By, e.Reason = Claimed, c.Platform, c.Dispatcher, c.Reason
	case k.Rest == "receipt.json":
		var c record.Receipt
		if err := decode(o, record.MaxRecord, &c); err != nil || c.Protocol > record.Protocol || c.Work != k.Work || c.Dispatch != k.Dispatch {
			t.unreadable(e, "its receipt")
			return
		}
		e.What, e.Reason = Launched, c.Text
		if !c.OK {
			e.What, e.Class = Refused, c.Class
		}
	case isRelease:
		var c record.Release
		if err := decode(o, record.MaxRecord, &c); err != nil || c.Protocol > record.Protocol || c.Work != k.Work || c.Dispatch != k.Dispatch {
			t.unreadable(e, "the answer to its release")
			return
		}
		e.What, e.Class, e.Reason = Released, c.Settlement, c.Text
	default:
		t.unreadable(e, "an object of its launch that is none of ours")
		return
	}
	t.add(e)
}

// before tells how the attempt before a claim lost its lease, as the claimer saw it: the lease itself forgets it at the next
// capture. The first claim that knows of it counts. Claims of older versions have neither the reason nor the stamp.
func (t *teller) before(b *record.Before, o object) {
	if b == nil || b.Attempt < 1 {
		return
	}
	if _, told := t.lost[b.Attempt]; told {
		return
	}
	e := Event{Time: o.modified, What: Yielded, Dispatch: b.Dispatch, Attempt: b.Attempt, Step: b.Step, Reason: "it had given its place back before the next claim"}
	if b.Off || b.Stopped != "" || b.State == string(witness.Revoked) {
		e.What, e.Reason = Revoked, cmp.Or(b.Stopped, "its lease had been taken away before the next claim: it was silent, or somebody revoked it")
	}
	e.Reason = cmp.Or(b.Reason, e.Reason)
	if at, err := time.Parse(time.RFC3339, b.At); err == nil && at.Unix() > 0 && at.Before(o.modified) { // both are stamps of the store
		e.Time = at.UTC()
	}
	t.lost[b.Attempt] = e
}

// losses tells how leases were lost. What a worker said of its own yield says more.
func (t *teller) losses() {
	for a, e := range t.lost {
		if e.What == Revoked || !t.ended[a] {
			t.add(e)
		}
	}
}

// open tells that an attempt began.
func (t *teller) open(a int64, o object) {
	e := Event{Time: o.modified, What: Captured, Attempt: a}
	var c record.Open
	if err := decode(o, record.MaxRecord, &c); err != nil || c.Protocol > record.Protocol || c.Attempt != a {
		t.unreadable(e, "its open.json")
		return
	}
	e.Dispatch, e.Platform, e.Reason = c.Dispatch, c.Platform, "from the beginning"
	if c.Resume != nil {
		e.Step, e.Reason = c.Resume.Step, fmt.Sprintf("resumed from step %d of attempt %d", c.Resume.Step, c.Resume.Attempt)
	}
	t.add(e)
}

// end tells how an attempt ended by its own account.
func (t *teller) end(a int64, o object) {
	e := Event{Time: o.modified, What: Ended, Attempt: a}
	var c record.End
	if err := decode(o, record.MaxRecord, &c); err != nil || c.Protocol > record.Protocol || c.Attempt != a {
		t.unreadable(e, "its end.json")
		return
	}
	t.ended[a] = true
	e.Class, e.Step, e.Reason = c.Class, c.Step, c.Text
	if c.Error != "" && !strings.Contains(c.Text, c.Error) { // the worker's sentence quotes it
		e.Reason += ": " + c.Error
	}
	t.add(e)
}

// submitted tells who asked for the work: the commit that its first claim names. Without that claim nothing is said.
func (t *teller) submitted(spec, first object) {
	e := Event{Time: spec.modified, What: Submitted, Reason: spec.bad}
	var c record.Claim
	if e.Reason == "" && decode(first, record.MaxRecord, &c) == nil && c.Dispatch == 1 && c.Commit != "" {
		e.Reason = fmt.Sprintf("commit %.12s asked for it", c.Commit)
	}
	t.add(e)
}

func (t *teller) unreadable(e Event, what string) {
	e.What, e.Reason = Unreadable, what+" cannot be read: headway doctor says more"
	t.add(e)
}

// size and files are a manifest's as words.
func size(m record.Manifest) string {
	n := int64(0)
	for _, f := range m.Files {
		n += max(f.Size, 0)
	}
	return fmt.Sprintf("%d bytes", n)
}

func files(m record.Manifest) string {
	if len(m.Files) == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", len(m.Files))
}
