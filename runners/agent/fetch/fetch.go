// Package fetch brings to the machine what a run starts from: its code bundle, the snapshot to resume from and the
// results of its inputs. Everything that comes out of a bucket is taken for hostile: sizes are bounded by the records
// and by the disk, names stay inside their folder, only regular files are made, and every byte is held against the
// hash that led to it. What does not verify is an error that names the file, never a smaller result.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Store is the one verb of a bucket that fetching needs.
type Store interface {
	Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error)
}

// Progress is told of verified bytes, from the goroutine that fetches.
type Progress func(bytes int64)

// Unreadable is a snapshot or a result that is named and cannot be had as it was written: an object missing, cut,
// changed, or a manifest that breaks the rules. Asking again later does not help; a person decides.
type Unreadable struct {
	What      string // "snapshot" or "result"
	Work      string
	Attempt   int64
	Milestone int64  // 0 for a result
	File      string // path inside, or manifest.json
	Err       error
}

func (e *Unreadable) Error() string {
	which := fmt.Sprintf("%s of attempt %d", e.What, e.Attempt)
	if e.Milestone > 0 {
		which = fmt.Sprintf("%s %d of attempt %d", e.What, e.Milestone, e.Attempt)
	}
	return fmt.Sprintf("%s is unreadable at %q: %v (nothing was started; name an older published milestone by hand, or stop the work)",
		which, e.File, e.Err)
}

// Unwrap returns the cause.
func (e *Unreadable) Unwrap() error { return e.Err }

// tries is how often one object is asked for before it counts as unreadable or the store as unreachable.
const tries = 4

// JSON reads one small record of at most max bytes.
func JSON(ctx context.Context, s Store, key string, max int64, v any) error {
	b, err := whole(ctx, s, key, max)
	if err != nil {
		return err
	}
	return record.Decode(b, int(max), v)
}

// whole reads an object of at most max bytes, asking again after faults of the way.
func whole(ctx context.Context, s Store, key string, max int64) (b []byte, err error) {
	err = again(ctx, func() error {
		o, err := get(ctx, s, key)
		if err != nil {
			return err
		}
		defer o.Body.Close()
		if o.Size > max {
			return permanent{fmt.Errorf("%w: %s has %d bytes, at most %d are accepted", errBytes, key, o.Size, max)}
		}
		b, err = io.ReadAll(io.LimitReader(o.Body, max+1))
		if err == nil && int64(len(b)) != o.Size {
			err = &bucket.Error{Op: "get", Key: key, Code: bucket.Unknown, Err: io.ErrUnexpectedEOF, Hint: "the answer was cut short; read again"}
		}
		return err
	})
	return b, err
}

// permanent is an error that asking again cannot mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// again calls f until it succeeds, fails for good, or has been tried often enough.
func again(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			return nil
		}
		if p, ok := errors.AsType[permanent](err); ok {
			return p.error
		}
		if settled(err) || n == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(n*n) * 100 * time.Millisecond):
		}
	}
}

// settled reports whether the store said something that will not change by asking again at once.
func settled(err error) bool {
	e, ok := errors.AsType[*bucket.Error](err)
	if !ok {
		return files.Full(err)
	}
	switch e.Code {
	case bucket.NotFound, bucket.Denied, bucket.NoBucket, bucket.BadKey, bucket.Unsupported, bucket.Condition, bucket.Gone, bucket.Full:
		return true
	case bucket.Unknown, bucket.Throttled, bucket.Raced:
		return false
	}
	return false
}

// lost reports whether err is about what lies in the store rather than about reaching it.
func lost(err error) bool {
	return bucket.Is(err, bucket.NotFound) || errors.Is(err, errBytes) || errors.Is(err, io.ErrUnexpectedEOF)
}

// errBytes is an object whose bytes are not those that were promised.
var errBytes = errors.New("its bytes are not those of the manifest")

// file downloads one object of known size and hash to name inside root.
func file(ctx context.Context, s Store, key string, f record.File, root *os.Root, name string, tell Progress) error {
	return again(ctx, func() error {
		o, err := get(ctx, s, key)
		if err != nil {
			return err
		}
		defer o.Body.Close()
		if o.Size != f.Size {
			return permanent{fmt.Errorf("%w: %d bytes instead of %d", errBytes, o.Size, f.Size)}
		}
		mode := fs.FileMode(0o644)
		if f.Exec {
			mode = 0o755
		}
		w, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		h := sha256.New()
		n, err := io.Copy(io.MultiWriter(w, h, tell), io.LimitReader(o.Body, f.Size+1))
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err == nil && n != f.Size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
			err = errBytes
		}
		return err
	})
}

// Write makes a Progress the tail of a copy.
func (p Progress) Write(b []byte) (int, error) {
	if p != nil {
		p(int64(len(b)))
	}
	return len(b), nil
}
