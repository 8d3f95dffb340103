package deploylane

import (
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// inspection is what a lane has seen of the release that a pointer names.
type inspection struct {
	of    Current
	at    time.Time              // the store's stamp of the release's record: what it names was written before
	files []record.File          // of the model, once its manifest was read
	seen  map[string]inspectedAt // by key
}

// inspectedAt is what one version of an object was found to be.
type inspectedAt struct {
	version bucket.Version
	wrong   string // "": what the release names
}

// sound holds what a pointer names against the release's record: the attestation and the manifest by their hashes; the model's files
// by name, size and the store's stamp, and by their hash where they were written after the release. What was looked at is not
// read again before its version changes, so a look costs a list for the attestation and one for each thousand files. The error is
// a *Broken that names the first object that was swapped or is gone, or the store's.
func (l *Lane) sound(ctx context.Context, model string, c Current) error {
	if c.Version == tag.None {
		return nil
	}
	s := l.inspected[model]
	if s == nil || s.of != c {
		rel, found, err := l.read(ctx, c.Release.Key)
		if err == nil && !found {
			err = &Broken{c.Release.Key, "is gone"}
		}
		if err != nil {
			return err
		}
		s = &inspection{of: c, at: rel.At, seen: map[string]inspectedAt{}}
		if l.inspected == nil {
			l.inspected = map[string]*inspection{}
		}
		l.inspected[model] = s
	}
	there := map[string]bucket.Info{}
	dir := path.Dir(c.Artifact.Key) + "/"
	if err := l.listed(ctx, c.Attestation.Key, 1, there); err != nil {
		return err
	}
	if err := l.listed(ctx, dir, 0, there); err != nil {
		return err
	}
	if _, err := l.named(ctx, s, c.Attestation, there, attest.MaxEnvelope, "attestation"); err != nil {
		return err
	}
	body, err := l.named(ctx, s, c.Artifact, there, record.MaxManifest, "manifest")
	if err != nil {
		return err
	}
	if body != nil {
		var m record.Manifest
		if err := record.Decode(body, record.MaxManifest, &m); err != nil {
			return &Broken{c.Artifact.Key, "is no manifest"}
		}
		s.files = m.Files
	}
	for _, f := range s.files {
		if err := l.unswapped(ctx, s, dir+f.Path, f, there); err != nil {
			return err
		}
	}
	return nil
}

// listed adds what the store lists under a prefix; limit 1: its first key alone.
func (l *Lane) listed(ctx context.Context, prefix string, limit int, to map[string]bucket.Info) error {
	for after := ""; ; {
		page, err := l.Store.List(ctx, prefix, after, limit)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			to[it.Key], after = it, it.Key
		}
		if limit == 1 || !page.More || len(page.Items) == 0 {
			return nil
		}
	}
}

// named reads an object that a record names by its hash, unless this version of it was read before: then there are no bytes.
func (l *Lane) named(ctx context.Context, s *inspection, at attest.Link, there map[string]bucket.Info, max int64, what string) ([]byte, error) {
	info, is := there[at.Key]
	was, known := s.seen[at.Key]
	var body []byte
	switch {
	case !is:
		return nil, &Broken{at.Key, fmt.Sprintf("is gone: it is the %s of %s, which is live", what, s.of.Version)}
	case !known || was.version != info.Version:
		b, read, err := get(ctx, l.Store, at.Key, max)
		if err != nil {
			return nil, err
		}
		body, was = b, inspectedAt{version: read.Version}
		if sum := record.Hash(b); sum != at.SHA256 {
			was.wrong = fmt.Sprintf("has the sha256 %s, and the release of %s, which is live, names the %s %s: it was swapped since", short(sum), s.of.Version, what, short(at.SHA256))
		}
		s.seen[at.Key] = was
	}
	if was.wrong != "" {
		return nil, &Broken{at.Key, was.wrong}
	}
	return body, nil
}

// unswapped looks at one file of the model.
func (l *Lane) unswapped(ctx context.Context, s *inspection, key string, f record.File, there map[string]bucket.Info) error {
	info, is := there[key]
	was, known := s.seen[key]
	switch {
	case !is:
		return &Broken{key, fmt.Sprintf("is gone: it is a file of %s, which is live", s.of.Version)}
	case info.Size != f.Size:
		return &Broken{key, fmt.Sprintf("has %d bytes, and the file of %s, which is live, has %d: it was swapped since", info.Size, s.of.Version, f.Size)}
	case !known || was.version != info.Version:
		was = inspectedAt{version: info.Version}
		if !info.Modified.Before(s.at) {
			sum, _, err := hashOf(ctx, l.Store, key, io.Discard)
			if err != nil {
				return err
			}
			if sum != f.SHA256 {
				was.wrong = fmt.Sprintf("has the sha256 %s, and the file of %s, which is live, has %s: it was swapped since", short(sum), s.of.Version, short(f.SHA256))
			}
		}
		s.seen[key] = was
	}
	if was.wrong != "" {
		return &Broken{key, was.wrong}
	}
	return nil
}
