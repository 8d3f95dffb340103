package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// amplifier is a plan file whose few lines stand for much, and the code that refuses it under amplifierLimits.
type amplifier struct{ text, code string }

// amplifierLimits are bounds that a test can cross. (Table of values.)
var amplifierLimits = limits{jobs: 5000, inputs: 20_000, copied: 100_000, canonical: 32 << 20}

func amplifiers() map[string]amplifier {
	keys := func(n, size int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: %s, ", i, strings.Repeat("v", size))
		}
		return b.String()
	}
	var likes, groups strings.Builder
	likes.WriteString("jobs:\n  b: {run: x, params: {" + keys(250, 4) + "}}\n")
	for i := range 500 {
		fmt.Fprintf(&likes, "  j%d: {like: b, params: {a: 1}}\n", i)
	}
	groups.WriteString("jobs:\n  g: {run: x, matrix: {seed: [" + strings.Join(numbers(150), ", ") + "]}}\n")
	groups.WriteString("  h: {run: \"y ${needs.g}\", needs: [g], matrix: {seed: [" + strings.Join(numbers(150), ", ") + "]}}\n")
	return map[string]amplifier{
		"like of a big map": {likes.String(), "PlanTooLarge"},
		"group by group":    {groups.String(), "TooManyNeeds"},
		"needs of a big group": {"jobs:\n  g: {run: x, matrix: {seed: [" + strings.Join(numbers(1001), ", ") + "]}}\n  h: {run: y1, needs: [g]}\n",
			"TooManyNeeds"},
		"matrix of a big map": {"jobs:\n  a: {run: x, params: {" + keys(200, 200) + "}, matrix: {params.k1: [" + strings.Join(numbers(4000), ", ") + "]}}\n",
			"MatrixTooLarge"},
		"too many keys":     {"jobs:\n  a: {run: x, params: {" + keys(300, 2) + "}}\n", "TooLong"},
		"long text":         {"jobs:\n  a: {run: x, notes: " + strings.Repeat("n", 20_000) + "}\n", "TooLong"},
		"big identity":      {"jobs:\n  a: {run: x, params: {" + keys(200, 400) + "}}\n", "TooLong"},
		"many big matrices": {manyMatrices(), "TooManyJobs"},
	}
}

// TestAmplification bounds what a few lines may be expanded to by like, matrix and needs.
func TestAmplification(t *testing.T) {
	for name, c := range amplifiers() {
		t.Run(name, func(t *testing.T) {
			tree := NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": c.text, "plans/good.yaml": goodFile})
			if len(c.text) > MaxFileBytes {
				t.Fatalf("%d bytes: the size alone refuses it", len(c.text))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, ps := load(tree, amplifierLimits)
			runtime.ReadMemStats(&after)
			used := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d KiB of file, %d MiB allocated", len(c.text)>>10, used)
			if used > 64 {
				t.Errorf("%d MiB were allocated", used)
			}
			if !slices.ContainsFunc(ps, func(q Problem) bool { return q.Code == c.code }) {
				t.Errorf("no %s among %v", c.code, ps[:min(5, len(ps))])
			}
			if _, ok := p.Job("good"); !ok && c.code != "PlanTooLarge" {
				t.Error("the good file was not read")
			}
		})
	}
}

func manyMatrices() string {
	s := "jobs:\n  a: {run: x, matrix: {seed: [" + strings.Join(numbers(900), ",") + "]}}\n"
	for i := range 10 {
		s += fmt.Sprintf("  a%d: {like: a, run: y%d}\n", i, i)
	}
	return s
}

// faultyTree fails for one path.
type faultyTree struct {
	Tree
	path string
	err  error
}

func (f faultyTree) Entries(dir string) ([]Entry, error) {
	if dir == f.path {
		return nil, f.err
	}
	return f.Tree.Entries(dir)
}

func (f faultyTree) Read(p string, max int64) ([]byte, error) {
	if p == f.path {
		return nil, f.err
	}
	return f.Tree.Read(p, max)
}

// TestAMissingObjectIsNoDeletion: whatever cannot be read is an error, also when the reader says "not found", because
// it was listed. Otherwise a half-written pack would stop running jobs.
func TestAMissingObjectIsNoDeletion(t *testing.T) {
	tree := NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/team/p.yaml": goodFile, "plans/q.yaml": "jobs:\n  a: {run: x2, code: ../train}\n", "train/sub/x": "1"})
	for _, path := range []string{"", ConfigFile, "plans", "plans/team", "plans/team/p.yaml", "train", "train/sub", "train/sub/x"} {
		for _, err := range []error{fs.ErrNotExist, errors.New("pack is broken")} {
			p, ps := Load(faultyTree{tree, path, fmt.Errorf("object: %w", err)})
			if p.OK() {
				t.Errorf("%q unreadable (%v), and the plan is fine", path, err)
			}
			if !slices.ContainsFunc(ps, func(q Problem) bool { return q.Code == "Unreadable" }) {
				t.Errorf("%q: %v", path, ps)
			}
		}
	}
}
