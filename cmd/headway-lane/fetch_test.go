package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAppear: what is fetched is there with its attestation, or nothing is; what lay in the attestation's place is not touched.
func TestAppear(t *testing.T) {
	for name, c := range map[string]struct {
		before func(beside, other string) error
		says   string
	}{
		"nothing there": {},
		"a file":        {func(beside, _ string) error { return os.WriteFile(beside, []byte("mine"), 0o600) }, "is there already"},
		"a folder":      {func(beside, _ string) error { return os.Mkdir(beside, 0o700) }, "is there already"},
		"a link":        {func(beside, other string) error { return os.Symlink(other, beside) }, "is there already"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			part, folder, other := filepath.Join(dir, ".part"), filepath.Join(dir, "model"), filepath.Join(dir, "other")
			beside := folder + "." + attestationFile
			if err := os.Mkdir(part, 0o700); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				if err := c.before(beside, other); err != nil {
					t.Fatal(err)
				}
			}
			was, _ := os.Lstat(beside)
			err := appear(part, folder, beside, []byte("signed"))
			if c.says == "" {
				b, _ := os.ReadFile(beside)
				if i, _ := os.Stat(folder); err != nil || i == nil || string(b) != "signed" {
					t.Errorf("%v, %q", err, b)
				}
				return
			}
			now, gone := os.Lstat(beside)
			if err == nil || !strings.Contains(err.Error(), c.says) || gone != nil || !os.SameFile(was, now) || was.Size() != now.Size() {
				t.Errorf("%v; %v, %v", err, now, gone)
			}
			for _, p := range []string{folder, other} {
				if _, err := os.Lstat(p); !os.IsNotExist(err) {
					t.Errorf("%s is there: %v", p, err)
				}
			}
		})
	}
}
