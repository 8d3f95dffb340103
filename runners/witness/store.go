package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Store is the part of bucket.Bucket that the lease needs. There is no delete in it: no witness is ever deleted.
type Store interface {
	Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error)
	Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error)
	List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error)
}

// ErrAbsent says that the store surely has no witness of this work. Beside objects under work/ that is not a fresh
// work but a lost record: only Capture and Stop decide which.
var ErrAbsent = errors.New("no witness")

// Read gets one witness. Absent: ErrAbsent. Present but not to be understood (corrupt, too big, of a newer protocol,
// of another work): *Unreadable. Anything else is an error of the store, and says nothing about the work.
func Read(ctx context.Context, s Store, work string) (Seen, error) {
	got, err := fetch(ctx, s, record.WitnessKey(work), MaxRecord)
	if err != nil {
		return Seen{}, err
	}
	r, err := Decode(work, got.body)
	if err != nil {
		return Seen{}, err
	}
	return got.seen(r), nil
}

// found is one whole object as it was read.
type found struct {
	body     []byte
	version  bucket.Version
	modified time.Time
	date     time.Time
}

func (f *found) seen(r Record) Seen {
	return Seen{Record: r, Version: f.version, Modified: f.modified, Date: f.date}
}

// errShort is a body that ended early: a fault of the way, never of the record.
var errShort = fmt.Errorf("the body was cut short, read it again: %w", io.ErrUnexpectedEOF)

// fetch reads a whole object of at most max bytes. A body of another length than the store announced is an error of
// the way and not of the content: half a record must never be taken for a corrupt one.
func fetch(ctx context.Context, s Store, key string, max int64) (*found, error) {
	o, err := s.Get(ctx, key, bucket.Range{})
	if err != nil {
		if bucket.Is(err, bucket.NotFound) {
			return nil, fmt.Errorf("%w: %s", ErrAbsent, key)
		}
		return nil, err
	}
	defer func() { _ = o.Body.Close() }()
	if o.Size > max {
		return nil, &Unreadable{Key: key, Reason: fmt.Sprintf("has %d bytes, at most %d are accepted", o.Size, max)}
	}
	b, err := io.ReadAll(io.LimitReader(o.Body, max+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if int64(len(b)) != o.Size {
		return nil, fmt.Errorf("read %s: %d of %d bytes: %w", key, len(b), o.Size, errShort)
	}
	return &found{body: b, version: o.Version, modified: o.Modified, date: o.Date}, nil
}

// first names the first key with this prefix after the given one ("": from the start); "" when there is none.
func first(ctx context.Context, s Store, prefix, after string) (key string, err error) {
	p, err := s.List(ctx, prefix, after, 1)
	if err != nil {
		return "", err
	}
	if len(p.Items) == 0 {
		return "", nil
	}
	return p.Items[0].Key, nil
}

func body(b []byte) bucket.Body { return bytes.NewReader(b) }
