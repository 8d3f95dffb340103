package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// AcceptedFormat is the version of [Accepted] as it is stored.
const AcceptedFormat = 1

// MaxAccepted bounds a stored Accepted, bytes.
const MaxAccepted = 256 << 20

// Accepted is what a reconciler last accepted: the jobs by name, each with the canonical JSON it was judged by. It is
// plain data that may be stored and read back by another process.
type Accepted struct {
	Format int           `json:"format"`
	Root   string        `json:"root,omitempty"` // Config.Name: plans of several repositories on one store keep apart by it
	Commit string        `json:"commit"`
	Jobs   []AcceptedJob `json:"jobs"` // sorted by name
}

// AcceptedJob is one job of an [Accepted].
type AcceptedJob struct {
	Name      string          `json:"name"`
	Group     string          `json:"group"`
	Work      Digest          `json:"work"`
	Identity  json.RawMessage `json:"identity"`           // Work is the sha256 of it
	Placement json.RawMessage `json:"placement"`          // [Job.PlacementJSON]
	Metadata  json.RawMessage `json:"metadata,omitempty"` // [Job.MetadataJSON]
	OnDelete  OnDelete        `json:"on_delete"`
}

// Accept turns the readable part of a plan into what is stored. The caller decides whether a plan with errors may
// be accepted at all; frozen jobs are not in the answer: the
// caller keeps what was accepted of them before.
func Accept(p *Plan, commit string) Accepted {
	a := Accepted{Format: AcceptedFormat, Root: p.Config.Name, Commit: commit, Jobs: make([]AcceptedJob, len(p.Jobs))}
	for i := range p.Jobs {
		j, c := &p.Jobs[i], p.canonical(i)
		a.Jobs[i] = AcceptedJob{Name: j.Name, Group: j.Group, Work: j.Work, Identity: c.identity,
			Placement: c.placement, Metadata: c.metadata, OnDelete: j.OnDelete}
	}
	return a
}

// EncodeAccepted returns the stored form: JSON with a final newline, equal for equal input.
func EncodeAccepted(a Accepted) ([]byte, error) {
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode accepted plan: %w", err)
	}
	return append(b, '\n'), nil
}

// DecodeAccepted reads one stored Accepted strictly: unknown fields, another format, bytes behind the value, names out
// of order and identities that do not hash to their work are refused.
func DecodeAccepted(b []byte) (Accepted, error) {
	var a Accepted
	if len(b) > MaxAccepted {
		return a, fmt.Errorf("accepted plan of %d bytes: expected at most %d", len(b), MaxAccepted)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return Accepted{}, fmt.Errorf("decode accepted plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Accepted{}, fmt.Errorf("decode accepted plan: bytes after the end of the JSON value")
	}
	if a.Format != AcceptedFormat {
		return Accepted{}, fmt.Errorf("accepted plan has format %d: this program reads format %d; use the version of headway that wrote it", a.Format, AcceptedFormat)
	}
	for i, j := range a.Jobs {
		if i > 0 && a.Jobs[i-1].Name >= j.Name {
			return Accepted{}, fmt.Errorf("accepted plan: job %q is out of order", j.Name)
		}
		if got := digestOf(j.Identity); got != j.Work {
			return Accepted{}, fmt.Errorf("accepted plan: job %q says work %s but its identity hashes to %s", j.Name, j.Work.Short(), got.Short())
		}
	}
	return a, nil
}
