package reconcile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that DESIGN.md names exists, here or in the folder that it names.
func TestTheDesignNamesTestsThatExist(t *testing.T) {
	there := map[string]bool{}
	def := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range def.FindAllStringSubmatch(string(b), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+(…)?`).FindAllString(string(b), -1)
	if len(named) < 150 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, n := range named {
		if !strings.HasSuffix(n, "…") && !there[n] {
			t.Errorf("there is no %s", n)
		}
	}
}
