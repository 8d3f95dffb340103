package tag

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// None is the word of a trailer that names nothing: Version: none, Previous: none.
const None = "none"

// maxTrailer bounds the value of one trailer, bytes.
const maxTrailer = 1 << 10

// Message is what a signer signs: a subject, an empty line, and one block of trailers.
type Message struct {
	Subject string `json:"subject"`
	Repo    string `json:"repo"`    // canonical id of the repository
	Model   string `json:"model"`   // as in the tag's name
	Version string `json:"version"` // v1.2.0; on a stage tag also none

	// Of a release.
	Plan       string `json:"plan,omitempty"`        // path of the candidate's plan
	PlanSHA256 string `json:"plan_sha256,omitempty"` // of that file's bytes
	Candidate  string `json:"candidate,omitempty"`   // work of the first generation
	Attempt    int64  `json:"attempt,omitempty"`     // of it whose result it is
	Artifact   string `json:"artifact,omitempty"`    // sha256 of that result's manifest
	Env        string `json:"env,omitempty"`         // EnvDigest of the pinned environment
	Generation int64  `json:"generation,omitempty"`
	Parent     string `json:"parent,omitempty"` // work that generation 2 descends from

	// Of a stage tag.
	Previous string `json:"previous,omitempty"` // object id of the stage tag accepted last, or none
	Evidence string `json:"evidence,omitempty"` // sha256 of the record that the signer saw
	Reason   string `json:"reason,omitempty"`
}

var (
	hex64  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	repoID = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._~:/@-]{0,299}$`)
)

// trailer is one key of a block, with how its value is read and written.
type trailer struct {
	key   string
	need  bool
	read  func(m *Message, value string) string // what is wrong, or ""
	write func(m *Message) string
}

// field is a trailer that is one string of the message.
func field(key string, need bool, of func(*Message) *string, ok func(string) bool, expected string) trailer {
	return trailer{key, need, func(m *Message, value string) string {
		*of(m) = value
		if !ok(value) {
			return "expected " + expected
		}
		return ""
	}, func(m *Message) string { return *of(m) }}
}

// form says which trailers a tag carries: those of both kinds first.
func form(release bool) []trailer {
	digest := "64 hex digits"
	version := func(s string) bool { _, err := ParseVersion(s); return err == nil || s == None && !release }
	out := []trailer{
		{"Lane", true, func(_ *Message, v string) string {
			if v != "1" {
				return "expected 1: a newer lane has to read it"
			}
			return ""
		}, func(*Message) string { return "1" }},
		field("Repo", true, func(m *Message) *string { return &m.Repo }, repoID.MatchString, "the repository's id, such as git.example.com/team/models"),
		field("Model", true, func(m *Message) *string { return &m.Model }, func(s string) bool { return CheckModel(s) == "" }, "the model's name"),
		field("Version", true, func(m *Message) *string { return &m.Version }, version, "a version such as v1.2.0"),
	}
	if !release {
		return append(out,
			field("Previous", true, func(m *Message) *string { return &m.Previous }, func(s string) bool { return s == None || hexID.MatchString(s) }, "the object id of the stage tag before, or none"),
			field("Evidence-Sha256", false, func(m *Message) *string { return &m.Evidence }, hex64.MatchString, digest),
			field("Reason", false, func(m *Message) *string { return &m.Reason }, func(s string) bool { return s != "" }, "a reason"))
	}
	return append(out,
		field("Plan", true, func(m *Message) *string { return &m.Plan }, func(s string) bool {
			return path.Clean(s) == s && s != "." && !path.IsAbs(s) && !strings.HasPrefix(s, "..")
		}, "a path of this repository"),
		field("Plan-Sha256", true, func(m *Message) *string { return &m.PlanSHA256 }, hex64.MatchString, digest),
		trailer{"Candidate", true, readCandidate, func(m *Message) string { return fmt.Sprintf("%s/%d", m.Candidate, m.Attempt) }},
		field("Artifact-Sha256", true, func(m *Message) *string { return &m.Artifact }, hex64.MatchString, digest),
		field("Env-Fingerprint", true, func(m *Message) *string { return &m.Env }, hex64.MatchString, digest),
		trailer{"Generation", true, func(m *Message, v string) string {
			var err error
			if m.Generation, err = strconv.ParseInt(v, 10, 32); err != nil || !number.MatchString(v) {
				return "expected 2"
			}
			return ""
		}, func(m *Message) string { return strconv.FormatInt(m.Generation, 10) }},
		field("Parent-Run", true, func(m *Message) *string { return &m.Parent }, hex64.MatchString, digest))
}

func readCandidate(m *Message, v string) string {
	work, attempt, _ := strings.Cut(v, "/")
	n, err := strconv.ParseInt(attempt, 10, 64)
	if !hex64.MatchString(work) || err != nil || n == 0 || !number.MatchString(attempt) {
		return "expected WORK/ATTEMPT"
	}
	m.Candidate, m.Attempt = work, n
	return ""
}

// ParseMessage reads the message of a release or of a stage tag. The error is a clause that begins with a verb.
func ParseMessage(text string, release bool) (*Message, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 || lines[0] == "" || lines[1] != "" {
		return nil, fmt.Errorf("is not a subject, an empty line and trailers")
	}
	m := &Message{Subject: lines[0]}
	forms, seen := form(release), map[string]bool{}
	for _, line := range lines[2:] {
		key, value, is := strings.Cut(line, ": ")
		i := slices.IndexFunc(forms, func(f trailer) bool { return f.key == key })
		switch {
		case !is || value != strings.TrimSpace(value) || value == "":
			return nil, fmt.Errorf("has the line %s, which is no trailer (KEY: VALUE)", clip(line))
		case i < 0:
			return nil, fmt.Errorf("has the unknown trailer %s", clip(key))
		case seen[key]:
			return nil, fmt.Errorf("has the trailer %s twice", key)
		case len(value) > maxTrailer:
			return nil, fmt.Errorf("has a trailer %s of %d bytes, at most %d are read", key, len(value), maxTrailer)
		}
		seen[key] = true
		if why := forms[i].read(m, value); why != "" {
			return nil, fmt.Errorf("has %s: %s, %s", key, clip(value), why)
		}
	}
	for _, f := range forms {
		if f.need && !seen[f.key] {
			return nil, fmt.Errorf("lacks the trailer %s", f.key)
		}
	}
	switch {
	case !release && m.Version == None && (m.Reason == "" || m.Evidence != ""):
		return nil, fmt.Errorf("takes the version away (Version: none), which needs a Reason (--reason \"…\") and no Evidence-Sha256")
	case !release && m.Version != None && m.Evidence == "":
		return nil, fmt.Errorf("lacks the trailer Evidence-Sha256, which names what its signer saw")
	}
	return m, nil
}

// Text writes the message for git tag -s -F. An error says what of it could not be read back as it is.
func (m Message) Text() (string, error) {
	release := m.Previous == ""
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", m.Subject)
	for _, f := range form(release) {
		if v := f.write(&m); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", f.key, v)
		}
	}
	back, err := ParseMessage(b.String(), release)
	o, unfit := ParseObject([]byte("object " + strings.Repeat("0", 40) + "\ntype commit\ntag x\ntagger x <x> 1 +0000\n\n" + b.String()))
	switch {
	case err != nil:
		return "", fmt.Errorf("the message %w", err)
	case unfit != nil || o.Signatures > 0 || strings.HasPrefix(m.Subject, "#") || m.Subject != strings.TrimSpace(m.Subject):
		return "", fmt.Errorf("the message holds characters that a tag must not: write plain text")
	case *back != m:
		return "", fmt.Errorf("the message does not hold what it says: a value is of the other kind of tag")
	}
	return b.String(), nil
}
