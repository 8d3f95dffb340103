// Package files says what may be a file of a snapshot, a result or a bundle (clean names, regular, bounded), lists
// and copies such trees, and knows what a full disk looks like.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/headway-run/headway/runners/record"
)

// DiskFull says how much was needed and how much there was, in bytes.
type DiskFull struct {
	What       string
	Need, Free int64 // Free is -1 when unknown
}

func (e *DiskFull) Error() string {
	if e.Free < 0 {
		return fmt.Sprintf("no space for %s: %d bytes are needed", e.What, e.Need)
	}
	return fmt.Sprintf("no space for %s: %d bytes are needed, %d are free", e.What, e.Need, e.Free)
}

// Free returns the bytes that this process may still write in dir, or -1.
func Free(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

// Full reports whether err means that the disk (or the quota, or the file size limit) is full.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// CleanPath refuses what may not be the path of a file of ours: empty, absolute, with "." or ".." parts, backslashes,
// control characters, not UTF-8, more than 512 bytes, 255 for a part, or 32 parts.
func CleanPath(p string) error {
	bad := !fs.ValidPath(p) || p == "." || len(p) > 512 || strings.Count(p, "/") >= 32 || strings.ContainsRune(p, '\\') ||
		strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
	for part := range strings.SplitSeq(p, "/") {
		bad = bad || len(part) > 255
	}
	if bad {
		return fmt.Errorf("path %.80q is not a clean relative path", p)
	}
	return nil
}

// Folders checks a list of file paths and returns the folders they lie in, parents not first. One path twice, or one
// that is a file and a folder, is an error.
func Folders(paths []string) ([]string, error) {
	var dirs []string
	known, folders := map[string]bool{}, map[string]bool{}
	for _, p := range paths {
		if err := CleanPath(p); err != nil {
			return nil, err
		}
		if known[p] {
			return nil, fmt.Errorf("path %q is there twice", p)
		}
		known[p] = true
		for d := path.Dir(p); d != "." && !folders[d]; d = path.Dir(d) {
			folders[d] = true
			dirs = append(dirs, d)
		}
	}
	for d := range folders {
		if known[d] {
			return nil, fmt.Errorf("path %q is a file and a folder", d)
		}
	}
	return dirs, nil
}

// Found is one regular file of a listed tree.
type Found struct {
	Path string // relative, with slashes
	Size int64
	Exec bool
}

// List finds the regular files of a folder, or the one file that root is (then its path is its base name), sorted by
// path. A link, a device, a socket or an unclean name is an error that names it. Total is the sum of sizes.
func List(root string) (found []Found, total int64, err error) {
	st, err := os.Lstat(root)
	if err != nil {
		return nil, 0, err
	}
	if st.Mode().IsRegular() {
		f := Found{filepath.Base(root), st.Size(), st.Mode()&0o100 != 0}
		return []Found{f}, f.Size, CleanPath(f.Path)
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !d.Type().IsRegular() {
			return fmt.Errorf("%.200q is neither a file nor a folder: links and devices cannot be kept", rel)
		}
		if err := CleanPath(rel); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if len(found) == record.MaxFiles {
			return fmt.Errorf("more than %d files", record.MaxFiles)
		}
		found = append(found, Found{rel, info.Size(), info.Mode()&0o100 != 0})
		total += info.Size()
		return nil
	})
	return found, total, err
}

// Copy copies one file to a new one; nothing is left of it when that fails.
func Copy(from, to string, exec bool) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	mode := fs.FileMode(0o644)
	if exec {
		mode = 0o755
	}
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(to) // the first error counts
	}
	return err
}

// CopyTree copies the listed files of root (a folder, or the file itself) below to, which must exist.
func CopyTree(root string, found []Found, to string) error {
	paths := make([]string, len(found))
	for i, f := range found {
		paths[i] = f.Path
	}
	dirs, err := Folders(paths)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(to, filepath.FromSlash(d)), 0o755); err != nil {
			return err
		}
	}
	st, err := os.Lstat(root)
	if err != nil {
		return err
	}
	for _, f := range found {
		from := root
		if st.IsDir() {
			from = filepath.Join(root, filepath.FromSlash(f.Path))
		}
		if err := Copy(from, filepath.Join(to, filepath.FromSlash(f.Path)), f.Exec); err != nil {
			return err
		}
	}
	return nil
}
