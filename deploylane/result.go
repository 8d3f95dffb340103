package deploylane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// metricsFile is the file of a result that holds its numbers.
const metricsFile = "metrics.json"

// maxMetricsFile bounds it, bytes, as the worker does.
const maxMetricsFile = 1 << 20

// result is a finished work's result, as its witness names it and as its hashes say.
type result struct {
	seen     witness.Record
	key      string // of the manifest
	manifest record.Manifest
	metrics  map[string]float64
}

// finished reads the result of a work; a *Stop says that there is none, or that it is not what its hashes say.
func finished(ctx context.Context, b bucket.Bucket, work, what string) (*result, error) {
	seen, err := witness.Read(ctx, b, work)
	_, bad := errors.AsType[*witness.Unreadable](err)
	switch {
	case errors.Is(err, witness.ErrAbsent):
		return nil, stop("NotFinished", "%s (work %s) was never run: let it finish, then tag it", what, short(work))
	case bad:
		return nil, stop("ArtifactMismatch", "%s (work %s): its lease cannot be read: %v", what, short(work), err)
	case err != nil:
		return nil, err
	}
	f := seen.Record.Finished
	switch {
	case seen.Record.State != witness.Finished || f == nil:
		return nil, stop("NotFinished", "%s (work %s) is %s, not finished: let it finish, then tag it", what, short(work), seen.Record.State)
	case f.ExitCode != 0:
		return nil, stop("NotFinished", "%s (work %s) finished with exit code %d", what, short(work), f.ExitCode)
	case f.Manifest != record.ResultManifestKey(work, f.Attempt):
		return nil, stop("ArtifactMismatch", "%s (work %s): its lease names the manifest %s, which is not its own", what, short(work), shown(f.Manifest, 200))
	}
	r := &result{seen: seen.Record, key: f.Manifest}
	body, _, err := get(ctx, b, f.Manifest, record.MaxManifest)
	if broken, ok := errors.AsType[*Broken](err); ok || bucket.Is(err, bucket.NotFound) {
		return nil, stop("ArtifactMismatch", "%s (work %s): the manifest of its result cannot be had: %v", what, short(work), errors.Join(err, broken))
	}
	if err != nil {
		return nil, err
	}
	if got := record.Hash(body); got != f.SHA256 {
		return nil, stop("ArtifactMismatch", "%s (work %s): the manifest of its result has the sha256 %s, its lease names %s: it was changed since", what, short(work), short(got), short(f.SHA256))
	}
	m := &r.manifest
	if err := record.Decode(body, record.MaxManifest, m); err != nil || m.Work != work || m.Attempt != f.Attempt || len(m.Files) > record.MaxFiles {
		return nil, stop("ArtifactMismatch", "%s (work %s): its manifest is not that of attempt %d", what, short(work), f.Attempt)
	}
	for _, file := range m.Files {
		if file.Path != path.Clean(file.Path) || path.IsAbs(file.Path) || strings.HasPrefix(file.Path, "..") || file.Size < 0 {
			return nil, stop("ArtifactMismatch", "%s (work %s): its manifest names the file %s", what, short(work), shown(file.Path, 100))
		}
	}
	return r, r.readMetrics(ctx, b, what)
}

// readMetrics reads metrics.json, held against the manifest. A result without one has no metrics.
func (r *result) readMetrics(ctx context.Context, b bucket.Bucket, what string) error {
	r.metrics = map[string]float64{}
	i := slices.IndexFunc(r.manifest.Files, func(f record.File) bool { return f.Path == metricsFile })
	if i < 0 {
		return nil
	}
	bad := func(format string, args ...any) error {
		return stop("ArtifactMismatch", "%s (work %s): its %s %s", what, short(r.seen.Work), metricsFile, fmt.Sprintf(format, args...))
	}
	body, _, err := get(ctx, b, path.Dir(r.key)+"/"+metricsFile, maxMetricsFile)
	if _, ok := errors.AsType[*Broken](err); ok || bucket.Is(err, bucket.NotFound) {
		return bad("cannot be had: %v", err)
	}
	if err != nil {
		return err
	}
	if record.Hash(body) != r.manifest.Files[i].SHA256 {
		return bad("is not the one that its manifest names: it was changed since")
	}
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		return bad("is no JSON object")
	}
	for k, v := range all {
		if n, ok := v.(float64); ok && !math.IsNaN(n) && !math.IsInf(n, 0) && len(k) <= 200 {
			r.metrics[k] = n
		}
	}
	return nil
}

// run is what a record says of it. need are the metrics that count; others are left out.
func (r *result) run(name, identity string, fingerprint map[string]string, need ...string) Run {
	out := Run{Name: name, Work: r.seen.Work, Identity: identity, Attempt: r.seen.Finished.Attempt, Fingerprint: fingerprint,
		Metrics: map[string]float64{}, Manifest: attest.Link{Key: r.key, SHA256: r.seen.Finished.SHA256}}
	for _, k := range need {
		if v, ok := r.metrics[k]; ok {
			out.Metrics[k] = v
		}
	}
	return out
}

// lacks names the first metric that a result does not have.
func (r *result) lacks(need []string) string {
	for _, k := range need {
		if _, ok := r.metrics[k]; !ok {
			return k
		}
	}
	return ""
}

// machine is what the worker of an attempt measured.
func machine(ctx context.Context, b bucket.Bucket, work string, attempt int64) (map[string]string, error) {
	body, _, err := get(ctx, b, record.OpenKey(work, attempt), record.MaxRecord)
	var open record.Open
	if _, broken := errors.AsType[*Broken](err); err != nil && !broken && !bucket.Is(err, bucket.NotFound) {
		return nil, err
	}
	if err != nil || record.Decode(body, record.MaxRecord, &open) != nil || open.Work != work || open.Attempt != attempt {
		return nil, stop("EvidenceMissing", "work %s: what attempt %d ran on cannot be read", short(work), attempt)
	}
	return open.Fingerprint, nil
}

// whole reads every file of a result and holds it against its hash: a swapped artifact is found here.
func whole(ctx context.Context, b bucket.Bucket, r *result, what string) error {
	for _, f := range r.manifest.Files {
		got, n, err := hashOf(ctx, b, path.Dir(r.key)+"/"+f.Path, io.Discard)
		if bucket.Is(err, bucket.NotFound) {
			return stop("ArtifactMismatch", "%s (work %s): its file %s is gone", what, short(r.seen.Work), shown(f.Path, 100))
		}
		if err != nil {
			return err
		}
		if got != f.SHA256 || n != f.Size {
			return stop("ArtifactMismatch", "%s (work %s): its file %s is not the one that its manifest names (%d bytes, sha256 %s; expected %d, %s): it was swapped since",
				what, short(r.seen.Work), shown(f.Path, 100), n, short(got), f.Size, short(f.SHA256))
		}
	}
	return nil
}

func hashOf(ctx context.Context, b bucket.Bucket, key string, to io.Writer) (sum string, n int64, err error) {
	o, err := b.Get(ctx, key, bucket.Range{})
	if err != nil {
		return "", 0, err
	}
	return sumOf(o, key, to)
}

// sumOf reads an object to its end and closes it.
func sumOf(o *bucket.Object, key string, to io.Writer) (sum string, n int64, err error) {
	defer func() { _ = o.Body.Close() }()
	h := sha256.New()
	n, err = io.Copy(io.MultiWriter(h, to), o.Body)
	if err == nil && n != o.Size {
		err = fmt.Errorf("%s: %d of %d bytes came", key, n, o.Size)
	}
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// Candidate implements tag.Facts: what research has of a finished attempt.
func (l *Lane) Candidate(ctx context.Context, work string, attempt int64) (*tag.Candidate, error) {
	r, err := finished(ctx, l.Research, work, "the candidate")
	if _, none := errors.AsType[*Stop](err); none {
		return nil, nil
	}
	if err != nil || r.seen.Finished.Attempt != attempt {
		return nil, err
	}
	body, _, err := get(ctx, l.Research, record.SpecKey(work), record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return nil, nil
	}
	var s record.Spec
	if err != nil || record.Decode(bytes.Clone(body), record.MaxRecord, &s) != nil || s.Work != work || record.CheckIdentity(s) != nil {
		return nil, err
	}
	return &tag.Candidate{Generation: int64(s.Generation), Manifest: r.seen.Finished.SHA256}, nil
}

// Standing implements tag.Facts: what the lane's records say of a version. Before its release a signer must have seen the
// record of its backtest, afterwards that of its release.
func (l *Lane) Standing(ctx context.Context, model, version string) (*tag.Standing, error) {
	chain, err := l.Chain(ctx, model, version)
	if err != nil {
		return nil, err
	}
	s := &tag.Standing{}
	for _, k := range chain {
		switch k.Record.Stage {
		case Spread:
			if k.Record.Spread != nil {
				s.Spread = string(k.Record.Spread.Verdict)
			}
		case Backtests:
			if k.Record.Passed {
				s.Record = k.SHA256
			}
		case Release:
			s.Record, s.Released = k.SHA256, k.Record.Passed
		}
	}
	if s.Record == "" {
		return nil, nil
	}
	return s, nil
}
