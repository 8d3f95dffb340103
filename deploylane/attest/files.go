package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// FilesDiffer is a folder that does not hold what was attested: nothing more, nothing less.
type FilesDiffer struct {
	Missing []string
	Changed []string
	Extra   []string // files that nobody attested
	Odd     []string // links and devices, which are never followed
}

func (e *FilesDiffer) Error() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"changed", e.Changed}, {"missing", e.Missing}, {"not in the attestation", e.Extra}, {"no regular file", e.Odd}} {
		if n := len(p.names); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%.120q%s)", n, p.what, p.names[0], []string{"", ", …"}[min(n-1, 1)]))
		}
	}
	return "the files are not those that were attested: " + strings.Join(parts, "; ") + "; fetch the release again, and do not load these"
}

// maxListed bounds what FilesDiffer names of each sort.
const maxListed = 1000

// CheckFiles hashes every file below dir and holds it against the statement. Links are not followed, and nothing outside dir
// is read. The error is a *FilesDiffer, or the system's.
func CheckFiles(s Statement, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	want := map[string]string{}
	for _, f := range s.Subject {
		want[f.Name] = f.Digest.SHA256
	}
	bad := &FilesDiffer{}
	add := func(to *[]string, name string) {
		if len(*to) < maxListed {
			*to = append(*to, name)
		}
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			add(&bad.Odd, name)
			return nil
		}
		sum, attested := want[name]
		if !attested {
			add(&bad.Extra, name)
			return nil
		}
		delete(want, name)
		got, err := hashFile(root, name)
		if err != nil {
			return err
		}
		if got != sum {
			add(&bad.Changed, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range s.Subject { // in their order
		if _, missing := want[f.Name]; missing {
			add(&bad.Missing, f.Name)
		}
	}
	if len(bad.Missing)+len(bad.Changed)+len(bad.Extra)+len(bad.Odd) > 0 {
		return bad
	}
	return nil
}

func hashFile(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() { // swapped since the walk
		return "", fmt.Errorf("%s is no regular file", name)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
