// Package dir is the embedded store: a folder of a local (or shared) file system behind the store port, for any
// number of processes at once. Create is a temporary file, fsync and link(2); swap is a lock, a second look at the
// bytes and rename(2); nobody ever sees half an object, and an acknowledged one survives a power cut.
//
// Layout: objects/<key>, tmp/ (unfinished writes), locks/ (256 files, never removed). A lock dies with its process, so
// there are no stale ones. The version of an object is a hash of its bytes (as on S3: equal bytes, equal versions); of
// one above 1 MiB, size and change time, which every overwrite moves forward. Not promised: anything on a network file
// system whose flock and link are both local fictions; the probe is run on every store for that reason.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Options of Open. The zero value is right for use.
type Options struct {
	Create bool // make the folder when it is missing
	NoSync bool // no fsync: for tests; an acknowledged write may be lost in a power cut, never in a crash of the process
	NoLink bool // never use link(2), as on file systems without it; every process on the store must agree
}

// staleTemp is the age after which an unfinished write is swept at Open.
const staleTemp = 24 * time.Hour

// Bucket is an open store folder.
type Bucket struct {
	root  string
	o     Options
	locks [shards]chan struct{} // goroutines of this process queue here, processes at the lock files

	mu     sync.Mutex
	hashes map[string]hashed // key → version, as long as the file is the same
	listed listed            // the big folder that was listed last
}

var _ bucket.Bucket = (*Bucket)(nil)

// Open opens the store in an absolute folder. A folder that is missing, or that is not a store (a share that is not
// mounted looks like that), is NoBucket unless Create is set.
func Open(root string, o Options) (*Bucket, error) {
	if !filepath.IsAbs(root) {
		return nil, &bucket.Error{Op: "open", Key: root, Code: bucket.NoBucket, Err: errors.New("the folder's path is not absolute"), Hint: "write dir:///the/whole/path"}
	}
	b := &Bucket{root: filepath.Clean(root), o: o, hashes: map[string]hashed{}}
	for i := range b.locks {
		b.locks[i] = make(chan struct{}, 1)
	}
	if o.Create {
		for _, d := range []string{"tmp", "locks", "objects"} { // objects last: it is the mark of a store
			if err := os.MkdirAll(filepath.Join(b.root, d), 0o777); err != nil {
				return nil, b.fail("open", b.root, err)
			}
		}
	}
	if err := b.missing("open", root); err != nil {
		return nil, err
	}
	b.sweep()
	return b, nil
}

// missing returns NoBucket when the folder is gone: absent objects must not be mistaken for an empty store.
func (b *Bucket) missing(op, key string) error {
	fi, err := os.Stat(filepath.Join(b.root, "objects"))
	if err == nil && fi.IsDir() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return b.fail(op, key, err)
	}
	return &bucket.Error{Op: op, Key: key, Code: bucket.NoBucket, Err: fmt.Errorf("no store in folder %s", b.root),
		Hint: "is the disk or share mounted? the one inside a repository is made by its first apply or watch"}
}

// sweep removes what writers that were killed left behind, once it is old enough to have no living writer.
func (b *Bucket) sweep() {
	tmp := filepath.Join(b.root, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return // nothing depends on it
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > staleTemp {
			_ = os.Remove(filepath.Join(tmp, e.Name()))
		}
	}
}

func (b *Bucket) path(key string) string {
	return filepath.Join(b.root, "objects", filepath.FromSlash(key))
}

// Get implements bucket.Bucket. The object that was opened is the one that is read to its end, whatever is written
// meanwhile.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if err := enter(ctx, "get", key); err != nil {
		return nil, err
	}
	o, err := b.read(key)
	if err != nil {
		return nil, b.absent("get", key, bucket.NotFound, err)
	}
	off, n, ok := r.Bounds(o.info.Size)
	if !ok {
		_ = o.Close()
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("range starts at byte %d of %d", r.Offset, o.info.Size)}
	}
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(o, off, n), o}
	return &bucket.Object{Info: o.info, Body: body, Date: time.Now()}, nil
}

// absent tells a missing key from a missing store.
func (b *Bucket) absent(op, key string, code bucket.Code, err error) error {
	if !isAbsent(err) {
		return b.fail(op, key, err)
	}
	if gone := b.missing(op, key); gone != nil {
		return gone
	}
	return &bucket.Error{Op: op, Key: key, Code: code}
}

// Delete implements bucket.Bucket. Folders that become empty go too.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := enter(ctx, "delete", key); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, "delete", key)
	if err != nil {
		return err
	}
	defer unlock()
	p := b.path(key)
	fi, err := os.Lstat(p)
	if err == nil && fi.IsDir() {
		return nil // no such key: it is only a folder of others
	}
	if err == nil {
		err = os.Remove(p)
	}
	if err != nil {
		if isAbsent(err) {
			return b.missing("delete", key)
		}
		return b.fail("delete", key, err)
	}
	b.forget(key)
	objects := filepath.Join(b.root, "objects")
	for d := filepath.Dir(p); d != objects; d = filepath.Dir(d) {
		if os.Remove(d) != nil { // not empty
			return b.syncDir("delete", key, d)
		}
	}
	return b.syncDir("delete", key, objects)
}

// Presign implements bucket.Bucket: a folder has no URLs.
func (b *Bucket) Presign(_ context.Context, _ bucket.Method, key string, _ time.Duration) (string, error) {
	return "", &bucket.Error{Op: "presign", Key: key, Code: bucket.Unsupported, Err: errors.New("a directory store has no URLs"),
		Hint: "workers on other machines need an S3 store"}
}

func enter(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: err}
	}
	return bucket.CheckKey(op, key)
}
