package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// hand makes histories by hand: no code of the product but records.
type hand struct {
	j    *Judge
	log  history.Log
	work string
	r    witness.Record
	has  bool
	n    int // for nonces and versions
}

func newHand(o Options) *hand { return &hand{j: New(o), work: workNo(7)} }

func (h *hand) nonce() string {
	h.n++
	return fmt.Sprintf("%032x", h.n)
}

func (h *hand) take(actor, key string, body []byte, c bucket.Cond) {
	h.log = append(h.log, history.Entry{At: time.Duration(h.j.Taken()) * time.Second, Actor: actor, Op: history.Put, Key: key, Cond: c, Body: body, Version: bucket.Version(record.Hash(body))})
	h.j.Take(h.log[len(h.log)-1])
}

func (h *hand) del(actor, key string) {
	h.j.Take(history.Entry{Actor: actor, Op: history.Delete, Key: key})
	if key == record.WitnessKey(h.work) {
		h.r, h.has = witness.Record{}, false
	}
}

// lease writes the next version, made from the present one.
func (h *hand) lease(actor string, change func(r *witness.Record)) {
	c := bucket.IfAbsent()
	if h.has {
		c = bucket.IfIs(bucket.Version(record.Hash(encoded(h.r))))
	}
	if !h.has {
		h.r = witness.Record{Protocol: 1, Work: h.work, Lease: lease()}
	}
	h.r.Rev++
	h.r.Write = h.nonce()
	change(&h.r)
	h.has = true
	h.take(actor, record.WitnessKey(h.work), encoded(h.r), c)
}

func (h *hand) claim(actor string, n int64) {
	h.take(actor, record.ClaimKey(h.work, n), encoded(record.Claim{Protocol: 1, Work: h.work, Dispatch: n, Nonce: actor + "'s"}), bucket.IfAbsent())
}

func (h *hand) capture(actor string, dispatch int64) {
	h.lease(actor, func(r *witness.Record) {
		r.Attempt, r.Holder, r.Dispatch, r.State = r.Attempt+1, h.nonce(), dispatch, witness.Held
	})
}

func (h *hand) open(actor string) {
	h.take(actor, record.OpenKey(h.work, h.r.Attempt), encoded(record.Open{Protocol: 1, Work: h.work, Attempt: h.r.Attempt, Holder: h.r.Holder, Dispatch: h.r.Dispatch, Resume: h.r.Resume}), bucket.IfAbsent())
}

func (h *hand) renew(actor string) { h.lease(actor, func(r *witness.Record) { r.Progress.Step++ }) }

func (h *hand) revoke(actor string) {
	h.lease(actor, func(r *witness.Record) { r.State, r.Holder = witness.Revoked, "" })
}

func (h *hand) stop(actor string, floor int64) {
	h.lease(actor, func(r *witness.Record) { r.State, r.Holder, r.Floor = witness.Revoked, "", floor })
}

func (h *hand) file(actor string, a, m int64, text string) record.File {
	h.take(actor, record.MilestonePrefix(h.work, a, m)+"model.bin", []byte(text), bucket.Always())
	return record.File{Path: "model.bin", Size: int64(len(text)), SHA256: record.Hash([]byte(text))}
}

// snapshot uploads milestone m of attempt a at step 10·m + 100·a.
func (h *hand) snapshot(actor string, a, m int64, parent *record.Pointer) record.Pointer {
	f := h.file(actor, a, m, fmt.Sprintf("model %d %d", a, m))
	return h.manifest(actor, a, m, parent, f)
}

func (h *hand) manifest(actor string, a, m int64, parent *record.Pointer, files ...record.File) record.Pointer {
	p := record.Pointer{Attempt: a, Milestone: m, Step: 10*m + 100*a, Manifest: record.MilestoneManifestKey(h.work, a, m)}
	b := encoded(record.Manifest{Protocol: 1, Work: h.work, Attempt: a, Milestone: m, Step: p.Step, Parent: parent, Files: files})
	p.SHA256 = record.Hash(b)
	h.take(actor, p.Manifest, b, bucket.Always())
	return p
}

func (h *hand) move(actor string, p record.Pointer) {
	h.lease(actor, func(r *witness.Record) { r.Resume, r.Progress.Step = &p, p.Step })
}

func (h *hand) finish(actor string, a int64, parent *record.Pointer) {
	key := record.ResultManifestKey(h.work, a)
	b := encoded(record.Manifest{Protocol: 1, Work: h.work, Attempt: a, Step: 999, Parent: parent})
	h.take(actor, key, b, bucket.Always())
	h.finishWith(actor, witness.FinishedPointer{Attempt: a, Manifest: key, SHA256: record.Hash(b)})
}

func (h *hand) finishWith(actor string, f witness.FinishedPointer) {
	h.lease(actor, func(r *witness.Record) { r.State, r.Holder, r.Finished = witness.Finished, "", &f })
}

// first is how every history begins: w1 holds attempt 1, reserved, with the pointer at its milestone 1.
func (h *hand) first() record.Pointer {
	h.claim("d1", 1)
	h.capture("w1", 1)
	h.open("w1")
	p := h.snapshot("w1", 1, 1, nil)
	h.move("w1", p)
	return p
}

// second: w1 was deposed with a milestone 2 that no pointer named; w2 holds attempt 2.
func (h *hand) second() (named, unnamed record.Pointer) {
	named = h.first()
	unnamed = h.snapshot("w1", 1, 2, &named)
	h.revoke("d1")
	h.claim("d1", 2)
	h.capture("w2", 2)
	h.open("w2")
	return named, unnamed
}

// third: w2 has gone one milestone further.
func (h *hand) third() record.Pointer {
	named, _ := h.second()
	p := h.snapshot("w2", 2, 1, &named)
	h.move("w2", p)
	return p
}

// breach is a history that breaks one rule.
type breach struct {
	name string
	o    Options
	do   func(h *hand)
	want string // the first that is found; "": nothing is
	text string // in its sentence
	also string // others that follow from it
}

func held(t *testing.T, list []breach) {
	t.Helper()
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			h := newHand(b.o)
			b.do(h)
			h.j.End()
			got := h.j.Broken()
			if b.want == "" {
				if len(got) > 0 {
					t.Fatal(got)
				}
				return
			}
			if len(got) == 0 {
				t.Fatal("nothing was found")
			}
			t.Log(got[0])
			if v := got[0]; v.Invariant != b.want || !strings.Contains(v.Text, b.text) || v.Work != h.work || !strings.Contains(v.Text, history.Short(h.work)) {
				t.Errorf("found %v, want %s … %s", v, b.want, b.text)
			}
			for _, v := range got[1:] {
				if v.Invariant != b.want && !strings.Contains(" "+b.also+" ", " "+v.Invariant+" ") {
					t.Errorf("also found %v", v)
				}
			}
		})
	}
}
