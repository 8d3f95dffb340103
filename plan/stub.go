package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
)

type canonical struct{ identity, placement, metadata []byte }

func (p *Plan) canonical(i int) canonical { return canonical{} }

func digestOf(identity []byte) Digest {
	s := sha256.Sum256(identity)
	return Digest(hex.EncodeToString(s[:]))
}

// IdentityJSON is the canonical JSON of the identity fields: sorted keys, no white space. Its sha256 is the work.
func (j *Job) IdentityJSON() []byte { return nil }

// PlacementJSON is the canonical JSON of the placement fields that are set.
func (j *Job) PlacementJSON() []byte { return nil }

// MetadataJSON is the canonical JSON of the metadata fields that are set.
func (j *Job) MetadataJSON() []byte { return nil }

// Load reads headway.yaml and every plan file of a tree. All problems of all files come in one run, sorted by
// position; the plan holds what could be read without doubt, and is never nil.
func Load(t Tree) (*Plan, []Problem) { return &Plan{}, nil }

// Diff holds a plan against what was accepted last and what was observed. It is pure, and never nil. accepted may be
// nil (nothing yet); a work that observed does not list counts as absent.
func Diff(desired *Plan, accepted *Accepted, observed map[Digest]Observed) *Changes { return nil }

// Text writes the diff for people.
func (c *Changes) Text(w io.Writer, color bool) error { return errors.New("not yet") }

// JSON is the diff for programs: FormatVersion says the form; equal input gives equal bytes.
func (c *Changes) JSON() ([]byte, error) { return nil, errors.New("not yet") }

// Markdown is the diff as a comment of fewer than max bytes.
func (c *Changes) Markdown(max int) string { return "" }

// NewMemTree builds a Tree in memory.
func NewMemTree(files map[string]string) *MemTree { return &MemTree{} }

// MemTree is a Tree in memory with real Git object ids.
type MemTree struct{}
