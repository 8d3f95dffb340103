package courier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// lanes is how many files go up at a time.
const lanes = 4

// Upload puts the listed files of tree under prefix, then m with their sizes and hashes as the manifest, and returns
// the sha256 of the manifest's bytes. A file that somebody changes meanwhile fails the upload. tell hears of the bytes that the store
// takes, from several goroutines; nil: nobody does. Unknown answers are asked again with the same bytes until ctx
// ends: the keys have one writer.
func Upload(ctx context.Context, s Store, tree fs.FS, found []files.Found, prefix string, m record.Manifest, tell func(int64)) (string, error) {
	return upload(ctx, s, tree, found, prefix, m, tell, false)
}

// upload does it. own: nobody else can write to these files, so they need not be held against themselves afterwards.
func upload(ctx context.Context, s Store, tree fs.FS, found []files.Found, prefix string, m record.Manifest, tell func(int64), own bool) (string, error) {
	if tell == nil {
		tell = func(int64) {}
	}
	m.Files = make([]record.File, len(found))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	gate := make(chan struct{}, lanes)
	for i, f := range found {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if ctx.Err() != nil {
				return
			}
			sum, err := one(ctx, s, tree, f, prefix+f.Path, tell, own)
			if err != nil {
				cancel(fmt.Errorf("upload %s: %w", f.Path, err))
			}
			m.Files[i] = record.File{Path: f.Path, Size: f.Size, SHA256: sum, Exec: f.Exec}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	b, err := record.Encode(m)
	if err != nil {
		return "", err
	}
	if len(b) > record.MaxManifest {
		return "", fmt.Errorf("the manifest has %d bytes, at most %d are accepted: keep fewer files", len(b), record.MaxManifest)
	}
	if err := put(ctx, s, prefix+manifestName, bytes.NewReader(b)); err != nil {
		return "", fmt.Errorf("upload %s: %w", manifestName, err)
	}
	return record.Hash(b), nil
}

// one uploads a file and hashes it: beside, where the two reads share the page cache; before and after, where somebody
// else may still have it open for writing, so that a manifest never promises what was not sent.
func one(ctx context.Context, s Store, tree fs.FS, f files.Found, key string, tell func(int64), own bool) (string, error) {
	file, err := tree.Open(f.Path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	at, ok := file.(io.ReaderAt)
	if !ok {
		return "", errors.New("the file cannot be read at an offset")
	}
	hashed := make(chan digest, 1)
	hash := func() { hashed <- hashOf(at, f.Size) }
	if own {
		go hash()
	} else {
		hash()
	}
	err = put(ctx, s, key, &body{at, f.Size, tell})
	got := <-hashed
	if err == nil && (got.err != nil || got.n != f.Size) {
		err = errors.Join(fmt.Errorf("the file shrank to %d bytes", got.n), got.err)
	}
	if err == nil && !own && hashOf(at, f.Size) != got {
		err = errors.New("the file changed while it was uploaded: close a file before it is handed over")
	}
	return got.hex, err
}

// digest is the sha256 of what could be read of a file.
type digest struct {
	hex string
	n   int64
	err error
}

func hashOf(at io.ReaderAt, size int64) digest {
	h := sha256.New()
	n, err := io.CopyBuffer(h, io.NewSectionReader(at, 0, size), make([]byte, min(size+1, 32<<10)))
	return digest{hex.EncodeToString(h.Sum(nil)), n, err}
}

// body is a file on its way up. Every read of it is a sign that the store takes bytes.
type body struct {
	at   io.ReaderAt
	size int64
	tell func(int64)
}

func (b *body) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.size {
		return 0, io.EOF
	}
	short := int64(len(p)) > b.size-off
	if short {
		p = p[:b.size-off]
	}
	n, err := b.at.ReadAt(p, off)
	b.tell(int64(n))
	if short && err == nil {
		err = io.EOF
	}
	return n, err
}

func (b *body) Size() int64 { return b.size }

// put sends one object until the store has it, says something final, or ctx ends. A panic of an adapter is a failed
// upload: a defect there must cost a milestone, not the run.
func put(ctx context.Context, s Store, key string, b bucket.Body) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the upload panicked: %v", p)
		}
	}()
	pause := 100 * time.Millisecond
	for {
		_, err := s.Put(ctx, key, b, bucket.Always())
		if err == nil {
			return nil
		}
		switch bucket.CodeOf(err) {
		case bucket.Unknown, bucket.Throttled, bucket.Raced:
		case bucket.NotFound, bucket.Condition, bucket.Gone, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
			pause = min(2*pause, 5*time.Second)
		}
	}
}
