package deploylane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// bring copies a finished work of research into the lane's store, as an input of the lane's own works: its files, held against
// their hashes on the way, its manifest, and at last its lease record, byte for byte. That record is finished, which is
// terminal, so nothing of it can ever run here. Doing it twice changes nothing.
func (l *Lane) bring(ctx context.Context, in record.Input) error {
	if done, err := l.brought(ctx, in.Work); err != nil || done {
		return err
	}
	what := "the input " + shown(in.Job, 100)
	r, err := finished(ctx, l.Research, in.Work, what)
	if err != nil {
		return err
	}
	for _, f := range r.manifest.Files {
		if err := l.copyFile(ctx, path.Dir(r.key)+"/"+f.Path, f, what); err != nil {
			return err
		}
	}
	body, _, err := get(ctx, l.Research, r.key, record.MaxManifest)
	if err != nil {
		return err
	}
	if record.Hash(body) != r.seen.Finished.SHA256 {
		return stop("ArtifactMismatch", "%s (work %s): its manifest changed while it was copied", what, short(in.Work))
	}
	if err := put(ctx, l.Store, r.key, bytes.NewReader(body)); err != nil {
		return err
	}
	if body, _, err = get(ctx, l.Research, record.WitnessKey(in.Work), witness.MaxRecord); err != nil {
		return err
	}
	seen, err := witness.Decode(in.Work, body)
	if err != nil || seen.State != witness.Finished || seen.Finished == nil || *seen.Finished != *r.seen.Finished {
		return stop("ArtifactMismatch", "%s (work %s): its lease changed while it was copied", what, short(in.Work))
	}
	return put(ctx, l.Store, record.WitnessKey(in.Work), bytes.NewReader(body))
}

// brought is bring's read-only twin.
func (l *Lane) brought(ctx context.Context, work string) (bool, error) {
	seen, err := witness.Read(ctx, l.Store, work)
	if errors.Is(err, witness.ErrAbsent) {
		return false, nil
	}
	return err == nil && seen.Record.State == witness.Finished, err
}

// copyFile copies one file through the disk: a body has to be readable more than once.
func (l *Lane) copyFile(ctx context.Context, key string, f record.File, what string) (err error) {
	tmp, err := os.CreateTemp("", "headway-lane-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	sum, n, err := hashOf(ctx, l.Research, key, tmp)
	if bucket.Is(err, bucket.NotFound) {
		return stop("ArtifactMismatch", "%s: its file %s is gone", what, shown(f.Path, 100))
	}
	if err != nil {
		return err
	}
	if sum != f.SHA256 || n != f.Size {
		return stop("ArtifactMismatch", "%s: its file %s is not the one that its manifest names: it was swapped since", what, shown(f.Path, 100))
	}
	return put(ctx, l.Store, key, io.NewSectionReader(tmp, 0, n))
}

// put creates an object whose content is known by its hash elsewhere. One that is there already is left alone: whoever reads
// it holds it against that hash.
func put(ctx context.Context, b bucket.Bucket, key string, body bucket.Body) error {
	_, err := b.Put(ctx, key, body, bucket.IfAbsent())
	if bucket.Is(err, bucket.Condition) {
		return nil
	}
	return err
}

// code brings a work's code into the lane's store, packed from the tagged commit itself: nothing of it comes out of research's store.
func (l *Lane) code(ctx context.Context, commit string, o Ordered) error {
	if o.Spec.CodeTree == "" {
		return nil
	}
	key := record.CodeKey(o.Spec.CodeTree)
	page, err := l.Store.List(ctx, key, "", 1)
	if err != nil || len(page.Items) > 0 && page.Items[0].Key == key {
		return err
	}
	tree, body, err := l.Git.Bundle(ctx, commit, o.Code)
	if err != nil {
		return err
	}
	if tree != o.Spec.CodeTree {
		return stop("PlanMismatch", "the folder %s of commit %s is tree %s, the work's code is %s", shown(o.Code, 100), short(commit), short(tree), short(o.Spec.CodeTree))
	}
	if err := put(ctx, l.Store, key, body); err != nil {
		return fmt.Errorf("code %s: %w", short(tree), err)
	}
	return nil
}
