package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

var work = strings.Repeat("ab", 32)

func put(t *testing.T, b bucket.Bucket, key string, data []byte) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bytes.NewReader(data), bucket.Always()); err != nil {
		t.Fatal(err)
	}
}

type member struct {
	name, data string
	mode       int64
	kind       byte
}

func pack(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	z, _ := zstd.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: m.mode, Size: int64(len(m.data)), Typeflag: m.kind}
		if m.kind == tar.TypeSymlink || m.kind == tar.TypeLink {
			h.Linkname, h.Size = "/etc/passwd", 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = io.WriteString(w, m.data)
		}
	}
	_ = w.Close()
	_ = z.Close()
	return out.Bytes()
}

func file5() []member { // git write-tree says c4ae2a39…
	return []member{
		{"a/b/x", "hello\n", 0o644, tar.TypeReg}, {"run.sh", "#!/bin/sh\n", 0o755, tar.TypeReg}, {"a.txt", "", 0o644, tar.TypeReg},
		{"a.d/z", "z", 0o644, tar.TypeReg}, {"a-b", "q", 0o644, tar.TypeReg},
	}
}

const tree5 = "c4ae2a393c247f3639dc59d599a47c9ad0c1d9b6"

func TestBundle(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	put(t, b, record.CodeKey(tree5), pack(t, file5()...))
	if err := Bundle(t.Context(), b, tree5, dir, nil); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(filepath.Join(dir, "a/b/x"))
	st, err := os.Stat(filepath.Join(dir, "run.sh"))
	if string(got) != "hello\n" || err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Errorf("unpacked %q, run.sh %v %v", got, st, err)
	}
}

func TestHostileBundles(t *testing.T) {
	with := func(m ...member) []byte { return pack(t, append(file5(), m...)...) }
	for name, data := range map[string][]byte{
		"other code":     with(member{"extra", "1", 0o644, tar.TypeReg}),
		"mode changed":   pack(t, append(file5()[1:], member{"a/b/x", "hello\n", 0o755, tar.TypeReg})...),
		"symlink":        with(member{"l", "", 0o777, tar.TypeSymlink}),
		"hard link":      with(member{"l", "", 0o777, tar.TypeLink}),
		"device":         with(member{"d", "", 0o777, tar.TypeChar}),
		"absolute":       with(member{"/etc/x", "1", 0o644, tar.TypeReg}),
		"climbs":         with(member{"../x", "1", 0o644, tar.TypeReg}),
		"climbs inside":  with(member{"a/../../x", "1", 0o644, tar.TypeReg}),
		"twice":          with(member{"a-b", "q", 0o644, tar.TypeReg}),
		"file as folder": with(member{"a-b/c", "q", 0o644, tar.TypeReg}),
		"hook":           with(member{".GIT/hooks/x", "q", 0o755, tar.TypeReg}),
		"backslash":      with(member{`a\b`, "q", 0o644, tar.TypeReg}),
		"no zstd":        []byte("hello"),
		"empty":          {},
		"cut":            with()[:40],
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			put(t, b, record.CodeKey(tree5), data)
			err := Bundle(t.Context(), b, tree5, t.TempDir(), nil)
			if _, ok := errors.AsType[*BadBundle](err); !ok {
				t.Errorf("got %v, want BadBundle", err)
			}
		})
	}
	if _, ok := errors.AsType[*BadBundle](Bundle(t.Context(), mem.New(), tree5, t.TempDir(), nil)); !ok {
		t.Error("an absent bundle is no BadBundle")
	}
	if _, ok := errors.AsType[*BadBundle](Bundle(t.Context(), mem.New(), "../../x", t.TempDir(), nil)); !ok {
		t.Error("a tree id that is none was asked for")
	}
}

// snapshot writes a milestone and returns its pointer; edit changes the manifest before it is hashed.
func snapshot(t *testing.T, b bucket.Bucket, files map[string]string, edit func(*record.Manifest)) record.Pointer {
	t.Helper()
	m := record.Manifest{Protocol: 1, Work: work, Attempt: 2, Milestone: 3, Step: 40}
	for p, data := range files {
		put(t, b, record.MilestonePrefix(work, 2, 3)+p, []byte(data))
		m.Files = append(m.Files, record.File{Path: p, Size: int64(len(data)), SHA256: record.Hash([]byte(data))})
	}
	if edit != nil {
		edit(&m)
	}
	raw, err := record.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	key := record.MilestoneManifestKey(work, 2, 3)
	put(t, b, key, raw)
	return record.Pointer{Attempt: 2, Milestone: 3, Step: 40, Manifest: key, SHA256: record.Hash(raw)}
}

func TestSnapshot(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	p := snapshot(t, b, map[string]string{"opt/state": "abc", "model": "xyz"}, nil)
	var seen int64
	if _, err := Snapshot(t.Context(), b, work, p, dir, func(n int64) { seen += n }); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(filepath.Join(dir, "opt/state"))
	if string(got) != "abc" || seen != 6 {
		t.Errorf("got %q and %d bytes", got, seen)
	}
}

// Whatever is wrong with a named snapshot, it is Unreadable and names the file; never a fresh start.
func TestUnreadableSnapshots(t *testing.T) {
	files := map[string]string{"model": "xyz"}
	type c struct {
		edit func(*record.Manifest)
		harm func(b *mem.Bucket, p *record.Pointer)
		file string
	}
	model := record.MilestonePrefix(work, 2, 3) + "model"
	for name, c := range map[string]c{
		"flipped":      {harm: func(b *mem.Bucket, _ *record.Pointer) { put(t, b, model, []byte("xyZ")) }, file: "model"},
		"longer":       {harm: func(b *mem.Bucket, _ *record.Pointer) { put(t, b, model, []byte("xyzz")) }, file: "model"},
		"missing":      {harm: func(b *mem.Bucket, _ *record.Pointer) { _ = b.Delete(t.Context(), model) }, file: "model"},
		"no manifest":  {harm: func(b *mem.Bucket, p *record.Pointer) { _ = b.Delete(t.Context(), p.Manifest) }, file: "manifest.json"},
		"other hash":   {harm: func(_ *mem.Bucket, p *record.Pointer) { p.SHA256 = strings.Repeat("0", 64) }, file: "manifest.json"},
		"other prefix": {harm: func(_ *mem.Bucket, p *record.Pointer) { p.Manifest = "lane/x/manifest.json" }, file: "manifest.json"},
		"climbs":       {edit: func(m *record.Manifest) { m.Files[0].Path = "../../x" }, file: "manifest.json"},
		"absolute":     {edit: func(m *record.Manifest) { m.Files[0].Path = "/etc/x" }, file: "manifest.json"},
		"twice":        {edit: func(m *record.Manifest) { m.Files = append(m.Files, m.Files[0]) }, file: "manifest.json"},
		"negative":     {edit: func(m *record.Manifest) { m.Files[0].Size = -1 }, file: "manifest.json"},
		"overflow":     {edit: func(m *record.Manifest) { m.Files[0].Size = 1 << 62 }, file: "manifest.json"},
		"other step":   {edit: func(m *record.Manifest) { m.Step = 41 }, file: "manifest.json"},
		"other work":   {edit: func(m *record.Manifest) { m.Work = strings.Repeat("cd", 32) }, file: "manifest.json"},
		"newer":        {edit: func(m *record.Manifest) { m.Protocol = 2 }, file: "manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			p := snapshot(t, b, files, c.edit)
			if c.harm != nil {
				c.harm(b, &p)
			}
			_, err := Snapshot(t.Context(), b, work, p, t.TempDir(), nil)
			e, ok := errors.AsType[*Unreadable](err)
			if !ok || e.File != c.file {
				t.Errorf("got %v, want Unreadable at %s", err, c.file)
			}
		})
	}
}

func TestTenTerabytesAreRefusedBeforeTheFirstByte(t *testing.T) {
	b := mem.New()
	p := snapshot(t, b, map[string]string{"model": "xyz"}, func(m *record.Manifest) { m.Files[0].Size = 10 << 40 })
	_, err := Snapshot(t.Context(), b, work, p, t.TempDir(), nil)
	e, ok := errors.AsType[*files.DiskFull](err)
	if !ok || e.Need != 10<<40 {
		t.Errorf("got %v, want DiskFull with the bytes needed", err)
	}
}

// flaky fails the first n gets of every key in the way of a cut connection.
type flaky struct {
	Store
	left map[string]int
	n    int
}

func (f *flaky) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if _, ok := f.left[key]; !ok {
		f.left[key] = f.n
	}
	o, err := f.Store.Get(ctx, key, r)
	if f.left[key]--; f.left[key] >= 0 && err == nil {
		o.Body = io.NopCloser(io.LimitReader(o.Body, o.Size/2)) // cut
	}
	return o, err
}

func TestCutBodiesAreAskedForAgain(t *testing.T) {
	b := mem.New()
	p := snapshot(t, b, map[string]string{"model": "xyz"}, nil)
	put(t, b, record.CodeKey(tree5), pack(t, file5()...))
	d1, d2, d3 := t.TempDir(), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{b, map[string]int{}, 2}
		if _, err := Snapshot(t.Context(), f, work, p, d1, nil); err != nil {
			t.Error(err)
		}
		if err := Bundle(t.Context(), f, tree5, d2, nil); err != nil {
			t.Error(err)
		}
		_, err := Snapshot(t.Context(), &flaky{b, map[string]int{}, 99}, work, p, d3, nil)
		if _, ok := errors.AsType[*Unreadable](err); !ok {
			t.Errorf("always cut: %v", err)
		}
	})
}

func TestTreeID(t *testing.T) {
	algo, err := treeHash(tree5)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("4b825dc642cb6eb9a060e54bf8d69288fbee4904", treeID(nil, algo)); d != "" {
		t.Error("the empty tree: ", d)
	}
}
