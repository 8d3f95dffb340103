package dir

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Put implements bucket.Bucket. The bytes are on disk before the name is, and the name before the answer.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if err := enter(ctx, "put", key); err != nil {
		return "", err
	}
	tmp, sum, err := b.stage(ctx, key, body)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(tmp) }() // after a rename it is gone already
	size := body.Size()
	if c.Absent() && !b.o.NoLink {
		err = b.link(key, tmp)
		if !errors.Is(err, errNoLink) {
			return b.placed(key, size, sum, err)
		}
	}
	unlock, err := b.lock(ctx, "put", key)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := b.judge(key, tmp, c); err != nil {
		return "", err
	}
	return b.placed(key, size, sum, b.withFolders(key, func(p string) error { return os.Rename(tmp, p) }))
}

// stage writes the body to a temporary file in the store's own file system and returns its path and the bytes' hash.
// Whatever goes wrong here, nothing has been written under the key.
func (b *Bucket) stage(ctx context.Context, key string, body bucket.Body) (string, []byte, error) {
	f, err := os.CreateTemp(filepath.Join(b.root, "tmp"), "put-*")
	if err != nil {
		return "", nil, b.absent("put", key, bucket.NoBucket, err)
	}
	bad := func(err error) (string, []byte, error) {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return "", nil, b.fail("put", key, err)
	}
	h := sha256.New()
	buf := make([]byte, min(max(body.Size(), 1), 1<<20))
	for off, size := int64(0), body.Size(); off < size; {
		if err := ctx.Err(); err != nil {
			return bad(err)
		}
		want := buf[:min(int64(len(buf)), size-off)]
		n, err := body.ReadAt(want, off)
		if n < len(want) {
			return bad(&bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("the body ended after %d of %d bytes: %w", off+int64(n), size, err)})
		}
		h.Write(want)
		if _, err := f.Write(want); err != nil {
			return bad(err)
		}
		off += int64(n)
	}
	if err := f.Chmod(0o644); err != nil {
		return bad(err)
	}
	if !b.o.NoSync {
		if err := f.Sync(); err != nil {
			return bad(err)
		}
	}
	if err := f.Close(); err != nil {
		return bad(err)
	}
	return f.Name(), h.Sum(nil), nil
}

// errNoLink: this file system has no hard links.
var errNoLink = errors.New("no hard links here")

// link creates the key from a staged file, exclusively even where flock is a fiction.
func (b *Bucket) link(key, tmp string) error {
	err := b.withFolders(key, func(p string) error { return os.Link(tmp, p) })
	switch {
	case errors.Is(err, fs.ErrExist):
		if fi, e := os.Lstat(b.path(key)); e == nil && fi.IsDir() {
			return folderClash("put", key)
		}
		return &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EMLINK):
		return errNoLink
	}
	return err
}

// judge decides under the lock whether the condition holds, and moves the staged file's change time past that of the
// file it replaces, so that (size, change time) is never the same for two contents of one key.
func (b *Bucket) judge(key, tmp string, c bucket.Cond) error {
	is, swap := c.Is()
	fi, err := os.Lstat(b.path(key))
	switch {
	case err == nil && fi.IsDir():
		return folderClash("put", key)
	case err == nil && c.Absent():
		return &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
	case isAbsent(err) && swap:
		return b.absent("put", key, bucket.Gone, err)
	case isAbsent(err):
		return nil
	case err != nil:
		return b.fail("put", key, err)
	}
	if swap {
		o, err := b.read(key)
		if err != nil {
			return b.absent("put", key, bucket.Gone, err)
		}
		_ = o.Close()
		if o.info.Version != is {
			return &bucket.Error{Op: "put", Key: key, Code: bucket.Condition}
		}
	}
	stamp := time.Now()
	if !stamp.After(fi.ModTime()) {
		stamp = fi.ModTime().Add(time.Nanosecond)
	}
	if err := os.Chtimes(tmp, time.Time{}, stamp); err != nil {
		return b.fail("put", key, err)
	}
	return nil
}

// withFolders calls place with the key's path, making the folders above it when they are missing. A Delete may remove
// them again in between: a few rounds settle that.
func (b *Bucket) withFolders(key string, place func(path string) error) error {
	p := b.path(key)
	var err error
	for range 16 {
		if err = place(p); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if gone := b.missing("put", key); gone != nil {
			return gone
		}
		if err := b.mkdirs(filepath.Dir(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// mkdirs is MkdirAll that makes each new folder durable.
func (b *Bucket) mkdirs(d string) error {
	err := os.Mkdir(d, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.mkdirs(filepath.Dir(d)); err != nil {
			return err
		}
		err = os.Mkdir(d, 0o777)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil || b.o.NoSync {
		return err
	}
	return syncFolder(filepath.Dir(d))
}

// placed ends a Put: err is what link or rename said.
func (b *Bucket) placed(key string, size int64, sum []byte, err error) (bucket.Version, error) {
	if err != nil {
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EEXIST) {
			return "", folderClash("put", key)
		}
		return "", b.fail("put", key, err)
	}
	b.forget(key)
	if err := b.syncDir("put", key, filepath.Dir(b.path(key))); err != nil {
		return "", err
	}
	if size <= hashLimit {
		return hashVersion(sum), nil
	}
	o, err := b.read(key)
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: err}
	}
	return o.info.Version, o.Close()
}

// syncDir makes a folder's names durable. Its failure is Unknown: the name is there, but may not outlive a power cut.
func (b *Bucket) syncDir(op, key, d string) error {
	if b.o.NoSync {
		return nil
	}
	if err := syncFolder(d); err != nil && !errors.Is(err, fs.ErrNotExist) { // not exist: a Delete took the folder, so the key
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: fmt.Errorf("sync folder: %w", err)}
	}
	return nil
}

func syncFolder(d string) error {
	f, err := os.Open(d)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

func folderClash(op, key string) error {
	return &bucket.Error{Op: op, Key: key, Code: bucket.BadKey, Err: errors.New("the key is a folder of another, or below one")}
}
