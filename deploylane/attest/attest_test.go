package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/crypto/ssh"

	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/runners/record"
)

var update = flag.Bool("update", false, "rewrite testdata")

// signer makes a key out of one letter: the same letter, the same key.
func signer(t testing.TB, letter byte) *Signer {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{letter}, 32)), "lane")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSigner(pem.EncodeToMemory(block))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hash(s string) string { return record.Hash([]byte(s)) }

func run(s record.Spec) Run {
	identity := record.Identity(s)
	return Run{Work: record.Hash(identity), Attempt: 1, Identity: string(identity), Fingerprint: cpuBox(),
		Metrics: map[string]float64{"accuracy": .8412}, Manifest: Link{"work/x/attempt/1/result/manifest.json", hash("manifest")}}
}

// release is a whole one, whose parts fit each other.
func release(t testing.TB) Statement {
	t.Helper()
	candidate := run(record.Spec{Kind: "train", Argv: []string{"python3", "train.py"}, Seed: 1})
	retrained := run(record.Spec{Kind: "train", Argv: []string{"python3", "train.py"}, Seed: 1, Generation: 2, Parent: candidate.Work, Requires: map[string]string{"os": "linux"}})
	backtest := run(record.Spec{Kind: "backtest", Argv: []string{"python3", "score.py"}, Generation: 2, Deploy: true, Inputs: []record.Input{{Job: "model", Work: retrained.Work}}})
	q := spread.Question{Metrics: []spread.Metric{{Name: "accuracy", Direction: spread.Higher, Margin: .005, Gating: true}},
		New: []spread.Run{{Name: "retrained", Metrics: map[string]float64{"accuracy": .8412}}}}
	var seeds []string
	for i, v := range []float64{.8412, .8390, .8431, .8405, .8422} {
		q.Parents = append(q.Parents, spread.Run{Name: fmt.Sprint("seed ", i), Metrics: map[string]float64{"accuracy": v}})
		seeds = append(seeds, hash(fmt.Sprint("seed ", i)))
	}
	report, err := spread.Judge(q)
	if err != nil {
		t.Fatal(err)
	}
	return New(Release{Lane: "0.6.0", Repository: "example.com/team/models", Model: "digits", Version: "v1.2.0",
		Tag:   Tag{"release/digits/v1.2.0", strings.Repeat("a", 40), strings.Repeat("b", 40), "ann@example.com", "SHA256:abc"},
		Plan:  File{"plans/digits.yaml", hash("plan")},
		Seeds: seeds, Candidate: candidate, Retrained: retrained, Backtest: backtest, Spread: report,
		Score:   Score{"accuracy", spread.Higher, .84, .8},
		Records: []Link{{"lane/digits/v1.2.0/candidate.json", hash("record")}},
		Times:   map[string]string{"candidate": "2026-11-30T18:00:00Z"},
	}, []record.File{{Path: "model.safetensors", Size: 5, SHA256: hash("model")}, {Path: "config/labels.json", Size: 6, SHA256: hash("labels")}})
}

func signed(t testing.TB, s Statement, by *Signer) []byte {
	t.Helper()
	b, err := Sign(s, by)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSignedIsVerified(t *testing.T) {
	s, by := release(t), signer(t, 'a')
	envelope := signed(t, s, by)
	if !bytes.Equal(envelope, signed(t, s, by)) {
		t.Error("signed twice, two envelopes")
	}
	v, err := Verify(envelope, []Key{signer(t, 'b').Key(), by.Key()})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, v.Statement); d != "" {
		t.Error(d)
	}
	if v.Key.ID != by.Key().ID || !strings.HasPrefix(v.Key.ID, "SHA256:") {
		t.Errorf("signed by %q", v.Key.ID)
	}
	// The format is fixed: what was signed once is read for ever.
	const golden = "testdata/release-v2.dsse.json"
	s.Predicate.Approvals = approvals(2)
	if *update {
		if err := os.WriteFile(golden, signed(t, s, by), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := os.ReadFile("testdata/lane.pub")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(lines)
	if err != nil {
		t.Fatal(err)
	}
	for file, approved := range map[string]int{"testdata/release-v1.dsse.json": 0, golden: 2} { // that of version 1 is of before
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Verify(old, keys)
		if err != nil || v.Predicate.Version != "v1.2.0" || len(v.Predicate.AllApprovals()) != approved {
			t.Errorf("%s, an envelope of before: %v", file, err)
		}
		if err := CheckFiles(v.Statement, "testdata/model"); err != nil {
			t.Error(err)
		}
	}
	first := release(t) // one of version 1 that somebody approved
	first.PredicateType, first.Predicate.Approval = PredicateV1, &approvals(1)[0]
	if v, err := Verify(signed(t, first, by), keys); err != nil || v.Predicate.AllApprovals()[0].Signer != "signer-1@example.com" {
		t.Errorf("%+v, %v", v.Predicate, err)
	}
}

// approvals are signed tags by as many people.
func approvals(n int) (out []Tag) {
	for i := range n {
		out = append(out, Tag{fmt.Sprintf("stage/digits/prod/%d", i+1), fmt.Sprintf("%040x", i+1), strings.Repeat("b", 40), fmt.Sprintf("signer-%d@example.com", i+1), fmt.Sprintf("SHA256:%d", i+1)})
	}
	return out
}

// README.md is the format's specification: it names every field.
func TestTheSpecificationNamesEveryField(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := release(t)
	s.Predicate.Approvals = approvals(1)
	for _, v := range []any{s, s.Predicate, s.Predicate.Candidate, s.Predicate.Tag, s.Predicate.Score} {
		b, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(b, &fields); err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			if !bytes.Contains(text, []byte("`"+name+"`")) {
				t.Errorf("README.md does not name %q", name)
			}
		}
	}
	for _, typ := range []string{PayloadType, StatementType, PredicateType} {
		if !bytes.Contains(text, []byte(typ)) {
			t.Errorf("README.md does not name %q", typ)
		}
	}
}

// The two encodings that the DSSE specification gives, and the empty one.
func TestPAE(t *testing.T) {
	for want, in := range map[string][2]string{
		"DSSEv1 29 http://example.com/HelloWorld 11 hello world": {"http://example.com/HelloWorld", "hello world"},
		"DSSEv1 29 http://example.com/HelloWorld 3 ಠ":            {"http://example.com/HelloWorld", "ಠ"},
		"DSSEv1 0  0 ": {"", ""},
	} {
		if got := dsse.PAE(in[0], []byte(in[1])); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// library is a key of ours as the library's own signer and verifier take one.
type library struct {
	private ed25519.PrivateKey
	id      string
}

func (l library) Sign(_ context.Context, b []byte) ([]byte, error) {
	return ed25519.Sign(l.private, b), nil
}
func (l library) KeyID() (string, error)   { return l.id, nil }
func (l library) Public() crypto.PublicKey { return l.private.Public() }
func (l library) Verify(_ context.Context, b, sig []byte) error {
	if !ed25519.Verify(l.private.Public().(ed25519.PublicKey), b, sig) {
		return errors.New("no")
	}
	return nil
}

func TestTheLibraryAndWeReadEachOther(t *testing.T) {
	s, by := release(t), signer(t, 'a')
	theirs, err := dsse.NewEnvelopeVerifier(library{by.private, ""}) // no id: the library computes its own, which must be ours
	if err != nil {
		t.Fatal(err)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(signed(t, s, by), &e); err != nil {
		t.Fatal(err)
	}
	accepted, payload, err := theirs.VerifyAndDecode(t.Context(), &e)
	if err != nil || len(accepted) != 1 || accepted[0].KeyID != by.Key().ID {
		t.Errorf("the library on our envelope: %v, %v", accepted, err)
	}
	for _, id := range []string{by.Key().ID, ""} {
		sign, err := dsse.NewEnvelopeSigner(library{by.private, id})
		if err != nil {
			t.Fatal(err)
		}
		made, err := sign.SignPayload(t.Context(), PayloadType, payload)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.MarshalIndent(made, "", "  ")
		v, err := Verify(b, []Key{by.Key()})
		if err != nil || !cmp.Equal(v.Statement, s) {
			t.Errorf("we on the library's envelope with key id %q: %v", id, err)
		}
		made.Payload = base64.URLEncoding.EncodeToString(payload)
		b, _ = json.Marshal(made)
		if _, err := Verify(b, []Key{by.Key()}); err != nil {
			t.Errorf("the other alphabet: %v", err)
		}
	}
}

func TestEveryCauseHasItsError(t *testing.T) {
	s, by := release(t), signer(t, 'a')
	good := signed(t, s, by)
	edit := func(change func(e *dsse.Envelope)) []byte {
		var e dsse.Envelope
		if err := json.Unmarshal(good, &e); err != nil {
			t.Fatal(err)
		}
		change(&e)
		b, _ := json.Marshal(e)
		return b
	}
	resigned := func(payload string) []byte {
		return edit(func(e *dsse.Envelope) {
			e.Payload = base64.StdEncoding.EncodeToString([]byte(payload))
			e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(ed25519.Sign(by.private, dsse.PAE(PayloadType, []byte(payload))))
		})
	}
	plain, err := encode(s)
	if err != nil {
		t.Fatal(err)
	}
	payload := string(plain)
	forged := strings.Replace(payload, `"value":0.84,"bound"`, `"value":0.99,"bound"`, 1)
	for name, c := range map[string]struct {
		envelope []byte
		want     string
	}{
		"empty":              {nil, "*attest.BadEnvelope"},
		"no JSON":            {[]byte("release"), "*attest.BadEnvelope"},
		"huge":               {bytes.Repeat([]byte(" "), MaxEnvelope+1), "*attest.BadEnvelope"},
		"deep":               {bytes.Repeat([]byte("["), 1000), "*attest.BadEnvelope"},
		"a key twice":        {bytes.Replace(good, []byte(`{"payloadType":`), []byte(`{"payloadType":"x","payloadType":`), 1), "*attest.BadEnvelope"},
		"and in other case":  {bytes.Replace(good, []byte(`{"payloadType":`), []byte(`{"PayloadType":"x","payloadType":`), 1), "*attest.BadEnvelope"},
		"bytes behind":       {append(bytes.Clone(good), '{', '}'), "*attest.BadEnvelope"},
		"no signature":       {edit(func(e *dsse.Envelope) { e.Signatures = nil }), "*attest.BadEnvelope"},
		"many signatures":    {edit(func(e *dsse.Envelope) { e.Signatures = make([]dsse.Signature, 17) }), "*attest.BadEnvelope"},
		"payload no base64":  {edit(func(e *dsse.Envelope) { e.Payload = "%" }), "*attest.BadEnvelope"},
		"of another type":    {edit(func(e *dsse.Envelope) { e.PayloadType = "text/plain" }), "*attest.WrongType"},
		"another key":        {signed(t, s, signer(t, 'z')), "*attest.UnknownKey"},
		"payload altered":    {edit(func(e *dsse.Envelope) { e.Payload = base64.StdEncoding.EncodeToString([]byte(forged)) }), "*attest.Altered"},
		"signature altered":  {edit(func(e *dsse.Envelope) { e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(make([]byte, 64)) }), "*attest.Altered"},
		"signature cut":      {edit(func(e *dsse.Envelope) { e.Signatures[0].Sig = e.Signatures[0].Sig[:8] }), "*attest.Altered"},
		"signed, unknown":    {resigned(strings.Replace(payload, `"predicate":{`, `"predicate":{"new":1,`, 1)), "*attest.BadStatement"},
		"signed, twice":      {resigned(strings.Replace(payload, `"model":`, `"model":"x","model":`, 1)), "*attest.BadStatement"},
		"signed, in spaces":  {resigned(payload + " "), "*attest.BadStatement"},
		"signed, other kind": {resigned(strings.Replace(payload, "release/v2", "release/v3", 1)), "*attest.BadStatement"},
		"signed, no JSON":    {resigned("x"), "*attest.BadStatement"},
		"signed, array":      {resigned("[]"), "*attest.BadStatement"},
	} {
		_, err := Verify(c.envelope, []Key{by.Key()})
		if got := fmt.Sprintf("%T", err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
	for says, envelope := range map[string][]byte{"at most 8388608": bytes.Repeat([]byte(" "), MaxEnvelope+1), "deeper than 16": []byte(strings.Repeat("[", 18) + strings.Repeat("]", 18))} {
		if _, err := Verify(envelope, []Key{by.Key()}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := Verify(good, nil); err == nil {
		t.Error("verified with no key at all")
	}
	b := edit(func(e *dsse.Envelope) {
		e.Signatures = append([]dsse.Signature{{KeyID: "other", Sig: "AAAA"}}, e.Signatures...)
	})
	if _, err := Verify(b, []Key{by.Key()}); err != nil {
		t.Errorf("a stranger's signature beside a good one: %v", err)
	}
}

// Nobody signs, and nobody believes, a statement whose parts contradict each other.
func TestAContradictionIsNotSigned(t *testing.T) {
	for want, spoil := range map[string]func(*Statement){
		"names 0 files":          func(s *Statement) { s.Subject = nil },
		"no plain relative path": func(s *Statement) { s.Subject[0].Name = "../model" },
		"not sorted":             func(s *Statement) { s.Subject[1] = s.Subject[0] },
		"the file":               func(s *Statement) { s.Subject[0].Digest.SHA256 = "abc" },
		"lane has 0 bytes":       func(s *Statement) { s.Predicate.Lane = "" },
		"plan.sha256":            func(s *Statement) { s.Predicate.Plan.SHA256 = "x" },
		"lacks its object":       func(s *Statement) { s.Predicate.Tag.Object = "main" },
		"hashes to":              func(s *Statement) { s.Predicate.Candidate.Identity += " " },
		"attempt 0":              func(s *Statement) { s.Predicate.Backtest.Attempt = 0 },
		"names no manifest":      func(s *Statement) { s.Predicate.Retrained.Manifest.SHA256 = "" },
		"0 seeds":                func(s *Statement) { s.Predicate.Seeds = nil },
		"no work digest":         func(s *Statement) { s.Predicate.Seeds[0] = "x" },
		"the record":             func(s *Statement) { s.Predicate.Records[0].SHA256 = "" },
		"RFC 3339":               func(s *Statement) { s.Predicate.Times["x"] = "yesterday" },
		"not the candidate":      func(s *Statement) { s.Predicate.Candidate = run(record.Spec{Kind: "train", Argv: []string{"x"}}) },
		"is of generation": func(s *Statement) {
			s.Predicate.Retrained = run(record.Spec{Kind: "train", Argv: []string{"x"}, Parent: s.Predicate.Candidate.Work})
		},
		"did not read": func(s *Statement) {
			s.Predicate.Backtest = run(record.Spec{Kind: "backtest", Argv: []string{"x"}, Generation: 2, Deploy: true})
		},
		"deploy flag false": func(s *Statement) {
			s.Predicate.Backtest = run(record.Spec{Kind: "backtest", Argv: []string{"x"}, Generation: 2, Inputs: []record.Input{{Work: s.Predicate.Retrained.Work}}})
		},
		"backtest is of generation 1": func(s *Statement) {
			s.Predicate.Backtest = run(record.Spec{Kind: "backtest", Argv: []string{"x"}, Deploy: true, Inputs: []record.Input{{Work: s.Predicate.Retrained.Work}}})
		},
		"which only a backtest has": func(s *Statement) {
			s.Predicate.Retrained = run(record.Spec{Kind: "train", Argv: []string{"python3", "train.py"}, Seed: 1, Generation: 2, Parent: s.Predicate.Candidate.Work, Deploy: true})
		},
		"differ in \"seed\"": func(s *Statement) {
			s.Predicate.Retrained = run(record.Spec{Kind: "train", Argv: []string{"python3", "train.py"}, Seed: 2, Generation: 2, Parent: s.Predicate.Candidate.Work})
			s.Predicate.Backtest = run(record.Spec{Kind: "backtest", Argv: []string{"x"}, Generation: 2, Deploy: true, Inputs: []record.Input{{Work: s.Predicate.Retrained.Work}}})
		},
		"nobody approved":            func(s *Statement) { s.Predicate.Spread.Verdict = spread.Better },
		"never released":             func(s *Statement) { s.Predicate.Spread.Verdict = spread.Worse },
		"says \"inconclusive\"":      func(s *Statement) { s.Predicate.Spread.Verdict = spread.Inconclusive },
		"is 0.7, the bound":          func(s *Statement) { s.Predicate.Score.Value = .7 },
		"expected higher or lower":   func(s *Statement) { s.Predicate.Score.Direction = "" },
		"score has no name":          func(s *Statement) { s.Predicate.Score.Name = "" },
		"expected a \"https://in-to": func(s *Statement) { s.Type = "" },
		"cannot be written":          func(s *Statement) { s.Predicate.Score.Value = nan() },
		"different keys":             func(s *Statement) { s.Predicate.Approvals = append(approvals(2), approvals(1)...) },
		"by \"ann@example.com\"":     func(s *Statement) { s.Predicate.Approvals = []Tag{s.Predicate.Tag} },
		"of another version":         func(s *Statement) { s.Predicate.Approval = &approvals(1)[0] },
		"257 approvals":              func(s *Statement) { s.Predicate.Approvals = approvals(257) },
	} {
		s := release(t)
		spoil(&s)
		_, err := Sign(s, signer(t, 'a'))
		if e, ok := errors.AsType[*BadStatement](err); !ok || !strings.Contains(e.Text, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s := release(t)
	s.Predicate.Spread.Verdict = spread.Better
	s.Predicate.Approvals = approvals(1)
	if _, err := Sign(s, signer(t, 'a')); err != nil {
		t.Errorf("better, and approved: %v", err)
	}
}

func nan() float64 { var zero float64; return zero / zero }
