// Package tag decides about the signed tags that start and steer the deploy lane: release/MODEL/vVERSION asks for a
// release, stage/MODEL/STAGE/N points a stage at a version. It takes raw tag objects apart itself, holds them against the
// signers and the policy of the protected branch, and writes each verdict once into a chained ledger. Git, keys and what
// the stores know of a candidate reach it through ports; what cannot be read is no verdict.
package tag

import (
	"context"
	"fmt"
	"time"
)

// Ref is one tag as the repository lists it.
type Ref struct {
	Name   string // full: refs/tags/release/digits/v1.0.0
	Object string // 40 hex digits: of the tag object, or of what a lightweight tag points at
}

// TooLarge is an object of more than MaxObject bytes: no tag of the lane.
type TooLarge struct{ Size int64 }

func (t *TooLarge) Error() string { return fmt.Sprintf("the object has %d bytes", t.Size) }

// Change is the last commit that changed a file, as a branch has it now.
type Change struct {
	Commit    string
	Payload   []byte // what its signature covers
	Signature []byte // empty: it has none
	Beside    string // another commit that changed the file and does not lie before Commit; empty: there is none
}

// Git is the repository. Every error means that there is no answer, but where another meaning is given.
type Git interface {
	// Tags lists all tags under Prefixes.
	Tags(ctx context.Context) ([]Ref, error)
	// Tip is the commit that the protected branch is at, asked after Tags: a commit that was merged before it was tagged
	// must be on it.
	Tip(ctx context.Context) (string, error)
	// Object says what a ref's object is (tag, commit, tree, blob), with its raw bytes when it is a tag; *TooLarge.
	Object(ctx context.Context, r Ref) (kind string, raw []byte, err error)
	// Descends says whether commit is base or descends from it. A base that the branch's copy does not have is no ancestor.
	Descends(ctx context.Context, base, commit string) (bool, error)
	// File reads a file of a commit; fs.ErrNotExist: it has none of that name, or something that is no file, or one of more
	// than max bytes.
	File(ctx context.Context, commit, path string, max int64) ([]byte, error)
	// LastChange finds the commit that gave a file the content that it has at tip; fs.ErrNotExist: there is none at tip.
	LastChange(ctx context.Context, tip, path string) (Change, error)
}

// Verify says who signed a payload, at a time. Principal and fingerprint are given as far as they are known, also beside an
// error. *KeyError: the signature does not count. Any other error: no answer.
type Verify func(payload, signature []byte, now time.Time) (principal, fingerprint string, err error)

// KeyError says why a signature does not count: Unsigned, WrongNamespace, WeakKey, BadSignature, UnknownSigner or NotValid.
type KeyError struct {
	Code Code
	Text string
}

func (e *KeyError) Error() string { return e.Text }

// Keys reads what is signed. Both are pure.
type Keys struct {
	// Signers reads a file of allowed signers.
	Signers func(file []byte) (Verify, error)
	// Root verifies a signature by the key that it carries itself and gives that key's fingerprint; whether the key means
	// anything, the caller says.
	Root func(payload, signature []byte) (fingerprint string, err error)
}

// Candidate is what the research store has of a finished attempt.
type Candidate struct {
	Generation int64
	Manifest   string // sha256 of its result's manifest
}

// Standing is what the lane's records say of a version.
type Standing struct {
	Record   string // sha256 of the record that whoever points a stage at it must have seen
	Spread   string // verdict of the spread check: within, better, worse, inconclusive
	Released bool
}

// Facts are what the stores know. nil: the store answered and has none. An error means that there is no answer.
type Facts interface {
	Candidate(ctx context.Context, work string, attempt int64) (*Candidate, error)
	Standing(ctx context.Context, model, version string) (*Standing, error)
}
