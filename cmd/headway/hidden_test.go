package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
)

// drawSecrets draws values that no line may show; some lie within others, as a key and the URL that holds it.
func drawSecrets(t *rapid.T) (out []string) {
	for range rapid.IntRange(1, 4).Draw(t, "secrets") {
		s := rapid.StringMatching(`[A-Za-z0-9+/=_.:@#$%&*|"<>~^\[\]{}!-]{8,24}`).Draw(t, "secret")
		if len(out) > 0 && rapid.Bool().Draw(t, "within") {
			s = out[len(out)-1] + s
		}
		out = append(out, s)
	}
	return out
}

// Case 24: whatever the secrets of this process are, and wherever they stand in what is said, no log, no line of a verb, no saved plan
// and no comment shows one.
func TestNoLineShowsASecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := drawSecrets(t)
		text := ""
		for i := range rapid.IntRange(1, 8).Draw(t, "parts") {
			text += rapid.SampledFrom([]string{"", " ", "token=", "https://x:", "\n", "@host/", ": ", "\x1b[31m", "ü"}).Draw(t, fmt.Sprint("part ", i))
			text += rapid.SampledFrom(secrets).Draw(t, fmt.Sprint("secret ", i)) + rapid.SampledFrom([]string{" ", ":", "\n", "|", "ü"}).Draw(t, fmt.Sprint("end ", i))
		}
		vars := map[string]string{"HEADWAY_GIT_TOKEN": secrets[0]}
		getenv := func(k string) string { return vars[k] }
		for _, format := range []string{"", "json", "text"} {
			var out bytes.Buffer
			e := env{stdout: &out, stderr: &out, getenv: getenv, hidden: hide(getenv)}
			for _, s := range secrets[1:] {
				e.hidden.add(s)
			}
			e, err := (&logFlags{format: format, level: "debug"}).into(e)
			if err != nil {
				t.Fatal(err)
			}
			e.logger().With("of", text).WithGroup("g").Error(text, "text", text, "err", errors.New(text))
			warn(e, "%s", text)
			note(e, "%s", text)
			_ = e.logged(&exit{code: exitError, err: errors.New(text), hint: text})
			fail(e, errors.New(text), text)
			d := plan.Changes{Refusals: []plan.Refusal{{Code: "X", Text: text, Hint: text}}}
			out.WriteString((&commenting{}).status(e, &d).Text)
			out.WriteString(e.hidden.known(d.Markdown(maxComment)))
			doc, err := (&plan.Changes{Refusals: d.Refusals}).JSON()
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString(e.hidden.known(string(doc)))
			b := html.UnescapeString(out.String()) // as it is read, whoever escaped it
			b = strings.NewReplacer("\u200b", "", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\"`, `"`).Replace(b)
			if !strings.Contains(b, "(not shown)") {
				t.Fatalf("nothing was said: %q", b)
			}
			for _, s := range secrets {
				if strings.Contains(b, s) {
					t.Fatalf("%q shows in %q", s, b)
				}
			}
		}
	})
}

// Of a secret within another nothing is left over, in whichever order they came to be known.
func TestASecretWithinAnother(t *testing.T) {
	for _, list := range [][]string{{"abcdefgh", "abcdefgh-ijklmnop"}, {"abcdefgh-ijklmnop", "abcdefgh"}} {
		h := &hidden{}
		for _, s := range list {
			h.add(s)
		}
		if got := h.from("of abcdefgh-ijklmnop and abcdefgh"); got != "of (not shown) and (not shown)" {
			t.Error(got)
		}
	}
}

// TestBinarySecretIsHidden: a secret need not be text; as it is, and in JSON, it is not shown, and what is around it is.
func TestBinarySecretIsHidden(t *testing.T) {
	for _, s := range []string{"caf\xe9-secret", "\xff\xfe\x00binary", "caf\ufffd-secret"} {
		h := &hidden{}
		h.add(s)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range []string{s, string(b[1 : len(b)-1])} {
			if got := h.known("a " + in + " b"); got != "a (not shown) b" {
				t.Errorf("%q within %q", got, in)
			}
		}
	}
}
