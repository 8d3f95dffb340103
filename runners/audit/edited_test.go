package audit

import (
	"strings"

	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// edit changes the witness by hand.
func edit(f func(*witness.Record)) func(*bench, string) {
	return func(b *bench, w string) { change(b, record.WitnessKey(w), f) }
}

// pointTo names a milestone that the store has, whatever it is.
func pointTo(a, m int64) func(*bench, string) {
	return func(b *bench, w string) {
		key := record.MilestoneManifestKey(w, a, m)
		var man record.Manifest
		if err := record.Decode(b.raw(key), record.MaxManifest, &man); err != nil {
			b.t.Fatal(err)
		}
		change(b, record.WitnessKey(w), func(r *witness.Record) {
			r.Resume = &record.Pointer{Attempt: a, Milestone: m, Step: man.Step, Manifest: key, SHA256: record.Hash(b.raw(key))}
		})
	}
}

func always(key string) func(string) string { return func(string) string { return key } }

// spoiledWitnesses edits the lease: every field that leaves a trace elsewhere.
func spoiledWitnesses() []spoiled {
	return []spoiled{
		{"witness deleted", false, false, func(b *bench, w string) { b.remove(record.WitnessKey(w)) }, OneWriter, record.WitnessKey},
		{"witness is half", false, false, func(b *bench, w string) { b.put(record.WitnessKey(w), b.raw(record.WitnessKey(w))[:100]) }, Format, record.WitnessKey},
		{"witness too big", false, false, func(b *bench, w string) { b.put(record.WitnessKey(w), make([]byte, 1<<20)) }, Format, record.WitnessKey},
		{"witness of another work", false, false, func(b *bench, w string) {
			b.put(record.WitnessKey(w), b.raw(record.WitnessKey(b.history(50, false))))
		}, Format, record.WitnessKey},
		{"witness rolled back", false, false, func(b *bench, w string) {
			change(b, record.WitnessKey(w), func(r *witness.Record) { r.Attempt, r.Resume = 2, nil })
		}, OneWriter, record.WitnessKey},
		{"ran after the end", true, false, func(b *bench, w string) {
			b.put(record.ClaimKey(w, 4), record.Claim{Protocol: 1, Work: w, Dispatch: 4, Nonce: record.Nonce()})
			b.put(record.OpenKey(w, 4), record.Open{Protocol: 1, Work: w, Attempt: 4, Holder: record.Nonce(), Dispatch: 4})
		}, Terminal, record.WitnessKey},
		{"held by another than who opened", false, false, func(b *bench, w string) {
			change(b, record.WitnessKey(w), func(r *witness.Record) { r.Holder = record.Nonce() })
		}, OneHolder, openKey(3)},
		{"captured without a claim", false, false, func(b *bench, w string) {
			change(b, record.WitnessKey(w), func(r *witness.Record) { r.Dispatch = 9 })
		}, Claimed, record.WitnessKey},
		{"witness of 10 MiB", false, false, func(b *bench, w string) { b.put(record.WitnessKey(w), make([]byte, 10<<20)) }, Format, record.WitnessKey},
		{"witness of a newer protocol", false, false, edit(func(r *witness.Record) { r.Protocol = 2 }), Format, record.WitnessKey},
		{"witness without a write", false, false, edit(func(r *witness.Record) { r.Write = "" }), Format, record.WitnessKey},
		{"witness in no state", false, false, edit(func(r *witness.Record) { r.State = "paused" }), Format, record.WitnessKey},
		{"attempt of the witness lowered", false, false, edit(func(r *witness.Record) { r.Attempt, r.Dispatch, r.Resume = 1, 1, nil }), OneWriter, record.WitnessKey},
		{"rev lowered", false, false, edit(func(r *witness.Record) { r.Rev = 1 }), Forward, record.WitnessKey},
		{"dispatch edited", false, false, edit(func(r *witness.Record) { r.Dispatch = 2 }), Claimed, record.WitnessKey},
		{"floor raised", false, false, edit(func(r *witness.Record) { r.State, r.Holder, r.Floor = witness.Revoked, "", 9 }), Claimed, record.WitnessKey},
		{"floor above the holder", false, false, edit(func(r *witness.Record) { r.Floor = 9 }), Format, record.WitnessKey},
		{"finished by hand", false, false, edit(func(r *witness.Record) {
			r.State, r.Holder = witness.Finished, ""
			r.Finished = &witness.FinishedPointer{Attempt: 3, Manifest: record.ResultManifestKey(r.Work, 3), SHA256: record.Hash(nil)}
		}), Complete, func(w string) string { return record.ResultManifestKey(w, 3) }},
		{"finished taken back", true, false, edit(func(r *witness.Record) { r.State, r.Finished = witness.Revoked, nil }), Terminal, record.WitnessKey},
		{"exit code edited", true, false, edit(func(r *witness.Record) { r.Finished.ExitCode = 3 }), Terminal, record.WitnessKey},
		{"sha256 of the result edited", true, false, edit(func(r *witness.Record) { r.Finished.SHA256 = record.Hash(nil) }), OneWriter,
			func(w string) string { return record.ResultManifestKey(w, 3) }},
		{"finished by an attempt that says otherwise", true, false, func(b *bench, w string) {
			b.put(record.EndKey(w, 1), record.End{Protocol: 1, Work: w, Attempt: 1, Class: "finished"})
		}, Terminal, func(w string) string { return record.EndKey(w, 1) }},
	}
}

// spoiledPointers moves the resume pointer past its holder.
func spoiledPointers() []spoiled {
	return []spoiled{
		{"pointer to a milestone completed after the take-over", false, false, pointTo(1, 3), OneChain, manifest(1, 3)},
		{"pointer back within the line", false, false, pointTo(1, 1), Forward, openKey(3)},
		{"pointer removed", false, false, edit(func(r *witness.Record) { r.Resume = nil }), Forward, openKey(3)},
		{"pointer to another step", false, false, edit(func(r *witness.Record) { r.Resume.Step = 31 }), Complete, manifest(3, 1)},
		{"sha256 of the pointer edited", false, false, edit(func(r *witness.Record) { r.Resume.SHA256 = record.Hash(nil) }), OneWriter, manifest(3, 1)},
		{"pointer to a snapshot without its manifest", false, false, func(b *bench, w string) {
			change(b, record.WitnessKey(w), func(r *witness.Record) {
				r.Resume.Milestone, r.Resume.Manifest = 2, record.MilestoneManifestKey(w, 3, 2)
			})
			b.put(record.MilestonePrefix(w, 3, 2)+"state.json", []byte("half"))
		}, Complete, manifest(3, 2)},
		{"pointer grown from a deposed attempt's milestone", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) {
				m.Parent = &record.Pointer{Attempt: 1, Milestone: 3, Step: 25, Manifest: record.MilestoneManifestKey(w, 1, 3),
					SHA256: record.Hash(b.raw(record.MilestoneManifestKey(w, 1, 3)))}
			})
			rehash(b, w)
		}, OneChain, manifest(1, 3)},
		{"manifest cut short", false, false, func(b *bench, w string) {
			key := record.MilestoneManifestKey(w, 3, 1)
			b.put(key, b.raw(key)[:50])
		}, OneWriter, manifest(3, 1)},
		{"manifest of a newer protocol", false, false, func(b *bench, w string) {
			change(b, record.MilestoneManifestKey(w, 3, 1), func(m *record.Manifest) { m.Protocol = 2 })
			rehash(b, w)
		}, Format, manifest(3, 1)},
	}
}

// spoiledAround damages what is of no work.
func spoiledAround() []spoiled {
	platform, code := record.PlatformKey("local"), "code/abc.tar.zst"
	put := func(key, text string) func(*bench, string) {
		return func(b *bench, _ string) { b.put(key, []byte(text)) }
	}
	return []spoiled{
		{"stray folder", false, false, put("notes/mine", "x"), Format, always("notes/mine")},
		{"stray object", false, false, put("README", "x"), Format, always("README")},
		{"stray name among the code", false, false, put(code, "x"), Format, always(code)},
		{"stray platform: no JSON", false, false, put(platform, "{"), Format, always(platform)},
		{"stray platform: of another", false, false, put("platform/two", `{"protocol":1,"platform":"local","write":"`+strings.Repeat("0", 32)+`"}`), Format, always("platform/two")},
		{"stray platform: without a write", false, false, put(platform, `{"protocol":1,"platform":"local"}`), Format, always(platform)},
		{"stray platform: newer", false, false, put(platform, `{"protocol":2,"platform":"local"}`), Format, always(platform)},
		{"stray platform: too big", false, false, put(platform, strings.Repeat(" ", record.MaxRecord+1)), Format, always(platform)},
		{"stray verdict: no JSON", false, false, put(probe.Key, "<html>"), Format, always(probe.Key)},
		{"stray verdict: of nothing", false, false, put(probe.Key, "{}"), Format, always(probe.Key)},
		{"stray verdict: refused", false, false, put(probe.Key, `{"protocol":1,"time":"2026-01-01T00:00:00Z","refusal":"two creations succeeded"}`), OneHolder, always(probe.Key)},
		{"trim record cut short", false, false, func(b *bench, w string) { b.put(record.TrimKey(w), []byte(`{"protocol":1,`)) }, Format, record.TrimKey},
		{"trim record of another work", false, false, func(b *bench, w string) {
			b.put(record.TrimKey(w), record.Trim{Protocol: 1, Work: record.Hash(nil), Attempt: 9})
		}, Format, record.TrimKey},
		{"stray note of the store", false, false, put("_store/other.json", "{}"), Format, always("_store/other.json")},
		{"stray key in an attempt", false, false, func(b *bench, w string) { b.put(record.AttemptPrefix(w, 3)+"notes", []byte("x")) }, Format,
			func(w string) string { return record.AttemptPrefix(w, 3) + "notes" }},
		{"stray log segment", false, false, func(b *bench, w string) { b.put(record.LogPrefix(w, 3)+"12", []byte("x")) }, Format,
			func(w string) string { return record.LogPrefix(w, 3) + "12" }},
		{"stray milestone", false, false, func(b *bench, w string) { b.put(record.AttemptPrefix(w, 3)+"milestone/7/manifest.json", []byte("x")) }, Format,
			func(w string) string { return record.AttemptPrefix(w, 3) + "milestone/7/manifest.json" }},
		{"stray answer", false, false, func(b *bench, w string) { b.put(record.DispatchPrefix(w)+"00000001.answer.json", []byte("x")) }, Format,
			func(w string) string { return record.DispatchPrefix(w) + "00000001.answer.json" }},
	}
}
