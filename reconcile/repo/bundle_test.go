package repo

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
)

// unpack reads an archive as the format describes it: header fields in one line each, and the files.
func unpack(t testing.TB, b []byte) (headers []string, content map[string]string) {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	content = map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, content
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[h.Name] = string(body)
		headers = append(headers, fmt.Sprintf("%c %04o %d:%d %q%q %d %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime.Unix(), h.Name))
	}
}

func TestBundleFormat(t *testing.T) {
	o := newOrigin(t)
	long := strings.Repeat("long/", 40) + strings.Repeat("n", 120) + "ü.py"
	content := files("code/train.py", "print(1)\n", "code/lib/a.py", "a", "code/lib.py", "b", "code/empty", "", "other/x", "no", "code/"+long, "deep")
	content["code/run.sh"] = file{exec: true, body: "#!/bin/sh\n"}
	o.commit("main", "a", content)
	tr := headTree(t, watch(t, Options{Remote: o.dir}))
	got, err := Pack(t.Context(), tr, "code")
	if err != nil {
		t.Fatal(err)
	}
	headers, inside := unpack(t, got.Bytes)
	want := []string{`0 0644 0:0 """" 0 empty`, `0 0644 0:0 """" 0 lib.py`, `0 0644 0:0 """" 0 lib/a.py`, `0 0644 0:0 """" 0 ` + long,
		`0 0755 0:0 """" 0 run.sh`, `0 0644 0:0 """" 0 train.py`}
	if d := cmp.Diff(want, headers); d != "" {
		t.Errorf("headers (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"train.py": "print(1)\n", "lib/a.py": "a", "lib.py": "b", "empty": "", "run.sh": "#!/bin/sh\n", long: "deep"}, inside); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	sum := sha256.Sum256(got.Bytes)
	meta := got
	meta.Bytes = nil
	wantMeta := Bundle{Tree: gitCLI(t, o.dir, "rev-parse", "main:code"), SHA256: hex.EncodeToString(sum[:]), Files: 6, Size: 9 + 1 + 1 + 4 + 10}
	if d := cmp.Diff(wantMeta, meta); d != "" {
		t.Errorf("bundle (-want +got):\n%s", d)
	}
	if whole, err := Pack(t.Context(), tr, ""); err != nil || whole.Tree != tr.Hash() || whole.Files != 7 {
		t.Errorf("the root: %s, %d files, %v", whole.Tree, whole.Files, err)
	}
}

// TestBundleBytesAreFixed: the bytes depend on the tree alone, whatever it is read from; the digest below was taken
// once, and a change of it means that every stored bundle changes its bytes.
func TestBundleBytesAreFixed(t *testing.T) {
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("f%03d.py", i), strings.Repeat(fmt.Sprintf("line %d\n", i), i))
	}
	o, other := newOrigin(t), newOrigin(t)
	o.packed(files(many...))
	a := o.commit("main", "a", files(many...))
	for i := range many {
		if i%2 == 0 {
			many[i] = "moved/" + many[i]
		}
	}
	other.packed(files(many...))
	other.commit("main", "another commit, another folder", files(many...))
	dir := t.TempDir()
	write(t, dir, many...)
	fromCommit, err := Pack(t.Context(), headTree(t, watch(t, Options{Remote: o.dir})), "")
	if err != nil {
		t.Fatal(err)
	}
	overHTTP, err := Pack(t.Context(), headTree(t, watch(t, Options{Remote: serve(t, other).address()})), "moved")
	if err != nil {
		t.Fatal(err)
	}
	fromDisk, err := Pack(t.Context(), open(t, dir), "moved")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]Bundle{"over HTTP": overHTTP, "from disk": fromDisk} {
		if d := cmp.Diff(fromCommit, b); d != "" {
			t.Errorf("%s (-commit +other):\n%s", name, d)
		}
	}
	if got := gitCLI(t, o.dir, "rev-parse", a+"^{tree}"); got != fromCommit.Tree {
		t.Errorf("tree %s, git says %s", fromCommit.Tree, got)
	}
	const known = "56bac7411ddad4ff511dbe607630f4a07c08fd90a3f615c507e6b4416bb372a2"
	if fromCommit.SHA256 != known {
		t.Errorf("sha256 %s, was %s", fromCommit.SHA256, known)
	}
}

func TestBundleRefusals(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir})
	link := files("c/a", "1")
	link["c/l"] = file{kind: plan.KindLink, body: "a"}
	module := files("c/a", "1")
	module["c/d/m"] = file{kind: plan.KindSubmodule, body: strings.Repeat("ab", 20)}
	n := 0
	for text, content := range map[string]map[string]file{
		`"c/l" cannot go into a code bundle: it is a symbolic link`: link,
		`"c/d/m" cannot go into a code bundle: it is a submodule`:   module,
		"Git LFS pointer":           files("c/model.bin", lfsPointer+"v1\noid sha256:00\nsize 12\n"),
		"control character":         files("c/a\nb", "1"),
		"not UTF-8":                 files("c/\xff", "1"),
		"a backslash":               files(`c/a\b`, "1"),
		"a disguise of .git":        files("c/.GIT/config", "1"),
		"differs from":              files("c/Readme", "1", "c/readme", "2"),
		`"c/d/.." cannot go into`:   files("c/d/..", "1"),
		"longer than 255":           files("c/"+strings.Repeat("x", 256), "1"),
		"\"c\" is a file, expected": files("c", "1"),
	} {
		n++
		c := o.commitTree(o.tree(content), fmt.Sprint(n))
		tr, err := r.Tree(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Pack(t.Context(), tr, "c")
		if class(err) != NotAllowed || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	tr, err := r.Tree(o.commitTree(o.tree(files("x", "1")), "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(t.Context(), tr, "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent folder: %v", err)
	}
	if _, err := Pack(t.Context(), open(t, t.TempDir()), ""); class(err) != NotAllowed || !strings.Contains(err.Error(), "no files") {
		t.Errorf("empty folder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pack(ctx, tr, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// huge is a tree with one file that says it is as large as asked.
type huge struct{ size int64 }

func (h huge) Entries(string) ([]plan.Entry, error) {
	return []plan.Entry{{Name: "x", Hash: strings.Repeat("0", 40), Size: h.size}}, nil
}

func (h huge) Read(_ string, max int64) ([]byte, error) {
	if h.size > max {
		return nil, &Error{Class: TooLarge}
	}
	return nil, errors.New("read although it is too large")
}

func TestBundleTooLarge(t *testing.T) {
	_, err := Pack(t.Context(), huge{MaxBundle + 1}, "")
	if class(err) != TooLarge || !strings.Contains(err.Error(), "268435456 bytes") || !strings.Contains(err.Error(), "keep data out") {
		t.Errorf("got %v", err)
	}
}

// TestBundleOfChangingFiles: a file that is edited between listing and packing is noticed.
func TestBundleOfChangingFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x", "before")
	w := open(t, dir)
	if _, err := w.Entries(""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("after!"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(t.Context(), w, ""); class(err) != Corrupt || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("got %v", err)
	}
}

func TestTrailers(t *testing.T) {
	for message, want := range map[string]Trailers{
		"":                                  {AllowStops: -1},
		"Allow-Stops: 3":                    {AllowStops: -1}, // a subject is no trailer
		"subject\n\nAllow-Stops: 3":         {AllowStops: 3},
		"subject\n\nAllow-Stops: 0\n":       {AllowStops: 0},
		"subject\r\n\r\nallow-stops:12\r\n": {AllowStops: 12},
		"s\n\nbody\n\nAllow-Empty: yes\nX-Y: z\n\n":                       {AllowStops: -1, AllowEmpty: true},
		"s\n\nAllow-Stops: 3\n\nlast paragraph":                           {AllowStops: -1},
		"s\n\nplease\nAllow-Stops: 3":                                     {AllowStops: -1},
		"s\n\nAllow-Replace: a, b-seed=1 ,c":                              {AllowStops: -1, AllowReplace: []string{"a", "b-seed=1", "c"}},
		"s\n\nallow-replace: 12":                                          {AllowStops: -1, AllowReplace: []string{"12"}},
		"s\n\nSigned-off-by: A\n <a@b>\nAllow-Stops: 1\nAllow-Empty: yes": {AllowStops: 1, AllowEmpty: true},
	} {
		if d := cmp.Diff(want, ParseTrailers(message)); d != "" {
			t.Errorf("%q (-want +got):\n%s", message, d)
		}
	}
	for message, text := range map[string]string{
		"s\n\nAllow-Stops: all":                               "expected the exact number",
		"s\n\nAllow-Stops: -1":                                "expected the exact number",
		"s\n\nAllow-Stops: 1.5":                               "expected the exact number",
		"s\n\nAllow-Stops: 99999999999":                       "expected the exact number",
		"s\n\nAllow-Stops:":                                   "expected the exact number",
		"s\n\nAllow-Stops: 2\nAllow-Stops: 2":                 "Allow-Stops twice",
		"s\n\nAllow-Stops: 2\nAllow-Stops: 2\nAllow-Stops: 2": "Allow-Stops twice",
		"s\n\nAllow-Empty: no":                                "expected yes",
		"s\n\nAllow-Empty: yes\nallow-empty: yes":             "allow-empty twice",
		"s\n\nAllow-Replace:":                                 "expected the names",
		"s\n\nAllow-Replace: a, b c":                          "expected the names",
		"s\n\nAllow-Replace: a,,b":                            "expected the names",
		"s\n\nAllow-Replace: a\nAllow-Replace: b":             "Allow-Replace twice",
	} {
		got := ParseTrailers(message)
		if got.AllowStops != -1 || got.AllowEmpty || got.AllowReplace != nil || len(got.Problems) == 0 || !strings.Contains(strings.Join(got.Problems, "|"), text) {
			t.Errorf("%q: %+v, want %q", message, got, text)
		}
	}
}

// TestTrailersAgainstGit: git finds the same trailers in messages made at random of the pieces that matter.
func TestTrailersAgainstGit(t *testing.T) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > 20 {
			return // each case starts a process
		}
		piece := rapid.SampledFrom([]string{"subject", "", "", "Allow-Stops: 3", "Key: value", "two words: x", "text", "Allow-Empty: yes"})
		message := "subject\n" + strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(rt, "lines"), "\n") + "\n"
		ours := ParseTrailers(message)
		file := filepath.Join(t.TempDir(), "m")
		if err := os.WriteFile(file, []byte(message), 0o644); err != nil {
			rt.Fatal(err)
		}
		parsed := "\n" + gitCLI(t, t.TempDir(), "interpret-trailers", "--parse", file) + "\n"
		theirs := strings.Count(parsed, "\nAllow-Stops: 3\n") == 1
		if ours.AllowStops == 3 && !theirs {
			rt.Fatalf("%q: ours %+v, git %q", message, ours, parsed)
		}
	})
}
