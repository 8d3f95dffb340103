package audit

import (
	"strings"
	"testing"

	"github.com/headway-run/headway/runners/witness"
)

// advices are what helps in each case: a part of what the finding says is to be done, with WORK for the work.
func advices() map[string]string {
	const (
		backup   = "restore the object from a backup of the bucket"
		rewind   = "headway doctor --repair WORK --resume work/WORK/attempt/00000001/milestone/00000002/manifest.json"
		last     = "headway doctor --repair WORK --resume work/WORK/attempt/00000003/milestone/00000001/manifest.json"
		ancestor = "without one leave it: no attempt reads it again"
		result   = "give the job another seed or replica, and headway apply computes it anew"
		claim    = "without one leave it: the next launch takes the next number"
		writer   = "look at the object and at who can write to the bucket"
		newer    = "with a newer version of headway"
		note     = "nothing depends on it"
		back     = "nothing, if somebody repaired the witness and named an older milestone"
		strange  = "delete it if nobody needs it"
		park     = "delete it: the platform then counts as well"
		probed   = "headway doctor, without --no-probe, probes the store"
		spec     = "the next launch writes it again from the plan"
	)
	return map[string]string{
		"witness deleted": last, "witness is half": last, "witness too big": last, "witness of 10 MiB": last, "witness of another work": last,
		"witness rolled back": last, "witness of a newer protocol": newer, "witness without a write": last, "witness in no state": last,
		"attempt of the witness lowered": last, "rev lowered": last, "dispatch edited": last, "floor raised": last, "floor above the holder": last,
		"held by another than who opened": last, "captured without a claim": claim,
		"ran after the end": "launch nothing for this work; restore the witness", "finished by hand": result, "finished taken back": "the result of attempt 3 stands",
		"exit code edited": "restore the witness", "sha256 of the result edited": result, "finished by an attempt that says otherwise": note,
		"finished without a reservation": writer,

		"spec deleted": "headway apply", "spec is no JSON": spec, "spec of another identity": spec, "spec of another command": spec, "spec of a newer protocol": newer,
		"claim missing": claim, "claim copied": claim, "claim nonce twice": claim, "receipt without a claim": claim, "open without a claim": claim,
		"receipt is half": note, "receipt copied": note, "receipt of another claim": note, "release of another work": note, "release says nonsense": note,
		"refusal is half": note, "refusal of another dispatch": note, "refusal without a claim": claim,
		"end of another attempt": note, "end is no JSON": note, "open deleted": writer, "open copied": writer, "open of no holder": writer, "holder twice": writer,

		"pointer to nothing": rewind, "pointer to a milestone completed after the take-over": last, "pointer back within the line": back, "pointer removed": back,
		"pointer to another step": rewind, "sha256 of the pointer edited": rewind, "pointer to a snapshot without its manifest": last,
		"pointer grown from a deposed attempt's milestone": last, "manifest cut short": rewind, "manifest of a newer protocol": newer,
		"manifest changed after it was named": ancestor, "manifest too big": rewind, "manifest is no JSON": rewind, "manifest of another step": rewind,
		"manifest of another work": rewind, "ancestor deleted": ancestor, "grew from a later step": rewind, "grew from itself": rewind, "grew from a foreign key": rewind,
		"chain skips what the attempt began from": back, "attempt says it began elsewhere": back, "first attempt began from something": writer,
		"path leaves its folder": rewind, "paths out of order": rewind,
		"file deleted": ancestor, "file cut short": result, "one bit of a file": ancestor, "result deleted": result, "result of another chain": "believe this result only if",
		"result is a milestone": result,

		"stray key in the work": strange, "stray key beside works": strange, "stray lease": strange, "stray folder": strange, "stray object": strange,
		"stray key in an attempt": strange, "stray log segment": strange, "stray milestone": strange, "stray answer": strange, "stray note of the store": strange,
		"trim record cut short": "headway doctor --deep then names what retention had taken", "trim record of another work": "without one delete it",
		"stray name among the code": "delete it: no worker asks for it", "stray platform: no JSON": park, "stray platform: of another": park,
		"stray platform: without a write": park, "stray platform: newer": newer, "stray platform: too big": park,
		"stray statistics": strange, "stray observation: half": "one end less is known", "stray observation: of another work": "one end less is known",
		"stray observation: of another card": "one end less is known", "stray observation: of another day": "one end less is known", "stray observation: newer": newer,
		"stray compact: half": "and is learnt anew", "stray compact: too big": "and is learnt anew", "stray compact: of another platform": "and is learnt anew",
		"stray compact: without a rev": "and is learnt anew", "stray compact: newer": newer,
		"stray rule: half": "to begin this rule of notifications anew", "stray rule: of nothing": "to begin this rule of notifications anew", "stray rule: newer": newer,
		"stray verdict: no JSON": probed, "stray verdict: of nothing": probed, "stray verdict: refused": probed,
	}
}

// TestAdviceKeepsWhatIsWhole: a finished work whose result is whole is left as it is, since a witness made anew would be
// one of a work that goes on; and a holder's next milestone replaces a pointer's that is damaged.
func TestAdviceKeepsWhatIsWhole(t *testing.T) {
	for finish, want := range map[bool]string{true: "; without one leave it: the work is finished", false: "leave it while its attempt runs"} {
		b := newBench(t, onMem(t))
		work := b.history(1, finish)
		seen, err := witness.Read(t.Context(), b, work)
		if err != nil || !finish && seen.Record.State != witness.Held {
			t.Fatalf("%+v, %v", seen.Record, err)
		}
		b.put(seen.Record.Resume.Manifest, []byte("{"))
		got, err := Check(t.Context(), b, Options{})
		if err != nil || len(got.Findings) == 0 || !strings.Contains(got.Findings[0].Do, want) || finish && strings.Contains(got.Findings[0].Do, "--repair") {
			t.Errorf("finished %v: %v %+v", finish, err, got.Findings)
		}
	}
}
