package judge

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows is how many rows each part of the fault matrix has.
func rows() map[string]int {
	return map[string]int{"C": 15, "T": 11, "S": 25, "W": 7, "P": 13, "G": 11}
}

// TestMatrix: each row of the fault matrix names tests that exist, or is said to be injected nowhere, once.
func TestMatrix(t *testing.T) {
	b, err := os.ReadFile("../MATRIX.md")
	if err != nil {
		t.Fatal(err)
	}
	there, text := tests(t), string(b)
	injected, rest, _ := strings.Cut(text, "**Injected nowhere:**")
	rest, _, _ = strings.Cut(rest, "**The platforms' script**")
	row, name := regexp.MustCompile(`\b[CTSWPG][0-9]+\b`), regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	seen := map[string]bool{}
	for line := range strings.Lines(injected) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !row.MatchString(cells[1]) {
			continue
		}
		named := name.FindAllString(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("nothing injects %s", cells[1])
		}
		for _, n := range named {
			if !there[n] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), n)
			}
		}
		for _, r := range row.FindAllString(cells[1], -1) {
			if seen[r] {
				t.Errorf("%s stands there twice", r)
			}
			seen[r] = true
		}
	}
	missing := row.FindAllString(rest, -1)
	for part, n := range rows() {
		for i := 1; i <= n; i++ {
			if r := fmt.Sprint(part, i); !seen[r] && !slices.Contains(missing, r) {
				t.Errorf("%s is neither injected nor said to be injected nowhere", r)
			}
		}
	}
}

// tests are the names of all tests of the house.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	there, def := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
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
	return there
}
