package dir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
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
	size, mtime int64
	inode       uint64
	version     bucket.Version
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

// read opens a key. The error is the file system's; a folder counts as absent.
func (b *Bucket) read(key string) (*opened, error) {
	f, err := os.OpenFile(b.path(key), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	o := &opened{info: bucket.Info{Key: key, Size: fi.Size(), Modified: fi.ModTime()}}
	if fi.Size() > hashLimit {
		o.file, o.info.Version = f, statVersion(fi)
		return o, nil
	}
	data := make([]byte, fi.Size())
	_, err = io.ReadFull(f, data)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	o.data, o.info.Version = bytes.NewReader(data), hashVersion(sum[:])
	b.remember(key, fi, o.info.Version)
	return o, nil
}

func hashVersion(sum []byte) bucket.Version { return bucket.Version(hex.EncodeToString(sum[:16])) }

func statVersion(fi fs.FileInfo) bucket.Version {
	return bucket.Version(fmt.Sprintf("s%x-%x", fi.Size(), fi.ModTime().UnixNano()))
}

func identity(fi fs.FileInfo) (h hashed, changed time.Time) {
	h = hashed{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	changed = fi.ModTime()
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		h.inode = st.Ino
	}
	return h, changed
}

func (b *Bucket) remember(key string, fi fs.FileInfo, v bucket.Version) {
	h, changed := identity(fi)
	if time.Since(changed) < settled {
		return
	}
	h.version = v
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hashes) >= maxHashes {
		clear(b.hashes)
	}
	b.hashes[key] = h
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
	fi, err := os.Lstat(b.path(key))
	if err != nil {
		return bucket.Info{}, err
	}
	h, _ := identity(fi)
	if h.version = was.version; h != was || !fi.Mode().IsRegular() {
		return bucket.Info{}, errForgotten
	}
	return bucket.Info{Key: key, Size: fi.Size(), Version: was.version, Modified: fi.ModTime()}, nil
}

// List implements bucket.Bucket. A key that is written during the call may be in its page or not.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := ctx.Err(); err != nil {
		return nil, &bucket.Error{Op: "list", Key: prefix, Code: bucket.Unknown, Err: err}
	}
	if err := bucket.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	w := &walk{b: b, ctx: ctx, prefix: prefix, after: after, limit: bucket.PageLimit(limit), page: &bucket.Page{Date: time.Now()}}
	folder := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		folder = prefix[:i+1]
	}
	if err := w.folder(folder); err != nil {
		return nil, b.fail("list", prefix, err)
	}
	if len(w.page.Items) == 0 {
		if err := b.missing("list", prefix); err != nil {
			return nil, err
		}
	}
	return w.page, nil
}

// walk is one List on its way through the folders, in byte order of whole keys.
type walk struct {
	b             *Bucket
	ctx           context.Context
	prefix, after string
	limit         int
	page          *bucket.Page
}

// folder lists one folder ("" or ending in a slash). A folder's name sorts with its slash: "a.b" before "a/b".
func (w *walk) folder(folder string) error {
	names, err := w.names(folder)
	if err != nil {
		if isAbsent(err) {
			return nil
		}
		return err
	}
	for _, name := range names {
		if w.page.More {
			return nil
		}
		key := folder + name
		if strings.HasSuffix(key, "/") {
			if err := w.folder(key); err != nil {
				return err
			}
			continue
		}
		if err := w.item(key); err != nil {
			return err
		}
	}
	return w.ctx.Err()
}

// names returns what of a folder can matter to this listing, sorted.
func (w *walk) names(folder string) ([]string, error) {
	f, err := os.Open(w.b.path(folder))
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
			key := folder + name
			if !strings.HasPrefix(key, w.prefix) && !strings.HasPrefix(w.prefix, key) || key <= w.after && !strings.HasPrefix(w.after, key) {
				continue
			}
		} else if key := folder + name; !e.Type().IsRegular() || key <= w.after || !strings.HasPrefix(key, w.prefix) {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// item adds one key to the page, or notes that there is more. A file whose hash is remembered is only looked at.
func (w *walk) item(key string) error {
	if len(w.page.Items) == w.limit {
		w.page.More = true
		return nil
	}
	info, err := w.b.recall(key)
	if errors.Is(err, errForgotten) {
		var o *opened
		if o, err = w.b.read(key); err == nil {
			info, err = o.info, o.Close()
		}
	}
	switch {
	case isAbsent(err): // deleted meanwhile
	case err != nil:
		return err
	default:
		w.page.Items = append(w.page.Items, info)
	}
	return nil
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}
