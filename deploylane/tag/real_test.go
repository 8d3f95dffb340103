package tag

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

// TestRealTags: tags made by git and ssh-keygen, each wrong in one way, and what the ledger says of it; and the ones that
// git verify-tag takes although nobody should.
func TestRealTags(t *testing.T) {
	y := newYard(t)
	commit := y.git("", "rev-parse", "main")
	text := func(v string) string { return y.message(v) }
	name := func(v string) string { return "release/digits/" + v }
	unsigned := func(tag, target, kind, text string) string {
		return fmt.Sprintf("object %s\ntype %s\ntag %s\ntagger Ann <ann@example.com> 1780000000 +0000\n\n%s", target, kind, tag, text)
	}
	good := y.tag("ann", name("v1.0.0"), text("v1.0.0"), "main")
	want := map[string]Code{name("v1.0.0"): Accepted}
	gitSays := map[string]bool{name("v1.0.0"): true}
	put := func(v string, code Code, git bool) string {
		want[name(v)], gitSays[name(v)] = code, git
		return name(v)
	}
	y.git("", "tag", "-f", put("v1.0.1", LightweightTag, false), "main")
	y.git("", "tag", "-f", "-a", "-m", text("v1.0.2"), put("v1.0.2", Unsigned, false), "main")
	y.tag("ann", put("v1.0.3", NotACommit, true), text("v1.0.3"), name("v1.0.0"))
	y.tag("ann", put("v1.0.4", NotACommit, true), text("v1.0.4"), "main:"+planPath)
	y.git("", "update-ref", refTags+put("v1.0.5", TagNameMismatch, true), good)
	y.tag("eve", put("v1.0.6", UnknownSigner, false), text("v1.0.6"), "main")
	y.tag("bob", put("v1.0.7", NotAllowed, true), text("v1.0.7"), "main")
	y.tag("weak", put("v1.0.8", WeakKey, true), text("v1.0.8"), "main")
	y.git("old", "-c", "user.name=Old", "tag", "-s", "-F", filepath.Join(y.keys, "message"), "scratch", "main")
	y.git("", "tag", "-d", "scratch")
	payload := unsigned(put("v1.0.9", NotValid, true), commit, "commit", text("v1.0.9"))
	payload = strings.Replace(payload, "1780000000", "1770000000", 1) // February, when the key still counted
	y.raw(name("v1.0.9"), payload+y.sign("old", "git", payload))
	payload = unsigned(put("v1.0.10", WrongNamespace, false), commit, "commit", text("v1.0.10"))
	y.raw(name("v1.0.10"), payload+y.sign("ann", "file", payload))
	payload = unsigned(put("v1.0.11", ManySignatures, true), commit, "commit", text("v1.0.11"))
	twice := payload + y.sign("eve", "git", payload)
	y.raw(name("v1.0.11"), twice+y.sign("ann", "git", twice))
	payload = unsigned(put("v1.0.12", Malformed, true), commit, "commit", strings.ReplaceAll(text("v1.0.12"), "\n", "\r\n"))
	y.raw(name("v1.0.12"), payload+y.sign("ann", "git", payload))
	payload = unsigned(put("v1.0.13", Malformed, true), commit, "commit", text("v1.0.13")+strings.Repeat("x", MaxObject)+"\n")
	y.raw(name("v1.0.13"), payload+y.sign("ann", "git", payload))
	payload = unsigned(put("v1.0.14", BadSignature, false), commit, "commit", text("v1.0.14"))
	y.raw(name("v1.0.14"), strings.Replace(payload, "Generation: 2", "Generation: 3", 1)+y.sign("ann", "git", payload))
	y.tag("files", put("v1.0.15", WrongNamespace, false), text("v1.0.15"), "main")
	y.tag("ann", put("v1.0.16", WrongRepository, true), strings.Replace(text("v1.0.16"), "team/models", "fork/models", 1), "main")
	y.tag("ann", put("v1.0.17", BadMessage, true), text("v1.0.16"), "main")
	y.git("", "checkout", "-q", "-b", "side")
	y.commit("", "x", "y")
	y.tag("ann", put("v1.0.18", NotOnBranch, true), text("v1.0.18"), "side")
	y.git("", "checkout", "-q", "main")
	y.tag("ann", put("v1.0.19", PlanMismatch, true), strings.Replace(text("v1.0.19"), record.Hash([]byte(planText)), hash("0"), 1), "main")
	y.tag("ann", put("v1.0.20", EvidenceMissing, true), strings.Replace(text("v1.0.20"), "/3\n", "/4\n", 1), "main")
	y.tag("ann", put("v0.9.0", Accepted, true), text("v0.9.0"), "main")
	y.tag("ann", put("v1.0.21", Accepted, true), text("v1.0.21"), "main")
	y.tag("ann", put("v1.0.21-rc.1", Accepted, true), text("v1.0.21-rc.1"), "main")
	y.git("", "update-ref", refTags+"release/Digits/v1", good)

	m := y.look(y.watch())
	got := map[string]Code{}
	for _, e := range m.Entries {
		got[strings.TrimPrefix(e.Ref, refTags)] = e.Code
	}
	if d := cmp.Diff(want, got); d != "" || len(m.Trouble) > 0 {
		t.Errorf("%v (-want +got):\n%s", m.Trouble, d)
	}
	allowed := filepath.Join(y.keys, "allowed")
	if err := os.WriteFile(allowed, []byte(y.signers()), 0o644); err != nil {
		t.Fatal(err)
	}
	for tag, says := range gitSays {
		_, err := y.try(y.dir, "", "git", "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-tag", tag)
		if (err == nil) != says {
			t.Errorf("git verify-tag %s: %v, this test thought %v", tag, err, says)
		}
		if err != nil && got[tag] == Accepted {
			t.Errorf("%s: git refuses it, and we accept it", tag)
		}
	}
	for _, e := range m.Entries {
		if e.Code == Accepted && (e.Commit != commit || e.Signer != "ann@example.com" || !strings.HasPrefix(e.Key, "SHA256:") || e.RawHash == "" || e.Requires["os"] != "linux") {
			t.Errorf("%+v", e)
		}
	}
}

// TestATagIsJudgedOnce: it is not judged anew when it is moved back, deleted, made again, when its key ends, or by another
// lane; a moved one is refused under its new object, and another release goes on.
func TestATagIsJudgedOnce(t *testing.T) {
	y := newYard(t)
	w := y.watch()
	const name = "release/digits/v1.0.0"
	y.git("", "tag", "-f", name, "main") // refused, and the name is spent
	first := y.look(w)
	signed := y.tag("ann", name, y.message("v1.0.0"), "main")
	second := y.look(w)
	accepted := y.tag("ann", "release/digits/v1.0.1", y.message("v1.0.1"), "main")
	third := y.look(w)
	for i, c := range []struct {
		m    Model
		code Code
		text string
	}{{first, LightweightTag, "prepare release/digits/v1.0.1 and create it with git tag -s"}, {second, TagMoved, "take release/digits/v1.0.1"}, {third, Accepted, "ann@example.com asks for the release of digits v1.0.1"}} {
		if len(c.m.New) != 1 || c.m.New[0].Code != c.code || !strings.Contains(c.m.New[0].Text, c.text) {
			t.Fatalf("%d: %+v", i, c.m.New)
		}
	}
	same := func(what string, gone int) {
		t.Helper()
		y.now = y.now.AddDate(10, 0, 0)
		for _, w := range []*Watch{w, y.watch()} {
			m := y.look(w)
			if len(m.Trouble) > 0 || len(m.Gone) != gone || Release(m.Entries, "v1.0.1") == nil || Release(m.Entries, "v1.0.1").Object != accepted || len(m.Entries) != 3 {
				t.Errorf("%s: %d entries, gone %v, trouble %v", what, len(m.Entries), m.Gone, m.Trouble)
			}
		}
	}
	y.commit("root", SignersFile, y.line("bob", ""))
	same("the key is not listed any more", 0)
	y.git("", "update-ref", refTags+name, y.git("", "rev-parse", "main~2"))
	m := y.look(w)
	if len(m.New) != 1 || m.New[0].Code != LightweightTag {
		t.Errorf("moved to a commit: %+v", m.New)
	}
	y.git("", "update-ref", refTags+name, signed)
	if m := y.look(w); len(m.New) != 0 {
		t.Errorf("moved back: %+v", m.New)
	}
	y.git("", "tag", "-d", "release/digits/v1.0.1")
	m = y.look(w)
	if len(m.New) != 1 || m.New[0].Code != TagDeleted || len(m.Gone) != 1 || Release(m.Entries, "v1.0.1") == nil {
		t.Errorf("deleted: new %+v, gone %+v", m.New, m.Gone)
	}
	if m := y.look(w); len(m.New) != 0 || len(m.Gone) != 1 {
		t.Errorf("still deleted: %+v", m.New)
	}
	y.git("", "update-ref", refTags+"release/digits/v1.0.1", accepted)
	if m := y.look(w); len(m.New) != 0 || len(m.Gone) != 0 {
		t.Errorf("made again with the same object: %+v", m.New)
	}
	y.commit("root", SignersFile, y.signers())
	y.now = y.now.AddDate(0, 0, 1)
	y.tag("ann", "release/digits/v1.0.1", strings.Replace(y.message("v1.0.1"), "digits v1.0.1", "another", 1), "main")
	m = y.look(w)
	if len(m.New) != 1 || m.New[0].Code != TagMoved || !strings.Contains(m.New[0].Text, "was deleted and made again as") {
		t.Errorf("made again with another object: %+v", m.New)
	}
}

// TestNoAnswerIsNoVerdict: while Git, the stores or trust are away nothing is written, and the tag is judged afterwards.
func TestNoAnswerIsNoVerdict(t *testing.T) {
	y := newYard(t)
	object := y.tag("ann", "release/digits/v1.0.0", y.message("v1.0.0"), "main")
	none := func(what string) {
		t.Helper()
		l, err := y.watch().Look(t.Context(), y.now)
		trouble := err != nil
		if err == nil {
			for _, m := range l.Models {
				trouble = trouble || len(m.Trouble) > 0
			}
		}
		models, listErr := Models(t.Context(), y.store)
		if !trouble || listErr != nil || len(models) > 0 {
			t.Errorf("%s: trouble %v, and ledgers of %v", what, err, models)
		}
	}
	y.away = true
	none("the remote is away")
	y.away, y.lost = false, object
	none("the object cannot be read")
	y.lost, y.facts.err = "", errors.New("the store is away")
	none("the store of research is away")
	y.facts.err = nil
	for _, c := range []struct {
		what, want string
		do         func()
	}{
		{"an unsigned change of the signers", "which is not signed", func() { y.commit("", SignersFile, y.signers()+y.line("eve", "")) }},
		{"one by a listed signer alone", "which is no root key", func() { y.commit("ann", SignersFile, y.signers()+y.line("eve", "")+"\n") }},
		{"an unsigned change of the policy", "which is not signed", func() { y.commit("", PolicyFile, policyText+"\n") }},
		{"a policy that cannot be read", "policy.yaml:2:", func() { y.commit("root", PolicyFile, "stages: [prod]\nmodel: x\n") }},
		{"signers that cannot be read", "cannot be read (line 1", func() { y.commit("root", SignersFile, "nonsense\n") }},
		{"no signers", "is not there", func() {
			y.git("", "rm", "-q", SignersFile)
			y.git("root", "commit", "-q", "-S", "-m", "none")
		}},
	} {
		before := y.git("", "rev-parse", "main")
		c.do()
		_, err := y.watch().Look(t.Context(), y.now)
		if _, ok := errors.AsType[*Untrusted](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		none(c.what)
		y.git("", "reset", "-q", "--hard", before)
	}
	if m := y.look(y.watch()); len(m.New) != 1 || m.New[0].Code != Accepted {
		t.Errorf("afterwards: %+v", m)
	}
	y.git("", "reset", "-q", "--hard", "main~1") // the plan goes, the trusted files stay
	if m := y.look(y.watch()); len(m.Trouble) > 0 {
		t.Errorf("the branch went back: %v", m.Trouble)
	}
	y.git("", "reset", "-q", "--hard", "main~1")
	y.commit("root", SignersFile, y.signers()+y.line("eve", "")) // an old state with a root key's signature of its own
	if m := y.look(y.watch()); len(m.Trouble) != 1 || !strings.Contains(m.Trouble[0].Error(), "does not follow commit") {
		t.Errorf("the signers went back: %v", m.Trouble)
	}
}

// TestStageTags: the second signer approves what he saw, a step back needs a reason, and a promotion is a chain.
func TestStageTags(t *testing.T) {
	y := newYard(t)
	w := y.watch()
	y.tag("ann", "release/digits/v1.0.0", y.message("v1.0.0"), "main")
	m := y.look(w)
	stage := func(who string, n int, change func(*Message)) Entry {
		t.Helper()
		s := stageMessage("v1.0.0")
		_, s.Previous = NextStage(m.Entries, "prod")
		change(&s)
		y.tag(who, fmt.Sprintf("stage/digits/prod/%d", n), y.text(s), "main")
		m = y.look(w)
		if len(m.New) != 1 || len(m.Trouble) > 0 {
			t.Fatalf("%d: %+v, %v", n, m.New, m.Trouble)
		}
		return m.New[0]
	}
	policy, err := ReadPolicy([]byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	if r := Approved(m.Entries, policy, "digits", "v1.0.0"); r == nil || r.Code != NeedSecond {
		t.Errorf("before: %v", r)
	}
	for _, c := range []struct {
		who    string
		n      int
		change func(*Message)
		code   Code
	}{
		{"bob", 1, func(*Message) {}, EvidenceMissing}, // before the backtest
		{"bob", 3, func(*Message) {}, StageGap},
		{"bob", 2, func(m *Message) { m.Previous = id("d") }, StageFork},
		{"bob", 4, func(m *Message) { m.Evidence = hash("9") }, Artifact},
		{"old", 5, func(*Message) {}, NotAllowed},
		{"bob", 6, func(m *Message) { m.Version = "v1.1.0" }, EvidenceMissing},
		{"bob", 7, func(*Message) {}, Accepted},
		{"bob", 8, func(m *Message) { m.Version, m.Evidence, m.Reason = None, "", "it answers nonsense" }, Accepted},
		{"bob", 9, func(*Message) {}, BadMessage}, // released by now, and no reason given
		{"bob", 10, func(m *Message) { m.Reason = "it was the data" }, Accepted},
	} {
		if c.n == 2 {
			y.facts.standings["v1.0.0"] = Standing{Record: hash("5"), Spread: "better"}
		}
		if c.n == 8 {
			y.facts.standings["v1.0.0"] = Standing{Record: hash("5"), Spread: "better", Released: true}
		}
		if e := stage(c.who, c.n, c.change); e.Code != c.code {
			t.Errorf("prod/%d: %s %s, want %s", c.n, e.Code, e.Text, c.code)
		}
	}
	if r := Approved(m.Entries, policy, "digits", "v1.0.0"); r != nil {
		t.Errorf("after: %v", r)
	}
}
