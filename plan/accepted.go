package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	return append(AppendAccepted(nil, a), '\n'), nil
}

// AppendAccepted appends the stored form without the newline. Of thousands of jobs nearly all is canonical JSON already, which
// is copied as it is: nothing is looked at twice.
func AppendAccepted(b []byte, a Accepted) []byte {
	b = a.appendHead(b)
	for i := range a.Jobs {
		b = a.appendJob(b, i)
	}
	return append(b, "]}"...)
}

func (a *Accepted) appendHead(b []byte) []byte {
	b = append(b, `{"format":`...)
	b = strconv.AppendInt(b, int64(a.Format), 10)
	if a.Root != "" {
		b = appendString(append(b, `,"root":`...), a.Root)
	}
	b = appendString(append(b, `,"commit":`...), a.Commit)
	return append(b, `,"jobs":[`...)
}

func (a *Accepted) appendJob(b []byte, i int) []byte {
	j := &a.Jobs[i]
	if i > 0 {
		b = append(b, ',')
	}
	b = appendString(append(b, `{"name":`...), j.Name)
	b = appendString(append(b, `,"group":`...), j.Group)
	b = appendString(append(b, `,"work":`...), string(j.Work))
	b = appendRaw(b, `,"identity":`, j.Identity)
	b = appendRaw(b, `,"placement":`, j.Placement)
	if len(j.Metadata) > 0 {
		b = appendRaw(b, `,"metadata":`, j.Metadata)
	}
	return append(appendString(append(b, `,"on_delete":`...), string(j.OnDelete)), '}')
}

// StoredAccepted is the stored form of an [Accepted] between other bytes, which is made where it is read: of 20,000 jobs it is
// 9 MB that nobody has to hold. Any number of goroutines may read it, as long as nobody changes the Accepted.
type StoredAccepted struct {
	a    Accepted
	ends []int64 // where the head and each job end
	head []byte
	tail string
}

// NewStoredAccepted puts the stored form, without its newline, between before and after.
func NewStoredAccepted(before []byte, a Accepted, after string) *StoredAccepted {
	s := &StoredAccepted{a: a, ends: make([]int64, 0, len(a.Jobs)+1), head: a.appendHead(bytes.Clone(before)), tail: "]}" + after}
	var one []byte
	end := int64(len(s.head))
	s.ends = append(s.ends, end)
	for i := range a.Jobs {
		one = a.appendJob(one[:0], i)
		end += int64(len(one))
		s.ends = append(s.ends, end)
	}
	return s
}

// Size is the number of all bytes.
func (s *StoredAccepted) Size() int64 { return s.ends[len(s.ends)-1] + int64(len(s.tail)) }

// ReadAt implements io.ReaderAt.
func (s *StoredAccepted) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read the accepted plan at %d: expected an offset from 0 on", off)
	}
	i, _ := slices.BinarySearch(s.ends, off+1) // the first part that ends behind off
	var one []byte
	for ; n < len(p) && i <= len(s.ends); i++ {
		start, part := int64(0), s.head
		switch {
		case i == len(s.ends):
			start, part = s.ends[i-1], []byte(s.tail)
		case i > 0:
			one = s.a.appendJob(one[:0], i-1)
			start, part = s.ends[i-1], one
		}
		if at := off + int64(n) - start; at < int64(len(part)) {
			n += copy(p[n:], part[at:])
		}
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// appendRaw appends canonical JSON as it is.
func appendRaw(b []byte, name string, raw json.RawMessage) []byte {
	if b = append(b, name...); len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
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
