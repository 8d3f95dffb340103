package judge

import (
	"testing"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func (h *hand) model(a, m int64) string { return record.MilestonePrefix(h.work, a, m) + "model.bin" }

// TestNeeded: I9.
func TestNeeded(t *testing.T) {
	finished := func(h *hand) { p := h.third(); h.finish("w2", 2, &p) }
	held(t, []breach{
		{name: "what nobody needs", do: func(h *hand) {
			h.third()
			h.del("gc", record.MilestoneManifestKey(h.work, 1, 2))
			h.del("gc", h.model(1, 2))
			h.del("gc", "platform/x")
			h.del("gc", record.SegmentKey(record.LogPrefix(h.work, 1), 0))
		}},
		{name: "the witness", want: "I9", text: "gc deleted the witness", do: func(h *hand) { h.first(); h.del("gc", record.WitnessKey(h.work)) }},
		{name: "the witness by hand, not announced", want: "I9", text: "nobody deleted the witness", do: func(h *hand) { h.first(); h.del("", record.WitnessKey(h.work)) }},
		{name: "the witness by hand", o: Options{HandDeletes: 1}, do: func(h *hand) { h.first(); h.del("", record.WitnessKey(h.work)) }},
		{name: "what the pointer names", want: "I9", text: "gc deleted attempt 2 milestone 1 model.bin", do: func(h *hand) {
			h.third()
			h.revoke("d1")
			h.del("gc", h.model(2, 1))
		}},
		{name: "an ancestor", want: "I9", text: "an ancestor of the resume pointer, 1 back", do: func(h *hand) { h.third(); h.del("gc", h.model(1, 1)) }},
		{name: "an ancestor that retention lets go", o: Options{Ancestors: 1}, do: func(h *hand) { h.third(); h.del("gc", h.model(1, 1)) }},
		{name: "an ancestor that retention keeps", o: Options{Ancestors: 2}, want: "I9", text: "1 back", do: func(h *hand) { h.third(); h.del("gc", h.model(1, 1)) }},
		{name: "under the holder's hands", want: "I9", text: "attempt 2 holds the lease (w2)", do: func(h *hand) {
			p := h.third()
			h.snapshot("w2", 2, 2, &p)
			h.del("gc", h.model(2, 2))
		}},
		{name: "a result", want: "I9", text: "it belongs to the result", do: func(h *hand) { finished(h); h.del("gc", record.ResultManifestKey(h.work, 2)) }},
		{name: "milestones of a finished work", o: Options{FinishedMilestones: true}, do: func(h *hand) { finished(h); h.del("gc", h.model(2, 1)); h.del("gc", h.model(1, 1)) }},
		{name: "milestones that stay", want: "I9", text: "the resume pointer names it", do: func(h *hand) { finished(h); h.del("gc", h.model(2, 1)) }},
		{name: "a claim", want: "I9", text: "the work is not finished", do: func(h *hand) { h.third(); h.del("gc", record.ClaimKey(h.work, 1)) }},
		{name: "a claim of a finished work", o: Options{FinishedRecords: true}, do: func(h *hand) { finished(h); h.del("gc", record.ClaimKey(h.work, 1)) }},
		{name: "the last claim of a finished work, and counted from one again", o: Options{FinishedRecords: true}, want: "I8", text: "claim 1 of", do: func(h *hand) {
			finished(h)
			h.del("gc", record.ClaimKey(h.work, 1))
			h.del("gc", record.ClaimKey(h.work, 2))
			h.claim("d2", 1)
		}},
		{name: "an open", want: "I9", text: "it says that the attempt was", do: func(h *hand) { h.third(); h.del("gc", record.OpenKey(h.work, 1)) }},
		{name: "the finisher's open", o: Options{FinishedRecords: true}, want: "I9", text: "belongs to the result", do: func(h *hand) { finished(h); h.del("gc", record.OpenKey(h.work, 2)) }},
		{name: "an open of a finished work", o: Options{FinishedRecords: true}, want: "I9", text: "it says that the attempt was", do: func(h *hand) { finished(h); h.del("gc", record.OpenKey(h.work, 1)) }},
		{name: "a spec", want: "I9", text: "what the work is", do: func(h *hand) {
			h.take("d1", record.SpecKey(h.work), []byte("{}"), bucket.IfAbsent())
			h.del("gc", record.SpecKey(h.work))
		}},
	})
}

// TestBundles: a bundle is needed as long as some launch may still fetch it.
func TestBundles(t *testing.T) {
	spec := func(h *hand) {
		h.take("d1", record.CodeKey("tree"), []byte("code"), bucket.IfAbsent())
		h.take("d1", record.SpecKey(h.work), encoded(record.Spec{Work: h.work, CodeTree: "tree"}), bucket.IfAbsent())
	}
	del := func(h *hand) { h.del("gc", record.CodeKey("tree")) }
	held(t, []breach{
		{name: "not dispatched", do: func(h *hand) { spec(h); del(h) }},
		{name: "dispatched", want: "I9", text: "gc deleted code/tree.tar.zst", do: func(h *hand) { spec(h); h.claim("d1", 1); del(h) }},
		{name: "held", want: "I9", text: "dispatch 1 of work", do: func(h *hand) { spec(h); h.first(); del(h) }},
		{name: "finished", do: func(h *hand) { spec(h); p := h.first(); h.finish("w1", 1, &p); del(h) }},
		{name: "stopped", do: func(h *hand) { spec(h); h.first(); h.stop("op", 2); del(h) }},
	})
}

// TestAnotherLife: after a deletion by hand, numbers may begin again, but prefixes keep their owners.
func TestAnotherLife(t *testing.T) {
	o := Options{HandDeletes: 1}
	repaired := func(h *hand, attempt int64, p *record.Pointer) {
		h.del("", record.WitnessKey(h.work))
		h.lease("op", func(r *witness.Record) { r.State, r.Attempt, r.Resume = witness.Revoked, attempt, p })
	}
	held(t, []breach{
		{name: "deleted before its first byte", o: o, do: func(h *hand) {
			h.claim("d1", 1)
			h.capture("w1", 1)
			h.del("", record.WitnessKey(h.work))
			h.claim("d1", 2)
			h.capture("w2", 2)
			h.open("w2")
		}},
		{name: "two lives, one prefix", o: o, want: "I1", text: "prefix of attempt 1 belongs to w1", do: func(h *hand) {
			h.first()
			h.del("", record.WitnessKey(h.work))
			h.claim("d1", 2)
			h.capture("w2", 2)
			h.file("w2", 1, 2, "x")
		}},
		{name: "repaired", o: o, do: func(h *hand) {
			p := h.third()
			repaired(h, 2, &p)
			h.claim("d1", 3)
			h.capture("w3", 3)
			h.open("w3")
			h.move("w3", h.snapshot("w3", 3, 1, &p))
		}},
		{name: "repaired too low", o: o, want: "I6", text: "op made the witness", do: func(h *hand) { p := h.third(); repaired(h, 1, nil); _ = p }},
		{name: "repaired with what was never named", o: o, want: "I4", text: "op repaired the witness", do: func(h *hand) { _, q := h.second(); repaired(h, 2, &q) }},
	})
}
