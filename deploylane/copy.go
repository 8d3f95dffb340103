package deploylane

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// CheckCopy holds a copy of the lane's store, below dir under its keys, against an attestation that was verified with keys, and
// needs no store. The records that the attestation names are as they were; the release's own record follows the last of them and
// names this very envelope; what targets answered belongs to that record, and the pointer's places follow one another without a
// gap, as far as the copy has any. Each of these carries the signature of one of the keys. Errors: *attest.RecordsDiffer, *Broken, or the system's.
func CheckCopy(ctx context.Context, v attest.Verified, envelope []byte, keys []attest.Key, dir string) error {
	if err := attest.CheckRecords(v.Statement, dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	l := &Lane{Store: folder{root: root}}
	for _, k := range keys {
		l.Trusted = append(l.Trusted, k.Public())
	}
	p := v.Predicate
	rel, found, err := l.read(ctx, key(p.Model, p.Version, Release))
	if err == nil && !found {
		err = &attest.RecordsDiffer{Missing: []string{key(p.Model, p.Version, Release)}}
	}
	if err != nil {
		return err
	}
	why := rel.Record.ident().follows(ident{Release, p.Model, p.Version, p.Records[len(p.Records)-1].SHA256, p.Tag.Object})
	switch r := rel.Record.Release; {
	case why != "":
	case !rel.Record.Passed || r == nil:
		why = "is no release"
	case r.Attestation.SHA256 != record.Hash(envelope):
		why = "names the attestation " + shown(short(r.Attestation.SHA256), 100) + ", and this one is " + short(record.Hash(envelope))
	case r.Artifact != p.Retrained.Manifest:
		why = "names another result than its attestation"
	}
	if why != "" {
		return &Broken{rel.Key, why}
	}
	return errors.Join(l.copiedAnswers(ctx, root.FS(), rel), l.copiedPlaces(ctx, root.FS(), rel))
}

// copiedAnswers checks what targets answered to a release.
func (l *Lane) copiedAnswers(ctx context.Context, in fs.FS, rel Link) error {
	names, err := fs.Glob(in, path.Dir(rel.Key)+"/target-*.json")
	for _, name := range names {
		k, _, bad := l.read(ctx, name)
		if bad == nil {
			if why := k.Record.ident().follows(ident{"target", rel.Record.Model, rel.Record.Version, rel.SHA256, rel.Record.Object}); why != "" {
				bad = &Broken{name, why}
			}
		}
		err = cmp.Or(err, bad)
	}
	return err
}

// copiedPlaces checks the pointer's history; its places at this version are at this release. A copy may have no history at all: one that
// has some of it has all of it, up to where its pointer is.
func (l *Lane) copiedPlaces(ctx context.Context, in fs.FS, rel Link) error {
	model := rel.Record.Model
	places, err := l.History(ctx, model)
	if err != nil {
		return err
	}
	for _, k := range places {
		if m := k.Record.Moved; m.Version == rel.Record.Version && m.Release != rel.SHA256 {
			return &Broken{k.Key, "is at another release of this version"}
		}
	}
	names, err := fs.Glob(in, historyOf(model)+"*.json")
	if err != nil || len(names) == 0 {
		return err
	}
	gap := &attest.RecordsDiffer{Missing: []string{placeKey(historyOf(model), int64(len(places))+1)}}
	if len(names) > len(places) { // one behind those that follow one another
		return gap
	}
	cur, _, err := l.current(ctx, model)
	if err == nil && cur != nil && cur.N > int64(len(places)) {
		return gap
	}
	return err
}

// folder is a copy of a store as files, to be read. Links are followed nowhere.
type folder struct {
	bucket.Bucket // nil: nothing is asked but Get
	root          *os.Root
}

// Get implements bucket.Bucket, for whole objects.
func (f folder) Get(_ context.Context, key string, _ bucket.Range) (*bucket.Object, error) {
	info, err := f.root.Lstat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.NotFound, Err: err}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &Broken{key, "is no regular file"}
	}
	body, err := f.root.Open(key)
	if err != nil {
		return nil, err
	}
	return &bucket.Object{Info: bucket.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, Body: body}, nil
}
