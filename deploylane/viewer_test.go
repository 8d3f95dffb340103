package deploylane

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
)

// update writes what the tests compare with. (A flag of the tests.)
var update = flag.Bool("update", false, "write testdata anew")

// threeStates is a lane that released v1.0.0, refused v1.1.0 and waits for a second signer of v1.2.0.
func threeStates(t *testing.T) *rig {
	t.Helper()
	g := newRig(t, 5)
	g.tagged("v1.0.0", 1)
	if s := g.settle(g.lane, "v1.0.0"); s.Stage != Release {
		t.Fatalf("%+v", s)
	}
	e := g.tagged("v1.1.0", 2)
	e.Message.Artifact = record.Hash([]byte("another"))
	if s := g.settle(g.lane, "v1.1.0"); !s.Refused {
		t.Fatalf("%+v", s)
	}
	g.policy.Rules[0].Signers = 2
	g.tagged("v1.2.0", 3)
	if s := g.settle(g.lane, "v1.2.0"); s.Stage != Approve {
		t.Fatalf("%+v", s)
	}
	return g
}

// look is one look, and its document without the stamps, which depend on how long the lane rests.
func look(t *testing.T, v *Viewer) (*View, string) {
	t.Helper()
	view, err := v.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range view.Models {
		for _, l := range m.Releases {
			for i := range l.Steps {
				if l.Steps[i].Written.IsZero() {
					t.Errorf("%s has no stamp", l.Steps[i].Key)
				}
				l.Steps[i].Written = time.Time{}
			}
		}
	}
	b, err := json.MarshalIndent(view, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return view, string(b) + "\n"
}

// numbered gives each digest a number, so that what is kept does not change with every byte of a record.
func numbered(s string) string {
	names := map[string]string{}
	return regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{12})\b`).ReplaceAllStringFunc(s, func(d string) string {
		if names[d[:12]] == "" {
			names[d[:12]] = fmt.Sprint(len(names) + 1)
		}
		return fmt.Sprintf("<%s of %d>", names[d[:12]], len(d))
	})
}

// TestTheLineageOfEachState: what a reader without keys sees of a release that is live, one that was refused and one that waits;
// and it is what the lane itself sees, but for the word on signatures.
func TestTheLineageOfEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := threeStates(t)
		view, got := look(t, &Viewer{Store: readonly.New(g.own)})
		got = numbered(got)
		const golden = "testdata/view.json"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("-update writes %s (-want +got):\n%s", golden, diff)
		}
		live, err := g.lane.Live(t.Context(), "digits")
		if err != nil {
			t.Fatal(err)
		}
		for _, seen := range view.Models[0].Releases {
			own, err := g.fresh().Lineage(t.Context(), "digits", seen.Version, live)
			if err != nil {
				t.Fatal(err)
			}
			for i := range own.Steps {
				if own.Steps[i].Signature != Verified || seen.Steps[i].Signature != Unverified {
					t.Errorf("%s: %s and %s", own.Steps[i].Key, own.Steps[i].Signature, seen.Steps[i].Signature)
				}
				own.Steps[i].Signature, own.Steps[i].Written = Unverified, time.Time{}
			}
			a, aerr := json.Marshal(own)
			b, berr := json.Marshal(seen)
			if err := errors.Join(aerr, berr); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(a), string(b)); diff != "" {
				t.Errorf("%s (-lane +viewer):\n%s", seen.Version, diff)
			}
		}
	})
}

// TestTheLinesOfALineage: tag, commit, parent, both works, fingerprints, metrics, score, artifact hashes and the targets' answers are drawn.
func TestTheLinesOfALineage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := threeStates(t)
		live, err := g.lane.Live(t.Context(), "digits")
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.lane.Lineage(t.Context(), "digits", "v1.0.0", live)
		if err != nil {
			t.Fatal(err)
		}
		chain, err := g.lane.Chain(t.Context(), "digits", "v1.0.0")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range l.Steps {
			out = append(out, s.Lines()...)
		}
		all := strings.Join(out, "\n")
		c, run := chain[0].Record.Candidate, chain[1].Record.Run
		for _, want := range []string{
			"tag release/digits/v1.0.0 " + short(object(1)) + " on commit " + short(object(1000)) + ", signed by ann (SHA256:ann)",
			"generation 1: work " + short(c.Parent.Work) + " attempt 1, artifact " + short(c.Parent.Manifest.SHA256) + ", val_accuracy 0.95 (digits)",
			"its machine: arch amd64, cpu x, driver 549",
			"its backtest: work " + short(c.Backtest.Work),
			"seed: work " + short(c.Seeds[0].Work) + ", val_accuracy 0.9",
			"within: val_accuracy is 0.951, 5 seeds predict 0.9",
			"generation 2: work " + short(run.Work) + " attempt 1, parent " + short(c.Parent.Work) + ", artifact " + short(run.Manifest.SHA256) + ", val_accuracy 0.951 (digits)",
			"its machine: arch amd64, cpu x, driver 550.1",
			"score accuracy is 0.94, at least 0.9",
			"artifact " + short(run.Manifest.SHA256) + " at ", "attestation " + short(chain[5].Record.Release.Attestation.SHA256) + " at lane/digits/v1.0.0/attestation.dsse.json",
			"pointer (pointer): lane/digits/current is at v1.0.0", "tell (exec): done",
		} {
			if !strings.Contains(all, want) {
				t.Errorf("%q is not drawn:\n%s", want, all)
			}
		}
	})
}

// TestAViewIsCheap: a look at what was seen before is one list; a new record is one read; nothing is ever written.
func TestAViewIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := threeStates(t)
		only := readonly.New(g.own)
		store := counting.New(only)
		v := &Viewer{Store: store}
		first, _ := look(t, v)
		if want := int64(1 + 6 + 2 + 1 + 4 + 2); first.Requests != want || store.Counts().Requests() != want {
			t.Errorf("%d requests said and %d made, want %d", first.Requests, store.Counts().Requests(), want)
		}
		if again, _ := look(t, v); again.Requests != 1 {
			t.Errorf("%d requests where nothing is new", again.Requests)
		}
		g.staged("v1.2.0", "bob", 1)
		g.settle(g.lane, "v1.2.0")
		last, _ := look(t, v)
		if last.Requests != 1+2+2+2 || last.Models[0].Live != "v1.2.0" || !last.Models[0].Releases[0].Live {
			t.Errorf("%d requests, live %s", last.Requests, last.Models[0].Live)
		}
		if only.Refused() != 0 || store.Counts().Put+store.Counts().Delete != 0 {
			t.Error("it tried to write")
		}
	})
}

// write puts bytes into a store, whatever is there.
func write(t *testing.T, b bucket.Bucket, key string, body []byte) {
	t.Helper()
	_ = b.Delete(t.Context(), key)
	if _, err := b.Put(t.Context(), key, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// forged is a record as anybody could write it, without a key.
func forged(t *testing.T, r Record) []byte {
	t.Helper()
	r.Lane = 1
	body, err := canonical(r)
	if err != nil {
		t.Fatal(err)
	}
	if body, err = canonical(sealed{body, "bm8="}); err != nil {
		t.Fatal(err)
	}
	return body
}

// evil is what a text may hold at worst.
const evil = "<script>alert(1)</script>\"'&\x1b[2J\u202e\x00\r\n"

// hostile is a lane's store that somebody else wrote.
func hostile(t *testing.T) *mem.Bucket {
	t.Helper()
	b := mem.New()
	long := evil + strings.Repeat("x", 100_000)
	run := Run{Name: long, Work: long, Attempt: -1, Fingerprint: map[string]string{long: long}, Metrics: map[string]float64{evil: 1e308}, Manifest: attest.Link{Key: long, SHA256: "é"}}
	for i := range 100 {
		run.Metrics[fmt.Sprint(i)] = 1
	}
	c := &Chosen{Order: Order{Tag: evil, Object: evil, Commit: "é", Signer: long, Key: evil, Plan: attest.File{Path: evil}}, Parent: run, Backtest: run, Hardware: long, LeftOut: slices.Repeat([]string{evil}, 50)}
	for range 300 {
		c.Seeds = append(c.Seeds, Run{Name: evil, Work: evil})
	}
	write(t, b, "lane/digits/v1.0.0/candidate.json", forged(t, Record{Stage: Candidate, Model: "digits", Version: "v1.0.0", Object: evil, Passed: true, Reason: long, Code: evil, Candidate: c}))
	write(t, b, "lane/digits/v1.0.0/retrain.json", forged(t, Record{Stage: Retrain, Model: "digits", Version: "v1.0.0", Object: evil, Before: long, Passed: true, Run: &run}))
	write(t, b, "lane/digits/v1.1.0/candidate.json", []byte(strings.Repeat("[", 50_000)))
	write(t, b, "lane/digits/v1.2.0/candidate.json", bytes.Repeat([]byte(" "), maxRecord+1))
	write(t, b, "lane/digits/v1.3.0/candidate.json", forged(t, Record{Stage: Candidate, Model: "other", Version: "v1.3.0"}))
	write(t, b, "lane/digits/v1.4.0/retrain.json", forged(t, Record{Stage: Retrain, Model: "digits", Version: "v1.4.0"}))
	write(t, b, "lane/digits/v1.5.0/target-"+evil[:8]+".json", []byte("{}"))
	write(t, b, "lane/digits/current", []byte(`{"n":-1,"version":"<b>v9.9.9","release":{"sha256":"x"}}`))
	write(t, b, "lane/digits/history/<i>.json", forged(t, Record{Stage: "pointer", Moved: &PointerHistory{N: -7, Version: evil, Tag: long}}))
	for _, key := range []string{"lane/<script>/v1.0.0/candidate.json", "lane/digits/v1/candidate.json", "lane/digits/v1.0.0/x/candidate.json", "lane/x", "lane/a/ledger/1.json"} {
		write(t, b, key, []byte("{}"))
	}
	return b
}

// TestAViewOfAHostileStore: every release is shown as broken in one sentence, texts are printable and bounded, and what no lane
// writes is passed over.
func TestAViewOfAHostileStore(t *testing.T) {
	view, doc := look(t, &Viewer{Store: hostile(t)})
	if len(doc) > 2<<20 {
		t.Errorf("a document of %d bytes", len(doc))
	}
	if i := strings.IndexFunc(doc, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' || r == 0x7f }); i >= 0 || strings.Contains(doc, `\u0000`) || strings.Contains(doc, `\u001b`) {
		t.Error("what cannot be seen got through")
	}
	if len(view.Models) != 1 || view.Models[0].Trouble != "its pointer names <b>v9.9.9, and none of the releases below is the one that it means" {
		t.Errorf("%+v", view.Models)
	}
	for i, want := range []string{"candidate.json is not there", "candidate.json is not there", "is the record of other v1.3.0", "has 4194305 bytes, at most", "is no record", "follows a record"} {
		l := view.Models[0].Releases[i]
		if l.State != StateBroken || l.Live || !strings.Contains(l.Text, want) || len(l.Text) > 2*maxText {
			t.Errorf("%s: %s, %q, want %q", l.Version, l.State, l.Text, want)
		}
	}
	s := view.Models[0].Releases[5].Steps[0]
	if len(s.Seeds) != maxSeeds || s.MoreSeeds != 100 || len(s.LeftOut) != maxLeft || len(s.Candidate.Metrics) != maxValues {
		t.Errorf("%d seeds, %d more, %d left out, %d metrics", len(s.Seeds), s.MoreSeeds, len(s.LeftOut), len(s.Candidate.Metrics))
	}
	for _, line := range s.Lines() {
		if strings.ContainsAny(line, "\x00\x1b\n") {
			t.Errorf("%q", line)
		}
	}
}

// TestAViewIsBounded: of too much the newest is shown, what is left out is said, and what one look does not read the next ones do.
func TestAViewIsBounded(t *testing.T) {
	b := mem.New()
	for m := range 70 {
		for n := range 60 {
			model, version := fmt.Sprintf("m%02d", m), fmt.Sprintf("v1.%d.0", n)
			write(t, b, key(model, version, Candidate), forged(t, Record{Stage: Candidate, Model: model, Version: version, Passed: true}))
		}
	}
	v := &Viewer{Store: b}
	view, _ := look(t, v)
	if len(view.Models) != viewModels || len(view.Models[0].Releases) != viewVersions || view.Models[0].Releases[0].Version != "v1.59.0" {
		t.Errorf("%d models", len(view.Models))
	}
	if view.Requests != 5+viewReads || view.Models[63].Releases[0].State != StateUnderWay || view.Models[63].Releases[49].State != StateUnread {
		t.Errorf("%d requests; %+v", view.Requests, view.Models[63].Releases[0])
	}
	if said := strings.Join(view.LeftOut, "\n"); !strings.Contains(said, "6 models of 70") || !strings.Contains(said, "m00: the 10 oldest versions") || !strings.Contains(said, "2800 records that come with the next looks") {
		t.Error(said)
	}
	for range 7 {
		view, _ = look(t, v)
	}
	if view.Models[63].Releases[49].State != StateUnderWay || view.Requests != 5+viewReads {
		t.Errorf("after all looks: %+v", view.Models[63].Releases[49])
	}
	if view, _ = look(t, v); view.Requests != 5 {
		t.Errorf("%d requests", view.Requests)
	}
}
