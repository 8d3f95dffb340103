// Package attest makes and checks what a release of the deploy lane carries: an in-toto statement in a DSSE envelope, signed
// with an ed25519 SSH key, that names everything that the release rests on. It also says what two runs of one pinned work
// prove, in the words that hold. Nothing here needs a network; README.md specifies the format field by field.
package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/runners/record"
)

// Types that are written and understood here. A change of the predicate's fields is a new PredicateType. PredicateV1 is read and
// written no more: it names one approval at most.
const (
	PayloadType   = "application/vnd.in-toto+json"
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://github.com/headway-run/headway/deploylane/attest/release/v2"
	PredicateV1   = "https://github.com/headway-run/headway/deploylane/attest/release/v1"
)

// Bounds on what is read and signed.
const (
	MaxEnvelope   = 8 << 20
	MaxSubjects   = 10_000
	maxSignatures = 16
	maxDepth      = 16
	maxText       = 4096 // of one text but an identity
	maxApprovals  = 256
)

// Statement is the in-toto Statement v1: these files are what the predicate says.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"` // sorted by name
	PredicateType string    `json:"predicateType"`
	Predicate     Release   `json:"predicate"`
}

// Subject is one file of the released model: its path in the result, and its sha256.
type Subject struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
}

// Digest is a set of one.
type Digest struct {
	SHA256 string `json:"sha256"`
}

// Release is the predicate: what the lane released, by whose word, and on what evidence.
type Release struct {
	Lane       string            `json:"lane"` // version of the lane that signed
	Repository string            `json:"repository"`
	Model      string            `json:"model"`
	Version    string            `json:"version"`
	Tag        Tag               `json:"tag"`
	Approval   *Tag              `json:"approval,omitempty"`  // of PredicateV1 alone: the first signed tag beside the release's own
	Approvals  []Tag             `json:"approvals,omitempty"` // all of them, by different people with different keys
	Plan       File              `json:"plan"`
	Seeds      []string          `json:"seeds"`     // works of the original configuration that the spread check rests on
	Candidate  Run               `json:"candidate"` // generation 1: the tagged job's
	Retrained  Run               `json:"retrained"` // generation 2: its files are the subject
	Backtest   Run               `json:"backtest"`
	Spread     spread.Report     `json:"spread"`
	Score      Score             `json:"score"`
	Records    []Link            `json:"records"` // the lane's own records of this release, oldest first
	Times      map[string]string `json:"times"`   // stage → the store's stamp of its record, RFC 3339
}

// Tag is a signed tag as it was verified: the object is what counts, never the name.
type Tag struct {
	Name   string `json:"name"`
	Object string `json:"object"`
	Commit string `json:"commit"`
	Signer string `json:"signer"` // as the allowed signers call it
	Key    string `json:"key"`    // fingerprint of the key that signed the tag
}

// File is a file of the tagged commit.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Run is one finished work. Work is the sha256 of Identity, the canonical JSON of what was computed.
type Run struct {
	Work        string             `json:"work"`
	Attempt     int64              `json:"attempt"`
	Identity    string             `json:"identity"`
	Fingerprint map[string]string  `json:"fingerprint"` // as its worker measured it
	Metrics     map[string]float64 `json:"metrics"`
	Manifest    Link               `json:"manifest"` // of its result
}

// Score is the backtest's number and what was asked of it.
type Score struct {
	Name      string           `json:"name"`
	Direction spread.Direction `json:"direction"` // higher or lower
	Value     float64          `json:"value"`
	Bound     float64          `json:"bound"` // the value may lie on it
}

// Link names an object of the store by its key and its content.
type Link struct {
	Key    string `json:"key"`
	SHA256 string `json:"sha256"`
}

// New makes a statement of a release and the files of the retrained result.
func New(r Release, files []record.File) Statement {
	s := Statement{Type: StatementType, PredicateType: PredicateType, Predicate: r, Subject: make([]Subject, len(files))}
	for i, f := range files {
		s.Subject[i] = Subject{Name: f.Path, Digest: Digest{f.SHA256}}
	}
	slices.SortFunc(s.Subject, func(a, b Subject) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// encode is the one way in which a statement is written: JSON of the fields in their order, map keys sorted, no white space, no
// escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads a statement that is written in the one way, so that no two readers can see different things in it.
func decode(payload []byte) (Statement, error) {
	var s Statement
	if err := strict(payload); err != nil {
		return s, &BadStatement{err.Error()}
	}
	var kind struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(payload, &kind); err != nil {
		return s, &BadStatement{"it is no statement: " + err.Error()}
	}
	if kind.Type != StatementType || kind.PredicateType != PredicateType && kind.PredicateType != PredicateV1 {
		return s, &BadStatement{fmt.Sprintf("it is a %.120q about %.120q, expected a %q about %q: use the version of headway-lane that signed it, or another program", kind.Type, kind.PredicateType, StatementType, PredicateType)}
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		return s, &BadStatement{"its fields cannot be read: " + err.Error()}
	}
	again, err := encode(s)
	if err != nil || !bytes.Equal(again, payload) {
		return s, &BadStatement{"it is not written in the canonical way, or has fields that this version does not know"}
	}
	return s, s.check()
}

// check holds the parts of a statement against each other.
func (s *Statement) check() error {
	bad := func(format string, args ...any) error { return &BadStatement{fmt.Sprintf(format, args...)} }
	if len(s.Subject) == 0 || len(s.Subject) > MaxSubjects {
		return bad("it names %d files, expected 1 to %d: a result of more is packed into an archive", len(s.Subject), MaxSubjects)
	}
	for i, f := range s.Subject {
		switch {
		case !fs.ValidPath(f.Name) || f.Name == "." || len(f.Name) > maxText || strings.ContainsAny(f.Name, "\\\x00"):
			return bad("the file %.120q has no plain relative path", f.Name)
		case !isHex(f.Digest.SHA256, 64):
			return bad("the file %.120q has the sha256 %.80q, expected 64 hex digits", f.Name, f.Digest.SHA256)
		case i > 0 && s.Subject[i-1].Name >= f.Name:
			return bad("its files are not sorted, or %.120q is there twice", f.Name)
		}
	}
	switch p := &s.Predicate; {
	case s.PredicateType == PredicateV1 && p.Approvals != nil, s.PredicateType == PredicateType && p.Approval != nil:
		return bad("it names its approvals in the field of another version")
	case len(p.Approvals) > maxApprovals:
		return bad("it names %d approvals, at most %d are read", len(p.Approvals), maxApprovals)
	}
	return s.Predicate.check()
}

// AllApprovals are the signed tags beside the release's own, of either version.
func (r *Release) AllApprovals() []Tag {
	if r.Approval != nil {
		return []Tag{*r.Approval}
	}
	return r.Approvals
}

func (r *Release) check() error {
	bad := func(format string, args ...any) error { return &BadStatement{fmt.Sprintf(format, args...)} }
	for _, t := range []struct{ name, v string }{{"lane", r.Lane}, {"repository", r.Repository}, {"model", r.Model}, {"version", r.Version}, {"plan.path", r.Plan.Path}} {
		if t.v == "" || len(t.v) > maxText {
			return bad("%s has %d bytes, expected 1 to %d", t.name, len(t.v), maxText)
		}
	}
	if !isHex(r.Plan.SHA256, 64) {
		return bad("plan.sha256 is %.80q, expected 64 hex digits", r.Plan.SHA256)
	}
	tags := append([]Tag{r.Tag}, r.AllApprovals()...)
	for i, t := range tags {
		if t.Name == "" || t.Signer == "" || t.Key == "" || !isObject(t.Object) || !isObject(t.Commit) {
			return bad("the tag %.80q lacks its object, its commit or its signer", t.Name)
		}
		if slices.ContainsFunc(tags[:i], func(o Tag) bool { return o.Signer == t.Signer || o.Key == t.Key }) {
			return bad("the tag %.80q is by %.80q with the key %.80q, and so is one before it: approvals are by different people with different keys", t.Name, t.Signer, t.Key)
		}
	}
	for i, run := range []*Run{&r.Candidate, &r.Retrained, &r.Backtest} {
		if err := run.check([]string{"candidate", "retrained", "backtest"}[i]); err != nil {
			return err
		}
	}
	if len(r.Seeds) < spread.LeastRuns || len(r.Records) == 0 {
		return bad("it names %d seeds and %d records, expected at least %d and 1", len(r.Seeds), len(r.Records), spread.LeastRuns)
	}
	for _, w := range r.Seeds {
		if !isHex(w, 64) {
			return bad("the seed %.80q is no work digest", w)
		}
	}
	for _, l := range r.Records {
		if l.Key == "" || !isHex(l.SHA256, 64) {
			return bad("the record %.120q has the sha256 %.80q, expected 64 hex digits", l.Key, l.SHA256)
		}
	}
	for _, stage := range slices.Sorted(maps.Keys(r.Times)) {
		if _, err := time.Parse(time.RFC3339Nano, r.Times[stage]); err != nil {
			return bad("the time of %.80q is %.80q, expected RFC 3339", stage, r.Times[stage])
		}
	}
	if err := r.descends(); err != nil {
		return err
	}
	return r.passed()
}

func (r *Run) check(name string) error {
	switch {
	case !isHex(r.Work, 64):
		return &BadStatement{fmt.Sprintf("%s: the work %.80q is no digest", name, r.Work)}
	case record.Hash([]byte(r.Identity)) != r.Work:
		return &BadStatement{fmt.Sprintf("%s: its identity hashes to %.12s, but it is said to be work %.12s", name, record.Hash([]byte(r.Identity)), r.Work)}
	case r.Attempt < 1:
		return &BadStatement{fmt.Sprintf("%s: attempt %d, the first is 1", name, r.Attempt)}
	case r.Manifest.Key == "" || !isHex(r.Manifest.SHA256, 64):
		return &BadStatement{fmt.Sprintf("%s: it names no manifest of its result", name)}
	}
	return nil
}

// descends: the identities say that the retrained work is the candidate's second generation, the same work in everything else, and
// that the backtest is the one that decides: of that generation too, with the deploy flag, reading the retrained work.
func (r *Release) descends() error {
	type identity struct {
		Deploy     bool     `json:"deploy"`
		Generation int      `json:"generation"`
		Parent     string   `json:"parent"`
		Needs      []string `json:"needs"`
	}
	var candidate, retrained, backtest identity
	var was, is map[string]json.RawMessage
	for i, text := range []string{r.Candidate.Identity, r.Retrained.Identity, r.Backtest.Identity} {
		err := json.Unmarshal([]byte(text), []*identity{&candidate, &retrained, &backtest}[i])
		if err == nil && i < 2 {
			err = json.Unmarshal([]byte(text), []*map[string]json.RawMessage{&was, &is}[i])
		}
		if err != nil {
			return &BadStatement{"an identity is no JSON: " + err.Error()}
		}
	}
	bad := func(format string, args ...any) error { return &BadStatement{fmt.Sprintf(format, args...)} }
	switch {
	case retrained.Parent != r.Candidate.Work:
		return bad("the retrained work's parent is %.12q, not the candidate %.12s", retrained.Parent, r.Candidate.Work)
	case retrained.Generation != candidate.Generation+1 || retrained.Generation < 2:
		return bad("the retrained work is of generation %d, the candidate of %d", retrained.Generation, candidate.Generation)
	case candidate.Deploy || retrained.Deploy:
		return bad("a training carries the deploy flag, which only a backtest has")
	case !backtest.Deploy || backtest.Generation != retrained.Generation:
		return bad("the backtest is of generation %d, deploy flag %t: only one of generation %d with the flag decides", backtest.Generation, backtest.Deploy, retrained.Generation)
	case !slices.Contains(backtest.Needs, r.Retrained.Work):
		return bad("the backtest did not read the retrained work %.12s", r.Retrained.Work)
	}
	if name := apart(was, is); name != "" {
		return bad("the retrained work and the candidate differ in %.80q, expected in requires, generation and parent alone", name)
	}
	return nil
}

// apart names the first field of two identities that differs, beside those that make a second generation.
func apart(a, b map[string]json.RawMessage) string {
	names := slices.Sorted(maps.Keys(a))
	names = append(names, slices.Sorted(maps.Keys(b))...)
	for _, name := range names {
		if !slices.Contains([]string{"generation", "parent", "requires"}, name) && !bytes.Equal(a[name], b[name]) {
			return name
		}
	}
	return ""
}

// passed: nobody signs a release whose gates are not open.
func (r *Release) passed() error {
	switch {
	case r.Spread.Verdict == spread.Better && len(r.AllApprovals()) == 0:
		return &BadStatement{"the spread check says better, and nobody approved"}
	case r.Spread.Verdict != spread.Within && r.Spread.Verdict != spread.Better:
		return &BadStatement{fmt.Sprintf("the spread check says %.40q, which is never released", r.Spread.Verdict)}
	case r.Score.Name == "":
		return &BadStatement{"the score has no name"}
	case r.Score.Direction == spread.Higher && r.Score.Value < r.Score.Bound, r.Score.Direction == spread.Lower && r.Score.Value > r.Score.Bound:
		return &BadStatement{fmt.Sprintf("the score %s is %g, the bound %g", r.Score.Name, r.Score.Value, r.Score.Bound)}
	case r.Score.Direction != spread.Higher && r.Score.Direction != spread.Lower:
		return &BadStatement{fmt.Sprintf("the score's direction is %.40q, expected higher or lower", r.Score.Direction)}
	}
	return nil
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// isObject: Git's object ids are 40 hex digits, or 64 in a repository of the newer format.
func isObject(s string) bool { return isHex(s, 40) || isHex(s, 64) }

// BadStatement is a payload that is no release of ours, or contradicts itself.
type BadStatement struct{ Text string }

func (e *BadStatement) Error() string { return "the statement is refused: " + e.Text }

// What strict finds.
var (
	errDuplicate = errors.New("a key is there twice")
	errDepth     = fmt.Errorf("it is nested deeper than %d", maxDepth)
	errUTF8      = errors.New("it is no UTF-8")
	errTrailing  = errors.New("there are bytes after the JSON value")
)
