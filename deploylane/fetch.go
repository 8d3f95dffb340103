package deploylane

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Fetch reads the files of a release, each held against the hash that the signed records give it, and hands each to open, whose
// writer it closes. What was written before an error is not to be used. The attestation comes back beside them. Errors: *Stop when
// it is not released or something was swapped, *Broken, or those of the store.
func (l *Lane) Fetch(ctx context.Context, model, version string, open func(path string) (io.WriteCloser, error)) (files []record.File, attestation []byte, err error) {
	chain, err := l.Chain(ctx, model, version)
	if err != nil {
		return nil, nil, err
	}
	if n := len(chain); n < len(Stages()) || !chain[n-1].Record.Passed || chain[n-1].Record.Release == nil {
		return nil, nil, stop("NotReleased", "%s %s is not released: headway-lane status shows what is", model, version)
	}
	rel := chain[len(chain)-1].Record.Release
	if attestation, err = l.attestation(ctx, rel); err != nil {
		return nil, nil, err
	}
	m, err := l.manifest(ctx, rel.Artifact)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range m.Files {
		if err := l.fetch(ctx, path.Dir(rel.Artifact.Key)+"/"+f.Path, f, open); err != nil {
			return nil, nil, err
		}
	}
	return m.Files, attestation, nil
}

// manifest reads the manifest that a release names. Its paths are clean and lie below where they are put.
func (l *Lane) manifest(ctx context.Context, at attest.Link) (m record.Manifest, err error) {
	body, _, err := get(ctx, l.Store, at.Key, record.MaxManifest)
	if bucket.Is(err, bucket.NotFound) {
		return m, stop("ArtifactMismatch", "%s is gone: look who can write the lane's store", at.Key)
	}
	if err != nil {
		return m, err
	}
	if record.Hash(body) != at.SHA256 || record.Decode(body, record.MaxManifest, &m) != nil || len(m.Files) > record.MaxFiles {
		return m, stop("ArtifactMismatch", "%s is not the manifest that the release names: it was changed since; look who can write the lane's store", at.Key)
	}
	for _, f := range m.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Size < 0 {
			return m, stop("ArtifactMismatch", "%s names the file %s", at.Key, shown(f.Path, 100))
		}
	}
	return m, nil
}

// fetch reads one file.
func (l *Lane) fetch(ctx context.Context, key string, f record.File, open func(path string) (io.WriteCloser, error)) error {
	to, err := open(f.Path)
	if err != nil {
		return err
	}
	sum, n := "not read", int64(0)
	o, err := l.Store.Get(ctx, key, bucket.Range{})
	switch {
	case err != nil:
	case o.Size != f.Size: // nothing of it is written: it may be larger than any disk
		n, err = o.Size, o.Body.Close()
	default:
		sum, n, err = sumOf(o, key, to)
	}
	if closed := to.Close(); err == nil {
		err = closed
	}
	if bucket.Is(err, bucket.NotFound) {
		return stop("ArtifactMismatch", "the file %s is gone from the lane's store", shown(f.Path, 100))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shown(f.Path, 100), err)
	}
	if sum != f.SHA256 || n != f.Size {
		return stop("ArtifactMismatch", "the file %s is not the one that the release names (%d bytes, sha256 %s; expected %d, %s): it was swapped since; nothing was kept",
			shown(f.Path, 100), n, short(sum), f.Size, short(f.SHA256))
	}
	return nil
}
