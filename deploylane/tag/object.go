package tag

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxObject bounds a raw tag object, bytes.
const MaxObject = 64 << 10

// Object is a tag object, split by us: what is signed and the signature are its own bytes, never re-encoded ones.
type Object struct {
	Target     string // id of what is tagged
	Kind       string // commit, tree, blob, tag
	Name       string // short name that it gives itself
	Message    string // without the signature
	Payload    []byte
	Signature  []byte
	Signatures int // blocks that any program could take for a signature
}

var (
	hexID  = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hexKey = regexp.MustCompile(`^[0-9A-F]{40}$`)
	tagger = regexp.MustCompile(`^[^<>\n]*<[^<>\n]*> [0-9]{1,12} [+-][0-9]{4}$`)
)

// marks is a table of the lines that git takes for the start of a signature; it looks at their beginning alone.
var marks = []string{"-----BEGIN SSH SIGNATURE-----", "-----BEGIN PGP SIGNATURE-----", "-----BEGIN PGP MESSAGE-----", "-----BEGIN SIGNED MESSAGE-----"}

// ParseObject splits a raw tag object. The error is one clause that says what is wrong with it.
//
// It accepts less than git does: the four headers in their order, each once and no other, and nothing that a person who
// reads the message before signing could not see (control and format characters, CR, bytes that are not UTF-8).
func ParseObject(raw []byte) (*Object, error) {
	if len(raw) > MaxObject {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(raw), MaxObject)
	}
	if err := plain(raw); err != nil {
		return nil, err
	}
	o := &Object{Payload: raw}
	rest := string(raw)
	for i, h := range []struct {
		key  string
		into *string
		ok   func(string) bool
	}{
		{"object", &o.Target, hexID.MatchString},
		{"type", &o.Kind, func(s string) bool { return s == "commit" || s == "tree" || s == "blob" || s == "tag" }},
		{"tag", &o.Name, func(s string) bool { return s != "" && !strings.ContainsAny(s, " \t") }},
		{"tagger", new(string), tagger.MatchString},
	} {
		line, after, ended := strings.Cut(rest, "\n")
		value, is := strings.CutPrefix(line, h.key+" ")
		if !ended || !is || !h.ok(value) {
			return nil, fmt.Errorf("line %d is no %s header", i+1, h.key)
		}
		*h.into, rest = value, after
	}
	body, is := strings.CutPrefix(rest, "\n")
	if !is {
		return nil, fmt.Errorf("it has more headers than object, type, tag and tagger")
	}
	o.Message = body
	start, at := len(raw), len(raw)-len(body)
	for line := range strings.Lines(body) {
		for _, m := range marks {
			if strings.HasPrefix(line, m) {
				o.Signatures++
				start = min(start, at)
			}
		}
		at += len(line)
	}
	if o.Signatures == 0 {
		return o, nil
	}
	o.Payload, o.Signature = raw[:start], raw[start:]
	o.Message = string(raw[len(raw)-len(body) : start])
	if o.Signatures > 1 {
		return o, nil
	}
	first, _, _ := bytes.Cut(o.Signature, []byte("\n"))
	end := strings.Replace(string(first), "BEGIN", "END", 1)
	if i := bytes.Index(o.Signature, []byte("\n"+end)); i < 0 || len(bytes.TrimRight(o.Signature[i+1+len(end):], "\n")) > 0 {
		return nil, fmt.Errorf("something follows its signature, or the signature has no end")
	}
	return o, nil
}

// plain refuses what a person would not see.
func plain(raw []byte) error {
	if !utf8.Valid(raw) {
		return fmt.Errorf("it is not UTF-8")
	}
	line := 1
	for _, r := range string(raw) {
		switch {
		case r == '\n':
			line++
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
			return fmt.Errorf("line %d holds the character U+%04X, which nobody sees", line, r)
		}
	}
	return nil
}
