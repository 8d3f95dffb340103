package deploylane

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheDesignsNameTestsThatExist: every test that a DESIGN.md of the lane names exists; in the table of promises in the very folder
// that stands before it.
func TestTheDesignsNameTestsThatExist(t *testing.T) {
	there := map[string]bool{} // by name, and by folder and name
	def := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w+)\(`)
	var designs []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && strings.HasPrefix(path, "../deploylane/") && d.Name() == "DESIGN.md" {
			designs = append(designs, path)
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range def.FindAllStringSubmatch(string(b), -1) {
			there[m[1]], there[filepath.Dir(path)+" "+m[1]] = true, true
		}
		return err
	})
	if err != nil || len(designs) < 5 {
		t.Fatal(designs, err)
	}
	name := regexp.MustCompile(`(?:([\w./-]+)(?:, on a server)?: )?\b((?:Test|Fuzz)[A-Z]\w+)\b`)
	for _, path := range designs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			if !there[m[2]] {
				t.Errorf("%s: there is no %s", path, m[2])
			}
		}
	}
	b, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(b), "\n## What is promised")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[4], "Test") {
			continue
		}
		rows++
		for group := range strings.SplitSeq(cells[4], ";") {
			folder := "."
			for _, m := range name.FindAllStringSubmatch(group, -1) {
				if m[1] != "" {
					folder = filepath.Clean(m[1])
				}
				if at := filepath.Join("../deploylane", folder); !there[at+" "+m[2]] {
					t.Errorf("the promise %s: %s has no %s", strings.TrimSpace(cells[2]), at, m[2])
				}
			}
		}
	}
	if !found || rows < 30 {
		t.Errorf("%d promises", rows)
	}
}
