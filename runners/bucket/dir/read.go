package dir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// hashLimit is the size up to which the version is a hash of the bytes, bytes. Everything that is ever swapped
// conditionally is far smaller; hashing a snapshot of gigabytes for a listing would help nobody.
const hashLimit = 1 << 20

// settled is how old a file's stamps must be before its hash is remembered: within one tick of the kernel's clock
// two files could have the same inode, size and stamps.
const settled = 2 * time.Second

// maxHashes bounds the memory for remembered hashes, entries; beyond it they are all forgotten and found anew.
const maxHashes = 1 << 17

// hashed is a remembered version and the file it belongs to.
type hashed struct {
	stat
	version bucket.Version
}

// opened is an object that was opened: the bytes of one version, whatever happens to the key.
type opened struct {
	info bucket.Info
	data *bytes.Reader // small ones
	file *os.File      // large ones
}

func (o *opened) ReadAt(p []byte, off int64) (int, error) {
	if o.file != nil {
		return o.file.ReadAt(p, off)
	}
	return o.data.ReadAt(p, off)
}

func (o *opened) Close() error {
	if o.file != nil {
		return o.file.Close()
	}
	return nil
}

// read opens a key. The error is the file system's; a folder counts as absent. A small object is read by plain system
// calls: an os.File would register itself with the runtime's poller first, which refuses files, and there are tens of
// thousands of them in one look.
func (b *Bucket) read(key string) (*opened, error) {
	path := b.path(key)
	fd, err := calling(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	st, err := statOf(func(st *syscall.Stat_t) error { return syscall.Fstat(fd, st) })
	if err == nil && !st.regular {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	o := &opened{info: bucket.Info{Key: key, Size: st.size, Modified: st.modified()}}
	if st.size > hashLimit {
		o.file, o.info.Version = os.NewFile(uintptr(fd), path), st.version()
		return o, nil
	}
	data := make([]byte, st.size)
	for n := 0; n < len(data) && err == nil; {
		var more int
		if more, err = calling(func() (int, error) { return syscall.Read(fd, data[n:]) }); err == nil && more == 0 {
			err = io.ErrUnexpectedEOF
		}
		n += max(more, 0)
	}
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	sum := sha256.Sum256(data)
	o.data, o.info.Version = bytes.NewReader(data), hashVersion(sum[:])
	b.remember(key, st, o.info.Version)
	return o, nil
}

// calling repeats a system call that a signal interrupted.
func calling(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// stat is what identifies a file and its content, as far as stamps can.
type stat struct {
	size, mtime int64 // bytes, nanoseconds of the file system's clock
	inode       uint64
	regular     bool
}

func statOf(call func(*syscall.Stat_t) error) (stat, error) {
	var st syscall.Stat_t
	if _, err := calling(func() (int, error) { return 0, call(&st) }); err != nil {
		return stat{}, err
	}
	return stat{st.Size, mtime(&st), st.Ino, st.Mode&syscall.S_IFMT == syscall.S_IFREG}, nil
}

func (s stat) modified() time.Time { return time.Unix(0, s.mtime) }

// isSettled reports whether a change that came now would surely show in the stamp.
func (s stat) isSettled() bool { return time.Since(s.modified()) >= settled }

// version is that of a large file.
func (s stat) version() bucket.Version {
	return bucket.Version(fmt.Sprintf("s%x-%x", s.size, s.mtime))
}

func hashVersion(sum []byte) bucket.Version { return bucket.Version(hex.EncodeToString(sum[:16])) }

func (b *Bucket) remember(key string, st stat, v bucket.Version) {
	if !st.isSettled() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hashes) >= maxHashes {
		clear(b.hashes)
	}
	b.hashes[key] = hashed{st, v}
}

func (b *Bucket) forget(key string) {
	b.mu.Lock()
	delete(b.hashes, key)
	b.mu.Unlock()
}

// errForgotten: the file must be read.
var errForgotten = errors.New("hash not remembered")

// recall returns what a listing says of a key whose hash is remembered and whose file is the same.
func (b *Bucket) recall(key string) (bucket.Info, error) {
	b.mu.Lock()
	was, ok := b.hashes[key]
	b.mu.Unlock()
	if !ok {
		return bucket.Info{}, errForgotten
	}
	path := b.path(key)
	st, err := statOf(func(st *syscall.Stat_t) error { return syscall.Lstat(path, st) })
	if err != nil {
		return bucket.Info{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st != was.stat {
		return bucket.Info{}, errForgotten
	}
	return bucket.Info{Key: key, Size: st.size, Version: was.version, Modified: st.modified()}, nil
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}
