package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// from is the manifest of the newest milestone that attempts are known to have stood on, except for one that is broken.
func (w *work) from(except string) string {
	numbers := slices.Sorted(maps.Keys(w.attempts))
	slices.Reverse(numbers)
	for i, n := range numbers {
		a := w.attempts[n]
		if i == 0 && a.last != "" && a.last != except { // what the last attempt left grew from the pointer, and nothing has grown beside it
			return a.last
		}
		if a.by != nil && a.by.Resume != nil && a.by.Resume.Manifest != except {
			return a.by.Resume.Manifest
		}
	}
	return "nothing"
}

// repair is how a person makes a witness anew, as the end of a sentence.
func (w *work) repair(except string) string {
	return fmt.Sprintf("keep a copy of the witness outside the bucket, delete it, and make it anew: headway doctor --repair %s --resume %s", w.id, w.from(except))
}

// leaveFinished ends the advice about a finished work: made anew, its witness would be one of a work that goes on, and
// the result could not be fetched any more.
const leaveFinished = "leave it: the work is finished, nothing is launched for it, and headway fetch holds its result against its hashes"

// otherwise is what to do where no backup is, as the end of a sentence.
func (w *work) otherwise(except string) string {
	if w.finished {
		return leaveFinished
	}
	return w.repair(except)
}

// mend is what to do about a witness that is not right.
func (w *work) mend() string {
	return "launch nothing for this work; restore the witness from a backup of the bucket; without one " + w.otherwise("")
}

// checkWitness reads the witness, last, and holds the rest of the work against it.
func (c *check) checkWitness(ctx context.Context, w *work) error {
	key := record.WitnessKey(w.id)
	highest := int64(0)
	for n := range w.attempts {
		highest = max(highest, n)
	}
	b, big, err := c.get(ctx, key, witness.MaxRecord)
	if err != nil {
		return err
	}
	if b == nil && highest > 0 {
		return c.deleted(ctx, w, highest)
	}
	if b == nil {
		return nil
	}
	c.r.Witnesses++
	if big {
		c.find(key, Format, w.mend(), "has more than %d bytes, which no witness has", witness.MaxRecord)
		return nil
	}
	r, err := witness.Decode(w.id, b)
	if bad, is := errors.AsType[*witness.Unreadable](err); is {
		do := w.mend()
		if bad.Newer > 0 {
			do = doNewer
		}
		c.find(key, Format, do, "%s", bad.Reason)
		return nil
	}
	if err != nil {
		return err
	}
	w.finished, w.held = r.State == witness.Finished, r.State == witness.Held
	c.checkNumbers(w, &r, highest)
	if err := c.checkDispatch(ctx, w, &r); err != nil {
		return err
	}
	c.checkEnds(w, &r)
	if err := c.checkChain(ctx, w, r.Resume); err != nil {
		return err
	}
	c.checkRev(w, &r)
	if !w.finished {
		return nil
	}
	c.r.Finished++
	return c.checkResult(ctx, w, &r)
}

// checkNumbers: no attempt has written that the witness does not know of, and the last one is the holder's.
func (c *check) checkNumbers(w *work, r *witness.Record, highest int64) {
	key := record.WitnessKey(w.id)
	switch {
	case highest > r.Attempt && w.finished:
		c.find(key, Terminal, w.mend(), "attempt %d has written, but attempt %d had finished the work", highest, r.Attempt)
	case highest > r.Attempt:
		c.find(key, OneWriter, w.mend(), "attempt %d has written, but the witness is at attempt %d: it was rolled back", highest, r.Attempt)
	}
	a := w.attempts[r.Attempt]
	if a == nil || a.by == nil {
		return
	}
	if r.State == witness.Held && a.by.Holder != r.Holder {
		c.find(record.OpenKey(w.id, r.Attempt), OneHolder, w.mend(), "attempt %d was reserved by another holder than the one in the witness", r.Attempt)
	}
	if r.Dispatch > 0 && a.by.Dispatch != r.Dispatch { // 0: made anew by a person, where that could not be read
		c.find(key, Claimed, w.mend(), "says that attempt %d is of dispatch %d, its %s says %d", r.Attempt, r.Dispatch, record.OpenKey(w.id, r.Attempt), a.by.Dispatch)
	}
}

// checkDispatch: the last capture was for a claimed dispatch, and no launch is barred that nobody has claimed.
func (c *check) checkDispatch(ctx context.Context, w *work, r *witness.Record) error {
	key := record.WitnessKey(w.id)
	if r.Dispatch > 0 {
		if err := c.unclaimed(ctx, w, r.Dispatch, key, "was captured for dispatch %d, which has no claim", r.Dispatch); err != nil {
			return err
		}
	}
	if r.Floor < 2 || w.finished || w.claims[r.Floor-1] {
		return nil
	}
	gone, err := c.missing(ctx, record.ClaimKey(w.id, r.Floor-1))
	if gone {
		c.find(key, Claimed, w.mend(), "bars every dispatch below %d, but dispatch %d was never claimed: a stop bars no more than there are claims", r.Floor, r.Floor-1)
	}
	return err
}

// checkEnds: who says that it has finished the work has. A worker writes that only when the witness says so, and nothing
// leads out of it.
func (c *check) checkEnds(w *work, r *witness.Record) {
	for _, n := range slices.Sorted(maps.Keys(w.attempts)) {
		e := w.attempts[n].went
		if e == nil || e.Class != "finished" {
			continue
		}
		key := record.WitnessKey(w.id)
		switch {
		case !w.finished:
			c.find(key, Terminal, "launch nothing for this work; restore the witness from a backup of the bucket: the result of attempt "+fmt.Sprint(n)+" stands; where somebody chose to compute it again, delete that end.json: it is an account, and nothing depends on it",
				"is %s, but attempt %d has finished the work (%s)", r.State, n, record.EndKey(w.id, n))
		case r.Finished.Attempt != n:
			c.find(record.EndKey(w.id, n), Terminal, doNote, "says that attempt %d finished the work, the witness names attempt %d", n, r.Finished.Attempt)
		case r.Finished.ExitCode != e.ExitCode:
			c.find(key, Terminal, "restore the witness from a backup of the bucket; the result itself is checked by its hashes",
				"says exit code %d, attempt %d itself says %d (%s)", r.Finished.ExitCode, n, e.ExitCode, record.EndKey(w.id, n))
		}
	}
}

// checkRev: a rev that is smaller than the number of writes that must have happened is no rev of this history. A witness
// that a person made anew begins at 1, revoked, so that only what came after the last capture can be counted.
func (c *check) checkRev(w *work, r *witness.Record) {
	least := int64(1)
	if r.State != witness.Held {
		least++
	}
	for _, p := range w.chain {
		if p.Attempt == r.Attempt {
			least++
		}
	}
	if r.State != witness.Revoked && r.Rev < least {
		c.find(record.WitnessKey(w.id), Forward, w.mend(), "has rev %d, but attempt %d alone has made at least %d versions: it was rolled back or edited", r.Rev, r.Attempt, least)
	}
}

// Milestone reads one milestone of a work whole, every byte of its files, and gives the pointer to it: what a person may
// name when a witness is made anew. With a finding it may not be named. Its ancestors are not looked at.
func Milestone(ctx context.Context, s Store, id, key string) (record.Pointer, []Finding, error) {
	const do = "name another milestone: headway doctor --deep proposes one; or name nothing, and the work starts over"
	c := &check{s: s, o: Options{Deep: true, Max: 100}}
	b, _, err := c.get(ctx, key, record.MaxManifest)
	if err != nil {
		return record.Pointer{}, nil, err
	}
	p := record.Pointer{Manifest: key, SHA256: record.Hash(b)}
	m, err := c.snapshot(ctx, &work{id: id}, key, p.SHA256, "--resume", do)
	if err != nil || m == nil {
		return record.Pointer{}, c.now, err
	}
	p.Attempt, p.Milestone, p.Step = m.Attempt, m.Milestone, m.Step
	if m.Attempt < 1 || m.Milestone < 1 || key != record.MilestoneManifestKey(id, m.Attempt, m.Milestone) {
		c.find(key, Complete, do, "is not the manifest of attempt %d, milestone %d of work %s", m.Attempt, m.Milestone, id)
	}
	return p, c.now, nil
}
