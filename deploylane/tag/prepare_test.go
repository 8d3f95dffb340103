package tag

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

// TestPreparedTagsAreAccepted: what is prepared and signed as it is passes, and what a look would refuse is not prepared.
func TestPreparedTagsAreAccepted(t *testing.T) {
	y := newYard(t)
	w := y.watch()
	p, err := ReadPolicy([]byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	asked := Message{Repo: w.Repo, Model: "digits", Version: "v1.0.0", Plan: planPath, PlanSHA256: record.Hash([]byte(planText)), Candidate: hash("2"), Attempt: 3, Artifact: hash("4")}
	release, err := Prepare(asked, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	y.tag("ann", release.Name, release.Text, "main")
	m := y.look(w)
	standing := &Standing{Record: hash("5"), Spread: "within"}
	y.facts.standings["v1.0.0"] = *standing
	stage, err := PrepareStage(w.Repo, "digits", "prod", "v1.0.0", "", standing, m.Entries, p)
	if err != nil {
		t.Fatal(err)
	}
	y.tag("bob", stage.Name, stage.Text, "main")
	m = y.look(w)
	back, err := PrepareStage(w.Repo, "digits", "prod", None, "it answers nonsense", nil, m.Entries, p)
	if err != nil {
		t.Fatal(err)
	}
	y.tag("bob", back.Name, back.Text, "main")
	m = y.look(w)
	var got []string
	for _, e := range m.Entries {
		got = append(got, e.Name().String()+" "+string(e.Code))
	}
	if d := cmp.Diff([]string{"release/digits/v1.0.0 Accepted", "stage/digits/prod/1 Accepted", "stage/digits/prod/2 Accepted"}, got); d != "" {
		t.Errorf("%v (-want +got):\n%s", m.Trouble, d)
	}
	twice := asked
	older, odd := asked, asked
	older.Version, odd.Model = "v1.0.0-rc.1", "letters"
	for want, try := range map[string]func() (Prepared, error){
		"is in the ledger (Accepted)": func() (Prepared, error) { return Prepare(twice, m.Entries, p) },
		"VersionNotNewer":             func() (Prepared, error) { return Prepare(older, m.Entries, p) },
		"has no rule for the model":   func() (Prepared, error) { return Prepare(odd, m.Entries, p) },
		"BadTagName": func() (Prepared, error) {
			return PrepareStage(w.Repo, "digits", "live", "v1.0.0", "", standing, m.Entries, p)
		},
		"EvidenceMissing": func() (Prepared, error) {
			return PrepareStage(w.Repo, "digits", "prod", "v2.0.0", "", standing, m.Entries, p)
		},
		"SpreadTooWide": func() (Prepared, error) {
			return PrepareStage(w.Repo, "digits", "prod", "v1.0.0", "", &Standing{Record: hash("5"), Spread: "inconclusive"}, m.Entries, p)
		},
		`gives no Reason (--reason "…")`: func() (Prepared, error) {
			return PrepareStage(w.Repo, "digits", "prod", "v1.0.0", "", &Standing{Record: hash("5"), Released: true}, m.Entries, p)
		},
		`needs a Reason (--reason "…")`: func() (Prepared, error) { return PrepareStage(w.Repo, "digits", "prod", None, "", nil, m.Entries, p) },
	} {
		if got, err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, got.Name, err)
		}
	}
}

// TestPolicy: the file is read as it means, and everything that is wrong with one is said with its place.
func TestPolicy(t *testing.T) {
	p, err := ReadPolicy([]byte(policyText + "revoked: [\"SHA256:abc\", 0123456789ABCDEF0123456789ABCDEF01234567]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who, tag string
		may      bool
	}{
		{"ann@example.com", "release/digits/v1.0.0", true}, {"bob@example.com", "release/digits/v1.0.0", false}, {"bob@example.com", "stage/digits/prod/1", true},
		{"bob@example.com", "release/nlp-base/v1.0.0", true}, {"ann@example.com", "release/nlp-base/v1.0.0", false}, {"bob@example.com", "stage/nlp-base/prod/1", false},
		{"ann@example.com", "release/letters/v1.0.0", false}, {"", "release/digits/v1.0.0", false},
	} {
		n, r := Parse(refTags+c.tag, p.Stages)
		if r != nil || p.may(c.who, n) != c.may {
			t.Errorf("%q, %s: %v", c.who, c.tag, r)
		}
	}
	if got := p.rights("bob@example.com"); got != "release nlp-* and point prod of digits" || p.Rule("digits").Signers != 2 || p.Rule("nlp-x").Signers != 1 || len(p.Revoked) != 2 {
		t.Errorf("%s, %+v", got, p)
	}
	if a, b := EnvDigest(map[string]string{"a": "1\nb=2"}), EnvDigest(map[string]string{"a": "1", "b": "2"}); a == b {
		t.Error("two environments have one digest")
	}
	_, err = ReadPolicy([]byte(`stages: [Prod]
revoked: [abc]
models:
  - {match: "[", release: [], stages: {live: [a]}, signers: 0, requires: {}}
  - {match: x, releases: [a]}
`))
	if err == nil {
		t.Fatal("it is read")
	}
	for _, want := range []string{"policy.yaml:1:", "policy.yaml:2:11", "policy.yaml:4:", "the stage Prod", "revoked[0] is abc", "match is [", "names nobody", "the stage live", "signers", "requires is empty", "releases", "requires is missing", "release is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in:\n%v", want, err)
		}
	}
}

// TestAPolicyPinsAProbe: an environment without a probe is refused, and the sentence says where the value comes from; either kind does.
func TestAPolicyPinsAProbe(t *testing.T) {
	text := "stages: [prod]\nmodels: [{match: digits, release: [ann], requires: {os: linux%s}}]\n"
	if _, err := ReadPolicy([]byte(strings.Replace(text, "%s", "", 1))); err == nil || !strings.Contains(err.Error(), "policy.yaml:2:") ||
		!strings.Contains(err.Error(), "pins no probe") || !strings.Contains(err.Error(), "headway-agent facts prints the line") {
		t.Errorf("%v", err)
	}
	for _, pin := range []string{`, probe: "v1 sha256:ab"`, `, probe_run: "sha256:ab python3 probe.py"`} {
		if _, err := ReadPolicy([]byte(strings.Replace(text, "%s", pin, 1))); err != nil {
			t.Errorf("%s: %v", pin, err)
		}
	}
}
