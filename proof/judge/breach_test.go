package judge

import (
	"testing"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// TestWriters: I1, I1b and the rule that a prefix is reserved first.
func TestWriters(t *testing.T) {
	held(t, []breach{
		{name: "clean", do: func(h *hand) { p := h.third(); h.finish("w2", 2, &p) }, o: Options{AllFinish: true}},
		{name: "the same bytes twice", do: func(h *hand) { h.first(); h.file("w1", 1, 1, "model 1 1"); h.snapshot("w1", 1, 1, nil) }},
		{name: "a late upload of the deposed", do: func(h *hand) { p, _ := h.second(); h.snapshot("w1", 1, 3, &p) }},
		{name: "two writers", want: "I1", text: "w2 wrote attempt 1 milestone 2 model.bin", do: func(h *hand) { h.first(); h.file("w2", 1, 2, "x") }},
		{name: "two writers of one key", want: "I1", text: "written by w1 and by w2", do: func(h *hand) { h.first(); h.file("w2", 1, 1, "model 1 1") }},
		{name: "a second open", want: "I9", text: "gc deleted attempt 1 open.json", do: func(h *hand) {
			h.first()
			h.del("gc", record.OpenKey(h.work, 1)) // I9 follows; what counts is who writes there then
			h.take("w9", record.OpenKey(h.work, 1), encoded(record.Open{Protocol: 1, Work: h.work, Attempt: 1}), bucket.IfAbsent())
		}, also: "I1"},
		{name: "a stranger reserves", want: "I1", text: "w9 wrote attempt 1 open.json", do: func(h *hand) {
			h.claim("d1", 1)
			h.capture("w1", 1)
			h.take("w9", record.OpenKey(h.work, 1), encoded(record.Open{Protocol: 1, Work: h.work, Attempt: 1, Holder: h.nonce()}), bucket.IfAbsent())
		}},
		{name: "another reserves with the holder's nonce", want: "I1", text: "w9 wrote attempt 1 open.json", do: func(h *hand) { h.claim("d1", 1); h.capture("w1", 1); h.open("w9") }},
		{name: "not reserved", want: "OPEN", text: "w1 wrote attempt 1 milestone 1 model.bin", do: func(h *hand) { h.claim("d1", 1); h.capture("w1", 1); h.file("w1", 1, 1, "x") }},
		{name: "named and changed", want: "I1b", text: "w1 changed attempt 1 milestone 1 model.bin", do: func(h *hand) { h.first(); h.file("w1", 1, 1, "other") }},
		{name: "named and its manifest changed", want: "I1b", text: "w1 changed attempt 1 milestone 1 manifest.json", do: func(h *hand) { h.first(); h.manifest("w1", 1, 1, nil) }},
		{name: "overwritten before it was named", want: "I1", text: "w1 wrote attempt 1 milestone 2 model.bin", do: func(h *hand) { h.first(); h.file("w1", 1, 2, "a"); h.file("w1", 1, 2, "b") }},
		{name: "spec changed", want: "I1", text: "spec.json", do: func(h *hand) {
			h.take("d1", record.SpecKey(h.work), []byte("{}"), bucket.IfAbsent())
			h.take("d1", record.SpecKey(h.work), []byte("{ }"), bucket.Always())
		}},
		{name: "claim taken over", want: "I1", text: "claim 1", also: "I8", do: func(h *hand) { h.claim("d1", 1); h.claim("d2", 1) }},
	})
}

// TestPointer: I2, I3 and I4.
func TestPointer(t *testing.T) {
	held(t, []breach{
		{name: "back", want: "I2", text: "w1 moved the pointer", do: func(h *hand) {
			p := h.first()
			q := h.snapshot("w1", 1, 2, &p)
			h.move("w1", q)
			h.move("w1", p)
		}},
		{name: "by the deposed", want: "I2", text: "w1 moved the pointer", also: "I6", do: func(h *hand) { _, q := h.second(); h.move("w1", q) }},
		{name: "by a stranger", want: "I2", text: "w2 holds the lease", do: func(h *hand) { p, _ := h.second(); q := h.snapshot("w2", 2, 1, &p); h.move("w1", q) }},
		{name: "while yielding", want: "I2", text: "while going from held to yielded", do: func(h *hand) {
			p := h.first()
			q := h.snapshot("w1", 1, 2, &p)
			h.lease("w1", func(r *witness.Record) { r.State, r.Holder, r.Resume = witness.Yielded, "", &q })
		}},
		{name: "taken away", want: "I2", text: "w1 took the pointer away", do: func(h *hand) { h.first(); h.lease("w1", func(r *witness.Record) { r.Resume = nil }) }},
		{name: "with a capture", want: "I2", text: "w2 moved the pointer", also: "I4", do: func(h *hand) {
			p := h.first()
			q := h.snapshot("w1", 1, 2, &p)
			h.revoke("d1")
			h.claim("d1", 2)
			h.lease("w2", func(r *witness.Record) {
				r.Attempt, r.Holder, r.Dispatch, r.State, r.Resume = 2, h.nonce(), 2, witness.Held, &q
			})
		}},
		{name: "grown from another", want: "I2", text: "grew from nothing", do: func(h *hand) { h.first(); h.move("w1", h.snapshot("w1", 1, 2, nil)) }},
		{name: "of an ancestor that was deposed", want: "I2", text: "w2 named attempt 2 milestone 1", also: "I4", do: func(h *hand) { _, q := h.second(); h.move("w2", h.snapshot("w2", 2, 1, &q)) }},
		{name: "not there", want: "I3", text: "w1 named attempt 1 milestone 2 manifest.json", do: func(h *hand) {
			h.first()
			h.move("w1", record.Pointer{Attempt: 1, Milestone: 2, Step: 200, Manifest: record.MilestoneManifestKey(h.work, 1, 2), SHA256: record.Hash(nil)})
		}},
		{name: "with another hash", want: "I3", text: "w1 named attempt 1 milestone 2", do: func(h *hand) {
			p := h.first()
			q := h.snapshot("w1", 1, 2, &p)
			q.SHA256 = record.Hash(nil)
			h.move("w1", q)
		}},
		{name: "a file missing", want: "I3", text: "other.bin", do: func(h *hand) {
			p := h.first()
			h.move("w1", h.manifest("w1", 1, 2, &p, record.File{Path: "other.bin", Size: 1, SHA256: record.Hash(nil)}))
		}},
		{name: "a file cut", want: "I3", text: "(by w1) has 3 bytes", do: func(h *hand) {
			p := h.first()
			f := h.file("w1", 1, 2, "cut")
			f.Size = 9
			h.move("w1", h.manifest("w1", 1, 2, &p, f))
		}},
		{name: "another step than it says", want: "I3", text: "but it is attempt 1 milestone 2 step 120", do: func(h *hand) {
			p := h.first()
			q := h.snapshot("w1", 1, 2, &p)
			q.Step = 999
			h.move("w1", q)
		}},
		{name: "starts elsewhere", want: "I4", text: "w2 says in attempt 2 open.json", do: func(h *hand) {
			h.first()
			h.revoke("d1")
			h.claim("d1", 2)
			h.capture("w2", 2)
			h.take("w2", record.OpenKey(h.work, 2), encoded(record.Open{Protocol: 1, Work: h.work, Attempt: 2, Holder: h.r.Holder, Dispatch: 2}), bucket.IfAbsent())
		}},
		{name: "a result from elsewhere", want: "I4", text: "w2 finished with attempt 2 result/manifest.json", do: func(h *hand) { _, q := h.second(); h.finish("w2", 2, &q) }},
	})
}

// TestEnd: I5, I6 and I7.
func TestEnd(t *testing.T) {
	finished := func(h *hand) { p := h.third(); h.finish("w2", 2, &p) }
	held(t, []breach{
		{name: "captured again", want: "I5", text: "w3 wrote held attempt 3", do: func(h *hand) {
			finished(h)
			h.claim("d1", 3)
			h.lease("w3", func(r *witness.Record) {
				r.State, r.Finished, r.Attempt, r.Holder, r.Dispatch = witness.Held, nil, 3, h.nonce(), 3
			})
		}},
		{name: "renewed after the end", want: "I5", text: "after w2 had finished it", do: func(h *hand) {
			finished(h)
			h.lease("w2", func(r *witness.Record) { r.Reason = "again" })
		}},
		{name: "finished by another", want: "I1", text: "w1 wrote attempt 2 result", do: func(h *hand) { p := h.third(); h.finish("w1", 2, &p) }, also: "I6"},
		{name: "the result is not there", want: "I3", text: "w2 named attempt 2 result/manifest.json", do: func(h *hand) {
			h.third()
			h.finishWith("w2", witness.FinishedPointer{Attempt: 2, Manifest: record.ResultManifestKey(h.work, 2), SHA256: record.Hash(nil)})
		}},
		{name: "taken over while held", want: "I6", text: "w2 took the witness", do: func(h *hand) { h.first(); h.claim("d1", 2); h.capture("w2", 2) }},
		{name: "a number left out", want: "I6", text: "w2 captured attempt 3", do: func(h *hand) {
			h.first()
			h.revoke("d1")
			h.claim("d1", 2)
			h.lease("w2", func(r *witness.Record) { r.Attempt, r.Holder, r.Dispatch, r.State = 3, h.nonce(), 2, witness.Held })
		}},
		{name: "one number twice", want: "I6", text: "w2 captured attempt 1", do: func(h *hand) {
			h.first()
			h.revoke("d1")
			h.claim("d1", 2)
			h.lease("w2", func(r *witness.Record) { r.Holder, r.Dispatch, r.State = h.nonce(), 2, witness.Held })
		}},
		{name: "a used nonce", want: "I6", text: "with the nonce of a capture of w1", do: func(h *hand) {
			h.first()
			was := h.r.Holder
			h.revoke("d1")
			h.claim("d1", 2)
			h.lease("w2", func(r *witness.Record) { r.Attempt, r.Holder, r.Dispatch, r.State = 2, was, 2, witness.Held })
		}},
		{name: "renewed by another", want: "I6", text: "w9 wrote held as the holder", do: func(h *hand) { h.first(); h.renew("w9") }},
		{name: "attempt without a capture", want: "I6", text: "w1 took the witness", do: func(h *hand) { h.first(); h.lease("w1", func(r *witness.Record) { r.Attempt = 2 }) }},
		{name: "not finished", o: Options{AllFinish: true}, want: "I7", text: "held at attempt 2, last captured by w2", do: func(h *hand) { h.third() }},
		{name: "not captured", o: Options{AllFinish: true}, want: "I7", text: "nobody captured it", do: func(h *hand) { h.claim("d1", 1) }},
	})
}

// TestDispatches: I8.
func TestDispatches(t *testing.T) {
	held(t, []breach{
		{name: "stopped before anything", do: func(h *hand) { h.claim("d1", 1); h.stop("op", 2); h.claim("d1", 2); h.capture("w2", 2) }},
		{name: "below the floor", want: "FORMAT", text: "w1", also: "I8", do: func(h *hand) { h.claim("d1", 1); h.stop("op", 2); h.capture("w1", 1) }},
		{name: "below a floor that fell", want: "I8", text: "let the floor", also: "I8", do: func(h *hand) {
			h.claim("d1", 1)
			h.stop("op", 2)
			h.lease("w1", func(r *witness.Record) {
				r.Attempt, r.Holder, r.Dispatch, r.State, r.Floor = 1, h.nonce(), 1, witness.Held, 0
			})
		}},
		{name: "below a stop that only its caller knows", want: "I8", text: "w2 captured the witness", do: func(h *hand) {
			h.first()
			h.revoke("op")
			h.j.Stopped(h.work, 3)
			h.claim("d1", 2)
			h.capture("w2", 2)
		}},
		{name: "nobody claimed", want: "I8", text: "dispatch 3, which nobody claimed", do: func(h *hand) { h.first(); h.revoke("d1"); h.capture("w2", 3) }},
		{name: "a number claimed again", want: "I8", text: "claim 1 of", also: "I9", do: func(h *hand) {
			h.third()
			p := h.r.Resume
			h.finish("w2", 2, p)
			h.j.o.FinishedRecords = true
			h.del("gc", record.ClaimKey(h.work, 1))
			h.claim("d9", 1)
		}},
		{name: "called without a claim", want: "I8", text: "d2 wrote dispatch 1 receipt", do: func(h *hand) {
			h.claim("d1", 1)
			h.take("d2", record.ReceiptKey(h.work, 1), encoded(record.Receipt{Work: h.work, Dispatch: 1, Nonce: "d2's"}), bucket.IfAbsent())
		}},
		{name: "a receipt of no claim", want: "I8", text: "which nobody claimed", do: func(h *hand) {
			h.take("d2", record.ReceiptKey(h.work, 1), encoded(record.Receipt{Work: h.work, Dispatch: 1}), bucket.IfAbsent())
		}},
	})
}

// TestRules: what holds the invariants up.
func TestRules(t *testing.T) {
	held(t, []breach{
		{name: "rev left out", want: "REV", text: "w1 took the witness", do: func(h *hand) { h.first(); h.lease("w1", func(r *witness.Record) { r.Rev++ }) }},
		{name: "rev twice", want: "REV", text: "from rev 2 to rev 2", do: func(h *hand) { h.first(); h.lease("w1", func(r *witness.Record) { r.Rev-- }) }},
		{name: "first rev", want: "REV", text: "at rev 2", do: func(h *hand) {
			h.claim("d1", 1)
			h.lease("w1", func(r *witness.Record) {
				r.Rev, r.Attempt, r.Holder, r.Dispatch, r.State = 2, 1, h.nonce(), 1, witness.Held
			})
		}},
		{name: "a nonce twice", want: "REV", text: "with a nonce that w1 had used before", do: func(h *hand) {
			h.first()
			was := h.r.Write
			h.renew("w1")
			h.lease("w1", func(r *witness.Record) { r.Write = was })
		}},
		{name: "no such move", want: "MOVE", text: "from revoked to yielded", do: func(h *hand) {
			h.first()
			h.revoke("d1")
			h.lease("d1", func(r *witness.Record) { r.State = witness.Yielded })
		}},
		{name: "floor raised by a renewal", want: "MOVE", text: "w1 raised the floor", do: func(h *hand) { h.first(); h.lease("w1", func(r *witness.Record) { r.Floor = 1 }) }},
		{name: "begun as yielded", want: "MOVE", text: "as yielded", do: func(h *hand) {
			h.lease("w1", func(r *witness.Record) { r.State, r.Attempt, r.Dispatch = witness.Yielded, 1, 1 })
		}},
		{name: "half a record", want: "FORMAT", text: "w1 wrote a witness", do: func(h *hand) {
			h.first()
			h.take("w1", record.WitnessKey(h.work), []byte(`{"work":`), bucket.IfIs(bucket.Version(record.Hash(encoded(h.r)))))
		}},
		{name: "without a condition", want: "COND", text: "w1 wrote the witness", do: func(h *hand) { h.first(); h.bare("w1", bucket.Always()) }},
		{name: "created over another", want: "COND", text: "the store broke its word", do: func(h *hand) { h.first(); h.bare("w1", bucket.IfAbsent()) }},
		{name: "swapped for nothing", want: "COND", text: "the store broke its word", do: func(h *hand) { h.first(); h.bare("w1", bucket.IfIs("x")) }},
	})
}

// bare renews under a condition of one's own.
func (h *hand) bare(actor string, c bucket.Cond) {
	h.r.Rev++
	h.r.Write = h.nonce()
	h.take(actor, record.WitnessKey(h.work), encoded(h.r), c)
}

// TestRefusedIsNothing: what the store refused, and what is only a remark, breaks nothing.
func TestRefusedIsNothing(t *testing.T) {
	h := newHand(Options{})
	h.first()
	h.j.Take(history.Entry{Actor: "x", Op: history.Put, Key: record.WitnessKey(h.work), Body: []byte("x"), Refused: true, Code: bucket.Condition})
	h.j.Take(history.Entry{Actor: "x", Op: history.Delete, Key: record.WitnessKey(h.work), Refused: true, Code: bucket.Denied})
	h.j.Take(history.Entry{Op: history.Note, Text: "boo"})
	h.renew("w1")
	if got := h.j.Broken(); len(got) > 0 || h.j.Taken() != 10 {
		t.Fatal(got, h.j.Taken())
	}
}
