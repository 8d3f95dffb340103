package tag

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestMessages: what the lane writes it reads back, and whatever is said twice, not known, or said outside of the block is
// refused by name.
func TestMessages(t *testing.T) {
	release, err := releaseMessage("v1.2.0").Text()
	if err != nil {
		t.Fatal(err)
	}
	stage, err := stageMessage("v1.2.0").Text()
	if err != nil {
		t.Fatal(err)
	}
	none := "s\n\nLane: 1\nRepo: r\nModel: digits\nVersion: none\nPrevious: none\n"
	for _, c := range []struct{ text, want string }{
		{release, ""}, {stage, ""}, {none + "Reason: it lies\n", ""},
		{stage + "Reason: look again\n", ""},
		{release + "Lane: 1\n", "has the trailer Lane twice"},
		{release + "Note: x\n", "has the unknown trailer Note"},
		{release + "lane: 1\n", "has the unknown trailer lane"},
		{release + "Reason: x\n", "has the unknown trailer Reason"},
		{release + "\n", "which is no trailer"},
		{release + "Signed-off-by Ann\n", "which is no trailer"},
		{strings.Replace(release, "\n\n", "\n\nsome words\n\n", 1), "has the line some words, which is no trailer"},
		{strings.Replace(release, "\n\n", "\n", 1), "is not a subject"},
		{"\n\n" + release, "is not a subject"},
		{"", "is not a subject"},
		{strings.Replace(release, "Lane: 1", "Lane: 2", 1), "a newer lane"},
		{strings.Replace(release, "Lane: 1\n", "", 1), "lacks the trailer Lane"},
		{strings.Replace(release, "Generation: 2\n", "", 1), "lacks the trailer Generation"},
		{strings.Replace(release, "Generation: 2", "Generation: 02", 1), "has Generation: 02, expected 2"},
		{strings.Replace(release, "/3\n", "/0\n", 1), "expected WORK/ATTEMPT"},
		{strings.Replace(release, "plans/digits", "../digits", 1), "expected a path of this repository"},
		{strings.Replace(release, "plans/digits", "plans//digits", 1), "expected a path of this repository"},
		{strings.Replace(release, hash("4"), hash("4")[1:], 1), "has Artifact-Sha256"},
		{strings.Replace(release, hash("4"), strings.Repeat("A", 64), 1), "has Artifact-Sha256"},
		{strings.Replace(release, "Repo: ", "Repo:  ", 1), "which is no trailer"},
		{strings.Replace(release, "Version: v1.2.0", "Version: none", 1), "expected a version"},
		{strings.Replace(stage, "Previous: none", "Previous: 12", 1), "expected the object id"},
		{strings.Replace(stage, "Evidence-Sha256: "+hash("5")+"\n", "", 1), "lacks the trailer Evidence-Sha256"},
		{none, "needs a Reason"},
		{none + "Reason: x\nEvidence-Sha256: " + hash("5") + "\n", "no Evidence-Sha256"},
		{stage + "Reason: " + strings.Repeat("x", maxTrailer+1) + "\n", "at most 1024 are read"},
	} {
		_, err := ParseMessage(c.text, strings.Contains(c.text, "Generation") || strings.Contains(c.text, "Plan: "))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q: %v, want %q", c.text, err, c.want)
		}
	}
}

// TestMessageIsOneOrNone: a message that can be written is read back as it was; one that could not is not written.
func TestMessageIsOneOrNone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := releaseMessage("v1.2.0")
		if rapid.Bool().Draw(rt, "stage") {
			m = stageMessage(rapid.SampledFrom([]string{"v1.2.0", None}).Draw(rt, "version"))
			m.Reason = rapid.SampledFrom([]string{"", "why not", "a: b", " x", "a\nLane: 1", "a\rb", "\u202e"}).Draw(rt, "reason")
			m.Evidence = rapid.SampledFrom([]string{"", hash("5"), "x"}).Draw(rt, "evidence")
		}
		m.Subject = rapid.SampledFrom([]string{"digits v1.2.0", "", "#x", "a\n\nb", "-----BEGIN SSH SIGNATURE-----", " a", "ä"}).Draw(rt, "subject")
		m.Repo = rapid.SampledFrom([]string{"git.example.com/a", "", "A", "a b"}).Draw(rt, "repo")
		m.Plan = rapid.SampledFrom([]string{m.Plan, "x"}).Draw(rt, "plan") // of a stage tag: of the other kind
		text, err := m.Text()
		if err != nil {
			return
		}
		back, err := ParseMessage(text, m.Previous == "")
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(m, *back); d != "" {
			rt.Fatal(d)
		}
		raw := []byte("object " + id("c") + "\ntype commit\ntag x\ntagger A <a@x> 1 +0000\n\n" + text)
		if o, err := ParseObject(raw); err != nil || o.Message != text {
			rt.Fatalf("%q: %v", raw, err)
		}
	})
}

// FuzzMessage: whatever it holds, a message is refused in one line, or written back byte for byte but for the order.
func FuzzMessage(f *testing.F) {
	for _, m := range []Message{releaseMessage("v1.2.0"), stageMessage("v1.0.0")} {
		text, err := m.Text()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, m.Previous == "")
	}
	f.Fuzz(func(t *testing.T, text string, release bool) {
		m, err := ParseMessage(text, release)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("%q", err)
			}
			return
		}
		if plain([]byte(text)) != nil || strings.HasPrefix(m.Subject, "-----BEGIN ") || strings.HasPrefix(m.Subject, "#") || m.Subject != strings.TrimSpace(m.Subject) {
			return // of an object that is refused as a whole, or a subject that git would not keep
		}
		again, err := m.Text()
		if err != nil || len(again) != len(strings.TrimSuffix(text, "\n"))+1 {
			t.Fatalf("%q is written back as %q, %v", text, again, err)
		}
	})
}
