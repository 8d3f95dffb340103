package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

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
	names, err := w.b.names(folder)
	if err != nil {
		if isAbsent(err) {
			return nil
		}
		return err
	}
	for _, name := range names[w.start(folder, names):] {
		if w.page.More {
			return nil
		}
		key := folder + name
		deeper := strings.HasSuffix(name, "/")
		if !strings.HasPrefix(key, w.prefix) && !(deeper && strings.HasPrefix(w.prefix, key)) {
			if key > w.prefix {
				break // none of the rest has the prefix
			}
			continue
		}
		add := w.item
		if deeper {
			add = w.folder
		}
		if err := add(key); err != nil {
			return err
		}
	}
	return w.ctx.Err()
}

// start is the index of the first name that can matter to this listing: the first key that is not too low, or the
// folder before it when such keys may lie in it.
func (w *walk) start(folder string, names []string) int {
	i := sort.Search(len(names), func(i int) bool {
		key := folder + names[i]
		return key > w.after && key >= w.prefix
	})
	if i > 0 && strings.HasSuffix(names[i-1], "/") {
		if key := folder + names[i-1]; strings.HasPrefix(w.after, key) || strings.HasPrefix(w.prefix, key) {
			return i - 1
		}
	}
	return i
}

// bigFolder is the number of names from which a folder's names are kept for the next page.
const bigFolder = 500

// listed is a big folder's names as they were read last, while the folder's own stamp says that they are the same: a
// listing of 10,000 keys takes ten pages, and each would read all of the folder again.
type listed struct {
	folder string
	stat   stat
	names  []string // never changed
}

// names returns a folder's files and folders, sorted; a folder's name ends in a slash. The caller changes nothing.
func (b *Bucket) names(folder string) ([]string, error) {
	f, err := os.Open(b.path(folder))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := statOf(func(st *syscall.Stat_t) error { return syscall.Fstat(int(f.Fd()), st) }) // before the names: they may only be newer
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	b.mu.Lock()
	was := b.listed
	b.mu.Unlock()
	if was.names != nil && was.folder == folder && was.stat == st {
		return was.names, nil
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case e.Type().IsRegular():
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	if len(names) >= bigFolder && len(names) <= maxHashes && st.isSettled() {
		b.mu.Lock()
		b.listed = listed{folder, st, names}
		b.mu.Unlock()
	}
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
