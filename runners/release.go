package runners

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// String returns the word that release records carry.
func (s Settlement) String() string {
	switch s {
	case Pending:
		return "pending"
	case Bounded:
		return "bounded"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("settlement(%d)", uint8(s))
}

// NoClaim says that a work has no such dispatch.
type NoClaim struct {
	Work     string
	Dispatch int64
}

func (e *NoClaim) Error() string {
	return fmt.Sprintf("work %s has no dispatch %d: headway explain %s lists those that it has", short(e.Work), e.Dispatch, short(e.Work))
}

// Release asks the platform of one dispatch to end it and keeps the answer beside the claim, when it says more than
// the last one did. Closed is kept as the last word, unless the platform itself still lists the launch: it is asked again
// only then. It never answers more than is known:
// an error of the platform (also one of its list: what the receipt names is told to end all the same), a dispatch that no
// listing shows, or a platform that cannot list is Pending, for as long as it takes. err is a *Failure when the platform could not be asked (the answer is then Pending), a *NoClaim, a *Late,
// or an error of the store.
func (d Dispatcher) Release(ctx context.Context, r Runner, work string, dispatch int64) (Release, error) {
	list, err := d.ReadClaims(ctx, work, dispatch-1, 1)
	if err != nil {
		return Release{}, err
	}
	if len(list) == 0 || list[0].N != dispatch {
		return Release{}, &NoClaim{Work: work, Dispatch: dispatch}
	}
	e := list[0]
	if e.Release != nil && e.Release.Settlement == Closed.String() && !listed(ctx, r, e, work) {
		return Release{Settlement: Closed, Text: "closed before: " + e.Release.Text}, nil
	}
	answer, err := d.ask(ctx, r, e, work)
	if err != nil {
		return Release{Settlement: Pending, Text: "the platform could not be asked; it is asked again"}, err
	}
	return answer, d.keep(ctx, work, e, answer)
}

// ask finds the launches of a dispatch and releases all of them; the least settled answer is the answer.
func (d Dispatcher) ask(ctx context.Context, r Runner, e Dispatch, work string) (Release, error) {
	if Passed(d.Until) {
		return Release{}, &Late{Op: "release"}
	}
	platform := e.Claim.Platform
	var handles []json.RawMessage
	if e.Receipt != nil && e.Receipt.OK {
		handles = append(handles, compact(e.Receipt.Handle))
	}
	listed, canList, unlisted := running(ctx, r, platform)
	if unlisted != nil && len(handles) == 0 {
		return Release{}, unlisted
	}
	for _, l := range listed { // a launch may have started twice, or without a receipt
		if l.Work == work && l.Dispatch == e.N && !slices.ContainsFunc(handles, func(h json.RawMessage) bool { return string(h) == string(compact(l.Handle)) }) {
			handles = append(handles, compact(l.Handle))
		}
	}
	if len(handles) == 0 {
		switch {
		case e.Receipt != nil && surelyNotStarted(Class(e.Receipt.Class)):
			return Release{Settlement: Closed, Text: "the platform refused the launch: nothing was started"}, nil
		case canList:
			return Release{Settlement: Pending, Text: "no receipt, and the platform lists no such launch; one that is late would be released when it shows"}, nil
		}
		return Release{Settlement: Pending, Text: "no receipt, and this platform cannot list its launches: look there by hand"}, nil
	}
	var out Release
	var failed error
	for i, h := range handles {
		if Passed(d.Until) {
			return Release{}, &Late{Op: "release"}
		}
		switch a, err := callRelease(ctx, r, platform, h); {
		case err != nil: // the others are told to end all the same
			failed = cmp.Or(failed, err)
		case i == 0 || a.lessThan(out):
			out = a
		}
	}
	if failed != nil {
		return Release{}, failed
	}
	if unlisted != nil { // what is known was told to end, and a twin could be missed: nothing may be called closed
		return Release{}, unlisted
	}
	return out, nil
}

// lessThan reports whether an answer leaves more open than another: less settled, or bounded by a later time.
func (a Release) lessThan(b Release) bool {
	return a.Settlement < b.Settlement || a.Settlement == Bounded && b.Settlement == Bounded && a.Until.After(b.Until)
}

// listed reports whether the platform itself says that a dispatch still runs.
func listed(ctx context.Context, r Runner, e Dispatch, work string) bool {
	list, _, err := running(ctx, r, e.Claim.Platform)
	return err == nil && slices.ContainsFunc(list, func(l Running) bool { return l.Work == work && l.Dispatch == e.N })
}

// compact is a handle without the blanks that a record puts into it, so that two can be compared.
func compact(h json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, h) != nil {
		return h // no JSON: the runner says what is wrong with it
	}
	return b.Bytes()
}

// keep writes an answer that says something new, also when ctx has ended: a platform may have taken all of its time.
func (d Dispatcher) keep(ctx context.Context, work string, e Dispatch, a Release) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	rec := record.Release{Protocol: record.Protocol, Work: work, Dispatch: e.N, Nonce: record.Nonce(),
		Settlement: a.Settlement.String(), Text: Bound(a.Text, maxText), Time: time.Now().UTC().Format(time.RFC3339)}
	if a.Settlement == Bounded {
		rec.Until = a.Until.UTC().Format(time.RFC3339)
	}
	if e.Release != nil && e.Release.Settlement == rec.Settlement && e.Release.Until == rec.Until {
		return nil
	}
	body, err := record.Encode(rec)
	if err != nil {
		return err
	}
	// Two dispatchers that ask at once take two numbers; each answer was true when it was given.
	for k := e.Answers + 1; k < e.Answers+20; k++ {
		won, err := create(ctx, d.Bucket, record.ReleaseKey(work, e.N, k), body, func(b []byte) bool {
			var there record.Release
			return record.Decode(b, record.MaxRecord, &there) == nil && there.Nonce == rec.Nonce
		})
		if err != nil {
			return fmt.Errorf("keep the answer for dispatch %d of work %s: %w", e.N, short(work), err)
		}
		if won {
			return nil
		}
	}
	return fmt.Errorf("keep the answer for dispatch %d of work %s: too many others write answers at once; ask again", e.N, short(work))
}

// callRelease calls the runner and turns every breach of its contract into a ProtocolError.
func callRelease(ctx context.Context, r Runner, platform string, h json.RawMessage) (a Release, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = Release{}, panicked(platform, "release", p)
		}
	}()
	a, err = r.Release(ctx, h)
	if err != nil {
		return Release{}, classed(ctx, platform, "release", err)
	}
	if a.Settlement > Closed || a.Settlement == Bounded && a.Until.IsZero() {
		return Release{}, garbage(platform, "release", fmt.Errorf("settlement %s until %s", a.Settlement, a.Until))
	}
	a.Text = Bound(a.Text, maxText)
	return a, nil
}

// running lists what a platform runs for us, when it can.
func running(ctx context.Context, r Runner, platform string) (list []Running, can bool, err error) {
	l, can := r.(Lister)
	if !can {
		return nil, false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			list, err = nil, panicked(platform, "list", p)
		}
	}()
	list, err = l.Running(ctx)
	if err != nil {
		return nil, true, classed(ctx, platform, "list", err)
	}
	return list, true, nil
}
