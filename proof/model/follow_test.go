package model

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// tampering turns the history of a real life into one that is no behaviour.
type tampering struct {
	name string
	do   func(log history.Log, work string) history.Log
	text string
}

// at is the first applied entry that a test picks, as an index; -1: none.
func at(log history.Log, pick func(e *history.Entry) bool) int {
	return slices.IndexFunc(log, func(e history.Entry) bool { return e.Applied() && pick(&e) })
}

func onKey(part string) func(e *history.Entry) bool {
	return func(e *history.Entry) bool { return strings.Contains(e.Key, part) }
}

// version picks a version of the lease by what is in it.
func version(pick func(r *witness.Record) bool) func(e *history.Entry) bool {
	return func(e *history.Entry) bool {
		var r witness.Record
		return strings.HasPrefix(e.Key, record.WitnessPrefix) && record.Decode(e.Body, record.MaxRecord, &r) == nil && pick(&r)
	}
}

func without(pick func(e *history.Entry) bool) func(history.Log, string) history.Log {
	return func(log history.Log, _ string) history.Log {
		k := at(log, pick)
		if k < 0 {
			return nil
		}
		return slices.Delete(slices.Clone(log), k, k+1)
	}
}

// changed changes one entry; the versions that follow from its body follow.
func changed(pick func(e *history.Entry) bool, change func(e *history.Entry)) func(history.Log, string) history.Log {
	return func(log history.Log, _ string) history.Log {
		k := at(log, pick)
		if k < 0 {
			return nil
		}
		log = slices.Clone(log)
		change(&log[k])
		return log
	}
}

func rewritten(change func(r *witness.Record)) func(e *history.Entry) {
	return func(e *history.Entry) {
		var r witness.Record
		_ = record.Decode(e.Body, record.MaxRecord, &r) // was picked as one that can be
		change(&r)
		e.Body = encoded(r)
	}
}

func inState(s witness.State) func(e *history.Entry) bool {
	return version(func(r *witness.Record) bool { return r.State == s })
}

func renewal(e *history.Entry) bool {
	return version(func(r *witness.Record) bool { return r.State == witness.Held && r.Rev > 1 && r.Progress.Step == 1 })(e)
}

func moved(e *history.Entry) bool {
	return version(func(r *witness.Record) bool {
		return r.State == witness.Held && r.Resume != nil && r.Resume.Attempt == r.Attempt
	})(e)
}

func tamperings() []tampering {
	return []tampering{
		{"no claim", without(onKey("/dispatch/00000001.json")), "claims dispatch 2 after 0"},
		{"a claim without its condition", changed(onKey("/dispatch/"), func(e *history.Entry) { e.Cond = bucket.Always() }), "claims without the condition"},
		{"no reservation", without(onKey("/attempt/00000001/open.json")), "whose prefix is not its own"},
		{"reserved by a stranger", changed(onKey("/open.json"), func(e *history.Entry) { e.Body = encoded(record.Open{Holder: "x"}) }), "without having captured it"},
		{"no manifest", without(onKey("/attempt/00000001/milestone/00000001/manifest.json")), "which is not complete"},
		{"an upload by a stranger", changed(onKey("model.bin"), func(e *history.Entry) { e.Actor = "x" }), "whose prefix is not its own"},
		{"a renewal by a stranger", changed(renewal, func(e *history.Entry) { e.Actor = "x" }), "another process's capture"},
		{"a renewal without its condition", changed(renewal, func(e *history.Entry) { e.Cond = bucket.Always() }), "Renew without the condition"},
		{"a renewal that stops", changed(renewal, rewritten(func(r *witness.Record) { r.Floor = r.Dispatch })), "Renew leaves"},
		{"a renewal with another nonce", changed(renewal, rewritten(func(r *witness.Record) { r.Holder = strings.Repeat("e", 32) })), "captures a lease that is held"},
		{"a pointer that no manifest bears out", changed(moved, rewritten(func(r *witness.Record) {
			r.Resume.Milestone += 5
			r.Resume.Manifest = record.MilestoneManifestKey(r.Work, r.Resume.Attempt, r.Resume.Milestone)
		})), "which is not complete"},
		{"a snapshot that grew from elsewhere", changed(onKey("/milestone/00000001/manifest.json"), func(e *history.Entry) {
			var m record.Manifest
			_ = record.Decode(e.Body, record.MaxManifest, &m)
			m.Parent = &record.Pointer{Attempt: 9, Milestone: 9}
			e.Body = encoded(m)
		}), "which grew from attempt 9 milestone 9"},
		{"no revoke", without(inState(witness.Revoked)), "without the condition that the version before"},
		{"a version twice", func(log history.Log, _ string) history.Log {
			k := at(log, inState(witness.Revoked))
			if k < 0 {
				return nil
			}
			return slices.Insert(slices.Clone(log), k+1, log[k])
		}, "without the condition that the version before"},
		{"a witness deleted by somebody", func(log history.Log, work string) history.Log {
			k := at(log, inState(witness.Held))
			return slices.Insert(slices.Clone(log), k+1, history.Entry{Actor: "gc", Op: history.Delete, Key: record.WitnessKey(work)})
		}, "only nobody does"},
		{"half a lease", changed(inState(witness.Held), func(e *history.Entry) { e.Body = []byte("{") }), "cannot be read"},
	}
}

// TestNoBehaviours: what is left out of a real history, or changed in it, is found, in at least one of many lives.
func TestNoBehaviours(t *testing.T) {
	type lived struct {
		log  history.Log
		work string
	}
	var lives []lived
	for seed := range uint64(30) {
		log, work := oneLife(t, seed, false, 120)
		lives = append(lives, lived{log, work})
	}
	for _, c := range tamperings() {
		t.Run(c.name, func(t *testing.T) {
			tampered, found := 0, 0
			var last error
			for _, l := range lives {
				log := c.do(l.log, l.work)
				if log == nil {
					continue
				}
				tampered++
				f := FollowAll()
				for _, e := range log {
					f.Take(e)
				}
				err := f.Err()
				if no, is := errors.AsType[*NoBehaviour](err); is && no.Work == l.work && strings.Contains(err.Error(), c.text) {
					found++
				} else {
					last = err
				}
			}
			if found == 0 {
				t.Errorf("tampered with %d lives, and none was found out with %q; the last: %v", tampered, c.text, last)
			}
			t.Logf("%d of %d", found, tampered)
		})
	}
}

// TestFollowerSeesRemovals: the explorer's shortest way to harm is no behaviour for the follower either, since both use
// one table. Five removals are left out: what goes wrong there is not in an abstract write, but in what a real one would
// show beside it (keys of another's prefix; a listing for a pointer; a marker beside the witness), or not there at all
// (a stop that is written as a revoke: only who was told of it can say, see judge.Stopped).
func TestFollowerSeesRemovals(t *testing.T) {
	for _, m := range Removals() {
		switch m.Off {
		case SharedPrefix, DoneElsewhere, ListExists, ListComplete, NoFloor:
			continue
		default:
		}
		r := explored(t, m.Bounds, m.Off)
		s := newStore()
		var no error
		for _, w := range r.Writes {
			if no = Allowed(s, w); no != nil {
				break
			}
			Apply(s, w)
		}
		if no == nil {
			t.Errorf("%s %s: the table lets all of %+v pass", m.Off, m.Bounds.Only, r.Writes)
		}
		t.Logf("%s %s: %v", m.Off, m.Bounds.Only, no)
	}
}

// TestOutside: what the model leaves out is counted by what it is.
func TestOutside(t *testing.T) {
	work := record.Hash(nil)
	f := Follow(work)
	for _, key := range []string{record.SpecKey(work), record.ReceiptKey(work, 1), record.EndKey(work, 1), record.SegmentKey(record.LogPrefix(work, 1), 0),
		record.WorkPrefix(work) + "x", record.MilestonePrefix(work, 1, 1)[:len(record.AttemptPrefix(work, 1))] + "milestone/x/y", record.SpecKey(record.Hash([]byte("other"))), "platform/x"} {
		f.Take(history.Entry{Op: history.Put, Key: key})
	}
	f.Take(history.Entry{Op: history.Delete, Key: record.SpecKey(work)})
	f.Take(history.Entry{Op: history.Delete, Key: record.WitnessKey(work), Actor: "gc"}) // nothing was there
	c := f.Coverage()
	want := map[string]int{"spec": 1, "answer of a platform": 1, "account of an end": 1, "segment": 1, "unknown": 2, "deleted": 1}
	for k, n := range want {
		if c.Outside[k] != n {
			t.Errorf("%s: %d, want %d", k, c.Outside[k], n)
		}
	}
	if f.Err() != nil || len(c.Untaken()) != len(Kinds()) {
		t.Error(f.Err(), c)
	}
}

// FuzzFollow: no history makes a follower fall over.
func FuzzFollow(f *testing.F) {
	for _, l := range []tampering{tamperings()[0], tamperings()[14]} {
		h := handMade()
		var b bytes.Buffer
		if err := history.Write(&b, l.do(h, h[0].Key[5:69])); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, _ := history.Read(bytes.NewReader(raw)) // as far as it can be read
		all := FollowAll()
		for _, e := range entries {
			all.Take(e)
		}
		if err := all.Err(); err != nil && err.Error() == "" {
			t.Fatal("an error without a word")
		}
	})
}

// handMade is a short history without a store: a claim and a capture.
func handMade() history.Log {
	work := record.Hash(nil)
	r := witness.Record{Protocol: 1, Work: work, Rev: 1, Write: strings.Repeat("a", 32), Attempt: 1, Holder: strings.Repeat("b", 32), Dispatch: 1, State: witness.Held, Lease: lease()}
	claim := history.Entry{Actor: "d", Op: history.Put, Key: record.ClaimKey(work, 1), Cond: bucket.IfAbsent(), Body: encoded(record.Claim{Work: work, Dispatch: 1})}
	later := claim
	later.Key = record.ClaimKey(work, 2)
	return history.Log{claim, later, {Actor: "w", Op: history.Put, Key: record.WitnessKey(work), Cond: bucket.IfAbsent(), Body: encoded(r), Version: "1"}}
}
