package fetch

import (
	"archive/tar"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Bounds of a code bundle.
const (
	MaxBundle      = 1 << 30 // bytes unpacked
	MaxBundleFiles = 50_000
	zstdWindow     = 128 << 20 // bytes of memory that a hostile frame may ask for
)

// BadBundle is a code bundle that is not what its name says, or that holds what a bundle may not.
type BadBundle struct {
	Tree string
	Err  error
}

func (e *BadBundle) Error() string {
	return fmt.Sprintf("code bundle %s: %v (delete it: the next launch uploads it again from the commit)", record.CodeKey(e.Tree), e.Err)
}

// Unwrap returns the cause.
func (e *BadBundle) Unwrap() error { return e.Err }

// Bundle unpacks the code bundle of a Git tree into dir, which must exist and be empty, and recomputes the tree's id
// from what it wrote. *BadBundle when it is missing, malformed or other code; dir then holds leftovers that must not
// be run. *files.DiskFull when there is no space.
func Bundle(ctx context.Context, s Store, tree, dir string, tell Progress) error {
	algo, err := treeHash(tree)
	if err != nil {
		return &BadBundle{tree, err}
	}
	return again(ctx, func() error {
		err := bundle(ctx, s, tree, algo, dir, tell)
		if e, ok := errors.AsType[*files.DiskFull](err); ok {
			return permanent{e}
		}
		if bucket.Is(err, bucket.NotFound) {
			return permanent{&BadBundle{tree, err}}
		}
		return err
	})
}

func treeHash(tree string) (func() hash.Hash, error) {
	if _, err := hex.DecodeString(tree); err == nil {
		switch len(tree) {
		case 40:
			return sha1.New, nil
		case 64:
			return sha256.New, nil
		}
	}
	return nil, fmt.Errorf("%.80q is no Git tree id", tree)
}

func bundle(ctx context.Context, s Store, tree string, algo func() hash.Hash, dir string, tell Progress) error {
	o, err := get(ctx, s, record.CodeKey(tree))
	if err != nil {
		return err
	}
	defer o.Body.Close()
	body := &counted{r: io.TeeReader(o.Body, tell)}
	z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(MaxBundle))
	if err != nil {
		return permanent{&BadBundle{tree, err}}
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	blobs, err := unpack(z, root, algo)
	switch {
	case err != nil && files.Full(err):
		return permanent{&files.DiskFull{What: "the code bundle", Need: o.Size, Free: files.Free(dir)}}
	case err != nil && body.n < o.Size && body.err != nil:
		return fmt.Errorf("read %s: %w", record.CodeKey(tree), err) // cut on the way: ask again
	case err != nil:
		return permanent{&BadBundle{tree, err}}
	}
	if got := treeID(blobs, algo); got != tree {
		return permanent{&BadBundle{tree, fmt.Errorf("it holds the tree %s", got)}}
	}
	return nil
}

// counted knows how much was read and whether reading failed.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil {
		c.err = err
	}
	return n, err
}

// blob is one unpacked file as a Git tree knows it.
type blob struct {
	path string
	exec bool
	sum  []byte
}

// unpack writes a plain tar of regular files. Anything else in it is an error.
func unpack(r io.Reader, root *os.Root, algo func() hash.Hash) ([]blob, error) {
	var out []blob
	seen, left := map[string]bool{}, int64(MaxBundle)
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeDir {
			if err := files.CleanPath(strings.TrimSuffix(h.Name, "/")); err != nil {
				return nil, err
			}
			continue // folders come into being with their files, as in Git
		}
		switch err := files.CleanPath(h.Name); {
		case err != nil:
			return nil, err
		case h.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%q is neither a file nor a folder (tar type %q)", h.Name, h.Typeflag)
		case seen[h.Name]:
			return nil, fmt.Errorf("%q is there twice", h.Name)
		case len(out) == MaxBundleFiles:
			return nil, fmt.Errorf("more than %d files", MaxBundleFiles)
		case h.Size > left:
			return nil, fmt.Errorf("more than %d bytes", int64(MaxBundle))
		case hidden(h.Name):
			return nil, fmt.Errorf("%q is Git's own", h.Name)
		}
		seen[h.Name] = true
		left -= h.Size
		b, err := unpackFile(t, h, root, algo)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
}

// hidden reports a part that Git keeps for itself, in any spelling of upper and lower case.
func hidden(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool { return strings.EqualFold(s, ".git") })
}

func unpackFile(r io.Reader, h *tar.Header, root *os.Root, algo func() hash.Hash) (blob, error) {
	b := blob{path: h.Name, exec: h.Mode&0o100 != 0}
	mode := fs.FileMode(0o644)
	if b.exec {
		mode = 0o755
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return b, err
	}
	w, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return b, err
	}
	sum := algo()
	fmt.Fprintf(sum, "blob %d\x00", h.Size)
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(r, h.Size))
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	b.sum = sum.Sum(nil)
	return b, err
}

// treeID computes the id that Git gives to a folder with these files: each tree is the list of its entries, sorted as
// if folders' names ended in a slash. Paths are clean and distinct.
func treeID(files []blob, algo func() hash.Hash) string {
	return hex.EncodeToString(treeSum("", files, algo))
}

func treeSum(prefix string, files []blob, algo func() hash.Hash) []byte {
	type entry struct {
		sort, mode, name string
		sum              []byte
	}
	var entries []entry
	below := map[string][]blob{}
	for _, f := range files {
		name, _, deeper := strings.Cut(f.path[len(prefix):], "/")
		if deeper {
			below[name] = append(below[name], f)
			continue
		}
		mode := "100644"
		if f.exec {
			mode = "100755"
		}
		entries = append(entries, entry{name, mode, name, f.sum})
	}
	for name, inside := range below {
		entries = append(entries, entry{name + "/", "40000", name, treeSum(prefix+name+"/", inside, algo)})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.sort, b.sort) })
	var body []byte
	for _, e := range entries {
		body = append(body, e.mode+" "+e.name+"\x00"...)
		body = append(body, e.sum...)
	}
	h := algo()
	fmt.Fprintf(h, "tree %d\x00", len(body))
	h.Write(body)
	return h.Sum(nil)
}
