package tag

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// decide asks every check, without looking anything up.
func decide(q *inquiry) *Refusal {
	for _, c := range checks {
		if r := c.decide(q); r != nil {
			return r
		}
	}
	return nil
}

func id(c string) string   { return strings.Repeat(c, 40) }
func hash(c string) string { return strings.Repeat(c, 64) }

func testPolicy() *Policy {
	return &Policy{Stages: []string{"prod"}, Rules: []Rule{
		{Models: "digits", Release: []string{"ann@example.com"}, Stages: map[string][]string{"prod": {"ann@example.com", "bob@example.com"}}, Signers: 2, Requires: map[string]string{"os": "linux", "probe": "v1"}},
		{Models: "nlp-*", Release: []string{"bob@example.com"}, Signers: 1, Requires: map[string]string{"os": "linux", "probe": "v1"}},
	}}
}

func releaseMessage(version string) Message {
	return Message{Subject: "digits " + version, Repo: "git.example.com/team/models", Model: "digits", Version: version, Plan: "plans/digits.yaml", PlanSHA256: hash("1"),
		Candidate: hash("2"), Attempt: 3, Artifact: hash("4"), Env: EnvDigest(map[string]string{"os": "linux", "probe": "v1"}), Generation: 2, Parent: hash("2")}
}

func stageMessage(version string) Message {
	return Message{Subject: "prod", Repo: "git.example.com/team/models", Model: "digits", Version: version, Previous: None, Evidence: hash("5")}
}

func acceptedEntry(m Message, name, object, who, key string) Entry {
	return Entry{Ref: refTags + name, Object: object, Code: Accepted, Signer: who, Key: key, Message: &m}
}

// asked is an inquiry about a tag that every check lets pass.
func asked(t *testing.T, name string, m Message) *inquiry {
	t.Helper()
	text, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	q := &inquiry{ref: Ref{refTags + name, id("a")}, now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), repo: m.Repo, policy: testPolicy(), kind: "tag",
		who: "ann@example.com", key: "SHA256:ann", onBranch: true, planSum: m.PlanSHA256, candidate: &Candidate{Generation: 1, Manifest: hash("4")},
		standing: &Standing{Record: hash("5"), Spread: "within"},
		object:   &Object{Target: id("c"), Kind: "commit", Name: name, Message: text, Signatures: 1}}
	if m.Previous != "" {
		q.entries = []Entry{acceptedEntry(releaseMessage("v1.0.0"), "release/digits/v1.0.0", id("b"), "ann@example.com", "SHA256:ann")}
	}
	return q
}

func remessage(q *inquiry, old, new string) {
	q.object.Message = strings.Replace(q.object.Message, old, new, 1)
}

// fault is one thing that is wrong with a tag.
type fault struct {
	code Code
	do   func(q *inquiry)
}

func keyFault(code Code, who string) func(*inquiry) {
	return func(q *inquiry) { q.unsigned, q.who = &KeyError{code, "key SHA256:ann … "}, who }
}

func shared() []fault {
	return []fault{
		{Malformed, func(q *inquiry) { q.malformed = errors.New("line 2 is no type header") }},
		{NotACommit, func(q *inquiry) { q.object.Kind = "tag" }},
		{TagNameMismatch, func(q *inquiry) { q.object.Name = "release/digits/v0.9.0" }},
		{Unsigned, func(q *inquiry) { q.object.Signatures = 0 }},
		{ManySignatures, func(q *inquiry) { q.object.Signatures = 2 }},
		{WrongNamespace, keyFault(WrongNamespace, "")},
		{WeakKey, keyFault(WeakKey, "ann@example.com")},
		{BadSignature, keyFault(BadSignature, "")},
		{UnknownSigner, keyFault(UnknownSigner, "")},
		{SignerRevoked, func(q *inquiry) { q.policy.Revoked = []string{q.key} }},
		{NotAllowed, func(q *inquiry) { q.who = "carol@example.com" }},
		{NotValid, func(q *inquiry) {
			q.unsigned = &KeyError{NotValid, "key SHA256:ann of ann@example.com is no longer valid since 2026-05-01T00:00:00Z"}
		}},
		{BadMessage, func(q *inquiry) { q.object.Message += "Model: digits\n" }},
		{WrongRepository, func(q *inquiry) { q.repo = "git.example.com/fork/models" }},
		{NotOnBranch, func(q *inquiry) { q.onBranch = false }},
	}
}

func releaseFaults() []fault {
	return append(append([]fault{
		{BadTagName, func(q *inquiry) { q.ref.Name = refTags + "release/Digits/1.2" }},
		{LightweightTag, func(q *inquiry) { q.kind = "commit" }},
	}, shared()...), []fault{
		{TagMoved, func(q *inquiry) {
			q.entries = append(q.entries, Entry{Ref: q.ref.Name, Object: id("9"), Code: Unsigned})
		}},
		{VersionNotNewer, func(q *inquiry) {
			q.entries = append(q.entries, acceptedEntry(releaseMessage("v1.4.0"), "release/digits/v1.4.0", id("8"), "ann@example.com", "SHA256:ann"))
		}},
		{PlanMismatch, func(q *inquiry) { q.planSum = hash("7") }},
		{NotSecond, func(q *inquiry) { remessage(q, "Generation: 2", "Generation: 1") }},
		{EnvNotPinned, func(q *inquiry) { q.policy.Rules[0].Requires = map[string]string{"os": "linux", "driver": "570"} }},
		{EvidenceMissing, func(q *inquiry) { q.candidate = nil }},
		{Artifact, func(q *inquiry) {
			if q.candidate != nil {
				q.candidate.Manifest = hash("6")
			}
		}},
	}...)
}

func stageFaults() []fault {
	return append(append([]fault{
		{BadTagName, func(q *inquiry) { q.ref.Name = refTags + "stage/digits/test/1" }},
		{LightweightTag, func(q *inquiry) { q.kind = "commit" }},
	}, shared()...), []fault{
		{TagMoved, func(q *inquiry) {
			q.entries = append(q.entries, Entry{Ref: q.ref.Name, Object: id("9"), Code: Accepted}, Entry{Ref: q.ref.Name, Object: id("9"), Code: TagDeleted})
		}},
		{StageGap, func(q *inquiry) {
			q.entries = append(q.entries, acceptedEntry(stageMessage("v1.0.0"), "stage/digits/prod/7", id("7"), "bob@example.com", "SHA256:bob"))
		}},
		{StageFork, func(q *inquiry) { remessage(q, "Previous: none", "Previous: "+id("d")) }},
		{EvidenceMissing, func(q *inquiry) { q.standing = nil }},
		{SpreadTooWide, func(q *inquiry) {
			if q.standing != nil {
				q.standing.Spread = "worse"
			}
		}},
		{Artifact, func(q *inquiry) {
			if q.standing != nil {
				q.standing.Record = hash("6")
			}
		}},
	}...)
}

// TestOrder: of any two things that are wrong, the verdict names the one that git.md's table has first; and a tag with
// nothing wrong passes.
func TestOrder(t *testing.T) {
	for _, kind := range []struct {
		name   string
		m      Message
		faults []fault
	}{{"release/digits/v1.2.0", releaseMessage("v1.2.0"), releaseFaults()}, {"stage/digits/prod/1", stageMessage("v1.0.0"), stageFaults()}} {
		if r := decide(asked(t, kind.name, kind.m)); r != nil {
			t.Fatalf("%s: nothing is wrong, and it is refused: %v", kind.name, r)
		}
		for i, f := range kind.faults {
			for _, g := range append([]fault{{"", func(*inquiry) {}}}, kind.faults[i+1:]...) {
				q := asked(t, kind.name, kind.m)
				g.do(q)
				f.do(q)
				if r := decide(q); r == nil || r.Code != f.code {
					t.Errorf("%s with %s and %s: %v", kind.name, f.code, g.code, r)
				}
			}
		}
	}
}

// TestSentences holds the text of every code against a committed list. UPDATE=1 rewrites it.
func TestSentences(t *testing.T) {
	var b strings.Builder
	said := map[Code]bool{}
	say := func(r *Refusal) {
		if strings.ContainsAny(r.Text, "{}\n") {
			t.Errorf("%s: %q has a word that nobody filled in", r.Code, r.Text)
		}
		said[r.Code] = true
		fmt.Fprintf(&b, "%s: %s\n", r.Code, r.Text)
	}
	for _, f := range releaseFaults() {
		q := asked(t, "release/digits/v1.2.0", releaseMessage("v1.2.0"))
		f.do(q)
		say(decide(q))
	}
	for _, f := range stageFaults() {
		if said[f.code] && f.code != LightweightTag && f.code != TagMoved && f.code != EvidenceMissing && f.code != Artifact {
			continue
		}
		q := asked(t, "stage/digits/prod/1", stageMessage("v1.0.0"))
		f.do(q)
		say(decide(q))
	}
	entries := []Entry{acceptedEntry(releaseMessage("v1.0.0"), "release/digits/v1.0.0", id("b"), "ann@example.com", "SHA256:ann")}
	say(Approved(entries, testPolicy(), "digits", "v1.0.0"))
	say(refuse(TagDeleted, "tag", "release/digits/v1.0.0", "object", short(id("b"))))
	for _, s := range Sentences() {
		if !said[s.Code] {
			t.Errorf("%s: no case says it", s.Code)
		}
	}
	const golden = "testdata/sentences.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("UPDATE=1 rewrites %s (-want +got):\n%s", golden, d)
	}
}

// TestForeignTextIsEscaped: what a stranger wrote does not leave its place in a sentence.
func TestForeignTextIsEscaped(t *testing.T) {
	r := refuse(TagNameMismatch, "tag", "x", "name", "a\x1b[2J\nb{tag}\u202e"+strings.Repeat("é", 400))
	if strings.ContainsAny(r.Text, "\x1b\n\u202e") || len(r.Text) > 500 || strings.Contains(r.Text, "bx") {
		t.Errorf("%q", r.Text)
	}
	if clip(clip("a\x1b\\")) != clip("a\x1b\\") {
		t.Error("twice is more than once")
	}
}

// TestSignersCount: a person counts once, whatever he signs with, and a key counts once, whoever uses it.
func TestSignersCount(t *testing.T) {
	p := testPolicy()
	release := acceptedEntry(releaseMessage("v1.0.0"), "release/digits/v1.0.0", id("b"), "ann@example.com", "SHA256:ann")
	stage := func(who, key string) Entry {
		return acceptedEntry(stageMessage("v1.0.0"), "stage/digits/prod/1", id("c"), who, key)
	}
	for name, c := range map[string]struct {
		entries []Entry
		ok      bool
	}{
		"alone":                 {[]Entry{release}, false},
		"with another":          {[]Entry{release, stage("bob@example.com", "SHA256:bob")}, true},
		"with another key":      {[]Entry{release, stage("ann@example.com", "SHA256:ann2")}, false},
		"with the same key":     {[]Entry{release, stage("bob@example.com", "SHA256:ann")}, false},
		"of another version":    {[]Entry{release, acceptedEntry(stageMessage("v0.9.0"), "stage/digits/prod/1", id("c"), "bob@example.com", "SHA256:bob")}, false},
		"without a release":     {[]Entry{stage("bob@example.com", "SHA256:bob"), stage("ann@example.com", "SHA256:ann")}, false},
		"the second is refused": {[]Entry{release, {Ref: refTags + "stage/digits/prod/1", Code: StageGap, Signer: "bob@example.com", Key: "SHA256:bob"}}, false},
	} {
		if r := Approved(c.entries, p, "digits", "v1.0.0"); (r == nil) != c.ok || r != nil && r.Code != NeedSecond {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := Approved([]Entry{release}, p, "unlisted", "v1.0.0"); r == nil {
		t.Error("a model without a rule needs nobody")
	}
	p.Revoked = []string{"SHA256:ann"}
	if Frozen([]Entry{release}, p, "v1.0.0") == "" || Frozen([]Entry{release}, p, "v1.1.0") != "" {
		t.Error("what a revoked key signed goes on, or what it did not sign stops")
	}
}

// TestNext: numbers and versions of refused tags are spent, and nobody can spend one ahead.
func TestNext(t *testing.T) {
	one := acceptedEntry(stageMessage("v1.0.0"), "stage/digits/prod/1", id("1"), "a", "k")
	bad := func(name string) Entry { return Entry{Ref: refTags + name, Object: id("9"), Code: Unsigned} }
	for name, c := range map[string]struct {
		entries []Entry
		n       int64
		before  string
	}{
		"nothing":                {nil, 1, None},
		"one":                    {[]Entry{one}, 2, id("1")},
		"the next one is spent":  {[]Entry{one, bad("stage/digits/prod/2"), bad("stage/digits/prod/3")}, 4, id("1")},
		"a high one is spent":    {[]Entry{one, bad("stage/digits/prod/999999999")}, 2, id("1")},
		"one of another stage":   {[]Entry{one, bad("stage/digits/test/2")}, 2, id("1")},
		"one that was moved":     {[]Entry{one, {Ref: one.Ref, Object: id("2"), Code: TagMoved}}, 2, id("1")},
		"the first was refused":  {[]Entry{bad("stage/digits/prod/1")}, 2, None},
		"a name that is no name": {[]Entry{bad("stage/digits/prod/x")}, 1, None},
	} {
		if n, before := NextStage(c.entries, "prod"); n != c.n || before != c.before {
			t.Errorf("%s: %d after %s, want %d after %s", name, n, before, c.n, c.before)
		}
	}
	v1, v2 := Version{1, 0, 0, ""}, Version{2, 0, 0, "rc.1"}
	got := NextVersion([]Entry{acceptedEntry(releaseMessage("v1.2.0"), "release/digits/v1.2.0", id("1"), "a", "k"), bad("release/digits/v1.2.1"), bad("release/digits/v9.0.0")}, v1)
	if got.String() != "v1.2.2" || NextVersion(nil, v2).String() != "v2.0.0" {
		t.Errorf("the next version is %s", got)
	}
}
