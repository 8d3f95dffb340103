package fetch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Snapshot downloads the milestone that a witness of this work names into dir, which must exist and be empty, and
// returns its manifest. *Unreadable when what is named is not there as it was written; *files.DiskFull before or during the
// download; anything else is the store's error and may pass.
func Snapshot(ctx context.Context, s Store, work string, p record.Pointer, dir string, tell Progress) (*record.Manifest, error) {
	fail := func(file string, err error) error {
		return &Unreadable{What: "snapshot", Work: work, Attempt: p.Attempt, Milestone: p.Milestone, File: file, Err: err}
	}
	if p.Attempt < 1 || p.Milestone < 1 || p.Manifest != record.MilestoneManifestKey(work, p.Attempt, p.Milestone) {
		return nil, fail("manifest.json", fmt.Errorf("the pointer names %.120q, which is no milestone of this work", p.Manifest))
	}
	t := target{s, work, record.MilestonePrefix(work, p.Attempt, p.Milestone), p.Manifest, p.SHA256, dir, tell, fail}
	return t.get(ctx, func(m *record.Manifest) error {
		if m.Attempt != p.Attempt || m.Milestone != p.Milestone || m.Step != p.Step {
			return fmt.Errorf("the manifest is of attempt %d, milestone %d, step %d", m.Attempt, m.Milestone, m.Step)
		}
		return nil
	})
}

// Result downloads the result that a finished witness names: attempt, key and hash of the manifest.
func Result(ctx context.Context, s Store, work string, attempt int64, manifest, sha256, dir string, tell Progress) (*record.Manifest, error) {
	fail := func(file string, err error) error {
		return &Unreadable{What: "result", Work: work, Attempt: attempt, File: file, Err: err}
	}
	if attempt < 1 || manifest != record.ResultManifestKey(work, attempt) {
		return nil, fail("manifest.json", fmt.Errorf("the witness names %.120q, which is no result of this work", manifest))
	}
	t := target{s, work, record.ResultPrefix(work, attempt), manifest, sha256, dir, tell, fail}
	return t.get(ctx, func(m *record.Manifest) error {
		if m.Attempt != attempt || m.Milestone != 0 {
			return fmt.Errorf("the manifest is of attempt %d, milestone %d", m.Attempt, m.Milestone)
		}
		return nil
	})
}

// target is one manifest and where its files go.
type target struct {
	s        Store
	work     string
	prefix   string
	manifest string
	sha256   string
	dir      string
	tell     Progress
	fail     func(file string, err error) error
}

func (t target) get(ctx context.Context, check func(*record.Manifest) error) (*record.Manifest, error) {
	m, err := t.read(ctx, check)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	paths, need := make([]string, len(m.Files)), int64(0)
	for i, f := range m.Files {
		paths[i] = f.Path
		need += f.Size // read has bounded both
	}
	if free := files.Free(t.dir); free >= 0 && need > free {
		return nil, &files.DiskFull{What: "the " + t.dir, Need: need, Free: free}
	}
	dirs, err := files.Folders(paths)
	if err != nil {
		return nil, t.fail("manifest.json", err)
	}
	for _, d := range dirs {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	for _, f := range m.Files {
		err := file(ctx, t.s, t.prefix+f.Path, f, root, f.Path, t.tell)
		switch {
		case err == nil:
		case files.Full(err):
			return nil, &files.DiskFull{What: f.Path, Need: need, Free: files.Free(t.dir)}
		case lost(err):
			return nil, t.fail(f.Path, err)
		default:
			return nil, err
		}
	}
	return m, nil
}

// maxTotal bounds the sum of sizes in one manifest, bytes; far beyond any disk, far below overflow.
const maxTotal = 1 << 50

func (t target) read(ctx context.Context, check func(*record.Manifest) error) (*record.Manifest, error) {
	b, err := whole(ctx, t.s, t.manifest, record.MaxManifest)
	if err != nil {
		if lost(err) {
			return nil, t.fail("manifest.json", err)
		}
		return nil, err
	}
	if got := record.Hash(b); got != t.sha256 {
		return nil, t.fail("manifest.json", fmt.Errorf("its sha256 is %s, the witness says %.64q", got, t.sha256))
	}
	var m record.Manifest
	if err := record.Decode(b, record.MaxManifest, &m); err != nil {
		return nil, t.fail("manifest.json", err)
	}
	if err := errors.Join(sane(&m, t.work), check(&m)); err != nil {
		return nil, t.fail("manifest.json", err)
	}
	return &m, nil
}

// sane holds a manifest against the bounds of every manifest.
func sane(m *record.Manifest, work string) error {
	switch {
	case m.Protocol > record.Protocol:
		return fmt.Errorf("it is of protocol %d, this agent reads up to %d", m.Protocol, record.Protocol)
	case m.Work != work:
		return fmt.Errorf("it is of work %.64q", m.Work)
	case len(m.Files) > record.MaxFiles:
		return fmt.Errorf("it lists %d files, at most %d are accepted", len(m.Files), record.MaxFiles)
	}
	var total int64
	for _, f := range m.Files {
		if _, err := hex.DecodeString(f.SHA256); err != nil || len(f.SHA256) != 64 {
			return fmt.Errorf("%.80q has no sha256", f.Path)
		}
		if f.Size < 0 || f.Size > maxTotal-total {
			return fmt.Errorf("%.80q has size %d", f.Path, f.Size)
		}
		if err := files.CleanPath(f.Path); err != nil {
			return err
		}
		total += f.Size
	}
	return nil
}

var _ Store = bucket.Bucket(nil)
