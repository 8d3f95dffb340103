package reconcile

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

const (
	// firstSights bounds how many results one pass looks for of works that were finished before this process saw them run: whoever
	// saw that has looked already, and a plan may have thousands. The rest come in the next passes.
	firstSights = 256
	// lacksAgain is for how long a result that is not whole is believed to stay so: a person may put it back.
	lacksAgain = 10 * time.Minute
	// getsForFiles is how many files of a result are asked for one by one; of more a listing costs less.
	getsForFiles = getsPerList
)

// arrival is what is known of the files of a finished work.
type arrival struct {
	lacks string    // one clause; "": all of them are there
	at    time.Time // of the look
}

// arrives looks whether the files that a finished work names are in the store, once for each finish and process: a worker that
// was told that they are, by a mount that keeps what it should send, has finished in good faith. Nothing is called finished
// before that which this process saw run. No hash is computed: fetch and the worker that reads it do that.
func (r *Reconciler) arrives(ctx context.Context, w plan.Digest, l *look, s *sight) {
	switch was := l.result; {
	case !r.passing || l.seen.Record.Finished == nil:
		return
	case was != nil && (was.lacks == "" || time.Since(was.at) < lacksAgain):
		return
	case was == nil && !l.ran && r.firsts.Add(1) > firstSights:
		return
	}
	lacks, err := r.lacking(ctx, string(w), l.seen.Record.Finished)
	if err != nil {
		s.unknown(fmt.Errorf("look for its result: %w", err))
		return
	}
	l.result = &arrival{lacks, time.Now()}
	s.lease.Lacks = lacks
}

// lacking says what of a result is not there, one clause, or "".
func (r *Reconciler) lacking(ctx context.Context, work string, f *witness.FinishedPointer) (string, error) {
	if f.Manifest != record.ResultManifestKey(work, f.Attempt) {
		return "its lease names something else than the result of its attempt", nil
	}
	body, _, err := whole(ctx, r.b, f.Manifest, record.MaxManifest)
	var m record.Manifest
	switch {
	case bucket.Is(err, bucket.NotFound):
		return "its manifest is not in the store", nil
	case err != nil && !damaged(err):
		return "", err
	case err != nil || record.Hash(body) != f.SHA256:
		return "its manifest is not the one that its lease names", nil
	case record.Decode(body, record.MaxManifest, &m) != nil || m.Work != work || len(m.Files) > record.MaxFiles:
		return "its manifest cannot be read", nil
	}
	prefix := record.ResultPrefix(work, f.Attempt)
	there := map[string]int64{}
	for after := ""; len(m.Files) > getsForFiles; {
		page, err := r.b.List(ctx, prefix, after, 0)
		if err != nil {
			return "", err
		}
		for _, it := range page.Items {
			there[it.Key], after = it.Size, it.Key
		}
		if !page.More || len(page.Items) == 0 {
			break
		}
	}
	for _, file := range m.Files {
		if !fs.ValidPath(file.Path) {
			return "its manifest lists " + shown(file.Path, 100) + ", which is no path", nil
		}
		if size, ok := there[prefix+file.Path]; ok && size == file.Size {
			continue
		}
		// A listing may lag, so what it does not show is asked for by name.
		if lacks, err := r.lacksFile(ctx, prefix, file); err != nil || lacks != "" {
			return lacks, err
		}
	}
	return "", nil
}

// lacksFile asks for one file's size: for its first byte, where it has one.
func (r *Reconciler) lacksFile(ctx context.Context, prefix string, file record.File) (string, error) {
	part := bucket.Range{Length: 1}
	if file.Size == 0 {
		part.Length = 0
	}
	o, err := r.b.Get(ctx, prefix+file.Path, part)
	switch {
	case bucket.Is(err, bucket.NotFound):
		return shown(file.Path, 100) + " is not in the store", nil
	case bucket.Is(err, bucket.BadKey): // behind its end: it is empty
		return fmt.Sprintf("%s is shorter than the %d bytes that its manifest says", shown(file.Path, 100), file.Size), nil
	case err != nil:
		return "", err
	}
	_ = o.Body.Close()
	if o.Size != file.Size {
		return fmt.Sprintf("%s has %d bytes, its manifest says %d", shown(file.Path, 100), o.Size, file.Size), nil
	}
	return "", nil
}

// unwhole is the sentence about a finished work whose result is not all there; "": it is, as far as anybody has looked.
func (l Lease) unwhole() string {
	if l.State != witness.Finished || l.Lacks == "" {
		return ""
	}
	return fmt.Sprintf("finished by attempt %d, but its result is not whole: %s (headway doctor says what can be done)", l.Attempt, l.Lacks)
}

// notWhole reports whether a sentence is that of unwhole.
func notWhole(reason string) bool { return strings.HasPrefix(reason, "finished by attempt ") }
