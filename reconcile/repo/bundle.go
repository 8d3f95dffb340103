package repo

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/klauspost/compress/zstd"

	"github.com/headway-run/headway/plan"
)

// Bounds on a code bundle. Code is small; what is larger is data and belongs into the store as a dataset.
const (
	MaxBundle      = 256 << 20 // bytes of all files together
	MaxBundleFiles = 50_000
)

// Bundle is a folder of code as a worker unpacks it: a tar archive compressed with zstd (one frame with a checksum).
//
// The archive holds regular files only, sorted by path as bytes. A path is relative, clean, UTF-8, uses "/", has no
// element that is ".", ".." or a disguise of .git, and no control character or backslash; no two paths are equal when
// case is ignored, and none is a folder of another. Mode is 0644 or 0755, owner 0:0 without names, time 0. There are no
// folders, links, devices or empty folders. A reader must refuse anything else, and must stop at MaxBundle bytes and
// MaxBundleFiles files. Equal trees give equal bytes.
type Bundle struct {
	Tree   string // Git tree hash of the folder: the bundle's name in the store (record.CodeKey)
	Bytes  []byte
	SHA256 string // of Bytes, hex
	Files  int
	Size   int64 // of all files together
}

// Pack makes the bundle of a folder of a tree ("" is the root). Every file is held against its Git id, so the bundle is
// what its name says even when the tree is a work tree that somebody edits meanwhile. Links, submodules, Git LFS
// pointers, odd names and an empty folder are refused with an *Error.
func Pack(ctx context.Context, t plan.Tree, folder string) (Bundle, error) {
	p := &packer{ctx: ctx, from: t, lower: map[string]string{}}
	tree, err := p.collect(folder, "")
	if err != nil {
		return Bundle{}, err
	}
	if len(p.files) == 0 {
		return Bundle{}, &Error{Class: NotAllowed, Text: fmt.Sprintf("the code folder %q has no files", folder), Hint: "commit the code, or leave the folder out"}
	}
	slices.SortFunc(p.files, func(a, b packed) int { return strings.Compare(a.path, b.path) })
	var out bytes.Buffer
	// One goroutine and fixed settings: the bytes must not depend on the machine.
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(true),
		zstd.WithWindowSize(4<<20))
	if err != nil {
		return Bundle{}, err
	}
	if err := p.write(tar.NewWriter(z), folder); err != nil {
		_ = z.Close() // the bytes are thrown away
		return Bundle{}, err
	}
	if err := z.Close(); err != nil {
		return Bundle{}, err
	}
	sum := sha256.Sum256(out.Bytes())
	return Bundle{Tree: tree, Bytes: out.Bytes(), SHA256: hex.EncodeToString(sum[:]), Files: len(p.files), Size: p.size}, nil
}

type packed struct {
	path string
	e    plan.Entry
}

type packer struct {
	ctx   context.Context
	from  plan.Tree
	files []packed
	lower map[string]string // path in lower case → as written
	size  int64
}

// collect lists all files below the folder's sub-folder rel, and returns the tree hash that their ids add up to.
func (p *packer) collect(folder, rel string) (string, error) {
	if err := p.ctx.Err(); err != nil {
		return "", err
	}
	list, err := p.from.Entries(under(folder, rel))
	if err != nil {
		return "", err
	}
	for _, e := range list {
		at := under(rel, e.Name)
		if why := oddName(e.Name); why != "" {
			return "", refuse(folder, at, "its name "+why, "rename it")
		}
		low := strings.ToLower(at)
		if other, twice := p.lower[low]; twice {
			return "", refuse(folder, at, fmt.Sprintf("it differs from %q only in case", other), "rename one of them")
		}
		p.lower[low] = at
		switch e.Kind {
		case plan.KindLink:
			return "", refuse(folder, at, "it is a symbolic link", "links are never followed: commit the file itself")
		case plan.KindSubmodule:
			return "", refuse(folder, at, "it is a submodule", "commit the files themselves")
		case plan.KindDir:
			below, err := p.collect(folder, at)
			if err != nil {
				return "", err
			}
			if below != e.Hash {
				return "", &Error{Class: Corrupt, Text: fmt.Sprintf("the folder %q has the id %s and its files make %s", under(folder, at), e.Hash, below), Hint: "read the tree again"}
			}
		default:
			p.files = append(p.files, packed{at, e})
		}
		if len(p.files) > MaxBundleFiles {
			return "", &Error{Class: TooLarge, Text: fmt.Sprintf("the code folder %q has more than %d files", folder, MaxBundleFiles), Hint: "keep data out of it"}
		}
	}
	return treeHash(list), nil
}

// under joins two paths as they are: path.Join would hide an entry named "..".
func under(dir, name string) string {
	if dir == "" || name == "" {
		return dir + name
	}
	return dir + "/" + name
}

func refuse(folder, at, why, hint string) *Error {
	return &Error{Class: NotAllowed, Text: fmt.Sprintf("%q cannot go into a code bundle: %s", under(folder, at), why), Hint: hint}
}

// lfsPointer starts the text that Git LFS leaves in place of a file.
const lfsPointer = "version https://git-lfs.github.com/spec/"

func (p *packer) write(w *tar.Writer, folder string) error {
	for _, f := range p.files {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		full := under(folder, f.path)
		b, err := p.from.Read(full, MaxBundle-p.size)
		if e, large := asClass(err, TooLarge); large {
			e.Text = fmt.Sprintf("the code folder %q has more than %d bytes", folder, int64(MaxBundle))
			e.Hint = "keep data out of it"
			return e
		}
		if err != nil {
			return err
		}
		if got := plumbing.ComputeHash(plumbing.BlobObject, b).String(); got != f.e.Hash {
			return &Error{Class: Corrupt, Text: fmt.Sprintf("%q changed while it was packed", full), Hint: "try again when nothing writes to it"}
		}
		if bytes.HasPrefix(b, []byte(lfsPointer)) && len(b) < 1024 {
			return refuse(folder, f.path, "it is a Git LFS pointer, not the file", "take it out of LFS, or make it a dataset")
		}
		mode := fs.FileMode(0o644)
		if f.e.Exec {
			mode = 0o755
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(b)), Mode: int64(mode), ModTime: time.Unix(0, 0).UTC()}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("pack %q: %w", full, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		p.size += int64(len(b))
	}
	return w.Close()
}
