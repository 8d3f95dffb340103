package audit

import (
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func openKey(n int64) func(string) string {
	return func(w string) string { return record.OpenKey(w, n) }
}
func claimKey(n int64) func(string) string {
	return func(w string) string { return record.ClaimKey(w, n) }
}
func manifest(a, m int64) func(string) string {
	return func(w string) string { return record.MilestoneManifestKey(w, a, m) }
}

// rehash points the witness at a changed manifest, as somebody with write access could.
func rehash(b *bench, work string) {
	change(b, record.WitnessKey(work), func(r *witness.Record) { r.Resume.SHA256 = record.Hash(b.raw(r.Resume.Manifest)) })
}

func spoiledRecords() []spoiled {
	return []spoiled{
		{"spec deleted", false, false, func(b *bench, w string) { b.remove(record.SpecKey(w)) }, Identity, record.SpecKey},
		{"spec of another identity", false, false, func(b *bench, w string) {
			change(b, record.SpecKey(w), func(s *record.Spec) { s.Identity = []byte(`{"seed":7}`) })
		}, Identity, record.SpecKey},
		{"spec of another command", false, false, func(b *bench, w string) {
			change(b, record.SpecKey(w), func(s *record.Spec) { s.Argv = []string{"evil"} })
		}, Identity, record.SpecKey},
		{"spec is no JSON", false, false, func(b *bench, w string) { b.put(record.SpecKey(w), []byte("{")) }, Format, record.SpecKey},
		{"spec of a newer protocol", false, false, func(b *bench, w string) {
			change(b, record.SpecKey(w), func(s *record.Spec) { s.Protocol = 2 })
		}, Format, record.SpecKey},
		{"claim missing", false, false, func(b *bench, w string) { b.remove(record.ClaimKey(w, 2)) }, Claimed, claimKey(2)},
		{"claim copied", false, false, func(b *bench, w string) { b.put(record.ClaimKey(w, 2), b.raw(record.ClaimKey(w, 1))) }, Format, claimKey(2)},
		{"claim nonce twice", false, false, func(b *bench, w string) {
			change(b, record.ClaimKey(w, 2), func(c *record.Claim) { c.Dispatch, c.Nonce = 1, "" })
			change(b, record.ClaimKey(w, 2), func(c *record.Claim) { c.Dispatch = 2 })
		}, Claimed, claimKey(2)},
		{"receipt without a claim", false, false, func(b *bench, w string) { b.put(record.ReceiptKey(w, 8), []byte("{}")) }, Claimed, claimKey(8)},
		{"receipt is half", false, true, func(b *bench, w string) {
			b.put(record.ReceiptKey(w, 2), b.raw(record.ReceiptKey(w, 2))[:10])
		}, Format, func(w string) string { return record.ReceiptKey(w, 2) }},
		{"receipt copied", false, true, func(b *bench, w string) { b.put(record.ReceiptKey(w, 2), b.raw(record.ReceiptKey(w, 1))) }, Format,
			func(w string) string { return record.ReceiptKey(w, 2) }},
		{"receipt of another claim", false, true, func(b *bench, w string) {
			change(b, record.ReceiptKey(w, 2), func(r *record.Receipt) { r.Nonce = record.Nonce() })
		}, Claimed, func(w string) string { return record.ReceiptKey(w, 2) }},
		{"release of another work", false, true, func(b *bench, w string) {
			change(b, record.ReleaseKey(w, 2, 1), func(r *record.Release) { r.Work = record.Hash(nil) })
		}, Format, func(w string) string { return record.ReleaseKey(w, 2, 1) }},
		{"refusal is half", false, true, func(b *bench, w string) {
			b.put(record.RefusalKey(w, 2), b.raw(record.RefusalKey(w, 2))[:10])
		}, Format, func(w string) string { return record.RefusalKey(w, 2) }},
		{"refusal of another dispatch", false, true, func(b *bench, w string) {
			change(b, record.RefusalKey(w, 2), func(r *record.Refusal) { r.Dispatch = 1 })
		}, Format, func(w string) string { return record.RefusalKey(w, 2) }},
		{"refusal without a claim", false, false, func(b *bench, w string) { b.put(record.RefusalKey(w, 8), []byte("{}")) }, Claimed, claimKey(8)},
		{"release says nonsense", false, true, func(b *bench, w string) {
			change(b, record.ReleaseKey(w, 2, 1), func(r *record.Release) { r.Settlement = "perhaps" })
		}, Format, func(w string) string { return record.ReleaseKey(w, 2, 1) }},
		{"open deleted", false, false, func(b *bench, w string) { b.remove(record.OpenKey(w, 1)) }, OneWriter,
			func(w string) string { return record.SegmentKey(record.LogPrefix(w, 1), 0) }},
		{"open copied", false, false, func(b *bench, w string) { b.put(record.OpenKey(w, 2), b.raw(record.OpenKey(w, 1))) }, Format, openKey(2)},
		{"holder twice", false, false, func(b *bench, w string) {
			var first string
			change(b, record.OpenKey(w, 1), func(o *record.Open) { first = o.Holder })
			change(b, record.OpenKey(w, 2), func(o *record.Open) { o.Holder = first })
		}, OneHolder, openKey(2)},
		{"open without a claim", false, false, func(b *bench, w string) {
			change(b, record.OpenKey(w, 2), func(o *record.Open) { o.Dispatch = 77 })
		}, Claimed, openKey(2)},
		{"end is no JSON", false, false, func(b *bench, w string) { b.put(record.EndKey(w, 2), []byte("{")) }, Format,
			func(w string) string { return record.EndKey(w, 2) }},
		{"open of no holder", false, false, func(b *bench, w string) {
			change(b, record.OpenKey(w, 1), func(o *record.Open) { o.Holder = "me" })
		}, OneHolder, openKey(1)},
		{"end of another attempt", false, false, func(b *bench, w string) {
			change(b, record.EndKey(w, 2), func(e *record.End) { e.Attempt = 1 })
		}, Format, func(w string) string { return record.EndKey(w, 2) }},
		{"stray key in the work", false, false, func(b *bench, w string) { b.put(record.WorkPrefix(w)+"attempt/7/x", []byte("x")) }, Format,
			func(w string) string { return record.WorkPrefix(w) + "attempt/7/x" }},
		{"stray key beside works", false, false, func(b *bench, _ string) { b.put("work/readme", []byte("x")) }, Format, func(string) string { return "work/readme" }},
		{"stray lease", false, false, func(b *bench, _ string) { b.put("witness/readme", []byte("x")) }, Format, func(string) string { return "witness/readme" }},
	}
}

func spoiledSnapshots() []spoiled {
	return []spoiled{
		{"pointer to nothing", false, false, func(b *bench, w string) { b.remove(record.MilestoneManifestKey(w, 3, 1)) }, Complete, manifest(3, 1)},
		{"ancestor deleted", false, false, func(b *bench, w string) { b.remove(record.MilestoneManifestKey(w, 1, 1)) }, Complete, manifest(1, 1)},
		{"manifest changed after it was named", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 1, 2), func(m *record.Manifest) { m.Step = 21 })
		}, OneWriter, manifest(1, 2)},
		{"manifest too big", false, false, func(b *bench, w string) {
			b.put(record.MilestoneManifestKey(w, 3, 1), make([]byte, record.MaxManifest+1))
		}, Complete, manifest(3, 1)},
		{"manifest is no JSON", false, false, func(b *bench, w string) {
			b.put(record.MilestoneManifestKey(w, 3, 1), []byte("oops"))
			rehash(b, w)
		}, Format, manifest(3, 1)},
		{"manifest of another step", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Step = 31 })
			rehash(b, w)
		}, Complete, manifest(3, 1)},
		{"manifest of another work", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Work = record.Hash(nil) })
			rehash(b, w)
		}, Format, manifest(3, 1)},
		{"grew from a later step", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Parent.Step = 99 })
			rehash(b, w)
		}, Forward, manifest(3, 1)},
		{"grew from itself", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) {
				m.Parent = &record.Pointer{Attempt: 3, Milestone: 1, Step: 30, Manifest: record.MilestoneManifestKey(w, 3, 1)}
			})
			rehash(b, w)
		}, Forward, manifest(3, 1)},
		{"grew from a foreign key", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Parent.Manifest = "../../secret" })
			rehash(b, w)
		}, Forward, manifest(3, 1)},
		{"chain skips what the attempt began from", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) {
				m.Parent = &record.Pointer{Attempt: 1, Milestone: 1, Step: 10, Manifest: record.MilestoneManifestKey(w, 1, 1),
					SHA256: record.Hash(b.raw(record.MilestoneManifestKey(w, 1, 1)))}
			})
			rehash(b, w)
		}, Forward, openKey(3)},
		{"attempt says it began elsewhere", false, false, func(b *bench, w string) {
			change(b, record.OpenKey(w, 3), func(o *record.Open) { o.Resume = nil })
		}, Forward, openKey(3)},
		{"first attempt began from something", false, false, func(b *bench, w string) {
			change(b, record.OpenKey(w, 1), func(o *record.Open) {
				o.Resume = &record.Pointer{Attempt: 1, Milestone: 1, Step: 10, Manifest: record.MilestoneManifestKey(w, 1, 1),
					SHA256: record.Hash(b.raw(record.MilestoneManifestKey(w, 1, 1)))}
			})
		}, OneChain, openKey(1)},
	}
}

func spoiledFiles() []spoiled {
	return []spoiled{
		{"file deleted", false, false, func(b *bench, w string) { b.remove(record.MilestonePrefix(w, 1, 1) + "state.json") }, Complete,
			func(w string) string { return record.MilestonePrefix(w, 1, 1) + "state.json" }},
		{"file cut short", true, false, func(b *bench, w string) { b.put(record.ResultPrefix(w, 3)+"deep/weights.bin", []byte("w")) }, Complete,
			func(w string) string { return record.ResultPrefix(w, 3) + "deep/weights.bin" }},
		{"one bit of a file", false, true, func(b *bench, w string) {
			key := record.MilestonePrefix(w, 1, 2) + "deep/weights.bin"
			raw := b.raw(key)
			raw[3] ^= 1
			b.put(key, raw)
		}, Complete, func(w string) string { return record.MilestonePrefix(w, 1, 2) + "deep/weights.bin" }},
		{"path leaves its folder", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Files[0].Path = "../x" })
			rehash(b, w)
		}, Format, manifest(3, 1)},
		{"paths out of order", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] })
			rehash(b, w)
		}, Format, manifest(3, 1)},
		{"result deleted", true, false, func(b *bench, w string) { b.remove(record.ResultManifestKey(w, 3)) }, Complete,
			func(w string) string { return record.ResultManifestKey(w, 3) }},
		{"result of another chain", true, false, func(b *bench, w string) {
			change(b, record.ResultManifestKey(w, 3), func(m *record.Manifest) { m.Parent.Milestone = 2 })
			change(b, record.WitnessKey(w), func(r *witness.Record) { r.Finished.SHA256 = record.Hash(b.raw(r.Finished.Manifest)) })
		}, OneChain, func(w string) string { return record.ResultManifestKey(w, 3) }},
		{"result is a milestone", true, false, func(b *bench, w string) {
			change(b, record.ResultManifestKey(w, 3), func(m *record.Manifest) { m.Milestone = 4 })
			change(b, record.WitnessKey(w), func(r *witness.Record) { r.Finished.SHA256 = record.Hash(b.raw(r.Finished.Manifest)) })
		}, Complete, func(w string) string { return record.ResultManifestKey(w, 3) }},
		{"finished without a reservation", true, false, func(b *bench, w string) { b.remove(record.OpenKey(w, 3)) }, OneWriter,
			func(w string) string { return record.EndKey(w, 3) }},
	}
}
